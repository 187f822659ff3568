//! No namespace can be made inside: each would open a large part of the kernel to whoever is root in it.
//!
//! The filter refuses the calls that make them, but cannot look into `clone3`. The kernel's own limit, which belongs to
//! the sandbox's user namespace and can be raised only with capabilities that nobody inside has, holds for every call.

use crate::spawn::on;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use sandboxd_jail::report::{Failure, Step};

const LIMITS: &[&str] = &["user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"];

/// Sets every limit to zero.
pub(crate) fn forbid(proc: &OwnedFd) -> Result<(), Failure> {
    for name in LIMITS {
        let path = format!("sys/user/max_{name}_namespaces");
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(proc, &path, flags, Mode::empty()) {
            // The kernel has no such namespaces.
            Err(Errno::NOENT) => continue,
            other => other.map_err(on(Step::NestedNamespaces, &path))?,
        };
        rustix::io::write(&file, b"0").map_err(on(Step::NestedNamespaces, &path))?;
    }
    Ok(())
}
