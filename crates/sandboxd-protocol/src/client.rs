//! The daemon's half of the link.
use crate::message::{Entry, Exit, FileError, NotStarted, PathRule, Run, Welcome};
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};

/// Why the link did not do what was asked. The guest's misbehaviour is one of these, never a panic.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The link has ended: the sandbox is gone.
    #[error("the sandbox is gone")]
    Gone,
    /// No answer in time.
    #[error("the guest did not answer within {0} ms")]
    Silent(u64),
    /// The guest broke the protocol; says how.
    #[error("the guest broke the protocol: {0}")]
    Protocol(String),
    /// The guest speaks another generation.
    #[error("the guest speaks generation {theirs} of the protocol, this daemon {ours}")]
    Generation {
        /// Ours.
        ours: u16,
        /// Theirs.
        theirs: u16,
    },
}

/// A file operation that failed: by the file system's word, or by the link's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileFailure {
    /// The file system's.
    #[error(transparent)]
    File(#[from] FileError),
    /// The link's.
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// A handle on a sandbox's guest; cheap to clone. The link ends when the last clone, and all that it opened, is gone,
/// or by [`Client::close`].
#[derive(Debug, Clone)]
pub struct Client {}

impl Client {
    /// Opens the link: spawns the task that drives it (owned by the client), exchanges the first frames.
    pub async fn connect<L>(_link: L) -> Result<(Self, Welcome), LinkError>
    where
        L: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        unimplemented!()
    }
    /// Resolves when the link has ended, whoever ended it.
    pub async fn closed(&self) {
        unimplemented!()
    }
    /// Whether the link has ended.
    pub fn is_closed(&self) -> bool {
        unimplemented!()
    }
    /// Ends the link, and with it the sandbox.
    pub fn close(&self) {
        unimplemented!()
    }
    /// Starts a run. The two halves may live in different tasks; dropping [`RunEvents`] ends the run's whole tree.
    pub async fn run(&self, _run: Run) -> Result<(RunInput, RunEvents), LinkError> {
        unimplemented!()
    }
    /// Reads a whole file, at most `limit` bytes.
    pub async fn read(
        &self,
        _rule: PathRule,
        _path: &[u8],
        _limit: u64,
    ) -> Result<Bytes, FileFailure> {
        unimplemented!()
    }
    /// Replaces a file atomically.
    pub async fn write(
        &self,
        _rule: PathRule,
        _path: &[u8],
        _content: Bytes,
        _mode: u32,
        _parents: bool,
    ) -> Result<(), FileFailure> {
        unimplemented!()
    }
    /// What is at a path.
    pub async fn stat(&self, _rule: PathRule, _path: &[u8]) -> Result<Entry, FileFailure> {
        unimplemented!()
    }
    /// The entries of a directory, sorted by name.
    pub async fn list(
        &self,
        _rule: PathRule,
        _path: &[u8],
        _limit: u32,
    ) -> Result<Vec<Entry>, FileFailure> {
        unimplemented!()
    }
    /// Makes a directory and its parents.
    pub async fn make_dir(&self, _rule: PathRule, _path: &[u8]) -> Result<(), FileFailure> {
        unimplemented!()
    }
    /// Removes a file or a tree.
    pub async fn remove(&self, _rule: PathRule, _path: &[u8]) -> Result<(), FileFailure> {
        unimplemented!()
    }
    /// Renames.
    pub async fn rename(
        &self,
        _rule: PathRule,
        _path: &[u8],
        _to: &[u8],
    ) -> Result<(), FileFailure> {
        unimplemented!()
    }
    /// The resolved path.
    pub async fn real_path(&self, _rule: PathRule, _path: &[u8]) -> Result<Vec<u8>, FileFailure> {
        unimplemented!()
    }
    /// Connects to a TCP port on the sandbox's loopback. The error is errno.
    pub async fn dial(&self, _port: u16) -> Result<Box<dyn Duplex>, FileFailure> {
        unimplemented!()
    }
}

/// A duplex byte stream.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// What goes into a run.
#[derive(Debug)]
pub struct RunInput {}
impl RunInput {
    /// Sends stdin bytes; waits while the program does not read.
    pub async fn stdin(&mut self, _bytes: &[u8]) -> Result<(), LinkError> {
        unimplemented!()
    }
    /// Ends stdin.
    pub async fn end_stdin(&mut self) -> Result<(), LinkError> {
        unimplemented!()
    }
    /// TERM, a grace, then the whole tree is killed.
    pub async fn stop(&mut self) -> Result<(), LinkError> {
        unimplemented!()
    }
    /// The whole tree is killed at once.
    pub async fn kill(&mut self) -> Result<(), LinkError> {
        unimplemented!()
    }
    /// One signal to the program itself.
    pub async fn signal(&mut self, _signal: i32) -> Result<(), LinkError> {
        unimplemented!()
    }
}

/// What comes out of a run.
#[derive(Debug)]
pub struct RunEvents {}
impl RunEvents {
    /// The next event; `None` after the terminal one.
    pub async fn next(&mut self) -> Result<Option<Output>, LinkError> {
        unimplemented!()
    }
}

/// One event of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// The program runs.
    Started,
    /// Bytes from its stdout.
    Stdout(Bytes),
    /// Bytes from its stderr.
    Stderr(Bytes),
    /// It could not be started. Terminal.
    NotStarted(NotStarted),
    /// It is over. Terminal.
    Exited(Exit),
}
