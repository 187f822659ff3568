//! The docker backend beyond what every backend does: images without anything, kept containers, containers of the Python
//! service's, what a crash leaves, an engine that goes away.
//!
//! The engine is that of `DOCKER_HOST`, or the usual socket; `cargo xtask test` starts one where none is and gives it the
//! images. As root it has to be there.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod adopted;
mod images;
mod kept;
mod leftovers;
mod limits;
mod lost;
mod networks;
mod place;
mod remote;
