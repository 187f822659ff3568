//! The host and the Internet of one test, as network namespaces that go with it.
//!
//! A test starts itself again twice at most: in a network namespace of its own, as root; and from there, where it is to run
//! as a user without privilege, as that one. What such a case needs done to its host it asks of the process above it.

use rustix::fs::{FlockOperation, flock};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Says to a process of a test what it is.
const ROLE: &str = "SANDBOXD_TEST_WORLD";
/// One that is about containers.
pub(crate) const CONTAINERS: &str = "containers";
/// A line with this before it is something to do.
const ASKED: &str = "as root: ";
/// A user that no host has.
const NOBODY: u32 = 54_321;
/// Where an ordinary user's way out comes from.
const TUN: &str = "/dev/net/tun";

/// The Internet's one machine.
pub(crate) const INTERNET: &str = "93.184.216.34";
/// Its name server.
pub(crate) const RESOLVER: &str = "9.9.9.9";
/// The host's address towards it.
pub(crate) const HOST: &str = "192.168.77.2";
/// A public address of the host.
pub(crate) const HOST_PUBLIC: &str = "198.51.100.2";
/// Addresses that the same machine has, and that nobody is to reach.
pub(crate) const FORBIDDEN: &[&str] = &[
    "169.254.169.254",
    "169.254.170.2",
    "100.100.100.200",
    "192.0.0.192",
    "10.9.9.9",
    "172.17.0.1",
    "172.31.255.254",
    "192.168.65.7",
    "192.168.77.1",
    "100.64.0.9",
];

/// Answers on the Internet's addresses: HTTP on ports 80 and 8080, which says who asked whom; UDP on port 7777, which
/// sends back; names on port 53.
const SERVERS: &str = r"
import http.server, socket, socketserver, struct, threading

class Pages(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.0'
    def do_GET(self):
        if self.path.startswith('/redirect?to='):
            self.send_response(302); self.send_header('Location', self.path[13:]); self.end_headers(); return
        body = f'reached {self.connection.getsockname()[0]} from {self.client_address[0]}'.encode()
        self.send_response(200); self.send_header('Content-Length', str(len(body))); self.end_headers(); self.wfile.write(body)
    def log_message(self, *_): pass

class Six(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6
    request_queue_size = 128

NAMES = {
    b'internet.test': ['93.184.216.34'],
    b'metadata.google.internal': ['169.254.169.254'],
    b'inner.test': ['10.9.9.9'],
    b'host.test': ['192.168.77.2'],
}
asked = {}

def answer(query):
    name, at = [], 12
    while query[at]:
        name.append(query[at + 1:at + 1 + query[at]]); at += 1 + query[at]
    name = b'.'.join(name).lower()
    kind = struct.unpack('>H', query[at + 1:at + 3])[0]
    question = query[12:at + 5]
    addresses = NAMES.get(name, [])
    if name == b'changing.test':
        asked[name] = asked.get(name, 0) + (kind == 1)
        addresses = ['93.184.216.34'] if asked[name] < 2 else ['169.254.169.254']
    known = bool(addresses)
    addresses = addresses if kind == 1 else []
    head = query[:2] + struct.pack('>HHHHH', 0x8180 if known else 0x8183, 1, len(addresses), 0, 0)
    return head + question + b''.join(b'\xc0\x0c' + struct.pack('>HHIH', 1, 1, 0, 4) + socket.inet_aton(a) for a in addresses)

class Udp(socketserver.BaseRequestHandler):
    def handle(self):
        data, sock = self.request
        sock.sendto(answer(data) if self.server.server_address[1] == 53 else b'back ' + data, self.client_address)

def serve(server): threading.Thread(target=server.serve_forever, daemon=True).start()
for port in (80, 8080): serve(Six(('::', port), Pages))
# One socket for each address, so that an answer comes from where it was asked.
import subprocess
for line in subprocess.check_output(['ip', '-o', '-4', 'addr'], text=True).splitlines():
    address = line.split()[3].split('/')[0]
    for port in (53, 7777): serve(socketserver.ThreadingUDPServer((address, port), Udp))
print('ready', flush=True)
threading.Event().wait()
";

/// What a case can do to its host.
pub(crate) struct World {
    kind: Kind,
}

enum Kind {
    /// This process is root in the namespace that is the host.
    Root { internet: Child, servers: Child },
    /// One above it is.
    Ordinary,
}

#[expect(
    clippy::disallowed_methods,
    reason = "what a test that started itself again is to do is said where its own arguments are the test harness's"
)]
pub(crate) fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Whether root runs the tests; without it none of this can be tried, since nobody else makes a host.
fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("needs root, which makes the host and the Internet of the test");
    }
    root
}

/// Runs a case as root in a world of its own.
pub(crate) fn as_root<F: Future<Output = ()>>(name: &str, case: fn(World) -> F) {
    match role().as_deref() {
        None if is_root() => again(name, "host", &mut in_new_namespace()),
        None => {}
        Some(_) => run(case(World::make())),
    }
}

/// The same with containers: those of the tests' engine, whose own network is elsewhere.
pub(crate) fn with_containers<F: Future<Output = ()>>(name: &str, case: fn(World) -> F) {
    match role() {
        None if is_root() => again(name, CONTAINERS, &mut in_new_namespace()),
        None => {}
        Some(_) => run(case(World::make())),
    }
}

/// Whether the case is about containers.
pub(crate) fn in_containers() -> bool {
    role().is_some_and(|role| role.split(' ').any(|word| word == CONTAINERS))
}

/// Runs a case as a user without privilege, in a world that root made. `hidden` are programs that are not there for it.
pub(crate) fn without_root<F: Future<Output = ()>>(
    name: &str,
    hidden: &[&str],
    case: fn(World) -> F,
) {
    match role().as_deref() {
        None if is_root() => {
            let _open = Tun::open();
            again(name, "above", &mut in_new_namespace());
        }
        None => {}
        Some("above") => World::make().lend(name, hidden),
        Some(_) => run(case(World {
            kind: Kind::Ordinary,
        })),
    }
}

fn run(case: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(case);
}

/// This program again, in namespaces of its own for the network and for mounts.
fn in_new_namespace() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--propagation", "private", "--"]);
    command.arg(std::env::current_exe().unwrap());
    command
}

/// Runs this test in another process.
fn again(name: &str, role: &str, command: &mut Command) {
    let output = arguments(name, role, command).output().unwrap();
    judge(
        name,
        output.status.success(),
        &output.stdout,
        &output.stderr,
    );
}

/// Runs one test of this program in a part of its own.
pub(crate) fn arguments<'a>(name: &str, role: &str, command: &'a mut Command) -> &'a mut Command {
    command
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .stdin(Stdio::null())
}

fn judge(name: &str, success: bool, out: &[u8], err: &[u8]) {
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(err)
    );
    assert!(success, "{name}: {said}");
    assert!(
        said.contains("1 passed"),
        "{name}: the case did not run: {said}"
    );
}

impl World {
    /// In a fresh network namespace: a host with an address on a private network and a public one, and behind it a machine
    /// that is the Internet and everything that must not be reached.
    fn make() -> Self {
        let mut internet = Command::new("unshare")
            .args(["--net", "--", "sleep", "600"])
            .stdin(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        let pid = internet.id();
        wait_for(|| {
            let theirs = std::fs::read_link(format!("/proc/{pid}/ns/net"));
            theirs.is_ok_and(|theirs| theirs != std::fs::read_link("/proc/self/ns/net").unwrap())
        });
        let mut inside = "ip link set lo up\nip link set net0 up\nip addr add 192.168.77.1/24 dev net0\n\
             ip -6 addr add 2001:db8:77::1/64 dev net0 nodad\nip route add 198.51.100.0/24 via 192.168.77.2\n"
            .to_owned();
        for address in FORBIDDEN.iter().chain(&[INTERNET, RESOLVER]) {
            if *address != "192.168.77.1" {
                let _ = writeln!(inside, "ip addr add {address}/32 dev lo");
            }
        }
        inside.push_str("ip -6 addr add fd00:ec2::254/128 dev lo nodad\nip -6 addr add 2606:4700::1111/128 dev lo nodad\n");
        sh(&format!(
            "echo 0 > /proc/sys/net/ipv4/ip_forward
             ip link set lo up
             ip link add up0 type veth peer name net0 netns {pid}
             ip addr add {HOST}/24 dev up0
             ip addr add {HOST_PUBLIC}/32 dev up0
             ip -6 addr add 2001:db8:77::2/64 dev up0 nodad
             ip link set up0 up
             nsenter -t {pid} -n sh -ec '{inside}'
             ip route add default via 192.168.77.1
             ip -6 route add default via 2001:db8:77::1"
        ));
        let mut servers = Command::new("nsenter")
            .args(["-t", &pid.to_string(), "-n", "--", "python3", "-c", SERVERS])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut line = String::new();
        let out = servers.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        if line != "ready\n" {
            let _ = internet.kill();
            panic!("the Internet does not answer: {line:?}");
        }
        Self {
            kind: Kind::Root { internet, servers },
        }
    }

    /// Runs the case as somebody without privilege, and does for it what it asks.
    fn lend(&self, name: &str, hidden: &[&str]) {
        for program in hidden {
            sh(&format!("mount --bind /dev/null {program}"));
        }
        let home = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(home.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        let program = home.path().join("network");
        std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        let mut command = Command::new(&program);
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
            .env("HOME", home.path())
            .env("TMPDIR", home.path())
            .env("RUST_BACKTRACE", "1")
            .current_dir("/")
            .uid(NOBODY)
            .gid(NOBODY);
        let mut child = arguments(name, "ordinary", &mut command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut answers = child.stdin.take().unwrap();
        let mut said = String::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            // The harness writes the test's name before the first line, without a newline.
            match line.split_once(ASKED) {
                Some((_, script)) => {
                    sh(&script.replace('\t', "\n"));
                    answers.write_all(b"done\n").unwrap();
                }
                None => said.push_str(&(line + "\n")),
            }
        }
        let status = child.wait().unwrap();
        print!("{said}");
        assert!(status.success(), "as user {NOBODY}: {said}");
        assert!(said.contains("1 passed"), "the case did not run: {said}");
    }

    /// Whether a case runs with root's rules on the host.
    pub(crate) fn is_root(&self) -> bool {
        matches!(self.kind, Kind::Root { .. })
    }

    /// The process whose network namespace is the Internet; only root sees it.
    pub(crate) fn internet(&self) -> u32 {
        match &self.kind {
            Kind::Root { internet, .. } => internet.id(),
            Kind::Ordinary => panic!("only root sees it"),
        }
    }

    /// Does something to the host.
    pub(crate) fn as_root(&self, script: &str) {
        match &self.kind {
            Kind::Root { .. } => sh(script),
            Kind::Ordinary => {
                println!("{ASKED}{}", script.replace('\n', "\t"));
                let mut answer = String::new();
                std::io::stdin().read_line(&mut answer).unwrap();
                assert_eq!(answer, "done\n");
            }
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Kind::Root { internet, servers } = &mut self.kind {
            for child in [internet, servers] {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

/// Runs a script that has to succeed.
#[track_caller]
pub(crate) fn sh(script: &str) {
    let output = Command::new("sh").args(["-ec", script]).output().unwrap();
    assert!(
        output.status.success(),
        "{script}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// What a script that succeeds prints.
#[track_caller]
pub(crate) fn says(script: &str) -> String {
    let output = Command::new("sh").args(["-ec", script]).output().unwrap();
    assert!(
        output.status.success(),
        "{script}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Waits until something holds, as long as a slow machine may need.
#[track_caller]
pub(crate) fn wait_for(mut holds: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !holds() {
        assert!(
            began.elapsed().as_secs() < 30,
            "it has not come about in half a minute"
        );
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// `/dev/net/tun`, open to everybody while a test runs, and afterwards as it was. Tests run side by side: while one of them
/// needs it open, its lock on the note of what it was is shared; who has it alone opens it, or gives it back.
struct Tun {
    note: File,
}

impl Tun {
    fn open() -> Self {
        loop {
            let note = std::fs::OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(Self::path())
                .unwrap();
            let is_there = || note.metadata().unwrap().nlink() > 0;
            if flock(&note, FlockOperation::NonBlockingLockExclusive).is_ok() && is_there() {
                let mode = mode_of(TUN);
                if noted(&note).is_none() {
                    (&note).write_all(format!("{mode:o}").as_bytes()).unwrap();
                }
                set_mode(TUN, mode | 0o666);
            }
            // Between the two locks somebody may have given it back, and removed the note.
            flock(&note, FlockOperation::LockShared).unwrap();
            if noted(&note).is_some() && is_there() {
                return Self { note };
            }
        }
    }

    fn path() -> PathBuf {
        std::env::temp_dir().join("sandboxd-tests-tun")
    }
}

fn noted(mut note: &File) -> Option<u32> {
    let mut text = String::new();
    note.rewind().ok()?;
    note.read_to_string(&mut text).ok()?;
    u32::from_str_radix(text.trim(), 8).ok()
}

fn mode_of(path: &str) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &str, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

impl Drop for Tun {
    fn drop(&mut self) {
        let alone = flock(&self.note, FlockOperation::NonBlockingLockExclusive);
        if let (Ok(()), Some(mode)) = (alone, noted(&self.note)) {
            set_mode(TUN, mode);
            let _ = std::fs::remove_file(Self::path());
        }
    }
}
