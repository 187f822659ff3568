//! A service on a free port.

use sandboxd_server::backends::Backend;
use sandboxd_server::backends::in_memory::InMemory;
use sandboxd_server::config::{Flags, Layers};
use sandboxd_server::server::Server;
use std::sync::Arc;
use tempfile::TempDir;
use tokio::task::JoinHandle;

/// The service's token.
pub(crate) const TOKEN: &str = "the-service-token";

/// A service that ends with the test.
pub(crate) struct Running {
    pub(crate) url: String,
    task: JoinHandle<()>,
    _place: TempDir,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Running {
    /// One that stores workspaces, or none.
    pub(crate) async fn start(workspaces: bool) -> Self {
        let place = tempfile::tempdir().expect("a directory");
        let inside = |name: &str| place.path().join(name).display().to_string();
        let mut env = vec![
            ("SANDBOXD_PORT", "0".to_owned()),
            ("SANDBOXD_TOKEN", TOKEN.to_owned()),
            ("SANDBOXD_BACKEND", "in_memory".to_owned()),
            ("SANDBOXD_STATE_DIR", inside("state")),
            (
                "SANDBOXD_RUNTIMES",
                "python=python:3.12-slim,node=node:20-slim".to_owned(),
            ),
            ("SANDBOXD_EXECUTE_TIMEOUT", "20".to_owned()),
        ];
        if workspaces {
            env.push(("SANDBOXD_WORKSPACE_ROOT", inside("workspaces")));
        }
        let layers = Layers {
            flags: Flags::default(),
            env: env
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            file: None,
            root: false,
        };
        let (config, _warnings) = layers.read().expect("a configuration");
        let backend: Arc<dyn Backend> = InMemory::new();
        let server = Server::start(config, backend).await.expect("started");
        let url = format!("http://{}", server.local_addr());
        let task = tokio::spawn(server.run(std::future::pending()));
        Self {
            url,
            task,
            _place: place,
        }
    }

    pub(crate) fn service(&self) -> sandboxd_client::Service {
        sandboxd_client::Service::new(&self.url, TOKEN).expect("a service")
    }
}
