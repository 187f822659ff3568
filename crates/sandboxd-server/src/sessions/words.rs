//! The words of this room: what is asked of it, and what it answers. No HTTP, no JSON.

use super::content::Content;
use super::ledger::LedgerError;
use super::limited::Limited;
use crate::backends::{Enforced, SandboxSpec, Usage};
use crate::budget::Share;
use crate::id::{RunId, SessionId, Tenant};
use bytes::Bytes;
use sandboxd_protocol::message::{Entry, FileError};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What a client asks for when it opens.
#[derive(Debug, Clone, Default)]
pub struct Open {
    /// Its own id for the session; one is made otherwise.
    pub id: Option<SessionId>,
    /// Alias; the default runtime otherwise.
    pub runtime: Option<String>,
    /// Label.
    pub tenant: Option<Tenant>,
    /// What the client calls it; kept with a session that begins.
    pub labels: Labels,
    /// How long a session that begins may last, whatever happens; for ever otherwise.
    pub ttl: Option<Duration>,
    /// Take the open session of this id, if there is one.
    pub reuse: bool,
    /// As `reuse`, and refuse where neither session nor stored workspace exists.
    pub attach: bool,
}

/// Names and values that a client gave a session, for finding it again. They grant nothing.
pub type Labels = BTreeMap<String, String>;

/// An open session, and the token that reaches it.
#[derive(Clone)]
pub struct Opened {
    /// The session.
    pub session: View,
    /// Its token (derived, never stored, never logged).
    pub token: String,
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opened")
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

/// What is shown of a session. Times are since the Unix epoch.
#[derive(Debug, Clone)]
pub struct View {
    /// Id.
    pub id: SessionId,
    /// Alias.
    pub runtime: String,
    /// Label.
    pub tenant: Option<Tenant>,
    /// Whether its sandbox runs (or it sleeps and can wake).
    pub alive: bool,
    /// Whether it sleeps.
    pub hibernated: bool,
    /// When it was opened.
    pub created: Duration,
    /// When it was last used.
    pub last_activity: Duration,
    /// How long ago that is.
    pub idle: Duration,
    /// When it ends whatever happens, if ever.
    pub expires: Option<Duration>,
    /// What its client calls it.
    pub labels: Labels,
    /// What is in place for its sandbox.
    pub enforced: Enforced,
    /// What its sandbox was made with, while it has one.
    pub spec: Option<Arc<SandboxSpec>>,
}

impl View {
    /// The open itself as a row of the activity log, before all others. It has no number of its own: the first operation
    /// is number 1, as clients know it.
    pub fn opening(&self) -> Event {
        Event {
            seq: 0,
            at: self.created,
            op: "open".into(),
            target: self.runtime.clone(),
            ok: true,
            detail: String::new(),
            took: Duration::ZERO,
        }
    }
}

/// A sample of what a session uses.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct UsageView {
    /// The backend's figures.
    pub usage: Usage,
    /// Per cent of one CPU since the sample before, where there is one.
    pub cpu_percent: Option<f64>,
}

/// Why a session did not open. The text of each is the public one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Not on the allowlist.
    #[error("Unknown runtime {alias:?}. Allowed: {}", .allowed.join(", "))]
    UnknownRuntime {
        /// Asked for.
        alias: String,
        /// The list.
        allowed: Vec<String>,
    },
    /// `attach` names nothing.
    #[error("attach needs a session_id")]
    AttachWithoutId,
    /// The id is open.
    #[error("Session exists: {0}")]
    Exists(SessionId),
    /// The id is open with another runtime.
    #[error("Session {id} runs {open:?}, not {asked:?}. Close it before changing runtime")]
    OtherRuntime {
        /// Which session.
        id: SessionId,
        /// Its runtime.
        open: String,
        /// The one asked for.
        asked: String,
    },
    /// The id is being opened (or closed) by somebody else.
    #[error("Session is opening: {0}")]
    Opening(SessionId),
    /// Nothing of that id is stored.
    #[error("Nothing to attach to: {0}")]
    NothingToAttach(SessionId),
    /// The ceiling of open sessions.
    #[error("Open session limit reached ({0}), and all of them are in use")]
    OpenLimit(u64),
    /// The tenant's ceiling.
    #[error("Tenant {tenant} has reached its limit of {limit} sessions")]
    TenantLimit {
        /// Which tenant.
        tenant: Tenant,
        /// Its ceiling.
        limit: u64,
    },
    /// The ceiling of resident sandboxes.
    #[error("Session limit reached ({0})")]
    ResidentLimit(u64),
    /// A sleeping one could not be woken for want of a slot.
    #[error("Cannot wake session {id}: session limit reached ({limit})")]
    CannotWake {
        /// Which session.
        id: SessionId,
        /// The ceiling.
        limit: u64,
    },
    /// The sandbox did not start.
    #[error("Could not start sandbox: {0}")]
    Start(String),
    /// The daemon is going down.
    #[error("The service is shutting down")]
    ShuttingDown,
}

/// A program to run for a client.
#[derive(Debug, Clone)]
pub struct RunAsk {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// On top of the sandbox's environment.
    pub env: Vec<(String, String)>,
    /// Asked for; clamped to the service's ceiling, which is also the default.
    pub timeout: Option<Duration>,
    /// The client's id for it.
    pub id: Option<RunId>,
}

/// How a run came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunDone {
    /// It ended (also when stopped: 143). Both streams whole.
    Finished {
        /// Exit code.
        code: u8,
        /// Stdout.
        stdout: Vec<u8>,
        /// Stderr.
        stderr: Vec<u8>,
    },
    /// Its deadline came. The first bytes of each stream.
    TimedOut {
        /// Stdout.
        stdout: Vec<u8>,
        /// Stderr.
        stderr: Vec<u8>,
    },
    /// Too much output. The first bytes of each stream.
    OutputLimited {
        /// Stdout.
        stdout: Vec<u8>,
        /// Stderr.
        stderr: Vec<u8>,
        /// The limit, both streams together.
        limit: u64,
    },
}

/// A run that is over, and what is known of its limits.
#[derive(Debug)]
pub struct Ran {
    /// How it came out.
    pub done: RunDone,
    /// The limits that it ran into.
    pub limited: Limited,
    /// Its output's part of the memory for all output, to be held until that is sent.
    pub room: Share,
}

/// How an `/exec` came out: one merged stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecDone {
    /// Both streams in the order in which they came.
    pub output: Vec<u8>,
    /// Exit code; 124 for the deadline.
    pub code: u8,
    /// Whether bytes were thrown away.
    pub truncated: bool,
    /// The limits that it ran into.
    pub limited: Limited,
}

/// Why a session did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UseError {
    /// No such session.
    #[error("No such session: {0}")]
    NotFound(SessionId),
    /// Its sandbox is gone, and what was in it.
    #[error("The sandbox of session {0} is gone")]
    Gone(SessionId),
    /// It sleeps, and there is no slot.
    #[error("Cannot wake session {id}: session limit reached ({limit})")]
    CannotWake {
        /// Which session.
        id: SessionId,
        /// The ceiling.
        limit: u64,
    },
    /// It sleeps, and its sandbox did not start.
    #[error("Cannot wake session {id}: {cause}")]
    WakeFailed {
        /// Which session.
        id: SessionId,
        /// Why.
        cause: String,
    },
    /// It is closed, and yet something of it is left.
    #[error("Session {id} is closed, but its workspace was not removed: {cause}")]
    NotRemoved {
        /// Which session.
        id: SessionId,
        /// Why.
        cause: String,
    },
    /// Too many commands at once.
    #[error("Too many commands are running ({0})")]
    Busy(u64),
    /// Arguments the kernel would refuse; names size and limit.
    #[error("{0}")]
    Invalid(String),
    /// What is written down of it could not be read.
    #[error("The log of session {id} could not be read: {cause}")]
    NotRead {
        /// Which session.
        id: SessionId,
        /// Why.
        cause: String,
    },
    /// It cannot be put to sleep, or was not.
    #[error("Session {id} cannot go to sleep: {why}")]
    NotAsleep {
        /// Which session.
        id: SessionId,
        /// Why.
        why: String,
    },
    /// What was asked for could not be written down, and was not done.
    #[error("Session {id} is as it was: {cause}")]
    NotWritten {
        /// Which session.
        id: SessionId,
        /// Why.
        cause: String,
    },
    /// The operation outlasted the service's ceiling (era A).
    #[error("The operation ran into the service ceiling of {0} s")]
    Ceiling(u64),
}

/// A native file operation (era B): the strict rule, below the work directory.
#[derive(Debug, Clone)]
pub enum NativeFile {
    /// Whole content.
    Read,
    /// Replace the content.
    Write(Bytes),
    /// One entry.
    Stat,
    /// A directory's entries.
    List,
    /// Resolve.
    RealPath,
    /// `mkdir -p`.
    MakeDir,
    /// File, link or tree.
    Remove,
}

/// What a native file operation gave.
#[derive(Debug)]
pub enum NativeDone {
    /// Nothing to say.
    Done,
    /// Content.
    Content(Content),
    /// One entry.
    Entry(Entry),
    /// Entries, sorted by name.
    Entries(Vec<Entry>),
    /// A path, absolute, as the sandbox sees it.
    Path(String),
}

/// Why a native file operation gave nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NativeError {
    /// The session did.
    #[error(transparent)]
    Use(#[from] UseError),
    /// Native files are off.
    #[error("Native file operations are off")]
    Off,
    /// The path is not absolute, or has a NUL byte.
    #[error("{0}")]
    BadPath(String),
    /// The file system did.
    #[error(transparent)]
    File(#[from] FileError),
}

/// One row of a session's activity log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// From 1, never used twice.
    pub seq: u64,
    /// When, since the Unix epoch.
    pub at: Duration,
    /// What (`run`, `exec`, `read`, …).
    pub op: Cow<'static, str>,
    /// On what.
    pub target: String,
    /// Whether it went well.
    pub ok: bool,
    /// A word more.
    pub detail: String,
    /// How long it took.
    pub took: Duration,
}

/// A file operation of era A: any path the sandbox sees, links resolved inside it. A relative path starts at the work
/// directory.
#[derive(Debug, Clone)]
pub enum FollowFile {
    /// Whole content, refused over `limit` bytes.
    Read {
        /// Most bytes.
        limit: u64,
    },
    /// Replace the content; parents are made, a new file has mode 0644.
    Write(Bytes),
    /// One entry (of the target, where the path is a link).
    Stat,
    /// A directory's entries, sorted by name.
    List,
}

/// What a [`FollowFile`] gave. `path` is the absolute path that was meant.
#[derive(Debug)]
pub struct FollowDone {
    /// The absolute path that was meant.
    pub path: String,
    /// What came of it.
    pub answer: NativeDone,
}

/// Why a [`FollowFile`] gave nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FollowError {
    /// The session did.
    #[error(transparent)]
    Use(#[from] UseError),
    /// The file system did.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Why the archive gave nothing. The texts are public.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveError {
    /// Nothing is stored anywhere.
    #[error("No workspaces are stored: workspace_root is not set")]
    NoRoot,
    /// Nothing is stored for this id.
    #[error("No stored workspace: {0}")]
    NoWorkspace(SessionId),
    /// `..`, or a link on the way.
    #[error("{0:?} is outside the workspace")]
    Outside(String),
    /// Nothing there, or nothing that can be read (a FIFO, say).
    #[error("Not found: {0:?}")]
    NotFound(String),
    /// A directory was expected.
    #[error("Not a directory: {0:?}")]
    NotADirectory(String),
    /// A file was expected.
    #[error("Not a file: {0:?}")]
    IsADirectory(String),
    /// Over the service's `max_read_bytes`.
    #[error("File is {size} bytes, over the {limit}-byte read limit")]
    TooLarge {
        /// Bytes.
        size: u64,
        /// Bytes allowed.
        limit: u64,
    },
    /// A directory that no listing shows whole.
    #[error("{0:?} holds more than {1} entries; a tree shows a part of it")]
    TooMany(String, u32),
    /// The service itself may not read it, or the disk failed.
    #[error("Cannot read {path:?}: {cause}")]
    Failed {
        /// Which path.
        path: String,
        /// Why.
        cause: String,
    },
}

/// How many sessions there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// With a sandbox, or with one being made.
    pub resident: u64,
    /// All that exist (sleeping ones too, and those being opened).
    pub open: u64,
}

/// What a request about an event may say (see [`super::Sessions::record_event`]).
#[derive(Debug, Clone)]
pub struct Happened {
    /// What (`read`, `write`, `edit`, …).
    pub op: &'static str,
    /// On what; cut to its ceiling here.
    pub target: String,
    /// Whether it went well.
    pub ok: bool,
    /// A word more.
    pub detail: String,
    /// How long it took.
    pub took: Duration,
}

/// Why the room does not open at start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The folder of workspaces cannot be used.
    #[error("workspace_root {path}: {cause}")]
    WorkspaceRoot {
        /// Which folder.
        path: std::path::PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// The settings contradict each other.
    #[error("{0}")]
    Settings(String),
    /// What an earlier daemon has written down cannot be read.
    #[error("the sessions on record cannot be taken up: {0}")]
    Ledger(LedgerError),
}
