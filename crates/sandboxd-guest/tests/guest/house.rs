//! A guest in a directory of its own, ended with the test.

use bytes::Bytes;
use sandboxd_protocol::client::{Client, Output, RunEvents};
use sandboxd_protocol::message::{Exit, OutputLimit, Run, TreeEnd, Welcome};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio::time::timeout;

pub(crate) const SOON: Duration = Duration::from_secs(20);

pub(crate) struct House {
    pub(crate) client: Client,
    pub(crate) welcome: Welcome,
    pub(crate) dir: TempDir,
    pub(crate) process: Child,
    pub(crate) cgroup: Option<PathBuf>,
    link: StdStream,
}

impl Drop for House {
    fn drop(&mut self) {
        // The runtime that drives the client may be the one that waits here: the socket itself is shut.
        let _ = self.link.shutdown(Shutdown::Both);
        // It ends by itself with its link; by force if it does not.
        for _ in 0..200 {
            if self.process.try_wait().is_ok_and(|ended| ended.is_some()) {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
        if let Some(cgroup) = &self.cgroup {
            let _ = std::fs::write(cgroup.join("cgroup.kill"), "1");
            std::thread::sleep(Duration::from_millis(20));
            for leaf in std::fs::read_dir(cgroup).into_iter().flatten().flatten() {
                let _ = std::fs::remove_dir(leaf.path());
            }
            let _ = std::fs::remove_dir(cgroup);
        }
    }
}

/// Starts a guest whose descriptor 3 is one end of a socket pair; the shell only moves it there. `before` goes before the
/// guest's own name, `extra` after it; `cgroup` becomes descriptor 4.
fn start_as(
    dir: &TempDir,
    before: &[&str],
    extra: &[&str],
    cgroup: Option<&Path>,
) -> (UnixStream, Child) {
    let (near, far) = StdStream::pair().expect("socket pair");
    let script = match cgroup {
        None => r#"exec "$@" 3<&0 </dev/null"#.to_owned(),
        Some(path) => format!(r#"exec "$@" 3<&0 4<{} </dev/null"#, path.display()),
    };
    let process = Command::new("/bin/sh")
        .args(["-c", &script, "sh"])
        .args(before)
        .arg(env!("CARGO_BIN_EXE_sandboxd-guest"))
        .arg(format!("--work-dir={}", dir.path().display()))
        .args(extra)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("OWN", "sandbox")
        .stdin(Stdio::from(OwnedFd::from(far)))
        .spawn()
        .expect("started");
    near.set_nonblocking(true).expect("non-blocking");
    (UnixStream::from_std(near).expect("in a runtime"), process)
}

/// Starts a guest that nobody greets yet.
pub(crate) fn start(dir: &TempDir) -> (UnixStream, Child) {
    start_as(dir, &[], &[], None)
}

async fn connect(dir: TempDir, started: (UnixStream, Child), cgroup: Option<PathBuf>) -> House {
    let (link, process) = started;
    let link = link.into_std().expect("a socket");
    let shut = link.try_clone().expect("cloned");
    let link = UnixStream::from_std(link).expect("in a runtime");
    let (client, welcome) = timeout(SOON, Client::connect(link))
        .await
        .expect("in time")
        .expect("connects");
    House {
        client,
        welcome,
        dir,
        process,
        cgroup,
        link: shut,
    }
}

#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn skipped(why: &str) {
    eprintln!("skipped: {why}");
}

/// The plain case: a subreaper that uses keepers.
pub(crate) async fn house() -> House {
    let dir = TempDir::new().expect("directory");
    let started = start(&dir);
    let house = connect(dir, started, None).await;
    assert!(!house.welcome.is_init);
    assert_eq!(house.welcome.tree_end, TreeEnd::Keeper);
    house
}

/// PID 1 of a PID namespace, in a user namespace of its own.
pub(crate) async fn init_house() -> House {
    let dir = TempDir::new().expect("directory");
    let before = [
        "unshare",
        "--user",
        "--map-root-user",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ];
    let started = start_as(&dir, &before, &[], None);
    let house = connect(dir, started, None).await;
    assert!(house.welcome.is_init);
    house
}

/// A guest whose runs have another user. Needs root.
pub(crate) async fn user_house(user: u32) -> Option<House> {
    if !rustix::process::geteuid().is_root() {
        skipped("another user for runs needs root");
        return None;
    }
    let dir = TempDir::new().expect("directory");
    std::fs::set_permissions(
        dir.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o777),
    )
    .expect("mode");
    let started = start_as(&dir, &[], &[&format!("--user={user}")], None);
    Some(connect(dir, started, None).await)
}

/// A guest that was started with signals ignored, as `nohup` does it.
pub(crate) async fn deaf_house() -> House {
    let dir = TempDir::new().expect("directory");
    let before = ["/bin/sh", "-c", r#"trap '' HUP INT USR1; exec "$@""#, "sh"];
    let started = start_as(&dir, &before, &[], None);
    connect(dir, started, None).await
}

/// A guest with a cgroup2 directory. Needs root, and fails where root has no cgroup2 core.
pub(crate) async fn cgroup_house() -> Option<House> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    if !rustix::process::geteuid().is_root() {
        skipped("a cgroup of one's own needs root");
        return None;
    }
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("read");
    let root = mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .find(|words| words.get(2) == Some(&"cgroup2"))
        .map(|words| PathBuf::from(words[1]))
        .expect("no cgroup2 file system is mounted: these tests need its core");
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let cgroup = root.join(format!(
        "sandboxd-guest-test-{}-{number}",
        std::process::id()
    ));
    std::fs::create_dir(&cgroup).expect("made");
    let dir = TempDir::new().expect("directory");
    let started = start_as(&dir, &[], &["--cgroup-fd=4"], Some(&cgroup));
    let house = connect(dir, started, Some(cgroup)).await;
    assert_eq!(house.welcome.tree_end, TreeEnd::Cgroup);
    Some(house)
}

pub(crate) fn run(argv: &[&str]) -> Run {
    Run {
        argv: argv.iter().map(|word| word.as_bytes().to_vec()).collect(),
        env: Vec::new(),
        cwd: None,
        stdin: false,
        timeout_millis: None,
        output: OutputLimit::Unlimited,
    }
}

pub(crate) fn sh(script: &str) -> Run {
    run(&["sh", "-c", script])
}

/// What came of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) exit: Exit,
}

impl Outcome {
    pub(crate) fn out(&self) -> &str {
        std::str::from_utf8(&self.stdout).expect("text")
    }
}

/// Follows a run to its end.
pub(crate) async fn outcome(events: &mut RunEvents) -> Outcome {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let add = |to: &mut Vec<u8>, bytes: Bytes| to.extend_from_slice(&bytes);
    loop {
        let event = timeout(SOON, events.next()).await.expect("no hang");
        match event.expect("sound").expect("a terminal event") {
            Output::Started => {}
            Output::Stdout(bytes) => add(&mut stdout, bytes),
            Output::Stderr(bytes) => add(&mut stderr, bytes),
            Output::NotStarted(why) => panic!("not started: {why:?}"),
            Output::Exited(exit) => {
                return Outcome {
                    stdout,
                    stderr,
                    exit,
                };
            }
        }
    }
}

impl House {
    pub(crate) async fn run(&self, run: Run) -> Outcome {
        let (_input, mut events) = self.client.run(run).await.expect("asked");
        outcome(&mut events).await
    }

    /// Whether a file in the work directory grows: somebody writes to it.
    pub(crate) async fn grows(&self, name: &str) -> bool {
        let size = || std::fs::metadata(self.dir.path().join(name)).map_or(0, |data| data.len());
        let before = size();
        for _ in 0..15 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            if size() > before {
                return true;
            }
        }
        false
    }

    /// Waits until a file is there and not empty.
    pub(crate) async fn appears(&self, name: &str) {
        let path = self.dir.path().join(name);
        for _ in 0..500 {
            if std::fs::metadata(&path).is_ok_and(|data| data.len() > 0) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{name} did not appear");
    }
}
