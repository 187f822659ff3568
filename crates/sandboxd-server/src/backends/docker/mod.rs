//! Sandboxes that a container engine makes: Docker, or Podman by the same API, on this host or another.
//!
//! Each is one container whose first process is the guest. The guest comes in by a volume, and the link is the engine's
//! attach stream: nothing is executed per command, and nothing of the image is needed, neither a shell nor a C library.
//!
//! - [`connect`]: the engine, found and asked; every question has a deadline.
//! - [`container`], [`seccomp`]: from a specification to a container as data; pure.
//! - [`images`]: what a sandbox is made from. [`places`]: where its workspace lies for the engine.
//! - [`bridge`]: what it reaches on the network.
//! - [`create`], [`link`]: one sandbox, from its specification to its running guest. [`ending`]: and back; and what an
//!   earlier daemon left. [`guest`]: how the guest gets in. [`adopt`]: containers that the Python service made.
//! - [`kernel`], [`meter`], [`disk`]: what its ceilings have done, where the engine is on this host.

mod adopt;
mod bridge;
mod connect;
mod container;
mod create;
mod disk;
mod ending;
mod guest;
mod images;
mod kernel;
mod link;
mod meter;
mod places;
mod seccomp;

pub use connect::NoEngine;

use super::instance::{self, Instance};
use super::namespaces::Programs;
use super::tally::Tally;
use super::{
    Backend, Capabilities, Ceiling, CreateError, DestroyError, Enforced, Enforcement, Found,
    KeepLayer, ListError, PrepareError, PreparedImage, Running, SandboxSpec, Start, StopError,
    Usage, UsageError,
};
use crate::config::EngineAddress;
use crate::egress::Egress;
use crate::id::SandboxId;
use crate::runtimes::Runtime;
use crate::runtimes::build::BuildSettings;
use crate::runtimes::images::{Settings, Watcher};
use adopt::Records;
use async_trait::async_trait;
use bridge::{Address, Bridge};
use connect::{Abilities, Engine};
use guest::Guest;
use images::Images;
use kernel::Counters;
use places::Places;
use seccomp::Filters;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

/// The file in the state directory that names it on the containers that are made for it.
const STATE_FILE: &str = "engine-state";

/// Why the backend does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The state directory.
    #[error("the state directory {path}: {cause}")]
    StateDir {
        /// Where.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// The engine.
    #[error(transparent)]
    Engine(#[from] NoEngine),
    /// Workspaces cannot be stored where they are to be.
    #[error("{0}")]
    Workspaces(String),
    /// What an earlier daemon left there could not be looked at.
    #[error("{0}")]
    Leftovers(String),
}

/// The backend.
#[derive(Debug)]
pub struct Docker {
    inner: Arc<Inner>,
}

/// What every sandbox of this backend shares.
#[derive(Debug)]
struct Inner {
    engine: Engine,
    /// Names the state directory on containers.
    state: String,
    /// How it is told which system calls there are.
    filters: Filters,
    /// The guest, and where the engine has it.
    guest: Guest,
    /// What runs; held only while it is looked up, never over a wait.
    sandboxes: Mutex<HashMap<SandboxId, Arc<Sandbox>>>,
    /// Ids of sandboxes that are being made; likewise.
    claimed: Mutex<BTreeSet<SandboxId>>,
    /// What goes on while nobody may be waiting for it: making and removing; the end waits.
    errands: Mutex<JoinSet<()>>,
    /// Counting what sandboxes store: one at a time.
    counting: Arc<Semaphore>,
    /// What is being fetched or built.
    images: Images,
    /// Where our directories lie for the engine.
    places: Places,
    /// What sandboxes reach.
    bridge: Arc<Bridge>,
    /// Whose containers these are.
    instance: Instance,
    /// Which sandboxes are in containers of the Python service's.
    records: Records,
}

/// One sandbox that runs.
#[derive(Debug)]
struct Sandbox {
    /// The engine's id for its container.
    container: String,
    /// Whether its write layer may be kept.
    keepable: bool,
    /// What the kernel counts of it, where that can be read.
    counters: Option<Arc<Counters>>,
    /// What it stores, as far as that is counted.
    tally: Arc<Tally>,
    /// Its address in the network, where it has one.
    _address: Option<Address>,
    /// Counts what it stores; ends with it.
    _counting: Option<AbortOnDropHandle<()>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Docker {
    /// Starts the backend: finds the engine, and ends or keeps what former instances of this state directory left there.
    ///
    /// # Errors
    /// Where the state directory cannot be used, or there is no engine that can be.
    pub async fn start(
        state_dir: &Path,
        programs: Programs,
        address: &EngineAddress,
    ) -> Result<Arc<dyn Backend>, StartError> {
        Self::start_with(
            state_dir,
            programs,
            address,
            None,
            Egress::default(),
            (Settings::default(), BuildSettings::default()),
        )
        .await
    }

    /// Likewise; workspaces are stored below `workspace_root`, sandboxes with a network reach what `egress` says, and
    /// images are fetched and built as `images` does.
    ///
    /// # Errors
    /// Likewise.
    pub async fn start_with(
        state_dir: &Path,
        programs: Programs,
        address: &EngineAddress,
        workspace_root: Option<&Path>,
        egress: Egress,
        images: (Settings, BuildSettings),
    ) -> Result<Arc<dyn Backend>, StartError> {
        let failed = |cause| StartError::StateDir {
            path: state_dir.to_owned(),
            cause,
        };
        let engine = Engine::connect(address).await?;
        let places = Places::find(&engine, workspace_root).await;
        let places = places.map_err(StartError::Workspaces)?;
        let at = state_dir.to_owned();
        let owned = tokio::task::spawn_blocking(move || own(&at)).await;
        let (state, instance, alive) = owned
            .map_err(std::io::Error::other)
            .and_then(|owned| owned)
            .map_err(failed)?;
        let filters = filters(&engine, &places, &instance).map_err(failed)?;
        let bridge = Bridge::look(&engine, &places, egress, programs.jail, &instance);
        let (registries, builds) = images;
        let inner = Inner {
            bridge: Arc::new(bridge.map_err(failed)?),
            filters,
            engine,
            state,
            guest: Guest::new(programs.guest).map_err(failed)?,
            sandboxes: Mutex::new(HashMap::new()),
            claimed: Mutex::new(BTreeSet::new()),
            errands: Mutex::new(JoinSet::new()),
            counting: Arc::new(Semaphore::new(1)),
            images: Images::new(registries, builds),
            places,
            instance,
            records: Records::new(state_dir),
        };
        let engine = &inner.engine;
        tracing::info!(
            address = engine.address(),
            version = engine.abilities().engine,
            api = %engine.client().client_version(),
            "container engine"
        );
        if !engine.abilities().seccomp {
            tracing::warn!("the engine's host filters no system calls");
        } else if inner.filters == Filters::Own {
            tracing::warn!(
                "this engine takes its list of system calls from a file of its host, where this service has none: its own list holds"
            );
        }
        let swept = ending::sweep(&inner, &alive).await;
        let swept = swept.map_err(|error| StartError::Leftovers(error.to_string()))?;
        if swept > 0 {
            tracing::info!(swept, "ended what former instances had left");
        }
        Ok(Arc::new(Self {
            inner: Arc::new(inner),
        }))
    }
}

/// The state directory's name for the engine, this instance, and the names of all that live.
fn own(state_dir: &Path) -> std::io::Result<(String, Instance, BTreeSet<String>)> {
    instance::private(state_dir)?;
    let state_dir = state_dir.canonicalize()?;
    instance::sweep(&state_dir);
    let instance = Instance::make(&state_dir)?;
    let alive = instance::names(&state_dir)?;
    Ok((state_name(&state_dir)?, instance, alive))
}

/// Made once, and then always the same.
fn state_name(state_dir: &Path) -> std::io::Result<String> {
    let file = state_dir.join(STATE_FILE);
    match std::fs::read_to_string(&file) {
        Ok(text) => match SandboxId::parse(text.trim()) {
            Ok(name) => return Ok(name.to_string()),
            Err(_) => {
                let what = format!("{} holds no name", file.display());
                return Err(std::io::Error::other(what));
            }
        },
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        Err(_) => {}
    }
    let name = SandboxId::generate().to_string();
    // Whole or not at all, and the first of several that begin at once wins.
    let making = state_dir.join(format!(".{STATE_FILE}.{name}"));
    std::fs::write(&making, &name)?;
    let linked = std::fs::hard_link(&making, &file);
    std::fs::remove_file(&making)?;
    match linked {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => state_name(state_dir),
        other => other.map(|()| name),
    }
}

impl Inner {
    fn sandbox(&self, id: &SandboxId) -> Option<Arc<Sandbox>> {
        lock(&self.sandboxes).get(id).cloned()
    }

    /// Goes on whoever waits.
    fn errand(&self, errand: impl Future<Output = ()> + Send + 'static) {
        let mut errands = lock(&self.errands);
        while errands.try_join_next().is_some() {}
        errands.spawn(errand);
    }
}

/// How this engine is told which system calls there are.
fn filters(engine: &Engine, places: &Places, instance: &Instance) -> std::io::Result<Filters> {
    if !engine.abilities().is_podman {
        return Ok(Filters::Words);
    }
    match places.source(&instance.directory) {
        Ok(source) if engine.is_local() => Filters::write(&instance.directory, &source),
        _ => Ok(Filters::Own),
    }
}

/// What the engine can enforce, and why not where it cannot.
fn ceilings(abilities: &Abilities) -> Enforced {
    let can = |can: bool, how: &str, why: &str| {
        if can {
            Enforcement::Enforced(how.to_owned())
        } else {
            Enforcement::Unenforced(why.to_owned())
        }
    };
    let memory = if abilities.swap {
        "the engine's cgroup, swap pinned to it"
    } else {
        "the engine's cgroup; its host does not count swap"
    };
    Enforced::from([
        (
            Ceiling::Memory,
            can(
                abilities.memory,
                memory,
                "the engine's host limits no memory",
            ),
        ),
        (
            Ceiling::Cpus,
            can(
                abilities.cpu_quota,
                "the engine's cgroup",
                "the engine's host has no quota of CPU time",
            ),
        ),
        (
            Ceiling::CpuShares,
            can(
                abilities.cpu_shares,
                "the engine's cgroup",
                "the engine's host does not weigh CPU time",
            ),
        ),
        (
            Ceiling::Pids,
            can(
                abilities.pids,
                "the engine's cgroup",
                "the engine's host does not count processes",
            ),
        ),
        (
            Ceiling::Network,
            Enforcement::Enforced("a network namespace with nothing but loopback".to_owned()),
        ),
        (
            Ceiling::OciRuntime,
            Enforcement::Enforced("by the engine's name for it".to_owned()),
        ),
        (
            Ceiling::UidRange,
            can(
                abilities.user_namespaces,
                "the engine's own range of ids, which all its containers share",
                "the engine gives its containers the ids of its host: root inside is root there, without its capabilities",
            ),
        ),
        (
            Ceiling::WorkspaceOwner,
            Enforcement::Unenforced(
                "files belong on disk to the ids that they have inside".to_owned(),
            ),
        ),
        (
            Ceiling::Landlock,
            Enforcement::Unenforced("the engine gives its containers no such rules".to_owned()),
        ),
    ])
}

#[async_trait]
impl Backend for Docker {
    fn name(&self) -> &'static str {
        "docker"
    }

    async fn capabilities(&self) -> Capabilities {
        let mut ceilings = ceilings(self.inner.engine.abilities());
        let disk = disk::enforcement(&self.inner.engine);
        ceilings.insert(Ceiling::Disk, disk);
        Capabilities {
            ceilings,
            bridge: self.inner.bridge.enforcement(),
            outlives_daemon: false,
            buildkit: self.inner.engine.abilities().buildkit,
        }
    }

    async fn prepare(
        &self,
        runtime: &Runtime,
        progress: &Watcher,
    ) -> Result<PreparedImage, PrepareError> {
        images::prepare(&self.inner, runtime, progress).await
    }

    async fn kept_image(&self, id: &SandboxId) -> Option<PreparedImage> {
        images::kept(&self.inner, id).await
    }

    async fn create(
        &self,
        id: &SandboxId,
        spec: &SandboxSpec,
        start: Start,
    ) -> Result<Running, CreateError> {
        create::create(&self.inner, id, spec, start).await
    }

    async fn usage(&self, ids: &[SandboxId]) -> Vec<Result<Usage, UsageError>> {
        let each = ids.iter().map(|id| create::usage(&self.inner, id));
        futures::future::join_all(each).await
    }

    async fn stop(&self, id: &SandboxId, keep: KeepLayer) -> Result<(), StopError> {
        ending::stop(&self.inner, id, keep).await
    }

    async fn destroy(&self, id: &SandboxId) -> Result<(), DestroyError> {
        ending::destroy(&self.inner, id).await
    }

    async fn list(&self) -> Result<Vec<Found>, ListError> {
        ending::list(&self.inner).await
    }

    async fn shutdown(&self) {
        self.inner.images.end().await;
        ending::shutdown(&self.inner).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_directory_keeps_its_name() {
        let home = tempfile::tempdir().unwrap();
        let name = state_name(home.path()).unwrap();
        assert_eq!(state_name(home.path()).unwrap(), name);
        std::fs::write(home.path().join(STATE_FILE), "x y").unwrap();
        assert!(state_name(home.path()).is_err());
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_the_engines_host_lacks_is_said() {
        let none = ceilings(&Abilities::default());
        for ceiling in [
            Ceiling::Memory,
            Ceiling::Cpus,
            Ceiling::CpuShares,
            Ceiling::Pids,
        ] {
            let found = none.get(&ceiling);
            assert!(
                matches!(found, Some(Enforcement::Unenforced(why)) if why.contains("engine's host")),
                "{found:?}"
            );
        }
    }
}
