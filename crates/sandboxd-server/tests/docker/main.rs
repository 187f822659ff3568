//! The docker backend beyond what every backend does: images without anything, kept containers, containers of the Python
//! service's, what a crash leaves, an engine that goes away, ways to one.
//!
//! The engine is that of `DOCKER_HOST`, or the usual socket; `cargo xtask test` starts one where none is and gives it the
//! images. As root it has to be there. For bad days tests start engines of their own ([`own`]).

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod adopted;
mod bad_days;
mod guest;
mod hung;
mod images;
mod kept;
mod leftovers;
mod limits;
mod lost;
mod networks;
mod own;
mod place;
mod remote;
mod ways_in;

#[path = "../namespaces/rented.rs"]
#[expect(
    dead_code,
    clippy::print_stdout,
    reason = "shared with the tests of the other backend, which use more of it"
)]
mod rented;
