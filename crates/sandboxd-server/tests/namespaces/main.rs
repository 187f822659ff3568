//! Tries the namespaces backend with its embedded programs on this host.
//!
//! Most of it needs root and says so; as root nothing is skipped but for what needs another kernel, which runs in
//! `cargo xtask vm`. What an ordinary user gets is tried by running the same
//! test again as one.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test ends where something is not as it should be, and says what it cannot try here"
)]

mod accounts;
mod bad_registry;
mod files;
mod images;
mod layered;
mod leftovers;
mod limits;
mod memory_root;
mod ordinary;
mod parked;
mod parked_crash;
mod pulled;
mod quota;
mod readers;
mod recipes;
mod registry;
mod rented;
mod walls;
