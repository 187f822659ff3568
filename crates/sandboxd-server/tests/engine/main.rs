//! What a container engine is asked for beside sandboxes: images that it fetches and builds, and other OCI runtimes.
//!
//! As root an engine has to answer, with the images of the tests: `cargo xtask test` and `cargo xtask engine` see to that.
//!
//! - [`home`]: a backend on that engine.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test ends where something is not as it should be, and says what it cannot try here"
)]

mod fetched;
mod home;
mod recipes;
mod runtimes;

#[path = "../namespaces/rented.rs"]
#[expect(
    dead_code,
    reason = "shared with the tests of another backend, which use more of it"
)]
mod rented;

#[path = "../namespaces/registry.rs"]
#[expect(
    dead_code,
    reason = "shared with the tests of the image store, which use more of it"
)]
mod registry;
