//! Where the attacks run: sessions on real sandboxes, and a neighbour who has done nothing.

use sandboxd_files::{Part, Wanted};
use sandboxd_server::auth::session_tokens::SessionTokens;
use sandboxd_server::backends::namespaces::{Namespaces, Programs};
use sandboxd_server::clock::SystemClock;
use sandboxd_server::config::{Flags, Layers};
use sandboxd_server::id::SessionId;
use sandboxd_server::sessions::ArchiveError;
use sandboxd_server::sessions::{
    Limit, NativeDone, NativeError, NativeFile, Open, Parts, Ran, RunAsk, RunDone, Sessions,
    UseError,
};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The session that attacks.
pub(crate) const BAD: &str = "bad";
/// The session beside it.
pub(crate) const GOOD: &str = "good";
/// Longer than any of these attacks takes on a busy machine.
const RUN_MAX: Duration = Duration::from_secs(120);

/// Whether this can be tried.
pub(crate) fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("needs root");
    }
    root
}

/// A service's sessions.
pub(crate) struct Town {
    pub(crate) sessions: Arc<Sessions>,
    home: TempDir,
}

impl Town {
    /// With these settings, as in a file of configuration; both sessions are open.
    pub(crate) async fn found(settings: &[(&str, &str)]) -> Self {
        Self::found_in(tempfile::tempdir().unwrap(), settings).await
    }

    /// As [`Town::found`], with state and workspaces in a given directory.
    pub(crate) async fn found_in(home: TempDir, settings: &[(&str, &str)]) -> Self {
        let state = home.path().join("state");
        let root = home.path().join("workspaces");
        let fixed: [(OsString, OsString); 3] = [
            ("SANDBOXD_STATE_DIR".into(), state.clone().into()),
            ("SANDBOXD_WORKSPACE_ROOT".into(), root.into()),
            ("SANDBOXD_RUNTIMES".into(), "host=host".into()),
        ];
        let given = |fixed: &OsString| {
            let mut names = settings.iter().map(|(name, _)| name.to_uppercase());
            names.any(|name| *fixed == *format!("SANDBOXD_{name}"))
        };
        let own = settings.iter().map(|(name, value)| {
            let name = format!("SANDBOXD_{}", name.to_uppercase());
            (name.into(), (*value).into())
        });
        let layers = Layers {
            flags: Flags::default(),
            env: own
                .chain(fixed.into_iter().filter(|(name, _)| !given(name)))
                .collect(),
            file: None,
            root: true,
        };
        let service = layers.read().unwrap().0.service;
        let programs = Programs::embedded().unwrap();
        let parts = Parts {
            backend: Namespaces::start(&state, programs).await.unwrap(),
            service,
            clock: Arc::new(SystemClock),
            tokens: SessionTokens::new(&[7; 32]),
        };
        let sessions = Sessions::start(parts).await.unwrap();
        let town = Self { sessions, home };
        town.open(BAD).await;
        town.open(GOOD).await;
        town
    }

    pub(crate) async fn open(&self, id: &str) {
        let ask = Open {
            id: Some(sid(id)),
            ..Open::default()
        };
        self.sessions.open(ask).await.unwrap();
    }

    /// Opens a session of a runtime.
    pub(crate) async fn open_as(&self, id: &str, runtime: &str) {
        let ask = Open {
            id: Some(sid(id)),
            runtime: Some(runtime.to_owned()),
            ..Open::default()
        };
        self.sessions.open(ask).await.unwrap();
    }

    /// The stored files of a session on the host.
    pub(crate) fn stored(&self, id: &str) -> PathBuf {
        let root = self.home.path().join("workspaces");
        root.join(id).join("workspace")
    }

    /// A native file operation in the attacking session.
    pub(crate) async fn native(
        &self,
        path: &str,
        op: NativeFile,
    ) -> Result<NativeDone, NativeError> {
        self.sessions.native(&sid(BAD), path, op).await
    }

    /// Runs a program in the attacking session.
    pub(crate) async fn attack(&self, argv: &[&str], time: Duration) -> Ran {
        run(&self.sessions, BAD, argv, time).await.unwrap()
    }

    /// The same, where the sandbox itself may be the attack's victim.
    pub(crate) async fn sessions_run(
        &self,
        argv: &[&str],
        time: Duration,
    ) -> Result<Ran, UseError> {
        run(&self.sessions, BAD, argv, time).await
    }

    /// Runs a shell script in the attacking session that has to do well; its output.
    pub(crate) async fn says(&self, script: &str) -> String {
        let ran = self.attack(&["/bin/sh", "-c", script], RUN_MAX).await;
        match ran.done {
            RunDone::Finished {
                code: 0, stdout, ..
            } => String::from_utf8(stdout).unwrap(),
            other => panic!("{script}: {} ({:?})", shown(&other), ran.limited),
        }
    }

    /// Runs a Python program in the attacking session.
    pub(crate) async fn python(&self, program: &str, time: Duration) -> Ran {
        self.attack(&["python3", "-c", program], time).await
    }

    /// Runs a Python program in one of the sessions.
    pub(crate) async fn python_in(&self, id: &str, program: &str, time: Duration) -> Ran {
        let argv = ["python3", "-c", program];
        run(&self.sessions, id, &argv, time).await.unwrap()
    }

    /// The attacking session's workspace as the archive lists it.
    pub(crate) async fn archive(&self, wanted: Wanted) -> Result<Part, ArchiveError> {
        self.sessions.archive_list(&sid(BAD), ".", wanted).await
    }

    /// The other session works until it is told to stop: each of its runs must succeed.
    pub(crate) fn neighbour(&self) -> Neighbour {
        let sessions = self.sessions.clone();
        let enough = CancellationToken::new();
        let stop = enough.clone();
        let working = tokio::spawn(async move {
            let mut runs = 0_u32;
            loop {
                let script = format!("echo {runs} > own && cat own");
                let argv = ["/bin/sh", "-c", script.as_str()];
                let ran = run(&sessions, GOOD, &argv, RUN_MAX).await.unwrap();
                let expected = RunDone::Finished {
                    code: 0,
                    stdout: format!("{runs}\n").into_bytes(),
                    stderr: Vec::new(),
                };
                assert_eq!(shown(&ran.done), shown(&expected));
                assert!(ran.limited.reached.is_empty(), "{:?}", ran.limited);
                runs += 1;
                if stop.is_cancelled() {
                    return runs;
                }
            }
        });
        Neighbour { working, enough }
    }

    pub(crate) async fn close(self) {
        self.sessions.shutdown().await;
        let left: Vec<_> = std::fs::read_dir(self.home.path().join("state/instances"))
            .map(|entries| entries.flatten().collect())
            .unwrap_or_default();
        assert!(left.is_empty(), "left behind: {left:?}");
    }
}

/// The other session at work.
pub(crate) struct Neighbour {
    working: JoinHandle<u32>,
    enough: CancellationToken,
}

impl Neighbour {
    /// It worked all the time, and well.
    pub(crate) async fn was_well(self) {
        self.enough.cancel();
        let runs = self.working.await.expect("every run of the other session");
        assert!(runs > 0);
    }
}

async fn run(
    sessions: &Sessions,
    id: &str,
    argv: &[&str],
    time: Duration,
) -> Result<Ran, UseError> {
    let ask = RunAsk {
        argv: argv.iter().map(|word| (*word).to_owned()).collect(),
        env: Vec::new(),
        timeout: Some(time),
        id: None,
    };
    sessions.run_told(&sid(id), ask).await
}

fn sid(id: &str) -> SessionId {
    SessionId::parse(id).unwrap()
}

/// A run's end in words.
pub(crate) fn shown(done: &RunDone) -> String {
    let text =
        |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(2_000)]).into_owned();
    match done {
        RunDone::Finished {
            code,
            stdout,
            stderr,
        } => format!("exit {code}\n{}\n{}", text(stdout), text(stderr)),
        RunDone::TimedOut { stdout, stderr } => {
            format!("timed out\n{}\n{}", text(stdout), text(stderr))
        }
        RunDone::OutputLimited { stdout, stderr, .. } => {
            format!("output\n{}\n{}", text(stdout), text(stderr))
        }
    }
}

/// The run ended, or failed, for this.
pub(crate) fn ended_for(ran: &Ran, limit: Limit) {
    let said = shown(&ran.done);
    assert_eq!(
        ran.limited.killed_for,
        Some(limit),
        "{:?}: {said}",
        ran.limited
    );
    assert!(ran.limited.reached.contains(&limit), "{:?}", ran.limited);
}
