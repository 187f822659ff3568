//! Every wall for itself: looked at from inside, or from outside at what is inside, so that none of them is only believed
//! to stand because another catches what it lets through.

use crate::ordinary::is_root;
use crate::outside::{self, Seen};
use crate::place::{Place, all_work, none_works};
use rustix::fs::SealFlags;
use std::os::fd::AsFd as _;

fn ids(seen: &Seen, name: &str) -> Vec<u32> {
    let words = seen.field(name).split_whitespace();
    words.map(|word| word.parse().unwrap()).collect()
}

/// First and last id on the host, of each line of a mapping.
fn mapping(seen: &Seen) -> Vec<(u32, u32)> {
    let text = std::fs::read_to_string(seen.path("uid_map")).unwrap();
    let lines = text.lines().map(|line| {
        let numbers: Vec<u32> = line
            .split_whitespace()
            .map(|word| word.parse().unwrap())
            .collect();
        (numbers[1], numbers[1] + numbers[2] - 1)
    });
    lines.collect()
}

pub(crate) async fn users_are_nobodys_else() {
    let place = Place::open().await;
    for id in ["a", "b"] {
        place.session(id).await;
    }
    let guests = outside::guests();
    // With what is kept ready, where anything is.
    assert_eq!(guests.len(), 2 + place.ready());
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap();
    let used: Vec<u32> = accounts
        .lines()
        .filter_map(|line| line.split(':').nth(2)?.parse().ok())
        .collect();
    if is_root() {
        for guest in &guests {
            for id in ids(guest, "Uid").into_iter().chain(ids(guest, "Gid")) {
                assert_ne!(id, 0);
                assert!(!used.contains(&id), "{id}");
            }
            assert_eq!(guest.field("Groups"), "", "{guest:?}");
            let map = mapping(guest);
            assert_eq!(map.len(), 1, "{map:?}");
            assert!(!used.iter().any(|id| (map[0].0..=map[0].1).contains(id)));
        }
        let mut ranges: Vec<_> = guests.iter().map(|guest| mapping(guest)[0]).collect();
        ranges.sort_unstable();
        for pair in ranges.windows(2) {
            assert!(pair[0].1 < pair[1].0, "{ranges:?}");
        }
    } else {
        // The one user that there is.
        let me = rustix::process::geteuid().as_raw();
        assert!(guests.iter().all(|guest| mapping(guest) == [(me, me)]));
    }
    place.close().await;
}

/// chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap, net_bind_service, sys_chroot, setfcap.
const KEPT: [u32; 11] = [0, 1, 3, 4, 5, 6, 7, 8, 10, 18, 31];

pub(crate) async fn capabilities_are_those_of_the_list_and_none_outside() {
    let place = Place::open().await;
    place.session("a").await;
    let wanted: u64 = KEPT.iter().map(|number| 1 << number).sum();
    let text = place.says("a", "grep ^Cap /proc/self/status").await;
    for (name, expected) in [
        ("CapInh", 0),
        ("CapPrm", wanted),
        ("CapEff", wanted),
        ("CapBnd", wanted),
        ("CapAmb", 0),
    ] {
        assert!(
            text.contains(&format!("{name}:\t{expected:016x}")),
            "{name}: {text}"
        );
    }
    // They are over what this namespace owns: it is not the host's.
    for guest in outside::guests() {
        let theirs = std::fs::read_link(guest.path("ns/user"));
        if let Ok(theirs) = theirs {
            assert_ne!(theirs, std::fs::read_link("/proc/self/ns/user").unwrap());
        }
        assert_eq!(guest.field("CapEff"), format!("{wanted:016x}"));
    }
    // And none comes back: by a file that carries them, or by taking what was dropped.
    let said = place
        .python_says(
            "a",
            r"
import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
class Head(ctypes.Structure): _fields_ = [('version', ctypes.c_uint32), ('pid', ctypes.c_int)]
head = Head(0x20080522, 0)
every = (ctypes.c_uint32 * 6)(*([0xffffffff] * 4 + [0, 0]))
assert libc.capset(ctypes.byref(head), every) == -1
assert libc.prctl(24, 21, 0, 0, 0) == 0 or True
for number in (2, 12, 13, 16, 17, 19, 21, 22, 24, 25, 27, 38, 39, 40):
    # PR_CAP_AMBIENT_RAISE, then PR_CAPBSET_READ.
    assert libc.prctl(47, 2, number, 0, 0) == -1, number
    assert libc.prctl(23, number, 0, 0, 0) == 0, number
print('none')
",
        )
        .await;
    assert_eq!(said, "none");
    place.close().await;
}

const WHO: &str = r##"
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int main(int n, char **words) {
  if (n > 1) { setgroups(0, 0); setgid(1000); setuid(1000); execl(words[1], words[1], (char *)0); perror("exec"); return 1; }
  printf("%d %d %d %d\n", getuid(), geteuid(), getgid(), getegid());
  return 0;
}
"##;

pub(crate) async fn no_file_lends_its_owners_rights() {
    let place = Place::open().await;
    place.session("a").await;
    place.compile("a", "who", WHO);
    let status = place.says("a", "grep NoNewPrivs /proc/self/status").await;
    assert_eq!(status, "NoNewPrivs:\t1");
    if is_root() {
        // In the workspace, in memory, and in the root.
        for at in ["/workspace", "/tmp", "/root", "/dev/shm"] {
            let script = format!(
                "cp who {at}/lent 2>/dev/null; chmod 0755 /root; chown 0:0 {at}/lent; chmod 6755 {at}/lent; ./who {at}/lent"
            );
            let did = place.sh("a", &script).await;
            assert!(
                !did.worked() || did.out == "1000 1000 1000 1000\n",
                "{at}: {did:?}"
            );
        }
        // The twin: without being lent anything it runs, as itself.
        assert_eq!(place.says("a", "./who").await, "0 0 0 0");
        let mounts = place.says("a", "cat /proc/self/mountinfo").await;
        for line in mounts.lines() {
            let options: Vec<&str> = line
                .split(' ')
                .nth(5)
                .unwrap_or_default()
                .split(',')
                .collect();
            assert!(options.contains(&"nosuid"), "{line}");
        }
    } else {
        // There is no other user to lend anything to, and none to become.
        assert!(place.says("a", "./who ./who; true").await.starts_with("0 0"));
    }
    place.close().await;
}

pub(crate) async fn the_second_wall_stands() {
    let place = Place::open().await;
    place.session("a").await;
    // The session says what is so.
    let shown = place.get("/sessions/a").await.ok()["enforced"]["landlock"].clone();
    let generation = landlock();
    assert_eq!(shown["enforced"], generation >= 2, "{shown}");
    if generation < 2 {
        println!("this kernel has no Landlock, or one that cannot let files be moved");
        place.close().await;
        return;
    }
    let reason = shown["reason"].as_str().unwrap_or_default();
    assert!(reason.starts_with(&format!("Landlock {generation}:")), "{reason}");
    // Asked first, it refuses by another word than the wall behind it, which would say that there is no right to.
    let said = place
        .python_says(
            "a",
            r"
import errno, os, stat
for directory in ('/workspace', '/tmp', '/root', '/dev/shm'):
    for kind, device in ((stat.S_IFBLK, os.makedev(7, 0)), (stat.S_IFCHR, os.makedev(1, 1))):
        try: os.mknod(directory + '/device', kind | 0o600, device)
        except OSError as error: assert error.errno == errno.EACCES, (directory, error)
        else: raise AssertionError(directory)
    # The twins: what is no device, moved and linked from one directory to another.
    os.mkfifo(directory + '/queue'); os.makedirs(directory + '/d/e')
    os.rename(directory + '/queue', directory + '/d/e/queue'); os.link(directory + '/d/e/queue', directory + '/d/again')
import pty, termios, fcntl
main, other = pty.openpty()
fcntl.ioctl(other, termios.TIOCGWINSZ, b'12345678')
print('stands')
",
        )
        .await;
    assert_eq!(said, "stands");
    place.close().await;
}

/// The generation that the kernel of this host speaks, none being 0: asked by a program, since a test may call nothing
/// unsafe.
fn landlock() -> i32 {
    let ask = "import ctypes; print(ctypes.CDLL(None).syscall(444, None, 0, 1))";
    let output = std::process::Command::new("/usr/bin/python3")
        .args(["-c", ask])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().map_or(0, |generation: i32| generation.max(0))
}

pub(crate) async fn the_devices_are_the_usual_ones() {
    let place = Place::open().await;
    place.session("a").await;
    // One by one: what a listing says of a mounted file is said of what lies below it.
    let list = "cd /dev; find . ! -type l ! -type d | sort | while read f; do stat -c '%n %F %t:%T' $f; done";
    let found = place.says("a", list).await;
    let usual = [
        "./full character special file 1:7",
        "./null character special file 1:3",
        "./pts/ptmx character special file 5:2",
        "./random character special file 1:8",
        "./tty character special file 5:0",
        "./urandom character special file 1:9",
        "./zero character special file 1:5",
    ];
    assert_eq!(found.lines().collect::<Vec<_>>(), usual);
    let rest = place
        .says("a", "find / -xdev \\( -type b -o -type c \\) | sort")
        .await;
    assert_eq!(rest, "");
    // The twins: they are the real ones.
    all_work(
        &place,
        "a",
        &[
            "test $(head -c 8 /dev/zero | tr -d '\\0' | wc -c) = 0",
            "echo x > /dev/null",
            "test $(head -c 8 /dev/urandom | wc -c) = 8",
        ],
    )
    .await;
    none_works(
        &place,
        "a",
        &[
            "mknod /tmp/disk b 8 0",
            "mknod /tmp/mem c 1 1",
            "mknod /dev/mem c 1 1",
            "mknod /workspace/kmsg c 1 11",
            "cat /dev/tty",
            "chmod 0666 /dev/null",
            "rm -f /dev/null",
            "mv /dev/null /dev/nil",
        ],
    )
    .await;
    place.close().await;
}

pub(crate) async fn proc_and_sys_are_its_own_and_what_is_the_machines_is_hidden() {
    let place = Place::open().await;
    place.session("a").await;
    for path in [
        "cmdline", "config.gz", "interrupts", "kallsyms", "kcore", "key-users", "keys", "kmsg", "modules",
        "timer_list", "sched_debug",
    ] {
        let script = format!("test ! -e /proc/{path} || test -z \"$(timeout 5 cat /proc/{path} | head -c 1)\"");
        assert!(place.sh("a", &script).await.worked(), "{path}");
    }
    for path in ["acpi", "pressure", "scsi", "asound"] {
        let script = format!("test -z \"$(ls -A /proc/{path} 2>/dev/null)\"");
        assert!(place.sh("a", &script).await.worked(), "{path}");
    }
    none_works(
        &place,
        "a",
        &[
            "find /proc/sys /proc/irq /proc/bus /proc/fs /sys -writable -type f 2>/dev/null | while read f; do echo 1 2>/dev/null > $f && echo $f; done | grep .",
            "echo b > /proc/sysrq-trigger",
            "touch /sys/x",
            "mkdir /proc/x",
            "echo 1 > /proc/sys/vm/drop_caches",
            "echo x > /proc/sys/kernel/hostname",
            "echo 9 > /proc/sys/user/max_user_namespaces",
            "umount /proc/kcore",
            "umount -l /proc/sys",
            "mount -o remount,rw /proc/sys",
            "ls /sys/kernel /sys/fs /sys/firmware /sys/class",
        ],
    )
    .await;
    // Its processes are its own, and the guest keeps itself to itself.
    let count: u32 = place
        .says("a", "ls /proc | grep -c '^[0-9]*$'")
        .await
        .parse()
        .unwrap();
    assert!(count < 10, "{count}");
    none_works(
        &place,
        "a",
        &[
            "cat /proc/1/environ",
            "cat /proc/1/mem",
            "cat /proc/1/maps",
            "readlink /proc/1/fd/3",
            "cat /proc/1/fdinfo/3",
            "ls /proc/1/fd/4/",
            "ls /proc/1/root/",
            "ls /proc/1/cwd/",
            "readlink /proc/1/exe",
            "cat /proc/1/auxv",
            "cat /proc/1/syscall",
            "cat /proc/1/stack",
        ],
    )
    .await;
    all_work(
        &place,
        "a",
        &[
            "grep -q MemTotal /proc/meminfo",
            "grep -q Pid /proc/self/status",
            "cat /proc/self/environ > /dev/null",
            "test -d /sys/devices/system/cpu",
        ],
    )
    .await;
    place.close().await;
}

pub(crate) async fn namespaces_are_its_own_and_no_more_are_made() {
    let place = Place::open().await;
    place.session("a").await;
    let names = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"];
    for name in names {
        let path = format!("/proc/self/ns/{name}");
        let ours = std::fs::read_link(&path).unwrap();
        let theirs = place.says("a", &format!("readlink {path}")).await;
        assert!(theirs.starts_with(name), "{theirs}");
        assert_ne!(ours.display().to_string(), theirs, "{name}");
        let limit = place
            .says("a", &format!("cat /proc/sys/user/max_{name}_namespaces"))
            .await;
        assert_eq!(limit, "0", "{name}");
    }
    none_works(
        &place,
        "a",
        &[
            "unshare -U true",
            "unshare -Ur true",
            "unshare -m true",
            "unshare -n true",
            "unshare -p -f true",
            "unshare -C true",
            "unshare -i true",
            "unshare -u true",
            "unshare -T true",
            "nsenter -t 1 -a true",
            "nsenter -t 1 -U true",
        ],
    )
    .await;
    place.close().await;
}

pub(crate) async fn a_run_has_a_session_of_its_own_and_no_terminal() {
    let place = Place::open().await;
    place.session("a").await;
    let said = place
        .python_says(
            "a",
            r"
import os
words = open('/proc/self/stat').read().rsplit(')', 1)[1].split()
group, session, terminal = int(words[2]), int(words[3]), int(words[4])
assert group == session == os.getpid() and terminal == 0, words[:6]
try: open('/dev/tty')
except OSError as error: assert error.errno == 6, error
else: raise AssertionError('a terminal')
# The guest is in another session, and in one that is not the host's.
one = open('/proc/1/stat').read().rsplit(')', 1)[1].split()
assert int(one[3]) in (0, 1) and int(one[4]) == 0, one[:6]
print('own')
",
        )
        .await;
    assert_eq!(said, "own");
    place.close().await;
}

pub(crate) async fn the_keyring_of_whoever_started_the_service_is_left_behind() {
    let place = Place::open().await;
    place.session("a").await;
    // The filter refuses to look; the kernel's lists are hidden; and the calls below would find an empty ring.
    let said = place
        .python_says(
            "a",
            r"
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
import platform
keyctl, add_key, request_key = (250, 248, 249) if platform.machine() == 'x86_64' else (219, 217, 218)
for arguments in ((keyctl, 0, -3, 0), (keyctl, 11, -3, 0, 0), (keyctl, 1, 0), (add_key, b'user', b'a', b'b', 1, -3),
                  (request_key, b'user', b'a', 0, -4)):
    ctypes.set_errno(0)
    assert libc.syscall(*arguments) == -1 and ctypes.get_errno() == errno.EPERM, arguments
assert open('/proc/keys').read() == ''
print('empty')
",
        )
        .await;
    assert_eq!(said, "empty");
    place.close().await;
}

pub(crate) async fn the_program_that_enters_is_sealed_and_holds_nothing_of_the_hosts() {
    let place = Place::open().await;
    place.session("a").await;
    assert_eq!(place.says("a", "echo in").await, "in");
    if !is_root() {
        println!("only root may look at what does not let itself be looked at");
        place.close().await;
        return;
    }
    for guest in outside::guests() {
        let exe = std::fs::read_link(guest.path("exe")).unwrap();
        assert!(exe.to_string_lossy().starts_with("/memfd:"), "{exe:?}");
        // Not even root of the host can write it.
        let write = std::fs::OpenOptions::new()
            .write(true)
            .open(guest.path("exe"));
        assert!(write.is_err());
        let read = std::fs::File::open(guest.path("exe")).unwrap();
        let seals = rustix::fs::fcntl_get_seals(read.as_fd()).unwrap();
        let all = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
        assert!(seals.contains(all), "{seals:?}");
        let open: Vec<String> = std::fs::read_dir(guest.path("fd"))
            .unwrap()
            .map(|entry| std::fs::read_link(entry.unwrap().path()).unwrap())
            .map(|target| target.display().to_string())
            .collect();
        for target in &open {
            // A device, the root of a mount of its own (its cgroup), what that counts, or a run's leaf in it: no path of the
            // host's.
            let harmless = ["/dev/null", "/null", "/proc", "/", "/memory.events"].contains(&target.as_str())
                || target.starts_with("/run-")
                || target.starts_with("socket:")
                || target.starts_with("anon_inode:")
                || target.starts_with("pipe:");
            assert!(harmless, "{target}: {open:?}");
        }
        let cwd = std::fs::read_link(guest.path("cwd")).unwrap();
        assert!(cwd.ends_with("workspace"), "{cwd:?}");
    }
    place.close().await;
}
