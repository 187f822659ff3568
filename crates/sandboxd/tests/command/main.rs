//! The command `sandboxd` as its users see it: the built binary, its exit codes, its streams, and what it leaves behind.
//!
//! Run as root, everything is tried as root and as an ordinary user; run as an ordinary user, only as that one.

mod builds;
mod ceilings;
mod compose;
mod confined;
mod container;
mod doctor;
mod endings;
mod exit_codes;
mod health;
mod images;
mod json;
mod networks;
mod pool;
mod remains;
mod runtimes;
mod secrets;
mod serve;
mod sessions;
mod streams;
mod supervised;
mod support;
mod terminal;
mod usage;
mod users;
mod workspaces;
