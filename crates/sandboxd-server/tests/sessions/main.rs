//! Sessions on the in-memory double: what clients are promised, and what happens on bad days.
#![expect(
    clippy::unwrap_used,
    reason = "what fails here fails the test, also in what the tests share"
)]

mod bad_days;
mod content;
mod crash;
mod crowd;
mod files;
mod kept;
mod lifetime;
mod limits;
mod opening;
mod pool;
mod restart;
mod runs;
mod sleeping;
mod support;
