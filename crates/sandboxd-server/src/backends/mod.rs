//! What a sandbox is made of. A backend answers two questions: how is a box made, and how is its guest reached.
//!
//! Runs, files, terminals, ports, limits on output, streaming and cancelling are written once, in the protocol and the
//! guest. A new backend is one folder, one line in the list here, one field in the config, one name in the conformance
//! test.
//!
//! What several backends need: [`instance`], what this daemon owns on the host, and the sweep of what former ones left;
//! [`tally`] and [`account`], the limit of what is stored where no quota keeps it; [`engine_names`], what is asked for by a
//! container engine's names where there is none; [`inside`], variables and work directories; [`once`], images that several
//! wait for; [`meter`]; [`project_ids`], with which numbers quotas are used.

mod account;
pub mod docker;
mod engine_names;
pub mod in_memory;
mod inside;
mod instance;
mod meter;
pub mod namespaces;
mod once;
mod pool;
mod project_ids;
mod tally;

pub use meter::{Hits, Meter, NoMeter};
pub use pool::{Kind, Pool, Room, Taken};
pub use project_ids::ProjectIds;

use crate::id::{SandboxId, SessionId};
use crate::runtimes::Runtime;
use crate::runtimes::images::Watcher;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};

/// One duplex byte stream to the guest in a sandbox; its end is the sandbox's end.
pub trait Link: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Link for T {}

/// Makes sandboxes and reaches into them. Holds descriptors for what runs, and nothing that must survive the daemon.
#[async_trait]
pub trait Backend: Send + Sync + fmt::Debug {
    /// The name that configuration and logs use.
    fn name(&self) -> &'static str;
    /// What this backend can enforce here and now (probed, not assumed), and why not where it cannot.
    async fn capabilities(&self) -> Capabilities;
    /// Makes an image ready: finds, pulls, unpacks or builds it. What happens meanwhile is told to `progress`, until it is
    /// ready or nobody wants it any more; whoever waits for the same one hears it too.
    async fn prepare(
        &self,
        runtime: &Runtime,
        progress: &Watcher,
    ) -> Result<PreparedImage, PrepareError>;
    /// The image that a kept layer lies over, as it was when the layer was begun; nothing where the backend does not know it
    /// or it is the runtime's in any case. A sandbox that starts from the layer needs no other one.
    async fn kept_image(&self, _: &SandboxId) -> Option<PreparedImage> {
        None
    }
    /// Makes the sandbox and starts its guest. `Start::KeptLayer` never builds anew: a missing layer is an error.
    /// Refuses what it cannot enforce.
    async fn create(
        &self,
        id: &SandboxId,
        spec: &SandboxSpec,
        start: Start,
    ) -> Result<Running, CreateError>;
    /// Memory, CPU, processes, and kills for memory, for many at once.
    async fn usage(&self, ids: &[SandboxId]) -> Vec<Result<Usage, UsageError>>;
    /// Ends every process; keeps the layer if asked. Asking for one that is gone is fine.
    async fn stop(&self, id: &SandboxId, keep: KeepLayer) -> Result<(), StopError>;
    /// Removes every trace. Asking twice is fine.
    async fn destroy(&self, id: &SandboxId) -> Result<(), DestroyError>;
    /// Every sandbox and kept layer that exists, for the sweep after a restart.
    async fn list(&self) -> Result<Vec<Found>, ListError>;
    /// Ends what the backend itself runs (a launcher, say) and every sandbox with it. Called once, at shutdown.
    async fn shutdown(&self);
    /// What makes sandboxes before anybody asks for one, where this backend can.
    fn pool(&self) -> Option<&dyn Pool> {
        None
    }
}

/// What a backend can enforce, and whether its sandboxes outlive the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// Per ceiling: enforced here, or why not.
    pub ceilings: BTreeMap<Ceiling, Enforcement>,
    /// Whether a sandbox can have [`Network::Bridge`]: what that holds here, or why it cannot.
    pub bridge: Enforcement,
    /// Whether sandboxes go on without the daemon.
    pub outlives_daemon: bool,
    /// Whether images are built by BuildKit, which keeps what installers fetch for the next build.
    pub buildkit: bool,
}

/// Something a specification asks for that a host may be unable to give.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ceiling {
    /// Memory, swap pinned to it.
    Memory,
    /// CPU quota.
    Cpus,
    /// CPU weight.
    CpuShares,
    /// Process count.
    Pids,
    /// Bytes and files that are stored.
    Disk,
    /// What it reaches: no more than was asked for.
    Network,
    /// A container runtime by its name.
    OciRuntime,
    /// A uid range that no other session and no host user has.
    UidRange,
    /// Workspace files owned by the storage range on disk.
    WorkspaceOwner,
    /// A second wall of Landlock.
    Landlock,
}

impl Ceiling {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::Memory,
        Self::Cpus,
        Self::CpuShares,
        Self::Pids,
        Self::Disk,
        Self::Network,
        Self::OciRuntime,
        Self::UidRange,
        Self::WorkspaceOwner,
        Self::Landlock,
    ];
    /// The name in configuration (`allow_unenforced`), answers and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpus => "cpus",
            Self::CpuShares => "cpu_shares",
            Self::Pids => "pids",
            Self::Disk => "disk",
            Self::Network => "network",
            Self::OciRuntime => "oci_runtime",
            Self::UidRange => "uid_range",
            Self::WorkspaceOwner => "workspace_owner",
            Self::Landlock => "landlock",
        }
    }
}

/// Whether one ceiling is really in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Enforcement {
    /// In place; by what mechanism.
    Enforced(String),
    /// Not in place; why, in words for an operator.
    Unenforced(String),
}

/// What is really in place for one sandbox.
pub type Enforced = BTreeMap<Ceiling, Enforcement>;

/// A number somebody asked for, and who: what an operator, a policy or a flag set is refused where it cannot be
/// enforced; a built-in default is then only reported.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Asked<T> {
    /// The number.
    pub value: T,
    /// Set by somebody, or a built-in default.
    pub explicit: bool,
}

/// Everything a sandbox is to be.
#[derive(Debug, Clone, PartialEq)]
pub struct SandboxSpec {
    /// What it is made from.
    pub image: PreparedImage,
    /// Its environment, on top of nothing.
    pub env: BTreeMap<String, String>,
    /// The work directory inside, absolute.
    pub work_dir: String,
    /// The host directory that is mounted there; without one the work directory is part of the sandbox and goes with it.
    pub workspace: Option<HostWorkspace>,
    /// Host name inside.
    pub hostname: String,
    /// Whose it is, where a session has it: sandboxes that people see by name are named after it.
    pub session: Option<SessionId>,
    /// Bytes of memory.
    pub memory_bytes: Option<Asked<u64>>,
    /// Bytes of memory and swap together; the memory ceiling itself when absent.
    pub memory_swap_bytes: Option<Asked<u64>>,
    /// CPUs, as a hard cap.
    pub cpus: Option<Asked<f64>>,
    /// CPU weight, Docker's scale (1024 is one share).
    pub cpu_shares: Option<Asked<u64>>,
    /// Processes and threads.
    pub pids: Option<Asked<u64>>,
    /// Bytes that are stored: of the workspace and a write layer on disk together, and of a root in memory by itself.
    pub disk_bytes: Option<Asked<u64>>,
    /// Files, directories and links that are stored, counted as the bytes are.
    pub disk_files: Option<Asked<u64>>,
    /// Bytes of `/tmp` in memory; absent means `/tmp` lies in the write layer.
    pub tmpfs_bytes: Option<u64>,
    /// What it may reach.
    pub network: Network,
    /// The container runtime that it is to run under, by a container engine's name for it.
    pub oci_runtime: Option<String>,
    /// The uid that runs have inside; absent means root inside.
    pub user: Option<u32>,
    /// The gid that runs have inside; absent means the number of their uid.
    pub group: Option<u32>,
    /// Whether its write layer must outlive it: then it lies on disk and [`KeepLayer::Yes`] works. Otherwise it is scratch,
    /// may lie in memory, and goes with the sandbox whatever ends it.
    pub keep_layer: bool,
    /// Ceilings that may stay unenforced although they were asked for.
    pub allow_unenforced: Vec<Ceiling>,
    /// What was asked for by a name that means nothing here, and why; somebody accepted that, so it is only reported.
    pub unmet: Vec<(Ceiling, String)>,
}

/// A session's stored files on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostWorkspace {
    /// Absolute path of the directory.
    pub path: PathBuf,
    /// Whether the daemon owns its layout (storage owner range), or it is the user's own directory as it is
    /// (`sandboxd run --workspace`), whose owner must stay.
    pub managed: bool,
}

/// What a sandbox may reach on the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Network {
    /// Nothing but its own loopback.
    None,
    /// The public Internet, outbound, by address translation; and what the operator allows beside it.
    Bridge,
    /// What a container engine's network of this name reaches, as its operator made it.
    Named(String),
}

impl Network {
    /// As configured and shown.
    pub fn name(&self) -> &str {
        match self {
            Self::None => "none",
            Self::Bridge => "bridge",
            Self::Named(name) => name,
        }
    }
}

/// An image that is ready on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PreparedImage {
    /// The host's own system files, read-only.
    Host,
    /// A root filesystem directory, shared and never written.
    Rootfs {
        /// Where it is.
        path: PathBuf,
        /// What names it (a digest, or the path).
        key: String,
    },
    /// Layers over each other, each shared and never written.
    Layers {
        /// The root directories, the topmost first; at least one.
        layers: Vec<PathBuf>,
        /// What names it (a digest).
        key: String,
        /// What its programs expect.
        defaults: ImageDefaults,
        /// Keeps it on this host.
        hold: Hold,
    },
    /// One that a container engine has.
    Engine {
        /// The engine's id for it, which names its content (a digest).
        id: String,
        /// What the operator calls it.
        name: String,
        /// What its programs expect.
        defaults: ImageDefaults,
    },
    /// Nothing (a backend without files).
    Empty,
}

impl PreparedImage {
    /// What its programs expect; nothing where it does not say.
    pub fn defaults(&self) -> Option<&ImageDefaults> {
        match self {
            Self::Layers { defaults, .. } | Self::Engine { defaults, .. } => Some(defaults),
            Self::Host | Self::Rootfs { .. } | Self::Empty => None,
        }
    }
}

/// What the programs of an image expect, where nobody says otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageDefaults {
    /// Environment.
    pub env: BTreeMap<String, String>,
    /// Whom they run as, root where absent; or why that is unknown.
    pub user: Result<Option<ImageUser>, String>,
}

/// The user that an image names for its programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageUser {
    /// Uid.
    pub uid: u32,
    /// Gid.
    pub gid: u32,
    /// Home directory, where the image's account file has one.
    pub home: Option<String>,
}

/// Keeps an image from being removed for as long as a copy of it lives.
#[derive(Clone)]
pub struct Hold(#[expect(dead_code, reason = "its end is the hold's")] Arc<dyn Send + Sync>);

impl Hold {
    /// By what holds it.
    pub fn on(held: impl Send + Sync + 'static) -> Self {
        Self(Arc::new(held))
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hold")
    }
}

/// Images are what they are, whoever holds them.
impl PartialEq for Hold {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Hold {}

/// From what a sandbox starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// A fresh write layer.
    Fresh,
    /// The layer kept by an earlier stop.
    KeptLayer,
}

/// Whether a stop keeps the write layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeepLayer {
    /// Keep it.
    Yes,
    /// Throw it away.
    No,
}

/// A sandbox that runs.
pub struct Running {
    /// The way to its guest.
    pub link: Box<dyn Link>,
    /// What is really in place.
    pub enforced: Enforced,
    /// What its ceilings have done.
    pub meter: Arc<dyn Meter>,
    /// Whether the host went down while the layer that it starts from was in use, so that what was written last may be
    /// lost or damaged.
    pub layer_is_torn: bool,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running")
            .field("enforced", &self.enforced)
            .finish_non_exhaustive()
    }
}

/// What one sandbox uses now.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Usage {
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
    /// Its ceiling.
    pub memory_limit_bytes: Option<u64>,
    /// CPU time used so far.
    pub cpu_time: Option<Duration>,
    /// Processes and threads.
    pub pids: Option<u64>,
    /// Kills for memory so far.
    pub memory_kills: Option<u64>,
    /// Bytes stored, when they were last counted.
    pub disk_bytes: Option<u64>,
    /// Files stored, when they were last counted.
    pub disk_files: Option<u64>,
}

/// Something a backend found after a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Which sandbox.
    pub id: SandboxId,
    /// Whether it runs (else it is a kept layer).
    pub running: bool,
}

/// Why an image is not ready.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrepareError {
    /// Not on this host, and this backend cannot fetch or build it.
    #[error("image {image} is not on this host: {how}")]
    Missing {
        /// Its name.
        image: String,
        /// How to get it.
        how: String,
    },
    /// Found, and useless.
    #[error("image {image}: {cause}")]
    Broken {
        /// Its name.
        image: String,
        /// Why.
        cause: String,
    },
}

/// Why there is no sandbox.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CreateError {
    /// A ceiling somebody set cannot be enforced here.
    #[error("{} cannot be enforced here: {cause} (allow_unenforced = [\"{}\"] accepts that)", .ceiling.name(), .ceiling.name())]
    Unenforceable {
        /// Which one.
        ceiling: Ceiling,
        /// Why.
        cause: String,
    },
    /// A step of the set-up failed.
    #[error("{step}: {cause}")]
    Step {
        /// Which one.
        step: String,
        /// Why.
        cause: String,
    },
    /// The layer that was to be used again is not there.
    #[error("the kept layer is missing")]
    LayerMissing,
    /// It took longer than the daemon waits.
    #[error("not started within {0} s")]
    TimedOut(u64),
}

/// Why usage is unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);
/// Why a stop failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StopError(pub String);
/// Why something could not be removed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DestroyError(pub String);
/// Why the listing failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ListError(pub String);
