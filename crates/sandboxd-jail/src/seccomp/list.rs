//! The list of system calls, by group, each with its reason.
//!
//! It follows what programs in a container may habitually do: everything an ordinary program needs, nothing that
//! reaches another namespace, the machine, or the parts of the kernel that have been escaped from before. What the
//! kernel ties to a capability that nobody inside has is refused here as well, so that a mistake in one wall is caught
//! by the other.

use super::{Action, Check, EPERM};

/// A group of calls with one verdict and one reason.
#[derive(Debug, Clone, Copy)]
pub struct Group {
    /// Why.
    pub reason: &'static str,
    /// What happens to them.
    pub action: Action,
    /// Name and number.
    pub calls: &'static [(&'static str, i64)],
}

/// `clone3`: not in the list; see [`super::program`].
pub const CLONE3: u32 = 435;

/// `CLONE_NEWNS | NEWCGROUP | NEWUTS | NEWIPC | NEWUSER | NEWPID | NEWNET`.
pub const NAMESPACE_FLAGS: u32 = 0x7e02_0000;
/// Sockets within the sandbox.
pub const AF_UNIX: u32 = 1;
/// `AF_INET`, `AF_INET6`. No packet, algorithm, virtual machine or bus sockets.
pub const INTERNET_FAMILIES: &[u32] = &[2, 10];
/// Asks the kernel about interfaces and routes (`getifaddrs`), and nothing but that.
pub const AF_NETLINK: u32 = 16;
/// The one netlink protocol that is allowed.
pub const NETLINK_ROUTE: u32 = 0;
/// What `AF_INET` and `AF_INET6` carry: by default, ICMP (for `ping`), TCP, UDP, ICMPv6, UDP-Lite, multipath TCP. Not SCTP,
/// DCCP, L2TP and their like, which any user could make the kernel load, and which have a record of bugs.
pub const INTERNET_PROTOCOLS: &[u32] = &[0, 1, 6, 17, 58, 136, 262];
/// `TIOCSTI` and `TIOCLINUX` put bytes into a terminal's input as if somebody had typed them. `TIOCSETD` puts a line
/// discipline (serial multiplexers, modems, radios) on a terminal: kernel code with a record of bugs and no use inside.
pub const IOCTLS_REFUSED: &[u32] = &[0x5412, 0x541c, 0x5423];
/// The resource whose limit of one byte keeps the kernel from writing a core, to a file or to a helper of the host's.
pub const RLIMIT_CORE: u32 = 4;
/// `PER_LINUX`, `PER_LINUX32`, both with `UNAME26`, and the question.
pub const PERSONALITIES: &[u32] = &[0x0, 0x8, 0x2_0000, 0x2_0008, 0xffff_ffff];

/// `S_ISUID | S_ISGID`.
pub const SET_ID_BITS: u32 = 0o6000;
/// `O_CREAT | __O_TMPFILE`: with one of them an open has a mode.
pub const OPEN_MAKES: u32 = 0o20_000_100;
/// Calls that give a file its mode: number, which argument is the mode, which one says whether there is one.
pub const MODE_CALLS: &[(i64, u32, Option<u32>)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 2, Some(1)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1, None),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1, None),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1, None),
    (libc::SYS_openat, 3, Some(2)),
    (libc::SYS_fchmod, 1, None),
    (libc::SYS_fchmodat, 2, None),
    (libc::SYS_mknodat, 2, None),
    // fchmodat2, by its common number.
    (452, 2, None),
];

macro_rules! calls {
    ($($name:ident)*) => { &[$((stringify!($name), libc::$name)),*] };
}

/// The rules of this architecture, by number; `clone3` is missing and thus unknown.
pub fn rules() -> Vec<(u32, Action)> {
    GROUPS
        .iter()
        .chain(ARCHITECTURE_GROUPS)
        .flat_map(|group| group.calls.iter().map(|call| (call.1, group.action)))
        .filter_map(|(number, action)| Some((u32::try_from(number).ok()?, action)))
        .collect()
}

/// Groups that both architectures have.
pub const GROUPS: &[Group] = &[
    Group {
        reason: "files: every one of them is checked against mounts and owners",
        action: Action::Allow,
        calls: calls![
            SYS_read SYS_write SYS_close SYS_fstat SYS_lseek SYS_pread64 SYS_pwrite64 SYS_readv SYS_writev SYS_preadv
            SYS_pwritev SYS_preadv2 SYS_pwritev2 SYS_openat SYS_openat2 SYS_faccessat SYS_faccessat2 SYS_fchmod
            SYS_fchmodat SYS_fchown SYS_fchownat SYS_newfstatat SYS_statx SYS_mkdirat SYS_mknodat SYS_unlinkat
            SYS_symlinkat SYS_linkat SYS_renameat2 SYS_readlinkat SYS_getdents64 SYS_getcwd SYS_chdir
            SYS_fchdir SYS_chroot SYS_truncate SYS_ftruncate SYS_fallocate SYS_fsync SYS_fdatasync SYS_sync SYS_syncfs
            SYS_sync_file_range SYS_fadvise64 SYS_readahead SYS_copy_file_range SYS_sendfile SYS_splice SYS_tee
            SYS_vmsplice SYS_statfs SYS_fstatfs SYS_utimensat SYS_umask SYS_flock SYS_fcntl SYS_dup SYS_dup3 SYS_close_range
            SYS_setxattr SYS_lsetxattr SYS_fsetxattr SYS_getxattr SYS_lgetxattr SYS_fgetxattr SYS_listxattr SYS_llistxattr
            SYS_flistxattr SYS_removexattr SYS_lremovexattr SYS_fremovexattr SYS_name_to_handle_at
            SYS_inotify_init1 SYS_inotify_add_watch SYS_inotify_rm_watch SYS_memfd_create
        ],
    },
    Group {
        reason: "newer forms of file calls, by their common number: cachestat, fchmodat2, setxattrat and its three siblings",
        action: Action::Allow,
        calls: &[
            ("SYS_cachestat", 451),
            ("SYS_fchmodat2", 452),
            ("SYS_setxattrat", 463),
            ("SYS_getxattrat", 464),
            ("SYS_listxattrat", 465),
            ("SYS_removexattrat", 466),
        ],
    },
    Group {
        reason: "waiting and events",
        action: Action::Allow,
        calls: calls![
            SYS_ppoll SYS_pselect6 SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2 SYS_eventfd2
            SYS_signalfd4 SYS_timerfd_create SYS_timerfd_settime SYS_timerfd_gettime SYS_pipe2 SYS_io_setup SYS_io_destroy
            SYS_io_submit SYS_io_cancel SYS_io_getevents
        ],
    },
    Group {
        reason: "memory of its own",
        action: Action::Allow,
        calls: calls![
            SYS_mmap SYS_munmap SYS_mprotect SYS_mremap SYS_msync SYS_madvise SYS_mincore SYS_brk SYS_mlock SYS_mlock2
            SYS_munlock SYS_mlockall SYS_munlockall SYS_remap_file_pages SYS_membarrier SYS_pkey_mprotect SYS_pkey_alloc
            SYS_pkey_free SYS_process_madvise SYS_process_mrelease SYS_memfd_secret
        ],
    },
    Group {
        reason: "newer memory calls: map_shadow_stack and mseal",
        action: Action::Allow,
        calls: &[("SYS_map_shadow_stack", 453), ("SYS_mseal", 462)],
    },
    Group {
        reason: "processes and threads in its own PID namespace",
        action: Action::Allow,
        calls: calls![
            SYS_execve SYS_execveat SYS_exit SYS_exit_group SYS_wait4 SYS_waitid SYS_kill SYS_tkill SYS_tgkill SYS_getpid
            SYS_getppid SYS_gettid SYS_getpgid SYS_setpgid SYS_getsid SYS_setsid SYS_set_tid_address SYS_set_robust_list
            SYS_get_robust_list SYS_futex SYS_futex_waitv SYS_sched_yield SYS_sched_setparam SYS_sched_getparam
            SYS_sched_setscheduler SYS_sched_getscheduler SYS_sched_get_priority_max SYS_sched_get_priority_min
            SYS_sched_rr_get_interval SYS_sched_setaffinity SYS_sched_getaffinity SYS_sched_setattr SYS_sched_getattr
            SYS_getpriority SYS_setpriority SYS_ioprio_get SYS_ioprio_set SYS_getrusage SYS_getrlimit
            SYS_times SYS_prctl SYS_rseq SYS_restart_syscall SYS_pidfd_open SYS_pidfd_send_signal
            SYS_getcpu
        ],
    },
    Group {
        reason: "a crash must not start the host's core helper, and the limit that prevents it must not be lowered to zero",
        action: Action::Check(Check::SetLimit),
        calls: calls![SYS_setrlimit],
    },
    Group {
        reason: "as above, where the resource is the second argument and a question is harmless",
        action: Action::Check(Check::SetOrGetLimit),
        calls: calls![SYS_prlimit64],
    },
    Group {
        reason: "newer futex calls, by their common number",
        action: Action::Allow,
        calls: &[
            ("SYS_futex_wake", 454),
            ("SYS_futex_wait", 455),
            ("SYS_futex_requeue", 456),
        ],
    },
    Group {
        reason: "debuggers, of processes of the same user only (the kernel checks; the guest is not dumpable)",
        action: Action::Allow,
        calls: calls![SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev SYS_kcmp SYS_pidfd_getfd],
    },
    Group {
        reason: "signals, which reach its own PID namespace only",
        action: Action::Allow,
        calls: calls![
            SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigpending SYS_rt_sigsuspend SYS_rt_sigtimedwait SYS_rt_sigqueueinfo
            SYS_rt_tgsigqueueinfo SYS_rt_sigreturn SYS_sigaltstack
        ],
    },
    Group {
        reason: "users and capabilities within its own user namespace",
        action: Action::Allow,
        calls: calls![
            SYS_getuid SYS_geteuid SYS_getgid SYS_getegid SYS_getresuid SYS_getresgid SYS_getgroups SYS_setuid SYS_setgid
            SYS_setreuid SYS_setregid SYS_setresuid SYS_setresgid SYS_setgroups SYS_setfsuid SYS_setfsgid SYS_capget SYS_capset
        ],
    },
    Group {
        reason: "walls that a program builds around itself",
        action: Action::Allow,
        calls: calls![
            SYS_seccomp SYS_landlock_create_ruleset SYS_landlock_add_rule SYS_landlock_restrict_self
        ],
    },
    Group {
        reason: "sockets within its own network namespace",
        action: Action::Allow,
        calls: calls![
            SYS_bind SYS_listen SYS_accept SYS_accept4 SYS_connect SYS_getsockname SYS_getpeername SYS_sendto
            SYS_recvfrom SYS_sendmsg SYS_recvmsg SYS_sendmmsg SYS_recvmmsg SYS_setsockopt SYS_getsockopt SYS_shutdown
        ],
    },
    Group {
        reason: "only families and protocols with a use inside; others have a record of kernel bugs, and a pair makes them too",
        action: Action::Check(Check::SocketFamily),
        calls: calls![SYS_socket SYS_socketpair],
    },
    Group {
        reason: "System V and POSIX queues, semaphores and shared memory of its own IPC namespace",
        action: Action::Allow,
        calls: calls![
            SYS_shmget SYS_shmat SYS_shmdt SYS_shmctl SYS_semget SYS_semop SYS_semtimedop SYS_semctl SYS_msgget SYS_msgsnd
            SYS_msgrcv SYS_msgctl SYS_mq_open SYS_mq_unlink SYS_mq_timedsend SYS_mq_timedreceive SYS_mq_notify
            SYS_mq_getsetattr
        ],
    },
    Group {
        reason: "time, read and waited for",
        action: Action::Allow,
        calls: calls![
            SYS_clock_gettime SYS_clock_getres SYS_clock_nanosleep SYS_nanosleep SYS_gettimeofday SYS_getitimer SYS_setitimer
            SYS_timer_create SYS_timer_settime SYS_timer_gettime SYS_timer_getoverrun SYS_timer_delete SYS_adjtimex
            SYS_clock_adjtime
        ],
    },
    Group {
        reason: "harmless questions",
        action: Action::Allow,
        calls: calls![SYS_uname SYS_sysinfo SYS_getrandom],
    },
    Group {
        reason: "a terminal's input is not to be written by what only shares it, nor its line discipline exchanged",
        action: Action::Check(Check::IoctlRequest),
        calls: calls![SYS_ioctl],
    },
    Group {
        reason: "a new process may not bring a new namespace",
        action: Action::Check(Check::CloneFlags),
        calls: calls![SYS_clone],
    },
    Group {
        reason: "some personalities switch address space protections off",
        action: Action::Check(Check::Personality),
        calls: calls![SYS_personality],
    },
    Group {
        reason: "namespaces and mounts: the way out of most boxes",
        action: Action::Errno(EPERM),
        calls: calls![
            SYS_unshare SYS_setns SYS_mount SYS_umount2 SYS_pivot_root SYS_fsopen SYS_fsconfig SYS_fsmount SYS_fspick
            SYS_open_tree SYS_move_mount SYS_mount_setattr SYS_quotactl SYS_quotactl_fd SYS_open_by_handle_at
        ],
    },
    Group {
        reason: "newer mount calls: statmount, listmount, open_tree_attr",
        action: Action::Errno(EPERM),
        calls: &[
            ("SYS_statmount", 457),
            ("SYS_listmount", 458),
            ("SYS_open_tree_attr", 467),
        ],
    },
    Group {
        reason: "parts of the kernel with a record of escapes, that ordinary programs do without",
        action: Action::Errno(EPERM),
        calls: calls![
            SYS_bpf SYS_perf_event_open SYS_userfaultfd SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register
            SYS_keyctl SYS_add_key SYS_request_key SYS_fanotify_init SYS_fanotify_mark
        ],
    },
    Group {
        reason: "the machine itself: its clock, modules, power, log, swap, name and accounting",
        action: Action::Errno(EPERM),
        calls: calls![
            SYS_settimeofday SYS_clock_settime SYS_init_module SYS_finit_module SYS_delete_module SYS_kexec_load SYS_reboot
            SYS_syslog SYS_swapon SYS_swapoff SYS_sethostname SYS_setdomainname SYS_acct SYS_vhangup
        ],
    },
    Group {
        reason: "placement of memory on nodes, which needs a capability that nobody inside has",
        action: Action::Errno(EPERM),
        calls: calls![SYS_mbind SYS_set_mempolicy SYS_get_mempolicy SYS_migrate_pages SYS_move_pages SYS_set_mempolicy_home_node],
    },
];

/// Groups of x86_64 alone.
#[cfg(target_arch = "x86_64")]
pub const ARCHITECTURE_GROUPS: &[Group] = &[
    Group {
        reason: "older forms of file, process and waiting calls, which this architecture still has",
        action: Action::Allow,
        calls: calls![
            SYS_open SYS_creat SYS_stat SYS_lstat SYS_access SYS_chmod SYS_chown SYS_lchown SYS_mkdir SYS_rmdir SYS_mknod
            SYS_link SYS_unlink SYS_symlink SYS_readlink SYS_rename SYS_renameat SYS_getdents SYS_utime SYS_utimes
            SYS_futimesat SYS_poll SYS_select SYS_epoll_create SYS_epoll_wait SYS_epoll_ctl_old SYS_epoll_wait_old
            SYS_eventfd SYS_signalfd SYS_inotify_init SYS_pipe SYS_dup2 SYS_fork SYS_vfork SYS_getpgrp SYS_alarm SYS_pause
            SYS_time
        ],
    },
    Group {
        reason: "asynchronous reads, by its number here: io_pgetevents",
        action: Action::Allow,
        calls: &[("SYS_io_pgetevents", 333)],
    },
    Group {
        reason: "segments and the like of its own thread",
        action: Action::Allow,
        calls: calls![SYS_arch_prctl SYS_modify_ldt],
    },
    Group {
        reason: "ports of the machine, kernel images, and file systems by number",
        action: Action::Errno(EPERM),
        calls: calls![SYS_iopl SYS_ioperm SYS_kexec_file_load SYS_ustat SYS_sysfs SYS_uselib],
    },
];

/// Groups of aarch64 alone.
#[cfg(target_arch = "aarch64")]
pub const ARCHITECTURE_GROUPS: &[Group] = &[
    Group {
        reason: "asynchronous reads, by its number here: io_pgetevents",
        action: Action::Allow,
        calls: &[("SYS_io_pgetevents", 292)],
    },
    Group {
        reason: "an older form of rename, which this architecture still has",
        action: Action::Allow,
        calls: &[("SYS_renameat", 38)],
    },
    Group {
        reason: "kernel images",
        action: Action::Errno(EPERM),
        calls: &[("SYS_kexec_file_load", 294)],
    },
];
