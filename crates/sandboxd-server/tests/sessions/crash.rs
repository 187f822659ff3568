//! The daemon is killed before and after each thing that it does to the store and to the backend, one after the other, and
//! started again: what a client was told is true, nothing that it was not told stands in its way, nothing is left over.

use crate::restart::{Daemon, Host};
use crate::support::{HandClock, ask, attach, reuse, sh, sid};
use async_trait::async_trait;
use sandboxd_server::auth::session_tokens::Nonce;
use sandboxd_server::backends::in_memory::InMemory;
use sandboxd_server::backends::{
    Backend, Capabilities, CreateError, DestroyError, Found, KeepLayer, Kind, ListError, Pool,
    PrepareError, PreparedImage, Room, Running, SandboxSpec, Start, StopError, Taken, Usage,
    UsageError,
};
use sandboxd_server::id::{SandboxId, SessionId};
use sandboxd_server::runtimes::Runtime;
use sandboxd_server::runtimes::images::Watcher;
use sandboxd_server::sessions::{
    Activity, Event, Ledger, LedgerError, NativeFile, OpenError, Record, Recorded, RunDone,
    Sessions, UseError,
};
use std::collections::BTreeMap;
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Kills the daemon at a step. From then on nothing that it does comes to anything.
#[derive(Debug)]
struct Killer {
    left: AtomicUsize,
    killed: CancellationToken,
}

impl Killer {
    fn after(steps: usize) -> Arc<Self> {
        Arc::new(Self {
            left: AtomicUsize::new(steps),
            killed: CancellationToken::new(),
        })
    }

    async fn step(&self) {
        let left = self
            .left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                left.checked_sub(1)
            });
        if left.is_err() {
            self.killed.cancel();
            pending::<()>().await;
        }
    }
}

/// A step before and a step after.
macro_rules! around {
    ($self:ident, $work:expr) => {{
        $self.killer.step().await;
        let done = $work.await;
        $self.killer.step().await;
        done
    }};
}

#[derive(Debug)]
struct MortalLedger {
    killer: Arc<Killer>,
    inner: Arc<dyn Ledger>,
}

#[async_trait]
impl Ledger for MortalLedger {
    async fn put(&self, record: Record) -> Result<(), LedgerError> {
        around!(self, self.inner.put(record))
    }
    async fn remove(&self, id: &SessionId) -> Result<(), LedgerError> {
        around!(self, self.inner.remove(id))
    }
    async fn all(&self) -> Result<Vec<Recorded>, LedgerError> {
        around!(self, self.inner.all())
    }
    async fn note(&self, activities: Vec<Activity>) -> Result<(), LedgerError> {
        // When the journal comes is nobody's step.
        if self.killer.killed.is_cancelled() {
            pending::<()>().await;
        }
        self.inner.note(activities).await
    }
    async fn renew(
        &self,
        id: &SessionId,
        nonce: &Nonce,
        expires: Option<Duration>,
    ) -> Result<(), LedgerError> {
        around!(self, self.inner.renew(id, nonce, expires))
    }
    async fn check(&self) -> Result<(), LedgerError> {
        self.inner.check().await
    }
    async fn events(
        &self,
        id: &SessionId,
        nonce: &Nonce,
        after: u64,
        before: u64,
    ) -> Result<Vec<Event>, LedgerError> {
        self.inner.events(id, nonce, after, before).await
    }
}

#[derive(Debug)]
struct MortalBackend {
    killer: Arc<Killer>,
    inner: Arc<dyn Backend>,
    /// Whether sandboxes are kept ready.
    pools: bool,
}

impl MortalBackend {
    fn parked(&self) -> &dyn Pool {
        self.inner.pool().expect("the double has a pool")
    }
}

#[async_trait]
impl Pool for MortalBackend {
    async fn image(&self, runtime: &Runtime) -> Result<Option<PreparedImage>, PrepareError> {
        self.parked().image(runtime).await
    }
    async fn park(&self, kind: &Kind) -> Result<(), CreateError> {
        // When the pool is filled is nobody's step.
        if self.killer.killed.is_cancelled() {
            pending::<()>().await;
        }
        self.parked().park(kind).await
    }
    async fn retain(&self, kinds: &[Kind]) {
        self.parked().retain(kinds).await;
    }
    fn ready(&self) -> BTreeMap<String, usize> {
        self.parked().ready()
    }
    fn room(&self) -> Room {
        self.parked().room()
    }
    async fn take(&self, id: &SandboxId, spec: &SandboxSpec) -> Option<Taken> {
        around!(self, self.parked().take(id, spec))
    }
}

#[async_trait]
impl Backend for MortalBackend {
    fn name(&self) -> &'static str {
        self.inner.name()
    }
    async fn capabilities(&self) -> Capabilities {
        self.inner.capabilities().await
    }
    async fn prepare(
        &self,
        runtime: &Runtime,
        progress: &Watcher,
    ) -> Result<PreparedImage, PrepareError> {
        self.inner.prepare(runtime, progress).await
    }
    async fn create(
        &self,
        id: &SandboxId,
        spec: &SandboxSpec,
        start: Start,
    ) -> Result<Running, CreateError> {
        around!(self, self.inner.create(id, spec, start))
    }
    async fn usage(&self, ids: &[SandboxId]) -> Vec<Result<Usage, UsageError>> {
        self.inner.usage(ids).await
    }
    async fn stop(&self, id: &SandboxId, keep: KeepLayer) -> Result<(), StopError> {
        around!(self, self.inner.stop(id, keep))
    }
    async fn destroy(&self, id: &SandboxId) -> Result<(), DestroyError> {
        around!(self, self.inner.destroy(id))
    }
    async fn list(&self) -> Result<Vec<Found>, ListError> {
        self.inner.list().await
    }
    async fn shutdown(&self) {
        self.inner.shutdown().await;
    }
    fn pool(&self) -> Option<&dyn Pool> {
        self.pools.then_some(self)
    }
}

/// What a client has been told so far.
#[derive(Debug, Default, Clone)]
struct Told {
    /// The token of `a`, once it was open.
    token: Option<String>,
    /// The lines that are in its file.
    lines: Vec<&'static str>,
    /// The layer has a file of its own.
    installed: bool,
    /// A line whose write was not answered yet.
    unsure: Option<&'static str>,
    /// `a` was asked to go.
    closing: bool,
    /// And has gone.
    closed: bool,
    /// `b`, which was opened and purged.
    b_open: bool,
    b_purging: bool,
    b_purged: bool,
}

async fn life(
    sessions: Arc<Sessions>,
    backend: Arc<InMemory>,
    clock: Arc<HandClock>,
    told: Arc<Mutex<Told>>,
) {
    let a = sid("a");
    let say = |change: &dyn Fn(&mut Told)| change(&mut told.lock().unwrap());
    let write = async |line: &'static str| {
        say(&|told| told.unsure = Some(line));
        let script = format!("echo {line} >> f");
        let done = sessions.run(&a, sh(&script)).await.unwrap();
        assert!(
            matches!(done, RunDone::Finished { code: 0, .. }),
            "{done:?}"
        );
        say(&|told| {
            told.unsure = None;
            told.lines.push(line);
        });
    };
    let sleep = async || {
        sessions.hibernate(&a).await.unwrap();
    };
    let opened = sessions.open(ask("a")).await.unwrap();
    say(&|told| told.token = Some(opened.token.clone()));
    write("one").await;
    sessions
        .run(&a, sh("echo yes > /etc/installed"))
        .await
        .unwrap();
    say(&|told| told.installed = true);
    sleep().await;
    sessions
        .native(&a, "/workspace/f", NativeFile::Stat)
        .await
        .unwrap();
    write("two").await;
    // Its sandbox dies; the next command heals it.
    backend.kill_all();
    while sessions.get(&a).is_some_and(|view| view.alive) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    write("three").await;
    sleep().await;
    sessions.open(reuse("a")).await.unwrap();
    sessions.open(ask("b")).await.unwrap();
    say(&|told| told.b_open = true);
    sessions.run(&sid("b"), sh("echo b > f")).await.unwrap();
    say(&|told| told.b_purging = true);
    sessions.delete(&sid("b"), true).await.unwrap();
    say(&|told| told.b_purged = true);
    // Its kept layer is past its time.
    sleep().await;
    say(&|told| told.installed = false);
    clock.pass(100);
    sessions.sweep().await;
    while backend.layer_count() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    write("four").await;
    say(&|told| told.closing = true);
    sessions.delete(&a, false).await.unwrap();
    say(&|told| told.closed = true);
}

fn check(host: &Host, daemon: &Daemon, told: &Told, keep: bool, step: usize) {
    let at = format!("killed at step {step}, told {told:?}");
    let a = daemon.sessions.get(&sid("a"));
    if told.closed {
        assert!(a.is_none(), "{at}: closed, and there again");
    }
    if let Some(token) = &told.token
        && !told.closing
    {
        assert!(a.is_some(), "{at}: open, and forgotten");
        let is_right = daemon.sessions.check_token(&sid("a"), token.as_bytes());
        assert!(is_right, "{at}: another token");
    }
    // Whatever it is, it can be opened and used.
    daemon
        .open(reuse("a"))
        .unwrap_or_else(|e| panic!("{at}: {e}"));
    let lines = daemon.out("a", "echo -n >> f; cat f");
    let sure = told.lines.iter().map(|line| format!("{line}\n"));
    let sure: String = sure.collect();
    let unsure = told.unsure.map(|line| format!("{sure}{line}\n"));
    assert!(
        lines == sure || Some(&lines) == unsure.as_ref(),
        "{at}: {lines:?}"
    );
    if keep && told.installed && !told.closing {
        assert_eq!(daemon.out("a", "cat /etc/installed"), "yes\n", "{at}");
    }
    let b = daemon.sessions.get(&sid("b"));
    assert!(
        b.is_none() || !told.b_purged,
        "{at}: purged, and there again"
    );
    assert!(
        b.is_some() || !told.b_open || told.b_purging,
        "{at}: b is forgotten"
    );
    if told.b_purged {
        let gone = daemon.open(attach("b")).unwrap_err();
        assert!(
            matches!(gone, OpenError::NothingToAttach(_)),
            "{at}: {gone:?}"
        );
    }
    let known = daemon.sessions.list().len();
    let left = host.backend.sandbox_count() + host.backend.layer_count();
    assert!(
        left <= known,
        "{at}: {left} sandboxes and layers for {known} sessions"
    );
    for id in ["a", "b"] {
        match daemon.delete(id, true) {
            Ok(()) | Err(UseError::NotFound(_)) => {}
            Err(error) => panic!("{at}: {error}"),
        }
    }
    assert_eq!(
        host.backend.sandbox_count() + host.backend.layer_count(),
        0,
        "{at}"
    );
    assert!(daemon.sessions.list().is_empty(), "{at}");
}

#[test]
fn wherever_the_daemon_is_killed_what_clients_were_told_is_true() {
    for (keep, pools) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut step = 0;
        loop {
            let host = Host::new(|service| {
                service.persist_containers = keep;
                service.container_ttl = keep.then_some(60);
                service.pool = u64::from(pools);
            });
            let killer = Killer::after(step);
            let told = Arc::new(Mutex::new(Told::default()));
            let mut reached_the_end = false;
            let mortal = |ledger, backend| -> (Arc<dyn Ledger>, Arc<dyn Backend>) {
                let ledger = MortalLedger {
                    killer: killer.clone(),
                    inner: ledger,
                };
                let backend = MortalBackend {
                    killer: killer.clone(),
                    inner: backend,
                    pools,
                };
                (Arc::new(ledger), Arc::new(backend))
            };
            match host.start_as(mortal, &killer.killed) {
                None => {}
                Some(daemon) => {
                    let lived = daemon.runtime.spawn(life(
                        daemon.sessions.clone(),
                        host.backend.clone(),
                        host.clock.clone(),
                        told.clone(),
                    ));
                    reached_the_end = daemon.runtime.block_on(async {
                        tokio::select! {
                            lived = lived => { lived.expect("no surprise"); true }
                            () = killer.killed.cancelled() => false,
                        }
                    });
                    host.kill(daemon);
                }
            }
            let told = told.lock().unwrap().clone();
            let daemon = host.start();
            check(&host, &daemon, &told, keep, step);
            host.end(daemon);
            if reached_the_end {
                assert!(step > 30, "only {step} steps");
                break;
            }
            step += 1;
        }
    }
}
