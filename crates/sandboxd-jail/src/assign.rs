//! The workspace of a sandbox that was parked without one.
//!
//! Its guest runs already and has done nothing yet: no program of a client's has been in it. The mount is made here, as
//! every sandbox's is, and put in place from within the sandbox's mount namespace, which this process, being one thread,
//! enters for that one call. What is mounted is a descriptor from before; no path of the host's is looked up in there.

use crate::id_namespaces::IdNamespaces;
use crate::mounts;
use crate::spawn::{at, on, workspace};
use crate::steps::{entries, root};
use crate::sys;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sandboxd_jail::report::{Failure, Step};
use sandboxd_jail::wire::Assign;

/// This process's own mount namespace, opened when it is first left.
pub(crate) type Home = Option<OwnedFd>;

/// Puts a workspace into a parked sandbox.
pub(crate) fn assign(
    wanted: &Assign,
    descriptors: Vec<OwnedFd>,
    namespaces: &mut IdNamespaces,
    home: &mut Home,
) -> Result<(), Failure> {
    let given: Result<[OwnedFd; 2], _> = descriptors.try_into();
    let [inside, directory] = given.map_err(|_| at(Step::Receive)(Errno::BADF))?;
    let mount = workspace(&directory, &wanted.at, &wanted.owners, namespaces)?;
    let home = match home {
        Some(home) => home,
        None => home.insert(own_mounts().map_err(at(Step::Assign))?),
    };
    enter(&inside).map_err(at(Step::Assign))?;
    let attached = root::open().and_then(|top| {
        let target = entries::found_directory(&top, &wanted.at);
        target
            .and_then(|target| mounts::attach(&mount, target, ""))
            .map_err(on(Step::WorkDir, &wanted.at))
    });
    if enter(home).is_err() {
        // Whatever else is asked would be done in there. The daemon starts another launcher, which nothing is lost with.
        sys::leave(1);
    }
    attached
}

pub(crate) fn own_mounts() -> Result<OwnedFd, Errno> {
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    rustix::fs::open("/proc/self/ns/mnt", flags, rustix::fs::Mode::empty())
}

/// Root and working directory become that namespace's own.
pub(crate) fn enter(mounts: &OwnedFd) -> Result<(), Errno> {
    move_into_link_name_space(mounts.as_fd(), Some(LinkNameSpaceType::Mount))
}
