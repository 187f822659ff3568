//! What a program inside is, what it sees, and what it is refused.

use crate::rented::{House, host, is_root};

fn field<'a>(status: &'a str, name: &str) -> &'a str {
    status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map_or("missing", str::trim)
}

#[tokio::test]
async fn root_inside_has_the_listed_capabilities_and_can_gain_none() {
    if !is_root() {
        return;
    }
    let house = House::new().await;
    let sandbox = house.rent(&host()).await;
    let status = sandbox.says("cat /proc/self/status").await;
    // chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap, net_bind_service, sys_chroot, setfcap.
    for name in ["CapPrm", "CapEff", "CapBnd"] {
        assert_eq!(field(&status, name), "00000000800405fb", "{name}");
    }
    for name in ["CapInh", "CapAmb"] {
        assert_eq!(field(&status, name), "0000000000000000", "{name}");
    }
    assert_eq!(field(&status, "NoNewPrivs"), "1");
    assert_eq!(field(&status, "Seccomp"), "2");
    assert_eq!(sandbox.says("id -u; id -g; id -G").await, "0\n0\n0");
    let outside = std::fs::read_to_string("/proc/self/uid_map").unwrap();
    assert_ne!(sandbox.says("cat /proc/self/uid_map").await, outside.trim());
    sandbox.end().await;
    house.close().await;
}

#[tokio::test]
async fn a_run_of_a_user_has_no_capability() {
    if !is_root() {
        return;
    }
    let house = House::new().await;
    let mut spec = host();
    spec.user = Some(1000);
    let sandbox = house.rent(&spec).await;
    let status = sandbox.says("cat /proc/self/status").await;
    for name in ["CapPrm", "CapEff", "CapInh", "CapAmb"] {
        assert_eq!(field(&status, name), "0000000000000000", "{name}");
    }
    assert_eq!(
        sandbox
            .says("id -u; id -g; whoami; echo $HOME; touch mine; cd; touch mine")
            .await,
        "1000\n1000\nagent\n/home/agent"
    );
    assert_ne!(sandbox.sh("touch /etc/mine").await.exit.code, 0);
    sandbox.end().await;
    house.close().await;
}

#[tokio::test]
async fn every_namespace_is_another_than_the_hosts() {
    if !is_root() {
        return;
    }
    let house = House::new().await;
    let sandbox = house.rent(&host()).await;
    for name in ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"] {
        let path = format!("/proc/self/ns/{name}");
        let ours = std::fs::read_link(&path).unwrap();
        let theirs = sandbox.says(&format!("readlink {path}")).await;
        assert_ne!(ours.display().to_string(), theirs, "{name}");
    }
    assert_eq!(
        sandbox.says("hostname; cat /etc/hostname").await,
        "sandbox\nsandbox"
    );
    // Of the host's cgroups nothing is told.
    let groups = sandbox.says("cat /proc/self/cgroup").await;
    assert!(!groups.contains("sandboxd-"), "{groups}");
    assert!(!groups.contains(sandbox.id.as_str()), "{groups}");
    sandbox.end().await;
    house.close().await;
}

#[tokio::test]
async fn nothing_of_the_hosts_that_is_private_is_in_view() {
    if !is_root() {
        return;
    }
    let canary = "canary-7f3a";
    let directory = tempfile::Builder::new()
        .prefix("canary")
        .tempdir_in("/var/tmp")
        .unwrap();
    std::fs::write(directory.path().join("secret"), canary).unwrap();
    let house = House::new().await;
    let sandbox = house.rent(&host()).await;
    for path in [
        "/etc/shadow",
        "/etc/gshadow",
        "/etc/ssh",
        "/etc/sudoers",
        "/etc/machine-id",
        "/etc/ssl/private",
        "/opt",
        "/srv",
        "/boot",
        "/sys/fs",
        "/sys/kernel",
        "/proc/kcore.real",
    ] {
        let did = sandbox.sh(&format!("ls -d {path}")).await;
        assert_ne!(did.exit.code, 0, "{path} is in view");
    }
    for path in [
        "/root", "/home", "/mnt", "/run", "/var/lib", "/var/log", "/var/tmp", "/tmp",
    ] {
        assert_eq!(sandbox.says(&format!("ls -A {path}")).await, "", "{path}");
    }
    assert_eq!(sandbox.says("find / -xdev -type s 2>/dev/null").await, "");
    let state = house.state.display().to_string();
    for file in [
        "/proc/mounts",
        "/proc/self/mountinfo",
        "/proc/1/environ",
        "/proc/1/cmdline",
    ] {
        let text = sandbox.sh(&format!("cat {file}")).await.out;
        assert!(!text.contains(&state), "{file}: {text}");
    }
    let env = sandbox.says("env").await;
    assert!(!env.contains("CARGO"), "{env}");
    // Only the streams, and the directory that is being listed.
    assert_eq!(sandbox.says("ls /proc/self/fd | wc -l").await, "4");
    let kcore = sandbox
        .sh("cat /proc/kcore /proc/keys /proc/timer_list | wc -c")
        .await;
    assert_eq!(kcore.out.trim(), "0", "{kcore:?}");
    sandbox.end().await;
    house.close().await;
}

#[tokio::test]
async fn what_the_host_keeps_for_its_root_is_kept_from_root_inside() {
    use std::os::unix::fs::PermissionsExt as _;
    if !is_root() {
        return;
    }
    let directory = tempfile::Builder::new()
        .prefix("canary")
        .tempdir_in("/usr/local/share")
        .unwrap();
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(directory.path(), open).unwrap();
    let secret = directory.path().join("secret");
    std::fs::write(&secret, "canary").unwrap();
    std::fs::write(directory.path().join("open"), "for all").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    let house = House::new().await;
    let sandbox = house.rent(&host()).await;
    let path = directory.path().display();
    assert_eq!(sandbox.says(&format!("cat {path}/open")).await, "for all");
    let did = sandbox
        .sh(&format!("cat {path}/secret || chmod 644 {path}/secret"))
        .await;
    assert_ne!(did.exit.code, 0);
    assert_eq!(did.out, "");
    sandbox.end().await;
    house.close().await;
}

#[tokio::test]
async fn a_crash_starts_no_helper_of_the_hosts() {
    if !is_root() {
        return;
    }
    let house = House::new().await;
    let sandbox = house.rent(&host()).await;
    // The limit that holds the kernel back, before and after an attempt to change it.
    let did = sandbox
        .python(
            r"
import resource
print(resource.getrlimit(resource.RLIMIT_CORE))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
print(resource.getrlimit(resource.RLIMIT_CORE))
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
print(resource.getrlimit(resource.RLIMIT_NOFILE))
",
        )
        .await;
    assert_eq!(did.out, "(1, 1)\n(1, 1)\n(64, 64)\n", "{did:?}");
    assert_eq!(
        sandbox.says("cat /proc/sys/user/max_user_namespaces").await,
        "0"
    );
    sandbox.end().await;
    house.close().await;
}

#[tokio::test]
async fn the_host_cannot_be_changed() {
    if !is_root() {
        return;
    }
    let house = House::new().await;
    let sandbox = house.rent(&host()).await;
    for script in [
        "echo 1 > /proc/sys/kernel/core_pattern",
        "echo 1 > /proc/sys/user/max_user_namespaces",
        "echo h > /proc/sysrq-trigger",
        "touch /usr/bin/new",
        "rm /usr/bin/id",
        "chmod 777 /usr/bin",
        "touch /sys/new",
        "mknod /tmp/disk b 253 0",
        "mount -t tmpfs none /mnt",
        "mount -t cgroup2 none /mnt",
        "mount -o remount,rw /usr",
        "umount /proc/sys",
        "unshare -U true",
        "unshare -n true",
        "unshare -r -m true",
        "nsenter -t 1 -m true",
        "chroot / mount -t proc none /mnt",
        "hostname other",
        "date -s 2001-01-01",
        "dmesg",
        "kill -9 1 && sleep 0.2 && ! kill -0 1",
        "cat /proc/1/mem",
        "cat /proc/1/environ",
        "readlink /proc/1/fd/3",
        "cat /proc/1/fd/4/cgroup.procs",
        "ls /proc/1/root/",
        "readlink /proc/1/exe",
        "echo -500 > /proc/self/oom_score_adj",
    ] {
        let did = sandbox.sh(script).await;
        assert_ne!(did.exit.code, 0, "{script}: {did:?}");
    }
    sandbox.end().await;
    house.close().await;
}

#[tokio::test]
async fn calls_with_a_record_of_escapes_fail() {
    if !is_root() {
        return;
    }
    let house = House::new().await;
    let sandbox = house.rent(&host()).await;
    let did = sandbox
        .python(
            r#"
import ctypes, errno, socket
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(number, *arguments)
    return 0 if result >= 0 else ctypes.get_errno()
refused = {
    "unshare": (272, 0x10000000), "setns": (308, 0, 0), "mount": (165, 0, 0, 0, 0, 0),
    "fsopen": (430, b"tmpfs", 0), "open_tree": (428, -100, b"/", 1), "move_mount": (429, 0, 0, 0, 0, 0),
    "bpf": (321, 0, 0, 0), "io_uring_setup": (425, 1, 0), "userfaultfd": (323, 0), "keyctl": (250, 0, 0),
    "add_key": (248, 0, 0, 0, 0, 0), "perf_event_open": (298, 0, 0, -1, -1, 0), "kexec_load": (246, 0, 0, 0, 0),
    "open_by_handle_at": (304, 0, 0, 0), "init_module": (175, 0, 0, 0), "reboot": (169, 0, 0, 0, 0),
    "clone newuser": (56, 0x10000011, 0, 0, 0, 0),
}
for name, arguments in refused.items():
    assert call(*arguments) == errno.EPERM, name
assert call(435, 0, 0) == errno.ENOSYS, "clone3"
assert call(9999) == errno.ENOSYS, "unknown"
for family, kind, protocol in [(17, 3, 0), (38, 5, 0), (40, 1, 0), (16, 3, 12), (16, 3, 15)]:
    try:
        socket.socket(family, kind, protocol)
    except OSError as error:
        assert error.errno == errno.EAFNOSUPPORT, (family, error)
    else:
        raise AssertionError(family)
import fcntl, pty, termios
main, other = pty.openpty()
for request in (0x5412, 0x541c):
    try:
        fcntl.ioctl(other, request, b"x")
    except OSError as error:
        assert error.errno == errno.EPERM, error
    else:
        raise AssertionError(request)
print("all refused")
"#,
        )
        .await;
    assert_eq!(did.out.trim(), "all refused", "{did:?}");
    sandbox.end().await;
    house.close().await;
}

#[tokio::test]
async fn the_network_is_loopback_and_nothing_else() {
    if !is_root() {
        return;
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let house = House::new().await;
    let sandbox = house.rent(&host()).await;
    let program = format!(
        r#"
import socket, threading, time, os
assert os.listdir("/proc/sys/net/ipv4/conf") and sorted(l.split(":")[0].strip() for l in open("/proc/net/dev").readlines()[2:]) == ["lo"]
own = socket.create_server(("127.0.0.1", 80))
socket.create_connection(("127.0.0.1", 80), 2).close()
for address in [("127.0.0.1", {port}), ("169.254.169.254", 80), ("10.0.0.1", 80), ("8.8.8.8", 53)]:
    begin = time.time()
    try:
        socket.create_connection(address, 5)
    except OSError:
        assert time.time() - begin < 1, address
    else:
        raise AssertionError(address)
begin = time.time()
try:
    socket.getaddrinfo("example.com", 80)
except OSError:
    assert time.time() - begin < 1
else:
    raise AssertionError("resolved")
assert socket.gethostbyname("localhost") == "127.0.0.1"
print("alone")
"#
    );
    let did = sandbox.python(&program).await;
    assert_eq!(did.out.trim(), "alone", "{did:?}");
    sandbox.end().await;
    house.close().await;
}

#[tokio::test]
async fn usual_programs_work() {
    if !is_root() {
        return;
    }
    let house = House::new().await;
    let sandbox = house.rent(&host()).await;
    let did = sandbox
        .python(
            r##"
import multiprocessing, os, pwd, ssl, subprocess, sys, tempfile, threading, time
assert pwd.getpwuid(0).pw_dir == "/root"
assert ssl.create_default_context().get_ca_certs() is not None
t = threading.Thread(target=lambda: None); t.start(); t.join()
assert subprocess.run("echo $HOME", shell=True, capture_output=True, text=True).stdout == "/root\n"
with multiprocessing.Pool(2) as pool:
    assert pool.map(abs, [-1, -2]) == [1, 2]
with tempfile.NamedTemporaryFile("w", suffix=".sh", delete=False) as f:
    f.write("#!/bin/sh\necho ran\n")
os.chmod(f.name, 0o755)
assert subprocess.check_output([f.name], text=True) == "ran\n"
open("/dev/shm/x", "w").write("x"); open("/etc/own", "w").write("x"); open("/root/own", "w").write("x")
assert len(os.urandom(8)) == 8
print("fine")
"##,
        )
        .await;
    assert_eq!(did.out.trim(), "fine", "{did:?}");
    sandbox.end().await;
    house.close().await;
}

#[tokio::test]
async fn a_daemon_that_may_leave_no_core_still_keeps_the_hosts_core_helper_away() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    use rustix::thread::{CapabilitySet, capabilities};
    let may_raise = capabilities(None).unwrap().effective;
    if !is_root() || !may_raise.contains(CapabilitySet::SYS_RESOURCE) {
        println!("needs root that may raise limits");
        return;
    }
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, none).unwrap();
    let house = House::new().await;
    let sandbox = house.rent(&host()).await;
    // With a limit of none the kernel starts the helper all the same; with one byte it does not.
    let limits = sandbox.says("grep 'core file' /proc/self/limits").await;
    let words: Vec<&str> = limits.split_whitespace().collect();
    assert_eq!(words[4..6], ["1", "1"], "{limits}");
    sandbox.end().await;
    house.close().await;
}
