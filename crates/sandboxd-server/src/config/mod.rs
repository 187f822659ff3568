//! The only reader of file, environment and flags.
//!
//! Order: flags, then `SANDBOXD_*` variables, then a TOML file, then defaults. A bad value or an unknown TOML key stops
//! the start with one line naming it; an unknown `SANDBOXD_*` variable is only warned about, since another project uses
//! the same prefix (two names of which, `SANDBOXD_GRPC_ADDR` and `SANDBOXD_REST_ADDR`, are passed over in silence).
//!
//! - [`layers`]: where a setting's text comes from, and that it comes from the first that has it.
//! - [`parse`]: text to values.
//! - [`settings`]: every setting, its default, and what must hold between them.
//! - [`allowlist`]: the two grammars of `SANDBOXD_RUNTIMES`, and the TOML form.
//! - [`registries`]: where images come from. [`builds`]: what builds of recipes are allowed. [`engine`]: where a container
//!   engine is.
//! - [`policy`]: changes while the service runs.
//! - [`outlook`]: what the settings come to, in lines for an operator.
//! - [`mod@print`]: the effective settings as TOML.

mod allowlist;
mod builds;
mod engine;
mod error;
mod layers;
mod outlook;
mod parse;
mod policy;
mod print;
mod registries;
mod settings;
#[cfg(test)]
mod tests;

pub use engine::EngineAddress;
pub use error::ConfigError;
pub use layers::{Flags, Layers, Warning};
pub use outlook::{Outlook, Survives};
pub use policy::{PolicyChange, PolicyRefusal, RuntimeChange};
pub use print::print_config;
pub use settings::{SETTINGS, Setting};

use crate::backends::ProjectIds;
use crate::egress::Egress;
use crate::runtimes::{Ceilings, Runtime};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Everything the daemon was told.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where to listen.
    pub listen: SocketAddr,
    /// The service token, or where to make one.
    pub token: TokenSource,
    /// Where state is kept; exclusive.
    pub state_dir: PathBuf,
    /// Which backend.
    pub backend: BackendName,
    /// Where the container engine is, for a backend that uses one.
    pub engine: EngineAddress,
    /// Seconds that what runs may go on when the daemon is asked to end.
    pub drain_timeout: u64,
    /// A JSON file with changes to the policy, read again when it changes.
    pub policy_overrides: Option<PathBuf>,
    /// The projects of quotas, where file systems keep some; none where none are used.
    pub project_ids: Option<ProjectIds>,
    /// What sandboxes with a network may reach.
    pub egress: Egress,
    /// Where images come from.
    pub registries: crate::runtimes::images::Settings,
    /// What builds of recipes are allowed.
    pub builds: crate::runtimes::build::BuildSettings,
    /// Who may rent what.
    pub service: Service,
}

/// Where the service token comes from.
#[derive(Clone, PartialEq, Eq)]
pub enum TokenSource {
    /// Configured.
    Given(String),
    /// Made once and kept in a 0600 file in the state directory (loopback addresses only).
    Made,
}

impl std::fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Given(_) => "Given(…)",
            Self::Made => "Made",
        })
    }
}

/// The backends one can choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackendName {
    /// Linux namespaces.
    Namespaces,
    /// A container engine: Docker, Podman.
    Docker,
    /// The in-memory double (tests).
    InMemory,
}

/// The service's own settings; a policy update changes a copy of this.
#[derive(Debug, Clone)]
pub struct Service {
    /// The allowlist.
    pub runtimes: BTreeMap<String, Runtime>,
    /// Whether somebody wrote the allowlist; nothing is fetched at start for one that nobody chose.
    pub runtimes_given: bool,
    /// The alias used when a client names none.
    pub default_runtime: String,
    /// Resident sandboxes.
    pub max_sessions: Option<u64>,
    /// Open sessions.
    pub max_open_sessions: Option<u64>,
    /// Open sessions per tenant.
    pub max_sessions_per_tenant: Option<u64>,
    /// Seconds of idleness after which a session may be hibernated to make room.
    pub evict_idle_after: Option<u64>,
    /// Seconds of idleness after which a session is hibernated without need.
    pub hibernate_after: Option<u64>,
    /// Ceilings for runtimes that set none. `explicit` says which were set by somebody.
    pub ceilings: ServiceCeilings,
    /// Bytes of `/tmp` in memory.
    pub tmpfs_bytes: Option<u64>,
    /// The work directory inside every sandbox.
    pub work_dir: String,
    /// Where workspaces are kept; none means files go with the sandbox.
    pub workspace_root: Option<PathBuf>,
    /// Whether the write layer is kept across hibernation.
    pub persist_containers: bool,
    /// Seconds.
    pub idle_timeout: u64,
    /// Seconds.
    pub cleanup_interval: u64,
    /// Seconds.
    pub workspace_ttl: Option<u64>,
    /// Seconds.
    pub container_ttl: Option<u64>,
    /// The uid that runs have inside.
    pub sandbox_uid: Option<u32>,
    /// Bytes.
    pub max_read_bytes: u64,
    /// Bytes of a JSON body.
    pub max_body_bytes: u64,
    /// Bytes of all bodies together, beyond what each has for itself.
    pub max_bodies_bytes: u64,
    /// Bytes of the output of all runs together, beyond what each has for itself.
    pub max_outputs_bytes: u64,
    /// Seconds.
    pub execute_timeout: u64,
    /// Commands at once, over all sessions.
    pub max_running_commands: u64,
    /// Whether native file routes are on.
    pub native_files: bool,
    /// Whether images are made ready at start.
    pub prewarm: bool,
    /// How many sandboxes are parked for each runtime that does not say itself.
    pub pool: u64,
    /// Whether `/ui` is served.
    pub ui_enabled: bool,
    /// Whether `/metrics` needs no token.
    pub metrics_public: bool,
    /// Ceilings that may stay unenforced although set.
    pub allow_unenforced: Vec<crate::backends::Ceiling>,
    /// The texts as configured, for `/policy` (`mem_limit`, `memswap_limit`, `tmpfs_size`).
    pub texts: SizeTexts,
}

/// Which native file routes are on, for a session of a runtime without a user of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Native {
    /// Reading, and resolving paths.
    pub files: bool,
    /// Writing: only where files belong to root inside, since that is who a native write writes as.
    pub writes: bool,
}

impl Service {
    /// Which native file routes are on.
    pub fn native(&self) -> Native {
        let files = self.native_files && self.workspace_root.is_some();
        Native {
            files,
            writes: files && self.sandbox_uid.is_none_or(|uid| uid == 0),
        }
    }
}

/// Bytes of a size in Docker's syntax (`512m`, `1g`); `None` where it is not one.
pub fn bytes_of_size(text: &str) -> Option<u64> {
    parse::size(text).ok()
}

/// Sizes as the operator wrote them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SizeTexts {
    /// `mem_limit`.
    pub mem_limit: Option<String>,
    /// `memswap_limit`.
    pub memswap_limit: Option<String>,
    /// `tmpfs_size`.
    pub tmpfs_size: Option<String>,
    /// `disk_limit`.
    pub disk_limit: Option<String>,
}

/// The service's ceilings, and whether each was set or is a built-in default.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServiceCeilings {
    /// The values in force.
    pub values: Ceilings,
    /// `mem_limit` was set.
    pub memory_explicit: bool,
    /// `cpus` was set.
    pub cpus_explicit: bool,
    /// `pids_limit` was set.
    pub pids_explicit: bool,
    /// `disk_limit` was set.
    pub disk_bytes_explicit: bool,
    /// `inodes_limit` was set.
    pub disk_files_explicit: bool,
}
