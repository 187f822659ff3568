//! The three system calls of the bare floor that no safe wrapper offers.
#![expect(
    unsafe_code,
    reason = "clone, mount_setattr and an interface ioctl have no safe wrapper"
)]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Which of the two a process is after [`clone`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The caller; holds the child's number.
    Parent(i32),
    /// The child.
    Child,
}

/// The namespaces of a sandbox.
pub(crate) const NAMESPACES: i32 = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;

/// Clones this process like `fork`, into new namespaces. To be called while it has one thread.
pub(crate) fn clone(namespaces: i32) -> io::Result<Side> {
    let flags = libc::c_long::from(namespaces | libc::SIGCHLD);
    // SAFETY: no stack is given, so the child gets a copy of everything, as with fork; the process has one thread, so
    // no lock can be held in the copy by a thread that is not there.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    match i32::try_from(pid) {
        Ok(0) => Ok(Side::Child),
        Ok(pid) if pid > 0 => Ok(Side::Parent(pid)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes the mount at `path`, and all below it, read-only.
pub(crate) fn read_only(path: &CStr) -> io::Result<()> {
    let change = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_RDONLY,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: `path` ends in a NUL, and `change` is alive and as long as is said for the length of the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::AT_RECURSIVE,
            &raw const change,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Brings up the loopback interface of this network namespace, by any socket.
pub(crate) fn loopback_up(socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut name = [0; libc::IFNAMSIZ];
    for (to, from) in name.iter_mut().zip(c"lo".to_bytes()) {
        *to = from.cast_signed();
    }
    let flags = i16::try_from(libc::IFF_UP | libc::IFF_RUNNING).map_err(io::Error::other)?;
    let request = libc::ifreq {
        ifr_name: name,
        ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: flags },
    };
    // SAFETY: the request is a whole `ifreq` with a name that ends in NUL, which is what this ioctl reads.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
