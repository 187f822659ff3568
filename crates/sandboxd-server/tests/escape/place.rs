//! A service whose sandboxes are real, a secret beside it that none of them may see, and what is said to it.

use crate::wire::{Reply, Request, TOKEN};
use sandboxd_server::backends::docker::Docker;
use sandboxd_server::backends::namespaces::{Namespaces, Programs};
use sandboxd_server::config::{Flags, Layers};
use sandboxd_server::server::Server;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// No shutdown may take longer.
const PATIENCE: Duration = Duration::from_secs(60);
/// What stands in the file that nobody may read.
pub(crate) const CANARY: &str = "canary-5d41402abc4b2a76";

/// How many sandboxes are kept ready where an attack is tried in such.
const READY: usize = 2;

/// The image of sandboxes on a container engine; the engine of the tests has it (`cargo xtask test`, `cargo xtask engine`).
const IMAGE: &str = "image=debian-with-git:1";

tokio::task_local! {
    /// Set where an attack is tried on a container engine.
    pub(crate) static ON_DOCKER: ();
    /// Set where an attack is tried in sandboxes that were made before anybody asked for them.
    pub(crate) static FROM_POOL: ();
}

/// Whether the sandboxes of this test are an engine's containers.
pub(crate) fn on_docker() -> bool {
    ON_DOCKER.try_with(|()| ()).is_ok()
}

fn from_pool() -> bool {
    FROM_POOL.try_with(|()| ()).is_ok()
}

/// It has to be closed: what its sandboxes leave is looked at there.
pub(crate) struct Place {
    pub(crate) addr: SocketAddr,
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
    home: TempDir,
    runs: AtomicU32,
    /// Sessions that were opened.
    opened: AtomicU32,
}

/// What a program inside did.
#[derive(Debug)]
pub(crate) struct Did {
    /// The exit code; none where it was ended.
    pub(crate) code: Option<i64>,
    pub(crate) out: String,
    #[expect(dead_code, reason = "shown where something is not as it should be")]
    pub(crate) err: String,
}

impl Did {
    pub(crate) fn worked(&self) -> bool {
        self.code == Some(0)
    }
}

impl Place {
    pub(crate) async fn open() -> Self {
        Self::open_with(&[]).await
    }

    /// With these variables beside those that every place has.
    pub(crate) async fn open_with(env: &[(&str, &str)]) -> Self {
        let home = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(home.path().join("outside")).expect("a directory");
        std::fs::write(home.path().join("outside/canary"), CANARY).expect("a file");
        let state = home.path().join("state");
        let workspaces = home.path().join("workspaces");
        let runtimes = if on_docker() { IMAGE } else { "host=host" };
        let pool = if from_pool() { READY } else { 0 };
        let fixed = [
            ("SANDBOXD_POOL", pool.to_string()),
            ("SANDBOXD_PORT", "0".to_owned()),
            ("SANDBOXD_TOKEN", TOKEN.to_owned()),
            ("SANDBOXD_STATE_DIR", state.display().to_string()),
            ("SANDBOXD_WORKSPACE_ROOT", workspaces.display().to_string()),
            ("SANDBOXD_RUNTIMES", runtimes.to_owned()),
            ("SANDBOXD_UI_ENABLED", "true".to_owned()),
        ];
        let kept = fixed
            .iter()
            .filter(|(name, _)| !env.iter().any(|(other, _)| other == name))
            .map(|(name, value)| ((*name).into(), value.into()));
        let own = env
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()));
        let engine = std::env::vars_os().filter(|(name, _)| name == "DOCKER_HOST");
        let layers = Layers {
            flags: Flags::default(),
            env: kept.chain(own).chain(engine).collect(),
            file: None,
            root: crate::ordinary::is_root(),
        };
        let (config, _) = layers.read().expect("a configuration");
        let programs = Programs::embedded().expect("this build carries the programs");
        let backend = if on_docker() {
            let made = Docker::start(&state, programs, &config.engine).await;
            made.expect("the backend starts")
        } else {
            let made = Namespaces::start(&state, programs).await;
            made.expect("the backend starts")
        };
        let server = Server::start(config, backend).await.expect("started");
        let addr = server.local_addr();
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        Self {
            addr,
            stop,
            running,
            home,
            runs: AtomicU32::new(1),
            opened: AtomicU32::new(0),
        }
    }

    /// A directory of this test's own, with `outside`, `state` and `workspaces` in it.
    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// The secret.
    pub(crate) fn canary(&self) -> PathBuf {
        self.home.path().join("outside/canary")
    }

    /// The stored files of a session on the host.
    pub(crate) fn stored(&self, id: &str) -> PathBuf {
        self.home
            .path()
            .join("workspaces")
            .join(id)
            .join("workspace")
    }

    /// Asserts that the secret is what it was, and that nothing lies beside it.
    #[track_caller]
    pub(crate) fn assert_outside_is_untouched(&self) {
        let outside = self.home.path().join("outside");
        assert_eq!(std::fs::read_to_string(self.canary()).unwrap(), CANARY);
        let names: Vec<_> = std::fs::read_dir(outside)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, ["canary"]);
    }

    /// A request of somebody with this token.
    pub(crate) async fn ask(
        &self,
        token: &str,
        method: &str,
        path: &str,
        body: Option<Value>,
    ) -> Reply {
        let request = Request::new(self.addr, method, path).token(token);
        match body {
            Some(body) => request.json(&body).send().await,
            None => request.send().await,
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.ask(TOKEN, "GET", path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Reply {
        self.ask(TOKEN, "POST", path, Some(body)).await
    }

    /// Opens a session; gives its token.
    pub(crate) async fn session(&self, id: &str) -> String {
        self.pool_is_full().await;
        self.opened.fetch_add(1, Ordering::Relaxed);
        let reply = self.post("/sessions", json!({ "session_id": id })).await;
        // What the host sees of what is being made meanwhile would be in an attack's way.
        self.pool_is_full().await;
        reply.ok()["token"].as_str().expect("a token").to_owned()
    }

    /// How many sandboxes are kept ready beside those of the sessions.
    pub(crate) fn ready(&self) -> usize {
        if from_pool() { READY } else { 0 }
    }

    async fn pool_is_full(&self) {
        if !from_pool() {
            return;
        }
        let filled = async {
            while self.figure("sandboxd_pool_ready").await < READY as u64 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, filled).await.expect("the pool is filled");
    }

    /// A figure of the service, over all its labels.
    async fn figure(&self, name: &str) -> u64 {
        let reply = self.get("/metrics").await;
        let text = String::from_utf8(reply.body).expect("text");
        let lines = text.lines().filter(|line| line.starts_with(name));
        lines
            .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
            .sum()
    }

    /// Ends a session, and removes its files.
    pub(crate) async fn purge(&self, id: &str) {
        let path = format!("/sessions/{id}?purge=true");
        self.ask(TOKEN, "DELETE", &path, None).await.nothing();
    }

    /// A fresh id for a run.
    pub(crate) fn run_id(&self) -> String {
        crate::wire::run_id(self.runs.fetch_add(1, Ordering::Relaxed))
    }

    /// Runs a program with these variables.
    pub(crate) async fn run(&self, id: &str, argv: &[&str], env: Value) -> Did {
        let body = json!({
            "argv": argv, "env": env, "timeout_seconds": 50.0, "run_id": self.run_id(),
        });
        let done = self.post(&format!("/sessions/{id}/run"), body).await.ok();
        let text = |name: &str| done[name].as_str().expect("text").to_owned();
        Did {
            code: done["exit_code"].as_i64(),
            out: text("stdout"),
            err: text("stderr"),
        }
    }

    /// Runs a shell script.
    pub(crate) async fn sh(&self, id: &str, script: &str) -> Did {
        self.run(id, &["/bin/sh", "-c", script], json!({})).await
    }

    /// Runs a Python program.
    pub(crate) async fn python(&self, id: &str, program: &str) -> Did {
        self.run(id, &["/usr/bin/python3", "-c", program], json!({}))
            .await
    }

    /// What a script that succeeds prints, without the last newline.
    pub(crate) async fn says(&self, id: &str, script: &str) -> String {
        let did = self.sh(id, script).await;
        assert!(did.worked(), "{script}: {did:?}");
        did.out.trim_end().to_owned()
    }

    /// What a Python program that succeeds prints, without the last newline.
    pub(crate) async fn python_says(&self, id: &str, program: &str) -> String {
        let did = self.python(id, program).await;
        assert!(did.worked(), "{program}: {did:?}");
        did.out.trim_end().to_owned()
    }

    /// Compiles a C program on the host and leaves it in a session's work directory, to be called by `./name`.
    pub(crate) fn compile(&self, id: &str, name: &str, source: &str) {
        let text = self.home.path().join(format!("{name}.c"));
        std::fs::write(&text, source).unwrap();
        let built = Command::new("cc")
            .args(["-O1", "-w", "-pthread", "-o"])
            .arg(self.stored(id).join(name))
            .arg(&text)
            .output()
            .expect("a C compiler");
        assert!(
            built.status.success(),
            "{}",
            String::from_utf8_lossy(&built.stderr)
        );
    }

    /// Ends the service; nothing of it may be left.
    pub(crate) async fn close(self) {
        if from_pool() {
            let hits = self.figure("sandboxd_pool_hits_total").await;
            let opened = u64::from(self.opened.load(Ordering::Relaxed));
            assert!(
                hits >= opened,
                "{hits} of {opened} sessions came from the pool"
            );
        }
        let _ = self.stop.send(());
        timeout(PATIENCE, self.running)
            .await
            .expect("ends in time")
            .expect("no panic");
        let left: Vec<_> = std::fs::read_dir(self.home.path().join("state/instances"))
            .map(|entries| entries.flatten().collect())
            .unwrap_or_default();
        assert!(left.is_empty(), "left behind: {left:?}");
    }
}

/// Asserts that none of these scripts works.
pub(crate) async fn none_works(place: &Place, id: &str, scripts: &[&str]) {
    for script in scripts {
        let did = place.sh(id, script).await;
        assert!(!did.worked(), "{script}: {did:?}");
    }
}

/// Asserts that all of these scripts work.
pub(crate) async fn all_work(place: &Place, id: &str, scripts: &[&str]) {
    for script in scripts {
        let did = place.sh(id, script).await;
        assert!(did.worked(), "{script}: {did:?}");
    }
}
