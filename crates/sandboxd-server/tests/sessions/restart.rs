//! What a daemon leaves to the next one, by its end or by being killed: on the real store.

use crate::support::{HandClock, ask, ask_for, attach, reuse, service, sh, sid};
use sandboxd_server::auth::session_tokens::SessionTokens;
use sandboxd_server::backends::Backend;
use sandboxd_server::backends::in_memory::InMemory;
use sandboxd_server::config::Service;
use sandboxd_server::sessions::{
    Ledger, Open, OpenError, Parts, RunDone, Sessions, UseError, View,
};
use sandboxd_server::store::Store;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

/// A host on which one daemon after the other lives. Each has a runtime of its own, so that it can be killed.
pub(crate) struct Host {
    home: TempDir,
    pub(crate) backend: Arc<InMemory>,
    pub(crate) clock: Arc<HandClock>,
    service: Service,
}

pub(crate) struct Daemon {
    pub(crate) runtime: Runtime,
    pub(crate) sessions: Arc<Sessions>,
    store: Store,
    ledger: Arc<dyn Ledger>,
}

impl Host {
    pub(crate) fn new(change: impl FnOnce(&mut Service)) -> Self {
        let home = tempfile::tempdir().unwrap();
        let service = service(|service| {
            service.workspace_root = Some(home.path().join("workspaces"));
            change(service);
        });
        Self {
            home,
            backend: InMemory::new(),
            clock: HandClock::new(),
            service,
        }
    }

    pub(crate) fn start(&self) -> Daemon {
        self.start_as(
            |ledger, backend| (ledger, backend),
            &CancellationToken::new(),
        )
        .expect("the daemon starts")
    }

    /// One whose store and backend are seen through something; nothing where it was killed before it had started.
    pub(crate) fn start_as(
        &self,
        seen: impl FnOnce(Arc<dyn Ledger>, Arc<dyn Backend>) -> (Arc<dyn Ledger>, Arc<dyn Backend>),
        killed: &CancellationToken,
    ) -> Option<Daemon> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let store = Store::open(&self.home.path().join("state")).unwrap();
        let (ledger, backend) = seen(store.ledger().unwrap(), self.backend.clone());
        let parts = Parts {
            backend,
            service: self.service.clone(),
            clock: self.clock.clone(),
            tokens: SessionTokens::new(&[7; 32]),
        };
        let starting = Sessions::start_with(parts, ledger.clone());
        let sessions = runtime.block_on(async {
            tokio::select! {
                sessions = starting => Some(sessions.expect("the daemon starts")),
                () = killed.cancelled() => None,
            }
        });
        match sessions {
            Some(sessions) => Some(Daemon {
                runtime,
                sessions,
                store,
                ledger,
            }),
            None => {
                runtime.shutdown_timeout(Duration::from_secs(5));
                std::mem::forget(ledger);
                None
            }
        }
    }

    /// Nothing of it gets to say or do anything any more.
    pub(crate) fn kill(&self, daemon: Daemon) {
        let Daemon {
            runtime,
            sessions,
            store,
            ledger,
        } = daemon;
        runtime.shutdown_timeout(Duration::from_secs(5));
        drop((sessions, store));
        // One that is dropped would end well.
        std::mem::forget(ledger);
        self.backend.crash();
    }

    pub(crate) fn end(&self, daemon: Daemon) {
        daemon.runtime.block_on(daemon.sessions.shutdown());
        assert_eq!(self.backend.sandbox_count(), 0);
        drop(daemon);
    }
}

impl Daemon {
    pub(crate) fn open(&self, ask: Open) -> Result<String, OpenError> {
        let opened = self.runtime.block_on(self.sessions.open(ask));
        opened.map(|opened| opened.token)
    }

    pub(crate) fn sh(&self, id: &str, script: &str) -> Result<RunDone, UseError> {
        self.runtime
            .block_on(self.sessions.run(&sid(id), sh(script)))
    }

    pub(crate) fn out(&self, id: &str, script: &str) -> String {
        match self.sh(id, script).unwrap() {
            RunDone::Finished {
                code: 0, stdout, ..
            } => String::from_utf8(stdout).unwrap(),
            other => panic!("{script}: {other:?}"),
        }
    }

    pub(crate) fn delete(&self, id: &str, purge: bool) -> Result<(), UseError> {
        self.runtime.block_on(self.sessions.delete(&sid(id), purge))
    }

    pub(crate) fn view(&self, id: &str) -> View {
        self.sessions.get(&sid(id)).expect("the session is there")
    }

    fn events(&self, id: &str, after: u64) -> (Vec<u64>, u64) {
        let (rows, latest) = self
            .runtime
            .block_on(self.sessions.events(&sid(id), after))
            .unwrap();
        (rows.iter().map(|row| row.seq).collect(), latest)
    }

    /// Waits until what was done is written: the journal is a moment late.
    pub(crate) fn settled(&self) {
        std::thread::sleep(Duration::from_millis(400));
    }
}

#[test]
fn a_session_outlives_its_daemon_however_that_ended() {
    let host = Host::new(|_| {});
    let mut daemon = host.start();
    let token = daemon.open(ask_for("a", "acme")).unwrap();
    daemon.out("a", "echo kept > f");
    let created = daemon.view("a").created;
    for killed in [true, false, true] {
        daemon.settled();
        let before = daemon.events("a", 0);
        match killed {
            true => host.kill(daemon),
            false => host.end(daemon),
        }
        daemon = host.start();
        let view = daemon.view("a");
        assert!(view.hibernated && view.alive, "{view:?}");
        assert_eq!(view.created, created);
        assert_eq!(view.tenant.unwrap().as_str(), "acme");
        assert!(daemon.sessions.check_token(&sid("a"), token.as_bytes()));
        assert_eq!(daemon.open(reuse("a")).unwrap(), token);
        assert_eq!(daemon.out("a", "cat f"), "kept\n");
        let after = daemon.events("a", 0);
        assert!(after.0.starts_with(&before.0), "{before:?} {after:?}");
        assert!(after.1 > before.1);
        if killed {
            assert!(
                after.0.last().unwrap() > &(before.1 + 1_000),
                "a number may come twice"
            );
        }
    }
    // Struck out, it is gone for the next one too.
    daemon.delete("a", false).unwrap();
    host.kill(daemon);
    let daemon = host.start();
    assert!(daemon.sessions.get(&sid("a")).is_none());
    assert!(!daemon.sessions.check_token(&sid("a"), token.as_bytes()));
    assert_ne!(daemon.open(attach("a")).unwrap(), token);
    assert_eq!(daemon.out("a", "cat f"), "kept\n");
}

#[test]
fn a_session_whose_files_went_with_the_daemon_is_lost_and_no_empty_one() {
    let host = Host::new(|service| service.workspace_root = None);
    let daemon = host.start();
    let token = daemon.open(ask("a")).unwrap();
    daemon.out("a", "echo gone > f");
    host.kill(daemon);
    for _ in 0..2 {
        let daemon = host.start();
        let view = daemon.view("a");
        assert!(!view.alive && !view.hibernated, "{view:?}");
        let refused = daemon.sh("a", "true").unwrap_err();
        assert!(matches!(refused, UseError::Gone(_)), "{refused:?}");
        assert!(daemon.sessions.check_token(&sid("a"), token.as_bytes()));
        host.end(daemon);
    }
    let daemon = host.start();
    daemon.delete("a", false).unwrap();
    daemon.open(ask("a")).unwrap();
}

#[test]
fn a_kept_layer_outlives_the_daemon_with_and_without_a_workspace() {
    for stored in [true, false] {
        let host = Host::new(|service| {
            service.persist_containers = true;
            if !stored {
                service.workspace_root = None;
            }
        });
        let mut daemon = host.start();
        daemon.open(ask("a")).unwrap();
        daemon.out("a", "echo installed > /etc/package");
        for killed in [true, false, true] {
            match killed {
                true => host.kill(daemon),
                false => host.end(daemon),
            }
            assert_eq!(host.backend.layer_count(), 1);
            daemon = host.start();
            assert!(daemon.view("a").hibernated);
            assert_eq!(daemon.out("a", "cat /etc/package"), "installed\n");
        }
        // A layer that went missing is an error, every time, and never an empty one.
        host.end(daemon);
        host.backend.lose_layers();
        let daemon = host.start();
        for _ in 0..2 {
            let refused = daemon.sh("a", "true").unwrap_err();
            assert!(
                matches!(&refused, UseError::WakeFailed { cause, .. } if cause.contains("layer")),
                "{refused:?}"
            );
        }
        host.kill(daemon);
    }
}

#[test]
fn a_restart_changes_no_time() {
    let host = Host::new(|service| {
        service.idle_timeout = 100;
        service.persist_containers = true;
        service.container_ttl = Some(50);
    });
    let daemon = host.start();
    daemon.open(ask("a")).unwrap();
    daemon.out("a", "true");
    daemon.settled();
    host.kill(daemon);
    host.clock.pass(40);
    let daemon = host.start();
    assert_eq!(daemon.view("a").idle.as_secs(), 40);
    daemon.runtime.block_on(daemon.sessions.sweep());
    daemon.settled();
    assert_eq!(host.backend.layer_count(), 1, "not yet");
    host.kill(daemon);
    host.clock.pass(20);
    let daemon = host.start();
    daemon.runtime.block_on(daemon.sessions.sweep());
    daemon.settled();
    assert_eq!(host.backend.layer_count(), 0, "60 s asleep");
    host.kill(daemon);
    host.clock.pass(39);
    let daemon = host.start();
    daemon.runtime.block_on(daemon.sessions.sweep());
    assert!(daemon.sessions.get(&sid("a")).is_some(), "99 s idle");
    host.kill(daemon);
    host.clock.pass(1);
    let daemon = host.start();
    daemon.runtime.block_on(daemon.sessions.sweep());
    daemon.settled();
    assert!(daemon.sessions.get(&sid("a")).is_none());
}

#[test]
fn what_is_configured_otherwise_now_is_said_and_loses_nothing() {
    let mut host = Host::new(|_| {});
    let daemon = host.start();
    daemon.open(ask("a")).unwrap();
    daemon.out("a", "echo kept > f");
    host.end(daemon);
    let before = host.service.clone();
    // The folder of workspaces is not configured any more.
    host.service.workspace_root = None;
    let daemon = host.start();
    let refused = daemon.sh("a", "true").unwrap_err();
    assert!(
        matches!(&refused, UseError::WakeFailed { cause, .. } if cause.contains("workspace_root")),
        "{refused:?}"
    );
    host.end(daemon);
    // Its runtime has left the allowlist.
    host.service = before.clone();
    let (_, runtime) = host.service.runtimes.pop_first().unwrap();
    host.service.runtimes.clear();
    host.service.runtimes.insert("other".to_owned(), runtime);
    host.service.default_runtime = "other".to_owned();
    let daemon = host.start();
    let refused = daemon.sh("a", "true").unwrap_err();
    assert!(
        matches!(&refused, UseError::WakeFailed { cause, .. } if cause.contains("allowlist")),
        "{refused:?}"
    );
    host.end(daemon);
    host.service = before;
    let daemon = host.start();
    assert_eq!(daemon.out("a", "cat f"), "kept\n");
}

#[test]
fn layers_that_no_session_on_record_has_are_removed() {
    let host = Host::new(|service| service.persist_containers = true);
    let daemon = host.start();
    daemon.open(ask("a")).unwrap();
    daemon.open(ask("b")).unwrap();
    host.kill(daemon);
    assert_eq!(host.backend.layer_count(), 2);
    let daemon = host.start();
    daemon.delete("b", false).unwrap();
    host.kill(daemon);
    let state = host.home.path().join("state");
    for name in ["sandboxd.db", "sandboxd.db-wal", "sandboxd.db-shm"] {
        let _ = std::fs::remove_file(state.join(name));
    }
    let daemon = host.start();
    assert_eq!(host.backend.layer_count(), 0);
    drop(daemon);
}

#[test]
fn the_stored_files_of_a_closed_session_can_be_purged() {
    let host = Host::new(|_| {});
    let daemon = host.start();
    daemon.open(ask("a")).unwrap();
    let delete = |purge| daemon.delete("a", purge);
    delete(false).unwrap();
    assert!(matches!(delete(false), Err(UseError::NotFound(_))));
    delete(true).unwrap();
    assert!(matches!(delete(true), Err(UseError::NotFound(_))));
    assert!(matches!(
        daemon.open(attach("a")),
        Err(OpenError::NothingToAttach(_))
    ));
}

#[test]
fn labels_and_ends_are_on_record_and_a_renewed_end_is_the_one_that_counts() {
    let host = Host::new(|_| {});
    let daemon = host.start();
    for id in ["a", "b"] {
        let open = Open {
            labels: [("user".to_owned(), "42".to_owned())].into(),
            ttl: Some(Duration::from_secs(100)),
            ..ask(id)
        };
        daemon.open(open).unwrap();
    }
    let later = Some(Duration::from_secs(300));
    let b = sid("b");
    let renewed = daemon.sessions.renew(&b, later);
    daemon.runtime.block_on(renewed).unwrap();
    let before = [daemon.view("a"), daemon.view("b")];
    host.kill(daemon);

    let daemon = host.start();
    for (id, before) in ["a", "b"].into_iter().zip(before) {
        let after = daemon.view(id);
        assert_eq!(
            (after.expires, after.labels),
            (before.expires, before.labels)
        );
    }
    daemon.out("a", "true");
    host.end(daemon);
    // Time passes also while nobody is there.
    host.clock.pass(100);
    let daemon = host.start();
    daemon.runtime.block_on(daemon.sessions.sweep());
    while daemon.sessions.get(&sid("a")).is_some() {
        std::thread::yield_now();
    }
    assert_eq!(daemon.out("b", "echo on"), "on\n");
    host.end(daemon);
    host.clock.pass(200);
    let daemon = host.start();
    daemon.runtime.block_on(daemon.sessions.sweep());
    while daemon.sessions.get(&sid("b")).is_some() {
        std::thread::yield_now();
    }
    host.end(daemon);
}
