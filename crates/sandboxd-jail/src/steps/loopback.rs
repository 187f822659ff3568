//! Programs expect to reach themselves at 127.0.0.1.

use crate::spawn::at;
use crate::sys;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use sandboxd_jail::report::{Failure, Step};

/// Brings it up in the sandbox's network namespace.
pub(crate) fn up() -> Result<(), Failure> {
    let socket = rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(at(Step::Loopback))?;
    sys::loopback_up(&socket).map_err(at(Step::Loopback))
}
