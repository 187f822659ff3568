//! A small language for these tests.

use sandboxd_server::auth::session_tokens::SessionTokens;
use sandboxd_server::backends::in_memory::InMemory;
use sandboxd_server::clock::Clock;
use sandboxd_server::config::{Flags, Layers, Service};
use sandboxd_server::id::{RunId, SessionId, Tenant};
use sandboxd_server::sessions::{
    MemoryLedger, Open, OpenError, Opened, Parts, RunAsk, RunDone, Sessions, UseError, View,
};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

/// A clock that only tests move.
#[derive(Debug)]
pub(crate) struct HandClock(Mutex<Hands>);

#[derive(Debug, Clone, Copy)]
struct Hands {
    wall: Duration,
    steady: Duration,
}

impl HandClock {
    /// Somebody sets the clock by so many seconds, forward or back.
    pub(crate) fn set_by(&self, seconds: i64) {
        let mut hands = self.0.lock().unwrap();
        let by = Duration::from_secs(seconds.unsigned_abs());
        if seconds < 0 {
            hands.wall -= by;
        } else {
            hands.wall += by;
        }
    }
}

impl Clock for HandClock {
    fn now(&self) -> Duration {
        self.0.lock().unwrap().wall
    }

    fn steady(&self) -> Duration {
        self.0.lock().unwrap().steady
    }
}

impl HandClock {
    pub(crate) fn new() -> Arc<Self> {
        let wall = Duration::from_secs(1_700_000_000);
        let steady = Duration::from_secs(1_000);
        Arc::new(Self(Mutex::new(Hands { wall, steady })))
    }

    pub(crate) fn pass(&self, seconds: u64) {
        let mut hands = self.0.lock().unwrap();
        hands.wall += Duration::from_secs(seconds);
        hands.steady += Duration::from_secs(seconds);
    }
}

/// Sessions on the double.
pub(crate) struct World {
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) backend: Arc<InMemory>,
    pub(crate) clock: Arc<HandClock>,
    pub(crate) root: Option<TempDir>,
    pub(crate) ledger: Arc<MemoryLedger>,
}

/// The settings of a service that was told nothing, save for `change`.
pub(crate) fn service(change: impl FnOnce(&mut Service)) -> Service {
    let home = tempfile::tempdir().unwrap();
    let layers = Layers {
        flags: Flags {
            state_dir: Some(home.path().join("state")),
            ..Flags::default()
        },
        env: Vec::new(),
        file: None,
        root: true,
    };
    let mut service = layers.read().unwrap().0.service;
    service.workspace_root = None;
    change(&mut service);
    service
}

impl World {
    /// Files go with the sandbox.
    pub(crate) async fn start(change: impl FnOnce(&mut Service)) -> Self {
        Self::build(None, change).await
    }

    /// Files are stored outside.
    pub(crate) async fn with_workspaces(change: impl FnOnce(&mut Service)) -> Self {
        Self::build(Some(tempfile::tempdir().unwrap()), change).await
    }

    async fn build(root: Option<TempDir>, change: impl FnOnce(&mut Service)) -> Self {
        let backend = InMemory::new();
        let clock = HandClock::new();
        let service = service(|service| {
            service.workspace_root = root.as_ref().map(|root| root.path().join("workspaces"));
            change(service);
        });
        let parts = Parts {
            backend: backend.clone(),
            service,
            clock: clock.clone(),
            tokens: SessionTokens::new(&[7; 32]),
        };
        let ledger = Arc::new(MemoryLedger::default());
        Self {
            sessions: Sessions::start_with(parts, ledger.clone()).await.unwrap(),
            ledger,
            backend,
            clock,
            root,
        }
    }

    pub(crate) fn pass(&self, seconds: u64) {
        self.clock.pass(seconds);
    }

    pub(crate) async fn open(&self, id: &str) -> Opened {
        self.try_open(id).await.unwrap()
    }

    pub(crate) async fn try_open(&self, id: &str) -> Result<Opened, OpenError> {
        self.sessions.open(ask(id)).await
    }

    pub(crate) async fn sh(&self, id: &str, script: &str) -> Result<RunDone, UseError> {
        self.sessions.run(&sid(id), sh(script)).await
    }

    /// The stdout of a script that must end well.
    pub(crate) async fn out(&self, id: &str, script: &str) -> String {
        match self.sh(id, script).await.unwrap() {
            RunDone::Finished {
                code: 0, stdout, ..
            } => String::from_utf8(stdout).unwrap(),
            other => panic!("{script}: {other:?}"),
        }
    }

    pub(crate) fn view(&self, id: &str) -> View {
        self.sessions.get(&sid(id)).expect("the session is there")
    }

    /// Waits until something is so. Time is paused in these tests, so this costs none.
    pub(crate) async fn until(&self, what: &str, so: impl Fn(&Self) -> bool) {
        for _ in 0..2_000 {
            if so(self) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("never: {what}");
    }
}

pub(crate) fn sid(id: &str) -> SessionId {
    SessionId::parse(id).unwrap()
}

pub(crate) fn run_id(n: u8) -> RunId {
    RunId::parse(&format!("{n:032x}")).unwrap()
}

pub(crate) fn ask(id: &str) -> Open {
    Open {
        id: Some(sid(id)),
        ..Open::default()
    }
}

pub(crate) fn ask_for(id: &str, tenant: &str) -> Open {
    Open {
        tenant: Some(Tenant::parse(tenant).unwrap()),
        ..ask(id)
    }
}

pub(crate) fn reuse(id: &str) -> Open {
    Open {
        reuse: true,
        ..ask(id)
    }
}

pub(crate) fn attach(id: &str) -> Open {
    Open {
        attach: true,
        ..ask(id)
    }
}

pub(crate) fn argv(argv: &[&str]) -> RunAsk {
    RunAsk {
        argv: argv.iter().map(|arg| (*arg).to_owned()).collect(),
        env: Vec::new(),
        timeout: None,
        id: None,
    }
}

pub(crate) fn sh(script: &str) -> RunAsk {
    argv(&["/bin/sh", "-c", script])
}

/// Whether a future has not ended yet, having been given a chance to.
pub(crate) async fn still_waits<T>(task: &tokio::task::JoinHandle<T>) -> bool {
    tokio::time::sleep(Duration::from_millis(50)).await;
    !task.is_finished()
}
