//! The one call of this backend that the compiler cannot check.
#![expect(
    unsafe_code,
    reason = "tokio leaves the promise that a watched descriptor stays what it is to its caller"
)]

use rustix::fd::OwnedFd;
use std::io;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Watches a descriptor that is nobody else's.
pub(super) fn watch(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is a valid descriptor until it is dropped; `AsyncFd` owns it and gives out shared references
    // only, by which it can be neither closed nor exchanged.
    let watched = unsafe { AsyncFd::register_with_interest(descriptor, interest) };
    watched.map_err(io::Error::from)
}
