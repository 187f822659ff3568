//! A container that an engine made, joined to the router: what a sandbox of ours does for itself on its way is done here
//! for one that has started already.
//!
//! The daemon says which process is the container's first one. A number may have become another's since, so what is
//! entered is a descriptor, and only once the kernel has said that the process is the container's and still lives.

use crate::netlink::PeerIn;
use crate::router::{self, Router, in_child, readable};
use crate::spawn::{at, on};
use crate::steps::network;
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sandboxd_jail::plan::Network;
use sandboxd_jail::report::{Failure, Step};
use sandboxd_jail::wire::Join;
use std::time::Duration;

/// Joins it, and gives its end of the pair an address and the way to everything.
pub(crate) fn join(wanted: &Join, router: Option<&mut Router>) -> Result<(), Failure> {
    let router = router.ok_or_else(|| at(Step::Network)(Errno::NOTCONN))?;
    let inside = namespace_of(wanted.pid, &wanted.mark)?;
    router.attach(wanted.address, PeerIn::Namespace(inside.as_fd()))?;
    let address = Network::Routed {
        number: wanted.address,
    };
    in_child(0, || {
        move_into_link_name_space(inside.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(on(Step::Network, "entering the container's"))?;
        network::configure(address).map(|()| Vec::new())
    })
    .map(drop)
}

/// The network namespace of a process in whose cgroups' paths the mark occurs.
fn namespace_of(number: i32, mark: &str) -> Result<OwnedFd, Failure> {
    let failed = on(Step::Network, "the container's first process");
    let pid = Pid::from_raw(number).ok_or_else(|| failed(Errno::SRCH))?;
    let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).map_err(&failed)?;
    let open = |path: String| {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty()).map_err(&failed)
    };
    let namespace = open(format!("/proc/{number}/ns/net"))?;
    let own = open("/proc/self/ns/net".to_owned())?;
    let places = std::fs::read_to_string(format!("/proc/{number}/cgroup"))
        .map_err(|error| failed(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
    // What was opened was this process's, if it has not ended by now.
    if mark.is_empty()
        || !places.contains(mark)
        || readable(&pidfd, Duration::ZERO).map_err(&failed)?
    {
        return Err(failed(Errno::SRCH));
    }
    let identity = |namespace: &OwnedFd| {
        let status = rustix::fs::fstat(namespace).map_err(&failed)?;
        Ok((status.st_dev, status.st_ino))
    };
    if identity(&namespace)? == identity(&own)? {
        let why = "the container has the host's own network";
        return Err(router::words(Step::Network, Errno::INVAL, why));
    }
    Ok(namespace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn refused(number: i32, mark: &str) -> Errno {
        let failure = namespace_of(number, mark).unwrap_err();
        Errno::from_raw_os_error(failure.errno)
    }

    #[test]
    fn a_process_that_is_not_the_containers_is_not_entered() {
        let own = std::process::id().try_into().unwrap();
        assert_eq!(refused(own, "no-such-container"), Errno::SRCH);
        assert_eq!(refused(own, ""), Errno::SRCH);
        assert_eq!(refused(0, "/"), Errno::SRCH);
        // Nor is one that shares this process's network.
        assert_eq!(refused(own, "/"), Errno::INVAL);
    }

    #[test]
    fn nor_is_one_that_has_ended() {
        let mut child = Command::new("true").stdin(Stdio::null()).spawn().unwrap();
        let number = child.id().try_into().unwrap();
        child.wait().unwrap();
        assert_eq!(refused(number, "/"), Errno::SRCH);
    }
}
