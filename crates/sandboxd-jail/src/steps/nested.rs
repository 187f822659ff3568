//! No namespace can be made inside: each would open a large part of the kernel to whoever is root in it.
//!
//! The filter refuses the calls that make them, but cannot look into `clone3`. The kernel's own limit, which belongs to
//! the sandbox's user namespace and can be raised only with capabilities that nobody inside has, holds for every call.

use crate::spawn::{at, on};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use sandboxd_jail::report::{Failure, Step};

const LIMITS: &[&str] = &["user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"];

/// The files of the limits, opened while they can be.
pub(crate) fn open(proc: &OwnedFd) -> Result<Vec<OwnedFd>, Failure> {
    let mut files = Vec::new();
    for name in LIMITS {
        let path = format!("sys/user/max_{name}_namespaces");
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(proc, &path, flags, Mode::empty()) {
            Ok(file) => files.push(file),
            // The kernel has no such namespaces.
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(on(Step::NestedNamespaces, &path)(errno)),
        }
    }
    Ok(files)
}

/// Sets every limit to zero. After the mounts: each detached one is a mount namespace of its own to the kernel.
pub(crate) fn forbid(files: &[OwnedFd]) -> Result<(), Failure> {
    for file in files {
        rustix::io::write(file, b"0").map_err(at(Step::NestedNamespaces))?;
    }
    Ok(())
}
