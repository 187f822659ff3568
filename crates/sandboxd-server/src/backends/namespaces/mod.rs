//! Sandboxes of Linux namespaces: no container engine, no image needed, no root where the kernel allows it.
//!
//! - [`plan`]: from a specification to the walls as data; pure. [`host`]: the zero-setup image.
//! - [`users`], [`workspace`], [`layers`], [`cpus`], [`cgroups`]: what a sandbox is given, and gives back.
//! - [`network`]: whether and how they reach something.
//! - [`image`]: what a sandbox is made from. [`build`]: images that are built, in sandboxes of the same kind.
//! - [`launch`], [`program_file`], [`programs`]: the launcher, which makes sandboxes from plans.
//! - [`create`]: one sandbox, from its specification to its running guest, with [`half`] for what has been taken on the way.
//!   [`ending`]: and back. [`pool`]: sandboxes that are made before anybody asks, and [`room`]: the memory for them. [`meter`]: what its ceilings have done.
//! - [`second_wall`]: what Landlock holds.
//! - [`projects`]: the limit of what is stored, kept by the file system's quotas. [`storage`]: where there are none. [`on_disk`]:
//!   what is stored, seen from beside the service.
//! - [`probe`]: what this host can do.

mod build;
mod cgroups;
mod cpus;
mod create;
mod ending;
mod half;
mod host;
mod image;
pub(super) mod launch;
mod layers;
mod meter;
pub(super) mod network;
mod on_disk;
mod plan;
mod pool;
pub(super) mod probe;
pub(super) mod program_file;
mod programs;
mod projects;
mod room;
mod second_wall;
mod storage;
mod sys;
mod users;
pub(super) mod workspace;

pub use build::{ForgottenCaches, forget_caches};
pub use on_disk::{LayerOnDisk, Stored, layers_on_disk, remove_kept_layer, stored_below};
pub use programs::{NotEmbedded, Programs};
pub use projects::project_quotas;

use super::{
    Backend, Capabilities, CreateError, DestroyError, Found, KeepLayer, Kind, ListError, Pool,
    PrepareError, PreparedImage, ProjectIds, Room, Running, SandboxSpec, Start, StopError, Taken,
    Usage, UsageError,
};
use super::{account, instance, tally};
use crate::clock::{Clock as _, SystemClock};
use crate::egress::Egress;
use crate::id::SandboxId;
use crate::limits::CREATE_SECONDS_MAX;
use crate::runtimes::Runtime;
use crate::runtimes::build::BuildSettings;
use crate::runtimes::images::{Images, Pull, Settings as RegistrySettings, Watcher};
use async_trait::async_trait;
use build::Builds;
use cgroups::Cgroups;
use cpus::Placement;
use host::HostFiles;
use image::Pulls;
use instance::Instance;
use launch::Launcher;
use layers::Layers;
use network::Networks;
use program_file::ProgramFile;
use projects::Projects;
use rustix::fd::OwnedFd;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;
use users::Ranges;

/// The images that write layers of sleeping sessions lie over, by their digests: they are not to be removed.
pub fn kept_images(state_dir: &Path) -> BTreeSet<String> {
    layers::images_of(state_dir)
}

/// What the operator says about sandboxes of this backend.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What those with a network reach.
    pub egress: Egress,
    /// Where images are fetched.
    pub registries: RegistrySettings,
    /// What builds of recipes may do.
    pub builds: BuildSettings,
    /// The projects of quotas; none where what is stored is only to be counted.
    pub project_ids: Option<ProjectIds>,
}

impl Default for Settings {
    /// The public Internet is reached by sandboxes with a network, and no image is fetched.
    fn default() -> Self {
        Self {
            egress: Egress::default(),
            registries: RegistrySettings {
                pull: Pull::Never,
                ..RegistrySettings::default()
            },
            builds: BuildSettings::default(),
            project_ids: Some(ProjectIds::default()),
        }
    }
}

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
    /// User ids.
    #[error("{0}")]
    Users(String),
    /// Cgroups.
    #[error("cgroups: {0}")]
    Cgroups(String),
    /// The embedded programs.
    #[error("{0}")]
    Programs(String),
}

/// The backend.
#[derive(Debug)]
pub struct Namespaces {
    inner: Arc<Inner>,
    /// What is parked. Beside what all share, since what is parked holds that.
    parked: pool::ParkedSandboxes,
}

/// What every sandbox of this backend shares.
#[derive(Debug)]
struct Inner {
    state_dir: PathBuf,
    host: HostFiles,
    privileged: bool,
    ceilings: super::Enforced,
    pids_by_resource: bool,
    guest: ProgramFile,
    launcher: Launcher,
    cgroups: Cgroups,
    layers: Layers,
    pulls: Pulls,
    builds: Builds,
    /// Host id ranges; held only while one is taken or given back.
    ranges: Mutex<Ranges>,
    /// Processors; likewise.
    placement: Mutex<Placement>,
    /// What runs; likewise, never over a wait.
    sandboxes: Mutex<HashMap<SandboxId, Arc<Sandbox>>>,
    /// Ids of sandboxes that are being made, or whose remains are being removed; likewise.
    claimed: Mutex<BTreeSet<SandboxId>>,
    /// What is deleted and undone while nobody waits for it; the end waits.
    errands: Mutex<JoinSet<()>>,
    /// Counting what sandboxes store: one at a time.
    counting: Arc<Semaphore>,
    /// Quotas of what they store.
    projects: Projects,
    /// Devices whose file systems have turned out to have no idmapped mounts.
    unmapped: Mutex<BTreeSet<u64>>,
    /// What sandboxes reach.
    networks: Networks,
    /// Whose directories these are; its lock is held by the launcher too.
    _instance: Instance,
}

/// One sandbox that runs.
#[derive(Debug)]
struct Sandbox {
    /// What its cgroups, and its layer while that is scratch, are called by.
    place: SandboxId,
    pidfd: OwnedFd,
    range: Option<u32>,
    cpus: Vec<u16>,
    layer: HasLayer,
    network: Option<u16>,
    /// What it stores, as far as that is counted.
    tally: Arc<tally::Tally>,
    /// The same, as far as a quota keeps it.
    gauge: Option<projects::Gauge>,
    /// Counts what it stores; ends with it.
    _counting: Option<AbortOnDropHandle<()>>,
    /// Held, so that nobody removes it.
    _image: PreparedImage,
}

/// Whether a sandbox writes into a layer on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HasLayer {
    /// No: its root is memory.
    No,
    /// Yes, and it goes with the sandbox.
    Scratch,
    /// Yes, and it may be kept.
    Keepable,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Namespaces {
    /// Starts the backend: sweeps what former instances left in this state directory, probes the host, starts the
    /// launcher. Sandboxes with a network reach the public Internet; no image is fetched.
    ///
    /// # Errors
    ///
    /// As [`Namespaces::start_reaching`].
    pub async fn start(
        state_dir: &Path,
        programs: Programs,
    ) -> Result<Arc<dyn Backend>, StartError> {
        Self::start_reaching(state_dir, programs, Egress::default()).await
    }

    /// As [`Namespaces::start`]; sandboxes with a network reach what the operator says.
    ///
    /// # Errors
    ///
    /// Where the state directory cannot be used, the host's user ids are taken, or the embedded programs may not be
    /// executed.
    pub async fn start_reaching(
        state_dir: &Path,
        programs: Programs,
        egress: Egress,
    ) -> Result<Arc<dyn Backend>, StartError> {
        let settings = Settings {
            egress,
            ..Settings::default()
        };
        Self::start_with(state_dir, programs, settings).await
    }

    /// The same, as the operator says.
    ///
    /// # Errors
    ///
    /// As [`Namespaces::start`].
    pub async fn start_with(
        state_dir: &Path,
        programs: Programs,
        settings: Settings,
    ) -> Result<Arc<dyn Backend>, StartError> {
        let state_dir = state_dir.to_owned();
        let made = move || Inner::new(&state_dir, programs, settings);
        let inner = tokio::task::spawn_blocking(made)
            .await
            .map_err(|error| StartError::Programs(error.to_string()))??;
        inner
            .launcher
            .start()
            .await
            .map_err(|error| StartError::Programs(error.to_string()))?;
        Ok(Arc::new(Self {
            inner: Arc::new(inner),
            parked: pool::ParkedSandboxes::default(),
        }))
    }
}

impl Inner {
    fn new(state_dir: &Path, programs: Programs, settings: Settings) -> Result<Self, StartError> {
        let Settings {
            egress,
            registries,
            builds,
            project_ids,
        } = settings;
        let failed = |cause| StartError::StateDir {
            path: state_dir.to_owned(),
            cause,
        };
        instance::private(state_dir).map_err(failed)?;
        let state_dir = state_dir.canonicalize().map_err(failed)?;
        let swept = instance::sweep(&state_dir);
        if swept > 0 {
            tracing::info!(swept, "removed what former instances had left");
        }
        let images = Images::of(&state_dir);
        match images.tidy(SystemClock.now()) {
            Ok(0) => {}
            Ok(leftovers) => tracing::info!(leftovers, "removed halves of images"),
            Err(error) => tracing::warn!(%error, "the image store could not be tidied"),
        }
        let privileged = probe::privileged();
        let instance = Instance::make(&state_dir).map_err(failed)?;
        let layers = Layers::new(&state_dir, &instance).map_err(failed)?;
        let ranges = ranges(&state_dir, privileged, &layers)?;
        let mut cgroups = Cgroups::new(&instance.name, privileged);
        let directories = cgroups.directories();
        instance.note_cgroups(&directories).map_err(failed)?;
        cgroups
            .prepare()
            .map_err(|error| StartError::Cgroups(error.to_string()))?;
        let (guest, jail) = program_files(programs, &instance)?;
        let lock = instance.lock.try_clone().map_err(failed)?;
        let launcher = Launcher::new(jail, instance.told(&directories), lock);
        let pids_by_resource = !enforced(&cgroups, super::Ceiling::Pids);
        Ok(Self {
            host: HostFiles::look(Path::new("/")),
            ceilings: probe::ceilings(&cgroups, privileged),
            privileged,
            pids_by_resource,
            guest,
            launcher,
            cgroups,
            layers,
            builds: Builds::new(&state_dir, builds),
            pulls: Pulls::new(images, registries),
            ranges: Mutex::new(ranges),
            placement: Mutex::new(Placement::of_this_process()),
            sandboxes: Mutex::new(HashMap::new()),
            claimed: Mutex::new(BTreeSet::new()),
            errands: Mutex::new(JoinSet::new()),
            counting: Arc::new(Semaphore::new(1)),
            projects: Projects::new(project_ids, privileged),
            unmapped: Mutex::new(BTreeSet::new()),
            networks: Networks::look(egress, privileged, &instance),
            _instance: instance,
            state_dir,
        })
    }

    fn sandbox(&self, id: &SandboxId) -> Option<Arc<Sandbox>> {
        lock(&self.sandboxes).get(id).cloned()
    }
}

fn enforced(cgroups: &Cgroups, ceiling: super::Ceiling) -> bool {
    matches!(
        cgroups.enforcement().get(&ceiling),
        Some(super::Enforcement::Enforced(_))
    )
}

fn ranges(state_dir: &Path, privileged: bool, layers: &Layers) -> Result<Ranges, StartError> {
    let users = |error: users::UsersError| StartError::Users(error.to_string());
    // One directory for all instances on the host, whatever state directory they have.
    let locks = if privileged {
        PathBuf::from("/run/sandboxd/ranges")
    } else {
        state_dir.join("ranges")
    };
    let accounts = if privileged {
        users::host_accounts()
    } else {
        Vec::new()
    };
    let preferred = state_dir
        .as_os_str()
        .as_encoded_bytes()
        .iter()
        .fold(7_u32, |hash, byte| {
            hash.wrapping_mul(31).wrapping_add(u32::from(*byte))
        });
    let mut ranges = Ranges::new(locks, preferred, &accounts).map_err(users)?;
    for first in layers.ranges() {
        if let Err(error) = ranges.reserve(first) {
            tracing::warn!(first, %error, "a kept layer cannot be woken now");
        }
    }
    Ok(ranges)
}

fn program_files(
    programs: Programs,
    instance: &Instance,
) -> Result<(ProgramFile, ProgramFile), StartError> {
    let words = |error: &dyn std::fmt::Display| StartError::Programs(error.to_string());
    let names = [
        ("sandboxd-guest", programs.guest),
        ("sandboxd-jail", programs.jail),
    ];
    let sealed = names.map(|(name, content)| ProgramFile::sealed(name, content));
    if let [Ok(guest), Ok(jail)] = sealed
        && probe::can_execute(&jail)
    {
        return Ok((guest, jail));
    }
    let directory = instance.directory.join("programs");
    instance::private(&directory).map_err(|error| words(&error))?;
    let plain = names.map(|(name, content)| ProgramFile::plain(&directory, name, content));
    let [guest, jail] = plain;
    Ok((
        guest.map_err(|error| words(&error))?,
        jail.map_err(|error| words(&error))?,
    ))
}

#[async_trait]
impl Backend for Namespaces {
    fn name(&self) -> &'static str {
        "namespaces"
    }

    async fn capabilities(&self) -> Capabilities {
        Capabilities {
            ceilings: self.inner.ceilings.clone(),
            bridge: self.inner.networks.enforcement(),
            outlives_daemon: false,
            buildkit: false,
        }
    }

    async fn prepare(
        &self,
        runtime: &Runtime,
        progress: &Watcher,
    ) -> Result<PreparedImage, PrepareError> {
        image::prepare(&self.inner, runtime, progress).await
    }

    async fn kept_image(&self, id: &SandboxId) -> Option<PreparedImage> {
        image::kept(&self.inner, id).await
    }

    async fn create(
        &self,
        id: &SandboxId,
        spec: &SandboxSpec,
        start: Start,
    ) -> Result<Running, CreateError> {
        let made = create::create(&self.inner, id, spec, start).await;
        let made = match made {
            // What is parked must not be what a session lacks.
            Err(error) if may_lack(&error) && self.parked.give_up_for(spec).await => {
                let again = create::create(&self.inner, id, spec, start).await;
                if again.is_err() {
                    self.parked.no_help_to(spec);
                }
                again
            }
            made => made,
        };
        made.map_err(|error| match error {
            CreateError::TimedOut(_) => CreateError::TimedOut(CREATE_SECONDS_MAX),
            other => other,
        })
    }

    async fn usage(&self, ids: &[SandboxId]) -> Vec<Result<Usage, UsageError>> {
        let inner = Arc::clone(&self.inner);
        let asked = ids.to_vec();
        let read = tokio::task::spawn_blocking(move || {
            let one = |id: &SandboxId| match inner.sandbox(id) {
                Some(sandbox) => {
                    let counted = sandbox.tally.stored();
                    let kept = sandbox.gauge.as_ref().map(projects::Gauge::stored);
                    let (bytes, files) = kept.unwrap_or_default();
                    Ok(Usage {
                        disk_bytes: bytes.or(counted.map(|stored| stored.bytes)),
                        disk_files: files.or(counted.map(|stored| stored.files)),
                        ..inner.cgroups.usage(sandbox.place.as_str())
                    })
                }
                None => Err(UsageError("the sandbox does not run".to_owned())),
            };
            asked.iter().map(one).collect::<Vec<_>>()
        });
        read.await
            .unwrap_or_else(|error| vec![Err(UsageError(error.to_string())); ids.len()])
    }

    async fn stop(&self, id: &SandboxId, keep: KeepLayer) -> Result<(), StopError> {
        ending::stop(&self.inner, id, keep).await
    }

    async fn destroy(&self, id: &SandboxId) -> Result<(), DestroyError> {
        ending::destroy(&self.inner, id).await
    }

    async fn list(&self) -> Result<Vec<Found>, ListError> {
        let mut running: BTreeSet<SandboxId> =
            lock(&self.inner.sandboxes).keys().cloned().collect();
        // No session's, and not for anybody to end.
        running.retain(|id| !self.inner.builds.has(id));
        let inner = Arc::clone(&self.inner);
        let kept = tokio::task::spawn_blocking(move || inner.layers.kept())
            .await
            .map_err(|error| ListError(error.to_string()))?;
        let sleeping = kept.into_iter().filter(|id| !running.contains(id));
        let found = sleeping.map(|id| Found { id, running: false });
        let mut found: Vec<Found> = found.collect();
        found.extend(running.into_iter().map(|id| Found { id, running: true }));
        Ok(found)
    }

    async fn shutdown(&self) {
        self.parked.close().await;
        ending::shutdown(&self.inner).await;
    }

    fn pool(&self) -> Option<&dyn Pool> {
        Some(self)
    }
}

#[async_trait]
impl Pool for Namespaces {
    async fn image(&self, runtime: &Runtime) -> Result<Option<PreparedImage>, PrepareError> {
        image::local(&self.inner, runtime).await
    }

    async fn park(&self, kind: &Kind) -> Result<(), CreateError> {
        self.parked.park(&self.inner, kind).await
    }

    async fn retain(&self, kinds: &[Kind]) {
        self.parked.retain(&self.inner, kinds).await;
    }

    fn ready(&self) -> BTreeMap<String, usize> {
        self.parked.ready()
    }

    fn room(&self) -> Room {
        room::look()
    }

    async fn take(&self, id: &SandboxId, spec: &SandboxSpec) -> Option<Taken> {
        self.parked.take(&self.inner, id, spec).await
    }
}

/// Whether a sandbox was not made for want of something that parked ones may have.
const fn may_lack(error: &CreateError) -> bool {
    match error {
        CreateError::Step { .. } => true,
        // An address, among other things.
        CreateError::Unenforceable { ceiling, .. } => matches!(ceiling, super::Ceiling::Network),
        CreateError::LayerMissing | CreateError::TimedOut(_) => false,
    }
}

/// How long the kernel may take to end a process that was killed.
const END_WAIT: Duration = Duration::from_secs(10);
