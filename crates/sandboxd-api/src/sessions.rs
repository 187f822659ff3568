//! Opening, listing and watching sessions.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Body of `POST /sessions`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreateSession {
    /// The session's id, chosen by the client; one is made where absent. It decides who shares files: whoever opens the
    /// same id finds the same workspace.
    #[serde(default)]
    #[cfg_attr(
        feature = "openapi",
        schema(
            pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
            example = "conversation-5f2c9a1e"
        )
    )]
    pub session_id: Option<String>,
    /// Alias of a runtime; absent or empty means the default one.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(example = "python"))]
    pub runtime: Option<String>,
    /// A label that sessions are counted under. It grants nothing.
    #[serde(default)]
    #[cfg_attr(
        feature = "openapi",
        schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", example = "acme")
    )]
    pub tenant: Option<String>,
    /// Take the session of this id if it is open, instead of refusing.
    #[serde(default)]
    pub reuse: bool,
    /// As `reuse`, and refuse where neither a session nor a stored workspace of this id exists.
    #[serde(default)]
    pub attach: bool,
    /// Names and values for finding the session again, at most 16; they grant nothing. Names are of an id's form, values
    /// have at most 200 characters. A session that is open already keeps its own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "openapi", schema(example = json!({ "user": "42" })))]
    pub labels: BTreeMap<String, String>,
    /// Seconds from now after which the session is closed, whatever it does; absent means never. A session that is open
    /// already keeps its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "openapi",
        schema(minimum = 1, maximum = 315360000, example = 3600)
    )]
    pub ttl_seconds: Option<u64>,
}

/// Body of `POST /sessions/{session_id}/renew`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RenewSession {
    /// Seconds from now after which the session is closed, whatever it does; `null` means never.
    #[cfg_attr(
        feature = "openapi",
        schema(required, minimum = 1, maximum = 315360000, example = 3600)
    )]
    pub ttl_seconds: Option<u64>,
}

/// Answer of `POST /sessions`.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionCreated {
    /// The session.
    pub session: SessionInfo,
    /// The session's own token: it works on this session's routes only, and on all of them.
    #[cfg_attr(
        feature = "openapi",
        schema(example = "Qk3vZ0xk1c2m0nq8l6w1hN4sJ7uYt5rB9aEfGiKoLpM")
    )]
    pub token: String,
}

impl std::fmt::Debug for SessionCreated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionCreated")
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

/// What is shown of a session. Times are seconds since the Unix epoch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionInfo {
    /// Its id.
    #[cfg_attr(feature = "openapi", schema(example = "conversation-5f2c9a1e"))]
    pub session_id: String,
    /// Alias of its runtime.
    #[cfg_attr(feature = "openapi", schema(example = "python"))]
    pub runtime: String,
    /// Its label.
    #[cfg_attr(feature = "openapi", schema(example = "acme"))]
    pub tenant: Option<String>,
    /// Whether its sandbox runs, or sleeps and can wake.
    pub alive: bool,
    /// Whether it has a sandbox now.
    pub state: SessionState,
    /// When it was opened.
    #[cfg_attr(feature = "openapi", schema(example = 1790000000.25))]
    pub created_at: f64,
    /// When it was last used; for a sleeping session, when it fell asleep or was last read.
    #[cfg_attr(feature = "openapi", schema(example = 1790000060.5))]
    pub last_activity: f64,
    /// Seconds since then.
    #[cfg_attr(feature = "openapi", schema(minimum = 0, example = 12.5))]
    pub idle_seconds: f64,
    /// A usage sample, where one was asked for and could be taken.
    pub usage: Option<SessionUsage>,
    /// What is really in place for its sandbox, by ceiling; empty while it has none.
    #[serde(default)]
    pub enforced: BTreeMap<String, Enforcement>,
    /// Its labels.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(example = json!({ "user": "42" })))]
    pub labels: BTreeMap<String, String>,
    /// When it is closed whatever it does, if ever.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(example = 1790003600.25))]
    pub expires_at: Option<f64>,
    /// What its sandbox was made with: told by `GET /sessions/{session_id}` alone, and left out while it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_force: Option<InForce>,
}

/// What a sandbox was made with. `enforced` says what of it is really in place.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct InForce {
    /// Its environment, as every program in it has it.
    #[cfg_attr(feature = "openapi", schema(example = json!({ "LANG": "C.UTF-8" })))]
    pub environment: BTreeMap<String, String>,
    /// What it may reach: `none` or `bridge`.
    #[cfg_attr(feature = "openapi", schema(example = "none"))]
    pub network: String,
    /// The uid that runs have inside; absent means root inside.
    #[cfg_attr(feature = "openapi", schema(example = json!(null)))]
    pub user: Option<u32>,
    /// Its limits.
    pub limits: LimitsInForce,
}

/// The limits of a sandbox and of its runs; an absent one is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LimitsInForce {
    /// Bytes of memory.
    #[cfg_attr(feature = "openapi", schema(example = 1073741824))]
    pub memory_bytes: Option<u64>,
    /// Bytes of memory and swap together.
    #[cfg_attr(feature = "openapi", schema(example = 1073741824))]
    pub memory_swap_bytes: Option<u64>,
    /// CPUs, as a hard ceiling.
    #[cfg_attr(feature = "openapi", schema(example = 2.0))]
    pub cpus: Option<f64>,
    /// CPU weight, 1024 being one share.
    #[cfg_attr(feature = "openapi", schema(example = json!(null)))]
    pub cpu_shares: Option<u64>,
    /// Processes and threads.
    #[cfg_attr(feature = "openapi", schema(example = 512))]
    pub pids: Option<u64>,
    /// Bytes that it stores.
    #[cfg_attr(feature = "openapi", schema(example = json!(10_737_418_240_u64)))]
    pub disk_bytes: Option<u64>,
    /// Files that it stores.
    #[cfg_attr(feature = "openapi", schema(example = 1000000))]
    pub inodes: Option<u64>,
    /// Bytes of `/tmp` in memory; absent means that `/tmp` lies in the write layer.
    #[cfg_attr(feature = "openapi", schema(example = 67108864))]
    pub tmpfs_bytes: Option<u64>,
    /// Bytes of the output of one run.
    #[cfg_attr(feature = "openapi", schema(example = 10485760))]
    pub output_bytes: Option<u64>,
    /// Seconds that one run may take.
    #[cfg_attr(feature = "openapi", schema(example = 300))]
    pub run_seconds: Option<u64>,
}

/// Whether a session has a sandbox now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum SessionState {
    /// It has one.
    Running,
    /// It sleeps; its next use wakes it.
    Hibernated,
}

/// Whether one ceiling is really in place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Enforcement {
    /// In place or not.
    pub enforced: bool,
    /// By what mechanism, or why not.
    #[cfg_attr(feature = "openapi", schema(example = "cgroup memory.max"))]
    pub reason: String,
}

/// A usage sample, at most five seconds old.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionUsage {
    /// Bytes of memory.
    #[cfg_attr(feature = "openapi", schema(example = 18874368))]
    pub memory_bytes: Option<u64>,
    /// Its ceiling.
    #[cfg_attr(feature = "openapi", schema(example = 536870912))]
    pub memory_limit_bytes: Option<u64>,
    /// Per cent of one CPU since the sample before; absent for a first sample.
    #[cfg_attr(feature = "openapi", schema(example = 3.5))]
    pub cpu_percent: Option<f64>,
    /// Processes and threads.
    #[cfg_attr(feature = "openapi", schema(example = 4))]
    pub pids: Option<u64>,
    /// Bytes stored in its workspace and its write layer, when they were last counted; absent where nobody counts, because
    /// nothing there is limited.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(example = 4194304))]
    pub disk_bytes: Option<u64>,
    /// Files stored there.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(example = 120))]
    pub disk_files: Option<u64>,
}

/// Answer of `GET /sessions`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionList {
    /// The sessions in order of creation.
    pub sessions: Vec<SessionInfo>,
    /// Most sessions with a sandbox at once.
    #[cfg_attr(feature = "openapi", schema(example = 20))]
    pub limit: Option<u64>,
    /// Most open sessions.
    #[cfg_attr(feature = "openapi", schema(example = 200))]
    pub open_limit: Option<u64>,
    /// Most open sessions of one tenant.
    #[cfg_attr(feature = "openapi", schema(example = 5))]
    pub tenant_limit: Option<u64>,
}

/// Answer of `GET /sessions/{session_id}/events`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionEvents {
    /// The kept events with a number above the one asked for.
    pub events: Vec<SessionEvent>,
    /// The highest number ever given; 0 for none.
    #[cfg_attr(feature = "openapi", schema(example = 7))]
    pub latest_seq: u64,
}

/// One thing that a session did. Never file contents, never output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionEvent {
    /// Its number, from 1, never used twice.
    #[cfg_attr(feature = "openapi", schema(example = 7))]
    pub seq: u64,
    /// When.
    #[cfg_attr(feature = "openapi", schema(example = 1790000060.5))]
    pub at: f64,
    /// What (`run`, `exec`, `read`, …).
    #[cfg_attr(feature = "openapi", schema(example = "run"))]
    pub op: String,
    /// On what, cut to 200 characters.
    #[cfg_attr(feature = "openapi", schema(example = "python main.py"))]
    pub target: String,
    /// Whether it went well.
    #[cfg_attr(feature = "openapi", schema(example = true))]
    pub ok: bool,
    /// A few words more.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(example = "exit 0"))]
    pub detail: String,
    /// How long it took, in milliseconds with one decimal.
    #[cfg_attr(feature = "openapi", schema(example = 41.2))]
    pub duration_ms: f64,
}
