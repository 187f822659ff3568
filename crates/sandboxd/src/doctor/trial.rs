//! A whole sandbox, started and ended: what all other checks only hint at.

use crate::failure::Failure;
use crate::sandbox::{Sandbox, Workshop, configuration};
use sandboxd_protocol::client::{Client, Output};
use sandboxd_protocol::message::{OutputLimit, Run};
use sandboxd_server::backends::{
    Capabilities, Ceiling, Enforcement, Network, PreparedImage, ProjectIds,
};
use sandboxd_server::config::{Config, Flags, Service};
use sandboxd_server::runtimes::{Runtime, Source};
use sandboxd_server::sessions::sandbox_spec;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How it went.
#[derive(Debug)]
pub(super) struct Trial {
    state_dir: Option<PathBuf>,
    service: Option<Service>,
    project_ids: Option<ProjectIds>,
    capabilities: Option<Capabilities>,
    bridge: Option<Result<(Duration, String), String>>,
    result: Result<Duration, Failure>,
}

impl Trial {
    /// Whether sandboxes can be made here.
    pub(super) const fn works(&self) -> bool {
        self.result.is_ok()
    }

    /// How long it took, or why it did not work.
    pub(super) fn result(&self) -> Result<Duration, String> {
        self.result.clone().map_err(|failure| failure.text)
    }

    /// What the backend can enforce, where it started.
    pub(super) const fn capabilities(&self) -> Option<&Capabilities> {
        self.capabilities.as_ref()
    }

    /// The projects that quotas may use, where the configuration could be read and wants some.
    pub(super) const fn project_ids(&self) -> Option<ProjectIds> {
        self.project_ids
    }

    /// The configured service, where the configuration could be read.
    pub(super) const fn service(&self) -> Option<&Service> {
        self.service.as_ref()
    }

    /// How long it took to give a sandbox a network and what that holds, or why there is none; where the backend started.
    pub(super) fn bridge(&self) -> Option<Result<(Duration, String), String>> {
        self.bridge.clone()
    }

    /// The configured state directory, where the configuration could be read.
    pub(super) fn state_dir(&self) -> Option<&Path> {
        self.state_dir.as_deref()
    }
}

/// Tries.
pub(super) fn trial(state_dir: Option<&Path>) -> Trial {
    let mut trial = Trial {
        state_dir: None,
        service: None,
        project_ids: None,
        capabilities: None,
        bridge: None,
        result: Err(Failure::ours("not tried")),
    };
    trial.result = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::ours(format!("cannot start: {error}")))
        .and_then(|runtime| runtime.block_on(attempt(&mut trial, state_dir)));
    trial
}

async fn attempt(trial: &mut Trial, state_dir: Option<&Path>) -> Result<Duration, Failure> {
    let flags = Flags {
        state_dir: state_dir.map(Path::to_owned),
        ..Flags::default()
    };
    let config = configuration(flags, None)?;
    trial.state_dir = Some(config.state_dir.clone());
    trial.service = Some(config.service.clone());
    trial.project_ids = config.project_ids;
    let workshop = Workshop::start(&config).await?;
    trial.capabilities = Some(workshop.capabilities().await);
    let started = Instant::now();
    let made = match plain(&workshop, &config, Network::None).await {
        Ok(sandbox) => run_nothing(&sandbox.client).await,
        Err(failure) => Err(failure),
    };
    let took = started.elapsed();
    if made.is_ok() {
        trial.bridge = Some(bridged(&workshop, &config).await);
    }
    workshop.close().await;
    made.map(|()| took)
}

/// A sandbox with a network.
async fn bridged(workshop: &Workshop, config: &Config) -> Result<(Duration, String), String> {
    if let Enforcement::Unenforced(why) = workshop.capabilities().await.bridge {
        return Err(why);
    }
    let started = Instant::now();
    let made = plain(workshop, config, Network::Bridge).await;
    let made = made.map_err(|failure| failure.text)?;
    match made.enforced.get(&Ceiling::Network) {
        Some(Enforcement::Enforced(how)) => Ok((started.elapsed(), how.clone())),
        Some(Enforcement::Unenforced(why)) => Err(why.clone()),
        None => Err("the sandbox has none".to_owned()),
    }
}

/// A sandbox of the host's own system files, with nothing that was asked for but a network.
async fn plain(workshop: &Workshop, config: &Config, network: Network) -> Result<Sandbox, Failure> {
    let runtime = Runtime::plain("host", "host", Source::Host);
    let spec = sandbox_spec(&config.service, &runtime, PreparedImage::Host, None);
    let mut spec = spec.map_err(Failure::ours)?;
    spec.keep_layer = false;
    spec.network = network;
    // What cannot be enforced has lines of its own.
    spec.allow_unenforced = Ceiling::ALL.to_vec();
    workshop.make(&runtime, spec).await
}

/// The smallest program.
async fn run_nothing(client: &Client) -> Result<(), Failure> {
    let run = Run {
        argv: vec![b"true".to_vec()],
        env: Vec::new(),
        cwd: None,
        stdin: false,
        timeout_millis: Some(10_000),
        output: OutputLimit::Discard(0),
    };
    let (_input, mut events) = client.run(run).await.map_err(Failure::ours)?;
    loop {
        match events.next().await.map_err(Failure::ours)? {
            Some(Output::Exited(exit)) if exit.code == 0 => return Ok(()),
            Some(Output::Started | Output::Stdout(_) | Output::Stderr(_)) => {}
            Some(Output::Exited(exit)) => {
                return Err(Failure::ours(format!("`true` ended with {}", exit.code)));
            }
            Some(Output::NotStarted(why)) => {
                return Err(Failure::ours(format!("`true` did not start: {why:?}")));
            }
            None => return Err(Failure::ours("`true` has no end")),
        }
    }
}
