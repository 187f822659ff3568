//! Parts of the kernel that sandboxes have been left through before, asked for by system calls.

use crate::place::Place;

/// Says for each call how it ended, one line each: its name, the result, the error.
const TABLE: &str = r##"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifndef SYS_clone3
#define SYS_clone3 435
#endif
#ifndef SYS_open_tree
#define SYS_open_tree 428
#define SYS_move_mount 429
#define SYS_fsopen 430
#define SYS_fsconfig 431
#define SYS_fsmount 432
#define SYS_fspick 433
#endif
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif
#ifndef SYS_io_uring_setup
#define SYS_io_uring_setup 425
#define SYS_io_uring_enter 426
#define SYS_io_uring_register 427
#endif
static void say(const char *name, long result) {
  printf("%s %ld %d\n", name, result < 0 ? -1L : 0L, result < 0 ? errno : 0);
}
#define TRY(name, ...) errno = 0; say(#name, syscall(SYS_##name, ##__VA_ARGS__))
struct args { unsigned long long flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, n, cgroup; };
int main(void) {
  char page[4096]; memset(page, 0, sizeof page);
  TRY(unshare, CLONE_NEWUSER); TRY(unshare, CLONE_NEWNS); TRY(unshare, CLONE_NEWNET); TRY(unshare, 0x80);
  TRY(setns, 0, 0); TRY(mount, "none", "/tmp", "tmpfs", 0, 0); TRY(umount2, "/proc", 2); TRY(pivot_root, ".", ".");
  TRY(fsopen, "tmpfs", 0); TRY(fsopen, "proc", 0); TRY(fsconfig, 3, 0, 0, 0, 0); TRY(fsmount, 3, 0, 0);
  TRY(fspick, AT_FDCWD, "/", 0); TRY(open_tree, AT_FDCWD, "/", 1); TRY(move_mount, 0, "", 0, "", 0);
  TRY(mount_setattr, AT_FDCWD, "/", 0, page, 32); TRY(quotactl, 0, 0, 0, 0);
  TRY(bpf, 0, page, 64); TRY(io_uring_setup, 8, page); TRY(io_uring_enter, 0, 0, 0, 0, 0, 0);
  TRY(io_uring_register, 0, 0, 0, 0); TRY(userfaultfd, 1); TRY(perf_event_open, page, 0, -1, -1, 0);
  TRY(keyctl, 0, -3, 1); TRY(add_key, "user", "x", "y", 1, -3); TRY(request_key, "user", "x", 0, -3);
  TRY(fanotify_init, 0, 0); TRY(fanotify_mark, 0, 0, 0, 0, 0);
  TRY(open_by_handle_at, AT_FDCWD, page, 0); TRY(init_module, page, 0, ""); TRY(finit_module, 0, "", 0);
  TRY(delete_module, "x", 0); TRY(kexec_load, 0, 0, 0, 0); TRY(kexec_file_load, 0, 0, 0, 0, 0); TRY(reboot, 0, 0, 0, 0);
  TRY(syslog, 3, page, sizeof page); TRY(swapon, "/x", 0); TRY(swapoff, "/x"); TRY(acct, "/tmp/acct");
  TRY(sethostname, "x", 1); TRY(setdomainname, "x", 1); TRY(settimeofday, page, 0); TRY(clock_settime, 0, page);
  TRY(vhangup); TRY(mbind, 0, 0, 0, 0, 0, 0); TRY(move_pages, 0, 0, 0, 0, 0, 0); TRY(migrate_pages, 0, 0, 0, 0);
#ifdef __x86_64__
  TRY(iopl, 3); TRY(ioperm, 0, 1, 1);
#endif
  struct args a; memset(&a, 0, sizeof a);
  unsigned long long spaces[] = {CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWIPC, CLONE_NEWUTS, 0x02000000, 0x80};
  for (int i = 0; i < 8; i++) {
    a.flags = spaces[i]; a.exit_signal = 17;
    errno = 0; long born = syscall(SYS_clone3, &a, sizeof a);
    if (born == 0) _exit(0);
    say("clone3", born);
#ifdef __x86_64__
    if (spaces[i] == 0x80) continue;
    errno = 0; born = syscall(SYS_clone, spaces[i] | 17, 0, 0, 0, 0);
#else
    if (spaces[i] == 0x80) continue;
    errno = 0; born = syscall(SYS_clone, spaces[i] | 17, 0, 0, 0, 0);
#endif
    if (born == 0) _exit(0);
    say("clone", born);
  }
  // The harmless twin.
  TRY(getpid); TRY(openat, AT_FDCWD, "/tmp", O_RDONLY); TRY(memfd_create, "x", 0);
  return 0;
}
"##;

pub(crate) async fn calls_that_lead_out_fail() {
    let place = Place::open().await;
    place.session("a").await;
    place.compile("a", "table", TABLE);
    let said = place.says("a", "./table").await;
    let mut tried = 0;
    for line in said.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let (name, result, errno) = (words[0], words[1], words[2]);
        if ["getpid", "openat", "memfd_create"].contains(&name) {
            assert_eq!(result, "0", "{line}");
            continue;
        }
        assert_eq!(result, "-1", "{line}");
        // Refused by the filter, not by chance: EPERM, or ENOSYS for what programs are to do without.
        let expected: &[&str] = if name == "clone3" { &["38"] } else { &["1"] };
        assert!(expected.contains(&errno), "{line}");
        tried += 1;
    }
    assert!(tried > 60, "{tried}: {said}");
    assert_eq!(
        said.lines().filter(|line| line.ends_with(" 0 0")).count(),
        3
    );
    place.close().await;
}

pub(crate) async fn sockets_without_a_use_are_not_made() {
    let place = Place::open().await;
    place.session("a").await;
    let said = place
        .python_says(
            "a",
            r#"
import ctypes, errno, socket
libc = ctypes.CDLL(None, use_errno=True)
def made(call, *arguments):
    ctypes.set_errno(0)
    pair = (ctypes.c_int * 2)()
    result = call(*arguments, pair) if call is libc.socketpair else call(*arguments)
    return 0 if result >= 0 else ctypes.get_errno()
tried = 0
for call in (libc.socket, libc.socketpair):
    for family in range(3, 50):
        if family in (10, 16): continue
        for kind in (1, 2, 3, 5):
            assert made(call, family, kind, 0) == errno.EAFNOSUPPORT, (family, kind)
            tried += 1
    for protocol in range(1, 23):
        assert made(call, 16, 3, protocol) == errno.EAFNOSUPPORT, protocol
        tried += 1
    for family in (2, 10):
        for protocol in (33, 47, 115, 132, 255):
            assert made(call, family, 3, protocol) == errno.EPROTONOSUPPORT, protocol
            tried += 1
    # A raw socket needs a capability that nobody inside has.
    for family, kind in ((2, 3), (10, 3)):
        assert made(libc.socket, family, kind, 1) == errno.EPERM
# The twin: what programs use.
assert made(libc.socket, 1, 1, 0) == made(libc.socket, 2, 1, 0) == made(libc.socket, 10, 2, 17) == made(libc.socket, 16, 3, 0) == 0
assert made(libc.socketpair, 1, 1, 0) == 0
print(tried)
"#,
        )
        .await;
    assert!(said.parse::<u32>().unwrap() > 400, "{said}");
    place.close().await;
}

/// Calls by the numbers of other tables: those of 32-bit programs end the process, those of the x32 table are unknown.
const FOREIGN: &str = r##"
#include <errno.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
#ifdef __x86_64__
  // mount and unshare by the x32 table.
  long x32 = syscall(0x40000000 + SYS_mount, "none", "/tmp", "tmpfs", 0, 0);
  printf("x32 %ld %d\n", x32, errno);
  if (fork() == 0) {
    long answer;
    __asm__ volatile("int $0x80" : "=a"(answer) : "a"(20) : "memory");
    printf("i386 answered %ld\n", answer);
    _exit(0);
  }
  int status = 0; wait(&status);
  printf("i386 %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
#else
  printf("x32 -1 38\ni386 31\n");
#endif
  errno = 0; long unknown = syscall(9999);
  printf("unknown %ld %d\n", unknown, errno);
  return 0;
}
"##;

pub(crate) async fn unknown_calls_and_foreign_tables_do_nothing() {
    let place = Place::open().await;
    place.session("a").await;
    place.compile("a", "foreign", FOREIGN);
    let said = place.says("a", "./foreign").await;
    // A kernel without 32-bit programs faults instead (SIGSEGV); either way nothing is done.
    let ends = [
        "x32 -1 38\ni386 31\nunknown -1 38",
        "x32 -1 38\ni386 11\nunknown -1 38",
    ];
    assert!(ends.contains(&said.as_str()), "{said}");
    place.close().await;
}
