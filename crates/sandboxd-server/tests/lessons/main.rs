//! What went wrong once in services of this kind, and must not here: one test for each lesson that no other test holds.
//! `docs/lessons.md` has all of the lessons, each with the test that holds it, wherever that is.
//!
//! - [`opening`], [`using`]: over a real socket, with the in-memory backend.
//! - [`passing`]: what happens while time passes, with a clock that only tests move.
//! - [`processes`]: what needs a kernel: over a real socket, with sandboxes of the namespaces backend.

#![expect(
    clippy::unwrap_used,
    reason = "what fails here fails the test, also in what the tests share"
)]

mod opening;
mod passing;
mod processes;
mod real;
mod using;

#[path = "../namespaces/rented.rs"]
#[expect(
    dead_code,
    clippy::print_stdout,
    reason = "shared with the tests of the walls, which use more of it"
)]
mod rented;

#[path = "../api/support.rs"]
#[expect(
    dead_code,
    reason = "shared with the tests of the API, which use more of it"
)]
mod wire;

#[path = "../sessions/support.rs"]
#[expect(
    dead_code,
    reason = "shared with the tests of the sessions, which use more of it"
)]
mod world;
