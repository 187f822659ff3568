//! Sandboxes of this process's own: what `run` and `doctor` make, and leave no trace of.

use crate::failure::Failure;
use sandboxd_protocol::client::Client;
use sandboxd_server::backends::{Backend, Capabilities, Enforced, SandboxSpec};
use sandboxd_server::config::{Config, Flags, Layers};
use sandboxd_server::runtimes::Runtime;
use std::path::PathBuf;

/// The configuration of this process's environment and of this file.
pub(crate) fn configuration(file: Option<PathBuf>) -> Result<Config, Failure> {
    let (config, _warnings) = Layers::of_process(Flags::default(), file)
        .read()
        .map_err(Failure::ours)?;
    Ok(config)
}

/// A backend of this process's own.
#[derive(Debug)]
pub(crate) struct Workshop {
    backend: Box<dyn Backend>,
}

/// A sandbox that runs.
#[derive(Debug)]
pub(crate) struct Sandbox {
    /// The way in.
    pub(crate) client: Client,
    /// What is really in place.
    pub(crate) enforced: Enforced,
}

impl Workshop {
    /// Starts a backend.
    pub(crate) async fn start(_config: &Config) -> Result<Self, Failure> {
        Err(Failure::ours("not in this build yet"))
    }
    /// What it can enforce.
    pub(crate) async fn capabilities(&self) -> Capabilities {
        self.backend.capabilities().await
    }
    /// Makes a sandbox.
    pub(crate) async fn make(
        &self,
        _runtime: &Runtime,
        _spec: SandboxSpec,
    ) -> Result<Sandbox, Failure> {
        Err(Failure::ours("not in this build yet"))
    }
    /// Makes one with nothing asked for.
    pub(crate) async fn make_plain(&self) -> Result<Sandbox, Failure> {
        Err(Failure::ours("not in this build yet"))
    }
    /// Ends everything.
    pub(crate) async fn close(self) {
        self.backend.shutdown().await;
    }
}
