//! The system calls that no safe wrapper has. Only `doctor` needs them: to try what this host can do.
#![expect(
    unsafe_code,
    reason = "raw system calls; each is one call with its arguments checked here"
)]

use rustix::thread::UnshareFlags;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

/// Enters new namespaces, for one of doctor's probes: a process of its own that ends right after.
pub(crate) fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: the flags that make this unsafe (CLONE_FILES, CLONE_FS and their like, which take away what other code
    // of this process shares) are not among those the probes pass: they are all CLONE_NEW*.
    unsafe { rustix::thread::unshare_unsafe(flags) }?;
    Ok(())
}

/// The generation of Landlock that the kernel speaks.
pub(crate) fn landlock_generation() -> io::Result<i64> {
    const VERSION: libc::c_uint = 1;
    // SAFETY: with this flag the kernel takes a null pointer and a size of zero, and makes nothing.
    let generation = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<libc::c_void>(),
            0_usize,
            VERSION,
        )
    };
    answer(generation)
}

/// Whether seccomp filters can answer a system call with an error number, which is what ours do.
pub(crate) fn seccomp_can_refuse() -> io::Result<()> {
    let action: u32 = libc::SECCOMP_RET_ERRNO;
    // SAFETY: asks only; reads four bytes at a pointer to a live u32.
    let asked = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_GET_ACTION_AVAIL,
            0_u32,
            &raw const action,
        )
    };
    answer(asked).map(|_| ())
}

/// Maps the owners of a detached copy of a mount through a user namespace.
pub(crate) fn map_owners(mount: impl AsFd, user_namespace: impl AsFd) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_IDMAP,
        attr_clr: 0,
        propagation: 0,
        userns_fd: u64::try_from(user_namespace.as_fd().as_raw_fd()).unwrap_or(u64::MAX),
    };
    // SAFETY: both descriptors are open for the call; the path is an empty C string; the structure is live, and its
    // size is the one passed.
    let mapped = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_fd().as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    answer(mapped).map(|_| ())
}

/// The version of KVM's interface behind an open `/dev/kvm`.
pub(crate) fn kvm_version(kvm: impl AsFd) -> io::Result<i64> {
    // `_IO(KVMIO, 0)` of linux/kvm.h.
    const KVM_GET_API_VERSION: libc::Ioctl = 0xAE00;
    // SAFETY: the request takes no argument.
    let version = unsafe { libc::ioctl(kvm.as_fd().as_raw_fd(), KVM_GET_API_VERSION, 0_usize) };
    answer(i64::from(version))
}

fn answer(returned: i64) -> io::Result<i64> {
    if returned < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(returned)
    }
}
