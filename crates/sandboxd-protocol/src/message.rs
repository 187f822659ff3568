//! The words of the link.
//!
//! Enums grow at the end only: `postcard` writes a variant as its position. A change that an older peer could not
//! read raises [`GENERATION`], and peers of different generations refuse each other in plain words.

use serde::{Deserialize, Serialize};

/// The generation of these words. Stated by both sides in their first frame.
pub const GENERATION: u16 = 3;

/// The first message on a substream: what the daemon wants done on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// The first substream of a link carries this, and nothing else may come before it.
    Hello(Hello),
    /// Start a program.
    Run(Run),
    /// One file operation.
    File(FileRequest),
    /// Connect to a TCP port on the sandbox's own loopback; bytes then flow both ways as raw frames.
    Dial {
        /// Port on 127.0.0.1 (or ::1 where nothing listens on the former).
        port: u16,
    },
}

/// Opens a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The sender's [`GENERATION`].
    pub generation: u16,
}

/// The guest's answer to [`Hello`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The guest's [`GENERATION`].
    pub generation: u16,
    /// Whether the guest is PID 1 of its PID namespace.
    pub is_init: bool,
    /// How the guest ends the process tree of a run.
    pub tree_end: TreeEnd,
}

/// The mechanism by which a guest ends everything that a run started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TreeEnd {
    /// A cgroup of its own per run, ended by `cgroup.kill`.
    Cgroup,
    /// A keeper process per run that is the subreaper of all its descendants; they are stopped, walked and killed.
    Keeper,
    /// No processes at all (a guest that is not one itself).
    None,
}

/// A program to run, from start to exit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Program and arguments; at least one item, no NUL bytes.
    pub argv: Vec<Vec<u8>>,
    /// Added to the sandbox's own environment; replaces equal names.
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    /// Working directory; absolute. The sandbox's work directory when absent.
    pub cwd: Option<Vec<u8>>,
    /// Whether the daemon will send stdin; otherwise it is empty.
    pub stdin: bool,
    /// Milliseconds from the request to the end of the whole tree; absent means no deadline of the guest's own.
    pub timeout_millis: Option<u64>,
    /// What happens when both output streams together exceed a number of bytes.
    pub output: OutputLimit,
}

/// What a guest does about output without end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OutputLimit {
    /// No limit (flow control holds the program back).
    Unlimited,
    /// Over this many bytes the run is ended ([`Ended::Output`]).
    Stop(u64),
    /// Bytes past this many are read and thrown away; the run goes on.
    Discard(u64),
}

/// What the daemon may say during a run. Standard input itself travels as raw frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunControl {
    /// No more stdin. (A half-closed substream would not survive every transport.)
    StdinEnd,
    /// TERM to the process group, then after a grace the whole tree is killed.
    Stop,
    /// The whole tree is killed at once.
    Kill,
    /// One signal to the program itself; INT and QUIT to its whole process group, as from a terminal.
    Signal(i32),
}

/// What the guest says during a run. Output itself travels as raw frames, in the order in which it was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunEvent {
    /// The program runs.
    Started,
    /// The program could not be started. Terminal.
    NotStarted(NotStarted),
    /// The run is over. Terminal.
    Exited(Exit),
    /// The program has read, or will never read, this many more bytes of stdin: as many may be sent.
    StdinTaken(u32),
}

/// Why a program did not start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NotStarted {
    /// No such program (a shell's 127).
    NotFound,
    /// Found, but it cannot be executed (a shell's 126): errno.
    NotExecutable(i32),
    /// The working directory is missing or no directory: its path, and errno.
    Cwd(Vec<u8>, i32),
    /// Arguments or environment over the kernel's limit: their size in bytes and the limit.
    TooLarge {
        /// Bytes asked for.
        bytes: u64,
        /// Bytes allowed.
        limit: u64,
    },
    /// Empty argv, or a NUL byte in one of the strings; says which.
    Invalid(String),
    /// The sandbox is out of processes, memory or descriptors: errno.
    Resources(i32),
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// The program's exit code, or 128 + signal as a shell has it.
    pub code: u8,
    /// The signal that ended the program, if one did.
    pub signal: Option<u8>,
    /// Who ended it.
    pub ended: Ended,
    /// Output bytes that were thrown away under [`OutputLimit::Discard`].
    pub discarded_bytes: u64,
}

/// Who ended a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ended {
    /// The program itself.
    Itself,
    /// The deadline.
    Timeout,
    /// The output limit.
    Output,
    /// The daemon asked.
    Stopped,
    /// The kernel, for memory.
    Memory,
    /// The program itself, without success, at a moment at which a file system of the sandbox had no room left.
    Disk,
}

/// One file operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRequest {
    /// Which paths are acceptable and how links are treated.
    pub rule: PathRule,
    /// Absolute under [`PathRule::Follow`]; relative to the root without a leading slash under [`PathRule::Beneath`].
    pub path: Vec<u8>,
    /// What to do.
    pub op: FileOp,
}

/// How a path is walked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PathRule {
    /// The native file rule of the HTTP contract: below `root` only, no link anywhere, no `.` or `..`, no special file.
    /// What it will not do itself it hands back ([`FileError::HandBack`]).
    Beneath {
        /// The sandbox's work directory, absolute.
        root: Vec<u8>,
    },
    /// Any path the sandbox can see, links resolved inside it.
    Follow,
}

/// A file operation's verb and what it needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileOp {
    /// The whole content, refused over `limit` bytes. Answer: [`FileAnswer::Content`], raw frames, [`FileAnswer::Done`].
    Read {
        /// Most bytes to read.
        limit: u64,
    },
    /// Atomic replace by a temporary sibling; mode and owner of an old file are kept. The content follows the request
    /// as raw frames, then [`WriteControl::End`]; closing instead throws the half-sent write away.
    Write {
        /// Mode of a new file (before the umask), 0o666 by habit.
        mode: u32,
        /// Make missing parents.
        parents: bool,
        /// Most bytes to accept.
        limit: u64,
    },
    /// What is there. Answer: [`FileAnswer::Entry`].
    Stat,
    /// The entries of a directory, sorted by name. Answer: [`FileAnswer::Entries`].
    List {
        /// Most entries; more is [`FileError::TooMany`].
        limit: u32,
    },
    /// As `mkdir -p`.
    MakeDir,
    /// A file, the link itself, or a whole tree.
    Remove,
    /// Onto another path under the same rule.
    Rename {
        /// The new path, as `path`.
        to: Vec<u8>,
    },
    /// The resolved path. Answer: [`FileAnswer::Path`].
    RealPath,
}

/// Ends the content of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriteControl {
    /// All content was sent: put the file in place.
    End,
}

/// The guest's answer to a file request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileAnswer {
    /// Done; also the end of a read's content.
    Done,
    /// Content follows as raw frames.
    Content {
        /// How many bytes the file had when it was opened. It may grow or shrink while it is read, and some have content
        /// that their size says nothing of (those of `/proc`).
        size: u64,
    },
    /// One entry.
    Entry(Entry),
    /// A directory's entries (a batch; the last batch has `more` false).
    Entries {
        /// Some of the entries.
        entries: Vec<Entry>,
        /// Whether another batch follows.
        more: bool,
    },
    /// A path.
    Path(Vec<u8>),
    /// It failed. Terminal, also in the middle of content.
    Error(FileError),
}

/// What is known of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The last component, as bytes.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// Bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Modification time, nanoseconds since the epoch.
    pub modified_nanos: i64,
    /// Where a link points, under [`PathRule::Follow`] only.
    pub target: Option<Vec<u8>>,
}

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// FIFO, socket or device.
    Special,
}

/// Why a file operation failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum FileError {
    /// The native rule will not do this one; somebody inside the sandbox must.
    #[error("{0}")]
    HandBack(HandBack),
    /// No such file, or no such parent.
    #[error("no such file or directory")]
    NotFound,
    /// A file was expected.
    #[error("is a directory")]
    IsADirectory,
    /// A directory was expected.
    #[error("not a directory")]
    NotADirectory,
    /// Something is in the way.
    #[error("file exists")]
    Exists,
    /// The request makes no sense; says why.
    #[error("{0}")]
    Invalid(String),
    /// Over the limit that the request stated.
    #[error("larger than {limit} bytes")]
    TooLarge {
        /// Bytes (known size, or how far it was read).
        size: u64,
        /// Bytes allowed.
        limit: u64,
    },
    /// More entries than the request allows.
    #[error("more than {0} entries")]
    TooMany(u32),
    /// Permission denied.
    #[error("permission denied")]
    Denied,
    /// No space, no quota or no inodes left.
    #[error("no space left")]
    NoSpace,
    /// Anything else the kernel said: errno.
    #[error("operating system error {0}")]
    Os(i32),
}

/// Why the native rule hands an operation back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum HandBack {
    /// Outside the work directory, or a `.` or `..` component.
    #[error("the path is not plainly inside the work directory")]
    Outside,
    /// A symbolic link on the way, at the end, or in the listing.
    #[error("the path goes through a symbolic link")]
    Link,
    /// A FIFO, socket or device.
    #[error("not a regular file or directory")]
    Special,
    /// The file is over the size that is read or written natively.
    #[error("larger than the native limit")]
    TooLarge,
    /// The service itself may not.
    #[error("permission denied to the service")]
    Denied,
    /// A name too long for a temporary sibling, or for the file system.
    #[error("the name is too long")]
    NameTooLong,
    /// Any other error of the operating system.
    #[error("the operating system refused")]
    Os,
}

impl From<HandBack> for FileError {
    fn from(why: HandBack) -> Self {
        Self::HandBack(why)
    }
}
