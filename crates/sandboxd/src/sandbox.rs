//! Sandboxes of this process's own: what `run` and `doctor` make, and leave no trace of.

use crate::failure::Failure;
use crate::limits::CLOSE_SECONDS_MAX;
use crate::shown::Shown;
use sandboxd_protocol::client::Client;
use sandboxd_server::backends::docker::Docker;
use sandboxd_server::backends::in_memory::InMemory;
use sandboxd_server::backends::namespaces::{Namespaces, Programs, Settings};
use sandboxd_server::backends::{
    Backend, Capabilities, Ceiling, CreateError, Enforced, Enforcement, Meter, PreparedImage,
    SandboxSpec, Start,
};
use sandboxd_server::config::{BackendName, Config, Flags, Layers, Service};
use sandboxd_server::id::SandboxId;
use sandboxd_server::runtimes::Runtime;
use sandboxd_server::runtimes::images::Watcher;
use sandboxd_server::sessions::sandbox_spec;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The configuration of these flags, this process's environment and this file.
pub(crate) fn configuration(flags: Flags, file: Option<PathBuf>) -> Result<Config, Failure> {
    let (config, _warnings) = Layers::of_process(flags, file)
        .read()
        .map_err(Failure::ours)?;
    Ok(config)
}

/// The configured backend, started.
pub(crate) async fn backend(config: &Config) -> Result<Arc<dyn Backend>, Failure> {
    match config.backend {
        BackendName::Namespaces => {
            let programs = Programs::embedded().map_err(Failure::ours)?;
            let settings = Settings {
                egress: config.egress.clone(),
                registries: config.registries.clone(),
                builds: config.builds.clone(),
                project_ids: config.project_ids,
            };
            Namespaces::start_with(&config.state_dir, programs, settings)
                .await
                .map_err(Failure::ours)
        }
        BackendName::Docker => {
            let programs = Programs::embedded().map_err(Failure::ours)?;
            let registries = config.registries.clone();
            let root = config.service.workspace_root.as_deref();
            Docker::start_with(
                &config.state_dir,
                programs,
                &config.engine,
                root,
                config.egress.clone(),
                (registries, config.builds.clone()),
            )
            .await
            .map_err(Failure::ours)
        }
        BackendName::InMemory => Ok(InMemory::new()),
    }
}

/// A backend of this process's own. It shares the state directory, and so unpacked images, with others; what it makes
/// lies in an instance of its own there, which its launcher removes when this process is gone.
#[derive(Debug)]
pub(crate) struct Workshop {
    backend: Arc<dyn Backend>,
    service: Service,
}

/// A sandbox that runs.
#[derive(Debug)]
pub(crate) struct Sandbox {
    /// The way in.
    pub(crate) client: Client,
    /// What is really in place.
    pub(crate) enforced: Enforced,
    /// What its ceilings have done.
    pub(crate) meter: Arc<dyn Meter>,
}

impl Workshop {
    /// Starts a backend.
    pub(crate) async fn start(config: &Config) -> Result<Self, Failure> {
        let backend = backend(config).await?;
        let service = config.service.clone();
        Ok(Self { backend, service })
    }

    /// What it can enforce.
    pub(crate) async fn capabilities(&self) -> Capabilities {
        self.backend.capabilities().await
    }

    /// Makes a runtime's image ready.
    pub(crate) async fn prepare(&self, runtime: &Runtime) -> Result<PreparedImage, Failure> {
        let shown = Arc::new(Shown::for_image(&runtime.label));
        let watcher: Watcher = Arc::clone(&shown) as Watcher;
        let prepared = self.backend.prepare(runtime, &watcher).await;
        shown.end();
        prepared.map_err(Failure::ours)
    }

    /// Makes a sandbox and greets its guest. Dropped on its way, it leaves what [`Workshop::close`] takes away.
    pub(crate) async fn make(
        &self,
        runtime: &Runtime,
        mut spec: SandboxSpec,
    ) -> Result<Sandbox, Failure> {
        let image = self.prepare(runtime).await?;
        // Environment and user are also the image's to say.
        let of_image = sandbox_spec(&self.service, runtime, image, None).map_err(Failure::ours)?;
        spec.image = of_image.image;
        spec.env = of_image.env;
        (spec.user, spec.group) = (of_image.user, of_image.group);
        let id = SandboxId::generate();
        let running = self
            .backend
            .create(&id, &spec, Start::Fresh)
            .await
            .map_err(|error| no_sandbox(&error))?;
        let (client, _welcome) = Client::connect(running.link)
            .await
            .map_err(|error| Failure::ours(format!("no answer from the sandbox: {error}")))?;
        Ok(Sandbox {
            client,
            enforced: running.enforced,
            meter: running.meter,
        })
    }

    /// Ends everything that was made here.
    pub(crate) async fn close(self) {
        let limit = Duration::from_secs(CLOSE_SECONDS_MAX);
        // Over the limit the launcher, which outlives us, goes on tidying.
        let _ = tokio::time::timeout(limit, self.backend.shutdown()).await;
    }
}

/// Why there is no sandbox, with the flag that accepts what cannot be enforced.
fn no_sandbox(error: &CreateError) -> Failure {
    match error {
        CreateError::Unenforceable { ceiling, cause } => {
            let name = ceiling.name();
            Failure::ours(format!(
                "{name} cannot be enforced here: {cause} (--allow-unenforced {name} accepts that)"
            ))
        }
        other => Failure::ours(format!("no sandbox: {other}")),
    }
}

/// The line about ceilings that are not in place: for those that were not asked for by anybody, and not accepted.
pub(crate) fn not_enforced_line(enforced: &Enforced, accepted: &[Ceiling]) -> Option<String> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for (ceiling, enforcement) in enforced {
        let Enforcement::Unenforced(why) = enforcement else {
            continue;
        };
        if accepted.contains(ceiling) {
            continue;
        }
        match reasons.iter_mut().find(|(reason, _)| reason == why) {
            Some((_, names)) => names.push(ceiling.name()),
            None => reasons.push((why, vec![ceiling.name()])),
        }
    }
    let parts = reasons
        .iter()
        .map(|(why, names)| format!("{} ({why})", names.join(", ")))
        .collect::<Vec<_>>();
    (!parts.is_empty()).then(|| {
        format!(
            "not enforced here: {}; see sandboxd doctor",
            parts.join("; ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_enforced_is_one_line_grouped_by_reason() {
        let why = |text: &str| Enforcement::Unenforced(text.to_owned());
        let enforced = Enforced::from([
            (Ceiling::Memory, why("no cgroup delegation")),
            (Ceiling::Cpus, why("no cgroup delegation")),
            (Ceiling::Pids, Enforcement::Enforced("rlimit".to_owned())),
            (Ceiling::UidRange, why("one mapped user")),
        ]);
        assert_eq!(
            not_enforced_line(&enforced, &[]).as_deref(),
            Some(
                "not enforced here: memory, cpus (no cgroup delegation); uid_range (one mapped user); see sandboxd doctor"
            )
        );
        assert_eq!(
            not_enforced_line(
                &enforced,
                &[Ceiling::Memory, Ceiling::Cpus, Ceiling::UidRange]
            ),
            None
        );
    }
}
