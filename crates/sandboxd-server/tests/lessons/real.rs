//! A service on a free port whose sandboxes are real: the host's own files as their root, processes of this kernel.

use crate::wire::{Reply, Request, TOKEN, run_id};
use sandboxd_server::backends::namespaces::{Namespaces, Programs};
use sandboxd_server::config::{Flags, Layers};
use sandboxd_server::server::Server;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// No shutdown may take longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// It has to be closed: what its sandboxes leave is looked at there.
pub(crate) struct Real {
    pub(crate) addr: SocketAddr,
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
    home: TempDir,
}

impl Real {
    pub(crate) async fn start(env: &[(&str, &str)]) -> Self {
        let home = tempfile::tempdir().expect("a directory");
        let state = home.path().join("state");
        let fixed = [
            ("SANDBOXD_PORT", "0".to_owned()),
            ("SANDBOXD_TOKEN", TOKEN.to_owned()),
            ("SANDBOXD_STATE_DIR", state.display().to_string()),
            (
                "SANDBOXD_WORKSPACE_ROOT",
                home.path().join("workspaces").display().to_string(),
            ),
            ("SANDBOXD_RUNTIMES", "host=host".to_owned()),
        ];
        let fixed = fixed.map(|(name, value)| (name.into(), value.into()));
        let own = env
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()));
        let layers = Layers {
            flags: Flags::default(),
            env: fixed.into_iter().chain(own).collect(),
            file: None,
            root: is_root(),
        };
        let (config, _) = layers.read().expect("a configuration");
        let programs = Programs::embedded().expect("this build carries the programs");
        let backend = Namespaces::start(&state, programs).await;
        let server = Server::start(config, backend.expect("the backend starts"))
            .await
            .expect("started");
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
        }
    }

    /// An image in its store: this directory as a root filesystem, with a user for its programs.
    pub(crate) fn image(&self, name: &str, root: &std::path::Path, user: &str) {
        use sandboxd_server::runtimes::images::digest::Digest;
        use sandboxd_server::runtimes::images::{Cancel, Images, Untold, import};
        let mut layer = tar::Builder::new(Vec::new());
        layer.follow_symlinks(false);
        layer.append_dir_all(".", root).expect("a tar");
        let layer = layer.into_inner().expect("a tar");
        let config = json!({
            "config": {"User": user},
            "rootfs": {"diff_ids": [Digest::of(&layer).to_string()]},
        });
        let manifest = json!([{"Config": "config", "RepoTags": [name], "Layers": ["layer"]}]);
        let saved = tempfile::tempdir().expect("a directory");
        let files = [
            ("manifest.json", manifest.to_string().into_bytes()),
            ("config", config.to_string().into_bytes()),
            ("layer", layer),
        ];
        for (name, content) in files {
            std::fs::write(saved.path().join(name), content).expect("a file");
        }
        let store = Images::of(&self.home.path().join("state"));
        import(&store, saved.path(), None, &Cancel::default(), &Untold).expect("an image");
    }

    pub(crate) async fn send(&self, method: &str, path: &str, body: Option<Value>) -> Reply {
        let request = Request::new(self.addr, method, path).token(TOKEN);
        match body {
            Some(body) => request.json(&body).send().await,
            None => request.send().await,
        }
    }

    pub(crate) async fn open(&self, id: &str) {
        let body = json!({ "session_id": id });
        self.send("POST", "/sessions", Some(body)).await.ok();
    }

    pub(crate) async fn delete(&self, id: &str) {
        let path = format!("/sessions/{id}?purge=true");
        self.send("DELETE", &path, None).await.nothing();
    }

    /// The answer to a run of a shell script.
    pub(crate) async fn run(&self, id: &str, script: &str) -> Reply {
        let body = json!({"argv": ["/bin/sh", "-c", script], "run_id": run_id(1)});
        self.send("POST", &format!("/sessions/{id}/run"), Some(body))
            .await
    }

    /// What a script that succeeds prints.
    pub(crate) async fn says(&self, id: &str, script: &str) -> String {
        let done = self.run(id, script).await.ok();
        assert_eq!(done["exit_code"], 0, "{script}: {done}");
        done["stdout"].as_str().expect("text").to_owned()
    }

    /// The answer of an era A operation.
    pub(crate) async fn ask(&self, id: &str, op: &str, body: Value) -> Value {
        self.send("POST", &format!("/sessions/{id}/{op}"), Some(body))
            .await
            .ok()
    }

    pub(crate) async fn close(self) {
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

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
