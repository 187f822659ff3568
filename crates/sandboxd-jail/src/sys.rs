//! The system calls that no safe library offers, each wrapped once.
#![expect(
    unsafe_code,
    reason = "raw system calls: clone3, mount_setattr, execveat, seccomp, keyctl, landlock, unshare, ioctl"
)]

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::io::Errno;
use sandboxd_jail::seccomp::Instruction;
use std::ffi::{CString, c_char, c_int, c_long};
use std::ptr;

/// What a process is after [`clone3`].
#[derive(Debug)]
pub(crate) enum Cloned {
    /// The new one.
    Child,
    /// The one that asked.
    Parent {
        /// The new process in this one's PID namespace.
        pid: i32,
        /// A descriptor of it.
        pidfd: OwnedFd,
    },
}

fn check(result: c_long) -> Result<c_long, Errno> {
    if result == -1 {
        let errno = std::io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EIO);
        return Err(Errno::from_raw_os_error(errno));
    }
    Ok(result)
}

/// Copies this process, as `fork` does, with `CLONE_*` flags, into a cgroup2 directory where one is given.
pub(crate) fn clone3(
    flags: c_int,
    exit_signal: c_int,
    cgroup: Option<BorrowedFd<'_>>,
) -> Result<Cloned, Errno> {
    let mut pidfd: RawFd = -1;
    // SAFETY: all fields of the kernel's structure are integers, for which zero is a value.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = (flags.cast_unsigned() | libc::CLONE_PIDFD.cast_unsigned()).into();
    arguments.pidfd = ptr::from_mut(&mut pidfd) as u64;
    arguments.exit_signal = u64::from(exit_signal.cast_unsigned());
    if let Some(cgroup) = cgroup {
        arguments.flags |= 0x2_0000_0000; // CLONE_INTO_CGROUP
        arguments.cgroup = u64::from(cgroup.as_raw_fd().cast_unsigned());
    }
    // SAFETY: no CLONE_VM and no stack, so the child goes on with its own copy of all memory, as after fork; this
    // program has one thread, so no lock is held by another. The structure outlives the call.
    let pid = check(unsafe {
        libc::syscall(
            libc::SYS_clone3,
            ptr::from_ref(&arguments),
            size_of::<libc::clone_args>(),
        )
    })?;
    if pid == 0 {
        return Ok(Cloned::Child);
    }
    // SAFETY: the kernel stored a fresh descriptor there, which nobody else owns.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Cloned::Parent {
        pid: i32::try_from(pid).unwrap_or(i32::MAX),
        pidfd,
    })
}

/// Changes the attributes of the mount at a descriptor (and of those below it).
pub(crate) fn mount_setattr(
    mount: impl AsFd,
    recursive: bool,
    set: u64,
    private: bool,
    owners: Option<BorrowedFd<'_>>,
) -> Result<(), Errno> {
    #[repr(C)]
    struct Attributes {
        set: u64,
        clear: u64,
        propagation: u64,
        userns: u64,
    }
    let attributes = Attributes {
        set: set | if owners.is_some() { 0x0010_0000 } else { 0 }, // MOUNT_ATTR_IDMAP
        clear: 0,
        propagation: if private { libc::MS_PRIVATE } else { 0 },
        userns: owners.map_or(0, |fd| u64::from(fd.as_raw_fd().cast_unsigned())),
    };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is a constant, the structure has the kernel's layout and outlives the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_fd().as_raw_fd(),
            c"".as_ptr(),
            flags,
            ptr::from_ref(&attributes),
            size_of::<Attributes>(),
        )
    })?;
    Ok(())
}

/// Becomes the program at a descriptor; returns only if that failed.
pub(crate) fn execveat(program: impl AsFd, argv: &[CString], env: &[CString]) -> Errno {
    let pointers = |strings: &[CString]| -> Vec<*const c_char> {
        strings
            .iter()
            .map(|string| string.as_ptr())
            .chain([ptr::null()])
            .collect()
    };
    let (argv, env) = (pointers(argv), pointers(env));
    // SAFETY: both arrays end with a null pointer, and what they point to outlives the call.
    let result = check(unsafe {
        libc::syscall(
            libc::SYS_execveat,
            program.as_fd().as_raw_fd(),
            c"".as_ptr(),
            argv.as_ptr(),
            env.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    });
    result.err().unwrap_or(Errno::IO)
}

/// Installs a system call filter; needs no-new-privileges.
pub(crate) fn install_filter(program: &[Instruction]) -> Result<(), Errno> {
    let mut code: Vec<libc::sock_filter> = program
        .iter()
        .map(|instruction| libc::sock_filter {
            code: instruction.code,
            jt: instruction.jump_true,
            jf: instruction.jump_false,
            k: instruction.operand,
        })
        .collect();
    let filter = libc::sock_fprog {
        len: u16::try_from(code.len()).map_err(|_| Errno::TOOBIG)?,
        filter: code.as_mut_ptr(),
    };
    // SAFETY: the program's length and pointer agree, and both outlive the call, which copies them.
    check(unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            0,
            ptr::from_ref(&filter),
        )
    })?;
    Ok(())
}

/// Joins a new, empty session keyring, so that none of the caller's keys are within reach.
pub(crate) fn join_keyring() -> Result<(), Errno> {
    const KEYCTL_JOIN_SESSION_KEYRING: c_int = 1;
    // SAFETY: a null name asks for an anonymous keyring.
    check(unsafe {
        libc::syscall(
            libc::SYS_keyctl,
            KEYCTL_JOIN_SESSION_KEYRING,
            ptr::null::<c_char>(),
        )
    })?;
    Ok(())
}

/// What a key and a search are about, in the tests of the keyring.
#[cfg(test)]
const SESSION_KEYRING: c_int = -3;

/// Adds a key of a user's own to the session keyring.
#[cfg(test)]
pub(crate) fn add_to_keyring(name: &std::ffi::CStr) -> Result<(), Errno> {
    // SAFETY: the strings end with NUL, the payload is as long as is said, and the kernel copies all of them.
    check(unsafe {
        libc::syscall(
            libc::SYS_add_key,
            c"user".as_ptr(),
            name.as_ptr(),
            b"x".as_ptr(),
            1_usize,
            SESSION_KEYRING,
        )
    })?;
    Ok(())
}

/// Searches the session keyring.
#[cfg(test)]
pub(crate) fn find_in_keyring(name: &std::ffi::CStr) -> Result<(), Errno> {
    const KEYCTL_SEARCH: c_int = 10;
    // SAFETY: the strings end with NUL and outlive the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_keyctl,
            KEYCTL_SEARCH,
            SESSION_KEYRING,
            c"user".as_ptr(),
            name.as_ptr(),
            0,
        )
    })?;
    Ok(())
}

/// The generation of Landlock that the kernel speaks.
pub(crate) fn landlock_generation() -> Result<i64, Errno> {
    const VERSION: c_int = 1;
    // SAFETY: with this flag the kernel takes a null pointer and a size of zero, and makes nothing.
    check(unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            ptr::null::<libc::c_void>(),
            0_usize,
            VERSION,
        )
    })
}

/// An empty set of rules that handles these rights over files, and keeps what is scoped within.
pub(crate) fn landlock_rules(files: u64, scopes: u64) -> Result<OwnedFd, Errno> {
    // `struct landlock_ruleset_attr`: rights over files, over the network, scopes. Kernels that know fewer fields take the
    // longer structure where the rest of it is zero.
    let attributes: [u64; 3] = [files, 0, scopes];
    // SAFETY: a live structure of the size that is passed; the kernel only reads it.
    let descriptor = check(unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            attributes.as_ptr(),
            size_of_val(&attributes),
            0,
        )
    })?;
    let descriptor = RawFd::try_from(descriptor).map_err(|_| Errno::BADF)?;
    // SAFETY: the kernel made it just now, and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Allows rights below a directory.
pub(crate) fn landlock_allow(
    rules: impl AsFd,
    directory: impl AsFd,
    allowed: u64,
) -> Result<(), Errno> {
    const PATH_BENEATH: c_int = 1;
    // `struct landlock_path_beneath_attr`, which is packed: the rights, then the descriptor.
    let mut attributes = [0_u8; 12];
    attributes[..8].copy_from_slice(&allowed.to_ne_bytes());
    attributes[8..].copy_from_slice(&directory.as_fd().as_raw_fd().to_ne_bytes());
    // SAFETY: a live structure of the size that the kernel reads for this kind of rule; both descriptors are open.
    check(unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            rules.as_fd().as_raw_fd(),
            PATH_BENEATH,
            attributes.as_ptr(),
            0,
        )
    })?;
    Ok(())
}

/// Puts this thread, and all that it starts, under the rules for good; needs no-new-privileges.
pub(crate) fn landlock_enforce(rules: impl AsFd) -> Result<(), Errno> {
    // SAFETY: takes a descriptor of ours and touches no memory.
    check(unsafe {
        libc::syscall(
            libc::SYS_landlock_restrict_self,
            rules.as_fd().as_raw_fd(),
            0,
        )
    })?;
    Ok(())
}

/// Leaves namespaces for new ones.
pub(crate) fn unshare(flags: rustix::thread::UnshareFlags) -> Result<(), Errno> {
    // SAFETY: the flags never hold FILES, the only one that could take a descriptor from under somebody.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}

/// Closes, or marks to be closed on exec, every descriptor from `first` on.
pub(crate) fn close_from(first: RawFd, on_exec: bool) -> Result<(), Errno> {
    let flags = if on_exec {
        libc::CLOSE_RANGE_CLOEXEC
    } else {
        0
    };
    // SAFETY: the callers know that no owned descriptor in use lies in the range, or only mark it.
    check(unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first.cast_unsigned(),
            u32::MAX,
            flags,
        )
    })?;
    Ok(())
}

/// Closes the descriptors `first` to `last`.
pub(crate) fn close_between(first: RawFd, last: RawFd) -> Result<(), Errno> {
    // SAFETY: as above: nothing in use lies in the range.
    check(unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first.cast_unsigned(),
            last.cast_unsigned(),
            0,
        )
    })?;
    Ok(())
}

/// A copy of a descriptor under exactly this number, which survives an exec and which nobody closes before it.
pub(crate) fn place_descriptor(descriptor: impl AsFd, at: RawFd) -> Result<(), Errno> {
    // SAFETY: the caller has closed, or never used, the number.
    check(c_long::from(unsafe {
        libc::dup2(descriptor.as_fd().as_raw_fd(), at)
    }))?;
    Ok(())
}

/// Brings the loopback interface of this network namespace up.
pub(crate) fn loopback_up(socket: impl AsFd) -> Result<(), Errno> {
    // SAFETY: the structure is plain data, for which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(c"lo".to_bytes_with_nul()) {
        *to = c_char::from_ne_bytes([*from]);
    }
    request.ifr_ifru.ifru_flags = i16::try_from(libc::IFF_UP | libc::IFF_RUNNING).unwrap_or(1);
    // SAFETY: SIOCSIFFLAGS reads a `struct ifreq`, which outlives the call.
    check(c_long::from(unsafe {
        libc::ioctl(
            socket.as_fd().as_raw_fd(),
            libc::SIOCSIFFLAGS,
            ptr::from_ref(&request),
        )
    }))?;
    Ok(())
}

/// Ends this process at once, without destructors (which belong to the process it was copied from).
pub(crate) fn leave(status: c_int) -> ! {
    // SAFETY: does not return and touches no memory.
    unsafe { libc::_exit(status) }
}

/// Waits for a signal, for ever.
pub(crate) fn pause() {
    // SAFETY: takes no memory.
    unsafe {
        libc::pause();
    }
}

/// A path for a system call.
pub(crate) fn c_string(text: &str) -> Result<CString, Errno> {
    CString::new(text).map_err(|_| Errno::INVAL)
}
