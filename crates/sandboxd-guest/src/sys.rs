//! System calls that no safe crate offers, and the birth of a process. The only unsafe code of the guest.
//!
//! A program is born without a copy of the guest's page tables: `clone` with `CLONE_VM | CLONE_VFORK`, on a stack of its
//! own, as `posix_spawn` does it. Where no cgroup can end a run, the same trick is played twice: first a *keeper* is
//! made, which shares the guest's memory and descriptors and goes on beside it, then the keeper makes the program. The
//! keeper is the subreaper of everything the program starts, so nothing can leave its tree.
//!
//! Code that runs in a keeper or a child before its exec shares the guest's memory, its thread-local storage too. So it
//! makes raw system calls only (the C library's would write the guest's `errno`), allocates nothing, and cannot panic.
#![expect(
    unsafe_code,
    reason = "processes are born here, with raw system calls and shared memory"
)]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the kernel takes and gives machine words"
)]
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "each function before an exec is one long sequence of raw system calls under one reason"
)]

use crate::call::sys::{errno_of, int, raw, raw_clone};
use rustix::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ffi::{CString, c_char, c_void};
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// How far a birth came when it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Making the process.
    Clone,
    /// Its session, streams, user or filter.
    SetUp,
    /// Entering the working directory.
    Cwd,
    /// The exec itself.
    Exec,
}

const STAGES: [Stage; 4] = [Stage::Clone, Stage::SetUp, Stage::Cwd, Stage::Exec];

/// Everything a child needs, made ready before it is born.
pub(crate) struct Plan {
    /// Where the program may be, in order.
    pub(crate) paths: Vec<CString>,
    /// Its arguments.
    pub(crate) argv: Vec<CString>,
    /// Its whole environment, `NAME=value`.
    pub(crate) env: Vec<CString>,
    /// Its working directory.
    pub(crate) cwd: CString,
    /// Its three streams.
    pub(crate) streams: [OwnedFd; 3],
    /// The uid and gid it gets, and no capability then; the guest's own where absent.
    pub(crate) user: Option<(u32, u32)>,
    /// Whether clone3 must not exist for it, which the sandbox's own filter then left to the guest.
    pub(crate) deny_clone3: bool,
    /// Likewise openat2.
    pub(crate) deny_openat2: bool,
}

/// One birth, as the guest, the keeper and the child see it. Lives until the one the guest waits for is reaped.
struct Job {
    paths: Vec<*const c_char>,
    argv: Vec<*const c_char>,
    // `/bin/sh`, a place for the path, the arguments from the second on: for a script without a first line.
    shell_argv: Vec<*const c_char>,
    env: Vec<*const c_char>,
    cwd: *const c_char,
    streams: [RawFd; 3],
    user: Option<(u32, u32)>,
    deny_clone3: bool,
    deny_openat2: bool,
    child_stack: *mut c_void,
    guest: i32,
    /// 0 while the birth goes on, 1 when the program runs, 2 when it failed. A futex.
    state: AtomicU32,
    pid: AtomicI32,
    stage: AtomicU32,
    errno: AtomicI32,
    /// 1 when `status` is there.
    done: AtomicU32,
    status: AtomicI32,
}

const GOING_ON: u32 = 0;
const RUNS: u32 = 1;
const FAILED: u32 = 2;

/// From the kernel's `linux/sched.h`; the C library's constant is too narrow.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
/// The greatest number that a descriptor can have. Linux takes any greater one too, and not every kernel does (gVisor).
const DESCRIPTOR_MAX: usize = i32::MAX as usize;
const STACK_BYTES: usize = 64 * 1024;
/// How often, and how long each time, the guest waits for a keeper's answer: ten seconds in all.
const BIRTH_LOOKS: u32 = 200;
const BIRTH_LOOK_NANOS: i64 = 50_000_000;
/// What runs add to the kernel's liking for killing them, so that the guest outlives a program that takes all memory.
const OOM_SCORE_ADJ: &[u8] = b"500";
const SHELL: &[u8] = b"/bin/sh\0";

/// Two stacks, unmapped when dropped.
struct Stacks(*mut c_void);

impl Stacks {
    fn new() -> io::Result<Self> {
        // SAFETY: a fresh anonymous mapping, no fixed address; the kernel's answer is checked.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                STACK_BYTES * 2,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self(base))
    }

    fn top(&self, which: usize) -> *mut c_void {
        self.0.wrapping_byte_add(STACK_BYTES * (which + 1))
    }
}

impl Drop for Stacks {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this size, and nobody runs on it any more (see `Born`).
        unsafe { libc::munmap(self.0, STACK_BYTES * 2) };
    }
}

/// What was born. Must be kept until its child has been reaped: its memory is shared with a keeper.
pub(crate) struct Born {
    /// The process that the guest waits for: the keeper, or the program itself.
    pub(crate) child: i32,
    /// The program.
    pub(crate) program: i32,
    job: Box<Job>,
    _stacks: Stacks,
}

// SAFETY: the raw pointers in `job` are read by the child before its exec only; afterwards nothing but atomics is used.
unsafe impl Send for Born {}
// SAFETY: as for `Send`: shared access reads atomics.
unsafe impl Sync for Born {}

impl std::fmt::Debug for Born {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Born")
            .field("child", &self.child)
            .field("program", &self.program)
            .finish_non_exhaustive()
    }
}

impl Born {
    /// The program's wait status, once its keeper has it.
    pub(crate) fn status(&self) -> Option<i32> {
        (self.job.done.load(Ordering::Acquire) == 1)
            .then(|| self.job.status.load(Ordering::Relaxed))
    }
}

/// Why nothing was born.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotBorn {
    pub(crate) stage: Stage,
    pub(crate) errno: i32,
}

impl NotBorn {
    fn making(error: &io::Error) -> Self {
        Self {
            stage: Stage::Clone,
            errno: error.raw_os_error().unwrap_or(libc::EAGAIN),
        }
    }
}

/// Where a program is born.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Birth<'a> {
    /// Under a keeper of its own.
    Keeper,
    /// As the guest's own child, in this cgroup.
    Cgroup(BorrowedFd<'a>),
}

/// Starts a program, and returns when its exec is done or has failed.
///
/// `Err(None)`: the keeper was killed before it had an answer, which only something inside the sandbox can have done.
pub(crate) fn give_birth(plan: &Plan, birth: Birth<'_>) -> Result<Born, Option<NotBorn>> {
    let stacks = Stacks::new().map_err(|error| Some(NotBorn::making(&error)))?;
    let mut job = Box::new(Job::new(plan, stacks.top(1)));
    let arg: *mut Job = &raw mut *job;
    let old = block_signals();
    // SAFETY: `keep` and `bear` run on stacks of their own that live in `Born`, read `job` which lives there too, and
    // never return. All signals are blocked, so none of the guest's handlers runs in them.
    let child = unsafe {
        match birth {
            Birth::Keeper => clone_on(
                (libc::CLONE_VM | libc::CLONE_FILES | libc::SIGCHLD).unsigned_abs() as usize,
                stacks.top(0),
                keep,
                arg.cast(),
            ),
            Birth::Cgroup(cgroup) => clone_into(cgroup, &stacks, arg.cast()),
        }
    };
    restore_signals(old);
    if child < 0 {
        return Err(Some(NotBorn {
            stage: Stage::Clone,
            errno: errno_of(child),
        }));
    }
    let child = i32::try_from(child).unwrap_or(i32::MAX);
    if matches!(birth, Birth::Keeper) {
        if !job.wait_for_state(child) {
            // The memory may still be in use: it is the guest's last act anyway.
            std::mem::forget((job, stacks));
            return Err(None);
        }
    } else {
        let failed = job.errno.load(Ordering::Acquire) != 0;
        job.pid.store(child, Ordering::Relaxed);
        job.state
            .store(if failed { FAILED } else { RUNS }, Ordering::Release);
    }
    if job.state.load(Ordering::Acquire) == RUNS {
        return Ok(Born {
            child,
            program: job.pid.load(Ordering::Relaxed),
            job,
            _stacks: stacks,
        });
    }
    let error = NotBorn {
        stage: STAGES[(job.stage.load(Ordering::Relaxed) as usize) % STAGES.len()],
        errno: job.errno.load(Ordering::Relaxed),
    };
    // It has ended or is about to: reaped here, before its stack goes. Nothing can keep it from that.
    let mut status = 0;
    // SAFETY: kills and waits for a child of ours, writes one integer.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        while libc::waitpid(child, &raw mut status, 0) < 0
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
    }
    Err(Some(error))
}

impl Job {
    fn new(plan: &Plan, child_stack: *mut c_void) -> Self {
        let pointers = |strings: &[CString]| -> Vec<*const c_char> {
            let strings = strings.iter().map(|string| string.as_ptr());
            strings.chain([ptr::null()]).collect()
        };
        let argv = pointers(&plan.argv);
        let shell = [SHELL.as_ptr().cast(), ptr::null()];
        let shell_argv = shell
            .into_iter()
            .chain(argv.iter().skip(1).copied())
            .collect();
        Self {
            paths: pointers(&plan.paths),
            argv,
            shell_argv,
            env: pointers(&plan.env),
            cwd: plan.cwd.as_ptr(),
            streams: [0, 1, 2].map(|n| {
                use rustix::fd::AsRawFd;
                plan.streams[n].as_raw_fd()
            }),
            user: plan.user,
            deny_clone3: plan.deny_clone3,
            deny_openat2: plan.deny_openat2,
            child_stack,
            guest: i32::try_from(std::process::id()).unwrap_or(0),
            state: AtomicU32::new(GOING_ON),
            pid: AtomicI32::new(0),
            stage: AtomicU32::new(0),
            errno: AtomicI32::new(0),
            done: AtomicU32::new(0),
            status: AtomicI32::new(0),
        }
    }

    /// Waits until the keeper has an answer; false when it is gone without one, or has none within a bounded time.
    /// Something inside may stop a keeper, which is then made to go on.
    fn wait_for_state(&self, keeper: i32) -> bool {
        let pause = libc::timespec {
            tv_sec: 0,
            tv_nsec: BIRTH_LOOK_NANOS,
        };
        for _ in 0..BIRTH_LOOKS {
            // SAFETY: waits on a word that lives as long as `self`, with a timeout.
            unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    self.state.as_ptr(),
                    libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                    GOING_ON,
                    &raw const pause,
                );
            }
            if self.state.load(Ordering::Acquire) != GOING_ON {
                return true;
            }
            let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
            // SAFETY: asks about a child of ours without reaping it, in room of ours; then signals that child.
            unsafe {
                let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
                let id = keeper.unsigned_abs();
                let asked = libc::waitid(libc::P_PID, id, info.as_mut_ptr(), options);
                if asked == 0 && info.assume_init().si_pid() == keeper {
                    return self.state.load(Ordering::Acquire) != GOING_ON;
                }
                libc::kill(keeper, libc::SIGCONT);
            }
        }
        false
    }

    fn fail(&self, stage: Stage, errno: i32) {
        self.stage.store(stage as u32, Ordering::Relaxed);
        self.errno.store(errno, Ordering::Release);
    }

    /// Tells the guest, from the keeper.
    fn settle(&self, state: u32) {
        self.state.store(state, Ordering::Release);
        // SAFETY: wakes whoever waits on a word of ours.
        unsafe {
            raw(
                libc::SYS_futex,
                [
                    self.state.as_ptr() as usize,
                    (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG).unsigned_abs() as usize,
                    1,
                    0,
                    0,
                ],
            );
        }
    }
}

/// A keeper's life: bear the program, reap whatever ends, tell the guest of the program's end, go when nothing is left.
/// The guest ends it earlier to release what the program left behind.
///
/// # Safety
/// `job` is a [`Job`] that outlives this process; runs in a process of its own, with all signals blocked.
unsafe extern "C" fn keep(job: *mut c_void) -> ! {
    // SAFETY: the guest keeps the job until it has reaped this keeper.
    unsafe {
        let job = &*job.cast::<Job>();
        raw(
            libc::SYS_prctl,
            [int(libc::PR_SET_CHILD_SUBREAPER), 1, 0, 0, 0],
        );
        let flags = int(libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD);
        let arg = ptr::from_ref(job).cast_mut().cast();
        let program = clone_on(flags, job.child_stack, bear, arg);
        if program < 0 {
            job.fail(Stage::Clone, errno_of(program));
        }
        if job.errno.load(Ordering::Acquire) != 0 {
            // A child that failed is reaped by whoever reaps this keeper's orphans.
            job.settle(FAILED);
            leave(0);
        }
        job.pid.store(program as i32, Ordering::Relaxed);
        job.settle(RUNS);
        let mut status: i32 = 0;
        let mut options: usize = 0;
        loop {
            let ended = raw(
                libc::SYS_wait4,
                [usize::MAX, (&raw mut status) as usize, options, 0, 0],
            );
            if ended == program {
                job.status.store(status, Ordering::Relaxed);
                job.done.store(1, Ordering::Release);
                // If nothing is left, this keeper's own end tells the guest.
                options = int(libc::WNOHANG);
            } else if ended == 0 {
                // Something is left: tell the guest, and go on reaping.
                options = 0;
                raw(
                    libc::SYS_kill,
                    [int(job.guest), int(libc::SIGCHLD), 0, 0, 0],
                );
            } else if ended == -(libc::ECHILD as isize) {
                leave(0);
            }
        }
    }
}

/// A program's life before its exec.
///
/// # Safety
/// `job` is a [`Job`]; runs in a process of its own whose maker waits.
unsafe extern "C" fn bear(job: *mut c_void) -> ! {
    // SAFETY: the one who made this child waits (CLONE_VFORK) until it execs or ends, and keeps the job.
    unsafe {
        let job = &*job.cast::<Job>();
        raw(libc::SYS_setsid, [0; 5]);
        for (target, source) in job.streams.iter().enumerate() {
            // Descriptors 0 to 2 are taken since the guest's start, so a source is never one of them.
            let done = raw(libc::SYS_dup3, [int(*source), target, 0, 0, 0]);
            if done < 0 {
                give_up(job, Stage::SetUp, done);
            }
        }
        // Closed here, not only by the exec: the caller's paths may lead through `/proc/self/fd`, and among the guest's
        // descriptors is the directory of its cgroups. The table is this child's own.
        let closed = raw(libc::SYS_close_range, [3, DESCRIPTOR_MAX, 0, 0, 0]);
        if closed < 0 {
            give_up(job, Stage::SetUp, closed);
        }
        raise_oom_score();
        let entered = raw(libc::SYS_chdir, [job.cwd as usize, 0, 0, 0, 0]);
        if entered < 0 {
            give_up(job, Stage::Cwd, entered);
        }
        if let Some((uid, gid)) = job.user {
            become_user(job, uid as usize, gid as usize);
        }
        reset_signals();
        if job.deny_clone3 {
            forbid(job, libc::SYS_clone3);
        }
        if job.deny_openat2 {
            forbid(job, libc::SYS_openat2);
        }
        exec(job)
    }
}

/// As execvpe(3) does it: the first candidate that is there and may be run.
///
/// # Safety
/// In a child before its exec, whose job's plan is alive.
unsafe fn exec(job: &Job) -> ! {
    // SAFETY: every pointer comes from a C string or a null-terminated array in the job's plan.
    unsafe {
        let run = |path: *const c_char, argv: *const *const c_char| {
            raw(
                libc::SYS_execve,
                [
                    path as usize,
                    argv as usize,
                    job.env.as_ptr() as usize,
                    0,
                    0,
                ],
            )
        };
        let mut denied = false;
        let mut at = job.paths.as_ptr();
        while !(*at).is_null() {
            let error = run(*at, job.argv.as_ptr());
            match errno_of(error) {
                libc::ENOENT | libc::ENOTDIR => {}
                libc::EACCES => denied = true,
                libc::ENOEXEC => {
                    let argv = job.shell_argv.as_ptr().cast_mut();
                    // The array is this child's alone while the others wait.
                    *argv.wrapping_add(1) = *at;
                    run(SHELL.as_ptr().cast(), argv);
                    give_up(job, Stage::Exec, -(libc::ENOEXEC as isize));
                }
                _ => give_up(job, Stage::Exec, error),
            }
            at = at.wrapping_add(1);
        }
        let errno = if denied { libc::EACCES } else { libc::ENOENT };
        give_up(job, Stage::Exec, -(errno as isize))
    }
}

/// Makes this process a likelier victim than the guest when memory runs out.
///
/// # Safety
/// In a child before its exec.
unsafe fn raise_oom_score() {
    // SAFETY: opens, writes and closes a file of the kernel's; a sandbox without /proc goes without.
    unsafe {
        let path = c"/proc/self/oom_score_adj".as_ptr() as usize;
        let flags = int(libc::O_WRONLY | libc::O_CLOEXEC);
        let file = raw(libc::SYS_openat, [int(libc::AT_FDCWD), path, flags, 0, 0]);
        if file >= 0 {
            let (bytes, length) = (OOM_SCORE_ADJ.as_ptr() as usize, OOM_SCORE_ADJ.len());
            raw(libc::SYS_write, [file as usize, bytes, length, 0, 0]);
            raw(libc::SYS_close, [file as usize, 0, 0, 0, 0]);
        }
    }
}

/// Takes the run's uid and gid.
///
/// # Safety
/// In a child before its exec: the C library would have to be told otherwise.
unsafe fn become_user(job: &Job, uid: usize, gid: usize) {
    // SAFETY: changes this task's own credentials; a uid change away from 0 drops every capability.
    unsafe {
        let steps = [
            raw(libc::SYS_setgroups, [0; 5]),
            raw(libc::SYS_setresgid, [gid, gid, gid, 0, 0]),
            raw(libc::SYS_setresuid, [uid, uid, uid, 0, 0]),
        ];
        for step in steps {
            if step < 0 {
                give_up(job, Stage::SetUp, step);
            }
        }
    }
}

/// What a signal does, in the kernel's form: the handler, flags, and two words more.
///
/// # Safety
/// `handler` is the default or to ignore it.
unsafe fn set_signal(signal: usize, handler: usize) {
    let action = [handler as u64, 0, 0, 0];
    // SAFETY: reads four words of ours; neither handler is code. A number that may not be set is refused.
    unsafe {
        raw(
            libc::SYS_rt_sigaction,
            [signal, action.as_ptr() as usize, 0, 8, 0],
        );
    }
}

/// Whatever the guest inherited: every signal does what it does by default, but for SIGPIPE, which is ignored. Nothing in
/// the guest changes that later, so that only this one is to be put back in a birth.
pub(crate) fn settle_signals() {
    for signal in 1..=64 {
        // SAFETY: the default is no code.
        unsafe { set_signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: to ignore is none either.
    unsafe { set_signal(libc::SIGPIPE.unsigned_abs() as usize, libc::SIG_IGN) };
}

/// The guest ignores SIGPIPE and blocks everything during a birth; a program starts with neither.
///
/// # Safety
/// In a child before its exec, which has handlers of its own.
unsafe fn reset_signals() {
    // SAFETY: the child has handlers of its own (no CLONE_SIGHAND).
    unsafe {
        set_signal(libc::SIGPIPE.unsigned_abs() as usize, libc::SIG_DFL);
        let none = 0_u64;
        raw(
            libc::SYS_rt_sigprocmask,
            [int(libc::SIG_SETMASK), (&raw const none) as usize, 0, 8, 0],
        );
    }
}

/// clone3 and openat2 take their flags from memory, where no filter can look: for programs they do not exist, so that
/// these fall back to clone and openat, whose flags the sandbox's filter judges.
///
/// # Safety
/// In a child before its exec.
unsafe fn forbid(job: &Job, call: libc::c_long) {
    const fn step(code: u32, jump_false: u8, k: u32) -> libc::sock_filter {
        libc::sock_filter {
            code: code as u16,
            jt: 0,
            jf: jump_false,
            k,
        }
    }
    let filter = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, call as u32),
        step(
            libc::BPF_RET | libc::BPF_K,
            0,
            libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32,
        ),
        step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY: the filter lives on this stack during the call; it can only take rights away.
    unsafe {
        raw(
            libc::SYS_prctl,
            [int(libc::PR_SET_NO_NEW_PRIVS), 1, 0, 0, 0],
        );
        let mode = libc::SECCOMP_SET_MODE_FILTER as usize;
        let done = raw(
            libc::SYS_seccomp,
            [mode, 0, (&raw const program) as usize, 0, 0],
        );
        if done < 0 {
            give_up(job, Stage::SetUp, done);
        }
    }
}

/// Tells why and ends.
///
/// # Safety
/// In a child or a keeper.
unsafe fn give_up(job: &Job, stage: Stage, error: isize) -> ! {
    job.fail(stage, errno_of(error));
    // SAFETY: ends this child only.
    unsafe { leave(127) }
}

/// Ends this process, without anything of the C library's.
///
/// # Safety
/// In a child or a keeper.
unsafe fn leave(code: usize) -> ! {
    loop {
        // SAFETY: ends this process; it has one thread.
        unsafe { raw(libc::SYS_exit_group, [code, 0, 0, 0, 0]) };
    }
}

/// Makes a process with these flags on this stack.
///
/// # Safety
/// As for [`raw_clone`].
#[inline(always)]
unsafe fn clone_on(
    flags: usize,
    stack: *mut c_void,
    entry: unsafe extern "C" fn(*mut c_void) -> !,
    arg: *mut c_void,
) -> isize {
    // SAFETY: the caller's.
    unsafe { raw_clone(libc::SYS_clone, [flags, stack as usize], entry, arg) }
}

/// The program as the guest's own child, born inside a cgroup: no move, which would wait for a grace period of the
/// kernel's (12 ms where it was measured).
///
/// # Safety
/// As for [`raw_clone`]; `arg` is a [`Job`].
unsafe fn clone_into(cgroup: BorrowedFd<'_>, stacks: &Stacks, arg: *mut c_void) -> isize {
    use rustix::fd::AsRawFd;
    // Eleven words of `struct clone_args`, in the kernel's order.
    let flags = (libc::CLONE_VM | libc::CLONE_VFORK).unsigned_abs() as u64 | CLONE_INTO_CGROUP;
    let args: [u64; 11] = [
        flags,
        0,
        0,
        0,
        libc::SIGCHLD.unsigned_abs().into(),
        // The lowest byte of the stack, not its top.
        stacks.0 as u64,
        STACK_BYTES as u64,
        0,
        0,
        0,
        cgroup.as_raw_fd().unsigned_abs().into(),
    ];
    // SAFETY: the caller's; the arguments live during the call.
    unsafe {
        raw_clone(
            libc::SYS_clone3,
            [args.as_ptr() as usize, size_of_val(&args)],
            bear,
            arg,
        )
    }
}

/// Whether this process may call clone3 at all: with no arguments it answers EINVAL where it exists.
pub(crate) fn has_clone3() -> bool {
    // SAFETY: arguments of size 0 are refused before anything happens.
    let answer = unsafe { raw(libc::SYS_clone3, [0; 5]) };
    errno_of(answer) == libc::EINVAL
}

fn block_signals() -> u64 {
    let all = u64::MAX;
    let mut old = 0_u64;
    // SAFETY: reads and writes two words of ours.
    unsafe {
        raw(
            libc::SYS_rt_sigprocmask,
            [
                int(libc::SIG_SETMASK),
                (&raw const all) as usize,
                (&raw mut old) as usize,
                8,
                0,
            ],
        );
    }
    old
}

fn restore_signals(old: u64) {
    // SAFETY: reads one word of ours.
    unsafe {
        raw(
            libc::SYS_rt_sigprocmask,
            [int(libc::SIG_SETMASK), (&raw const old) as usize, 0, 8, 0],
        );
    }
}

/// A descriptor that is readable whenever a child has ended. SIGCHLD is blocked for that; programs start with nothing
/// blocked. (A handler would do, but the usual machinery around one takes more memory than the rest of the guest.)
pub(crate) fn child_signals() -> io::Result<AsyncFd<OwnedFd>> {
    let mut signals = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: fills a set of ours, blocks what is in it for this only thread, and owns the fresh descriptor.
    unsafe {
        libc::sigemptyset(signals.as_mut_ptr());
        libc::sigaddset(signals.as_mut_ptr(), libc::SIGCHLD);
        if libc::sigprocmask(libc::SIG_BLOCK, signals.as_ptr(), ptr::null_mut()) < 0 {
            return Err(io::Error::last_os_error());
        }
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        let descriptor = libc::signalfd(-1, signals.as_ptr(), flags);
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        let descriptor = OwnedFd::from_raw_fd(descriptor);
        // An owned descriptor stays open, and the same, for as long as it is registered.
        AsyncFd::register_with_interest(descriptor, Interest::READABLE)
            .map_err(|error| error.into_parts().1)
    }
}

/// Takes an inherited descriptor, if it is open. Each number at most once, before anything else is opened.
pub(crate) fn inherited(number: RawFd) -> Option<OwnedFd> {
    // SAFETY: only asks for the flags of a number.
    if number < 0 || unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return None;
    }
    // SAFETY: it is open, and the caller's promise makes us its only owner.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Closes everything but descriptors 0 to 2. Before anything else is opened, or somebody would lose what is theirs.
pub(crate) fn close_but_standard_streams() -> io::Result<()> {
    // SAFETY: closes numbers that nothing of ours has been made from yet.
    let done = unsafe { raw(libc::SYS_close_range, [3, DESCRIPTOR_MAX, 0, 0, 0]) };
    if done < 0 {
        return Err(io::Error::from_raw_os_error(errno_of(done)));
    }
    Ok(())
}

/// Gives memory back to the kernel that big transfers left with the allocator.
pub(crate) fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: releases free pages of the allocator's, no live memory.
    unsafe {
        libc::malloc_trim(0);
    }
}
