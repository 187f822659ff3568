//! A guest in a directory of its own, ended with the test.

use bytes::Bytes;
use sandboxd_protocol::client::{Client, Output, RunEvents};
use sandboxd_protocol::message::{Exit, OutputLimit, Run, TreeEnd, Welcome};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
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
}

impl Drop for House {
    fn drop(&mut self) {
        self.client.close();
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts a guest whose descriptor 3 is one end of a socket pair; the shell only moves it there.
pub(crate) fn start(dir: &TempDir) -> (UnixStream, Child) {
    let (near, far) = std::os::unix::net::UnixStream::pair().expect("socket pair");
    let process = Command::new("/bin/sh")
        .arg("-c")
        .arg(r#"exec "$0" "$@" 3<&0 </dev/null"#)
        .arg(env!("CARGO_BIN_EXE_sandboxd-guest"))
        .arg(format!("--work-dir={}", dir.path().display()))
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("OWN", "sandbox")
        .stdin(Stdio::from(OwnedFd::from(far)))
        .spawn()
        .expect("started");
    near.set_nonblocking(true).expect("non-blocking");
    (UnixStream::from_std(near).expect("in a runtime"), process)
}

pub(crate) async fn house() -> House {
    let dir = TempDir::new().expect("directory");
    let (link, process) = start(&dir);
    let (client, welcome) = timeout(SOON, Client::connect(link))
        .await
        .expect("in time")
        .expect("connects");
    assert!(!welcome.is_init);
    assert_eq!(welcome.tree_end, TreeEnd::Keeper);
    House {
        client,
        welcome,
        dir,
        process,
    }
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
