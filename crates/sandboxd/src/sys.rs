//! The system calls that no safe wrapper has: `doctor` tries what this host can do by them, and the service restricts
//! itself.
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

/// What neither the service nor anything that it starts has a use for, sandboxes included: the machine's kernel, power,
/// clock, swap, accounting and ports, and parts of the kernel with a record of escapes.
const REFUSED: &[libc::c_long] = &[
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_open_by_handle_at,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_fanotify_init,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_uselib,
];

/// Has the kernel refuse what no service needs, to this thread and all that it starts, for good. Calls by the numbers of
/// another table than this program's own are refused whole.
pub(crate) fn refuse_what_no_service_needs() -> io::Result<()> {
    // `AUDIT_ARCH_*`, and the bit that marks numbers of the x32 table.
    const ARCHITECTURE: u32 = if cfg!(target_arch = "x86_64") {
        0xc000_003e
    } else {
        0xc000_00b7
    };
    const FOREIGN_TABLE: u32 = 0x4000_0000;
    let step = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter {
        code: u16::try_from(code).unwrap_or_default(),
        jt,
        jf,
        k,
    };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let at_least = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
    let give = libc::BPF_RET | libc::BPF_K;
    let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();
    let mut code = vec![
        step(load, 0, 0, 4),
        step(equal, 1, 0, ARCHITECTURE),
        step(give, 0, 0, refused),
        step(load, 0, 0, 0),
        step(at_least, 0, 1, FOREIGN_TABLE),
        step(give, 0, 0, refused),
    ];
    for call in REFUSED {
        code.push(step(equal, 0, 1, u32::try_from(*call).unwrap_or(u32::MAX)));
        code.push(step(give, 0, 0, refused));
    }
    code.push(step(give, 0, 0, libc::SECCOMP_RET_ALLOW));
    let filter = libc::sock_fprog {
        len: u16::try_from(code.len()).unwrap_or(u16::MAX),
        filter: code.as_mut_ptr(),
    };
    // SAFETY: the program's length and pointer agree, and both outlive the call, which copies them.
    let installed = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            0_u32,
            &raw const filter,
        )
    };
    answer(installed).map(|_| ())
}

/// Has the allocator give back what nobody uses, in all its arenas; of glibc only, the others have no such call.
pub(crate) fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes each arena's own lock, and moves nothing that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Lets go of pages that are mapped from a file and were not changed. The caller has seen in the kernel's list that the
/// range is one whole mapping, private, closed to writing, and without pages of its own.
pub(crate) fn let_go_of_pages(start: usize, length: usize) -> io::Result<()> {
    let start = std::ptr::with_exposed_provenance_mut(start);
    // SAFETY: nothing is lost: such a page's content is the file's, which cannot be written to while it is executed, and
    // the kernel maps it again at the next access, whatever thread makes it.
    unsafe { rustix::mm::madvise(start, length, rustix::mm::Advice::LinuxDontNeed) }?;
    Ok(())
}

fn answer(returned: i64) -> io::Result<i64> {
    if returned < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(returned)
    }
}
