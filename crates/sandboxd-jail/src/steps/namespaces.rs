//! The namespaces that the child makes for itself, beside users, processes and mounts, with which it was born.

use crate::spawn::{at, on};
use crate::sys;
use rustix::thread::UnshareFlags;
use sandboxd_jail::plan::Network;
use sandboxd_jail::report::{Failure, Step};

/// Network, IPC and host name. They belong to the sandbox's user namespace. A sandbox that is joined to a router was born
/// in its network namespace.
pub(crate) fn make(network: Network) -> Result<(), Failure> {
    let flags = UnshareFlags::NEWIPC | UnshareFlags::NEWUTS;
    let flags = match network {
        Network::Loopback => flags | UnshareFlags::NEWNET,
        Network::Routed { .. } => flags,
    };
    sys::unshare(flags).map_err(at(Step::Namespaces))
}

/// The host name inside.
pub(crate) fn name(hostname: &str) -> Result<(), Failure> {
    rustix::system::sethostname(hostname.as_bytes()).map_err(on(Step::Hostname, hostname))
}
