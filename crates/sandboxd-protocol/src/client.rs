//! The daemon's half of the link.
//!
//! [`Client::connect`] starts one task that drives the multiplexer; it ends with the last handle, and nothing else may
//! block it: every operation lives on its own substream with its own window, so a reader that stops reading holds up
//! only itself.

use crate::channel::Channel;
use crate::content::FileContent;
use crate::frame::{self, Frame, FrameError, Tag};
use crate::limits::{
    ANSWER_BYTES_MAX, ENTRIES_PER_BATCH, HELLO_SECONDS_MAX, NAME_BYTES_MAX, OPEN_SECONDS_MAX,
    RAW_BYTES_MAX, SILENCE_SECONDS_MAX, SUBSTREAMS_MAX,
};
use crate::link::{self, Opening};
use crate::message::{
    Entry, FileAnswer, FileError, FileOp, FileRequest, GENERATION, Hello, NotStarted, PathRule,
    Request, Run, Welcome, WriteControl,
};
use crate::run;
pub use crate::run::{Output, RunEvents, RunInput};
use crate::substream::{Broken, FrameReader, FrameWriter, Hold, halves};
use bytes::Bytes;
use serde::Serialize;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

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
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    openings: mpsc::Sender<Opening>,
    permits: Arc<Semaphore>,
    end: CancellationToken,
    over: CancellationToken,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

/// A fresh substream, and what it must keep alive while it is open.
pub(crate) struct Opened {
    pub(crate) reader: FrameReader,
    pub(crate) writer: FrameWriter,
    pub(crate) hold: Hold,
    pub(crate) keep: Keep,
}

/// Keeps the link alive and the substream counted.
#[derive(Debug, Clone)]
pub(crate) struct Keep {
    _inner: Arc<Inner>,
    _permit: Arc<OwnedSemaphorePermit>,
}

impl Client {
    /// Opens the link: spawns the task that drives it (owned by the client), exchanges the first frames.
    ///
    /// # Errors
    /// [`LinkError::Silent`] after [`HELLO_SECONDS_MAX`]; [`LinkError::Generation`] where the guest speaks another one.
    pub async fn connect<L>(link: L) -> Result<(Self, Welcome), LinkError>
    where
        L: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (openings, requests) = mpsc::channel(SUBSTREAMS_MAX);
        let inner = Arc::new(Inner {
            openings,
            permits: Arc::new(Semaphore::new(SUBSTREAMS_MAX)),
            end: CancellationToken::new(),
            over: CancellationToken::new(),
        });
        // Owned by the client: it ends with `end`, which the last handle's drop sets off, and with the link.
        tokio::spawn(link::drive_client(
            link,
            requests,
            inner.end.clone(),
            inner.over.clone(),
        ));
        let client = Self { inner };
        let welcome = within(HELLO_SECONDS_MAX, client.greet()).await?;
        Ok((client, welcome))
    }

    async fn greet(&self) -> Result<Welcome, LinkError> {
        let hello = Request::Hello(Hello {
            generation: GENERATION,
        });
        let mut opened = self.ask(&hello).await?;
        let welcome: Welcome = opened.reader.message().await?;
        if welcome.generation != GENERATION {
            return Err(LinkError::Generation {
                ours: GENERATION,
                theirs: welcome.generation,
            });
        }
        Ok(welcome)
    }

    /// Resolves when the link has ended, whoever ended it.
    pub async fn closed(&self) {
        self.inner.over.cancelled().await;
    }

    /// Whether the link has ended.
    pub fn is_closed(&self) -> bool {
        self.inner.over.is_cancelled()
    }

    /// Ends the link, and with it the sandbox.
    pub fn close(&self) {
        self.inner.end.cancel();
    }

    /// Starts a run. The two halves may live in different tasks; dropping [`RunEvents`] ends the run's whole tree.
    ///
    /// # Errors
    /// The link's. Whether the program started is the first of its events.
    pub async fn run(&self, run: Run) -> Result<(RunInput, RunEvents), LinkError> {
        let stdin = run.stdin;
        within(OPEN_SECONDS_MAX, async {
            let mut opened = self.open().await?;
            match opened.writer.message(&Request::Run(run)).await {
                // More than a message holds is more than the kernel takes: the answer a guest would give.
                Err(Broken::Garbage(FrameError::TooLong { bytes, limit })) => {
                    let (bytes, limit) = (as_u64(bytes), as_u64(limit));
                    let why = NotStarted::TooLarge { bytes, limit };
                    Ok(run::halves(opened, stdin, Some(why)))
                }
                result => sent(result).map(|()| run::halves(opened, stdin, None)),
            }
        })
        .await
    }

    /// Reads a whole file, at most `limit` bytes.
    ///
    /// # Errors
    /// [`FileError::TooLarge`] over the limit; every other file error as the guest says.
    pub async fn read(
        &self,
        rule: PathRule,
        path: &[u8],
        limit: u64,
    ) -> Result<Bytes, FileFailure> {
        self.begin_read(rule, path, limit).await?.whole().await
    }

    /// Begins to read a file, at most `limit` bytes: its size is known then, and its content comes when it is asked for.
    ///
    /// # Errors
    /// As of [`Client::read`].
    pub async fn begin_read(
        &self,
        rule: PathRule,
        path: &[u8],
        limit: u64,
    ) -> Result<FileContent, FileFailure> {
        let mut opened = self.file(rule, path, FileOp::Read { limit }).await?;
        match opened.answer().await? {
            FileAnswer::Content { size } if size <= limit => {
                Ok(FileContent::new(opened, size, limit))
            }
            FileAnswer::Content { .. } => Err(protocol("a larger file than was asked for")),
            other => Err(unexpected(other)),
        }
    }

    /// Replaces a file atomically.
    ///
    /// # Errors
    /// As the guest says; the old file is then untouched.
    pub async fn write(
        &self,
        rule: PathRule,
        path: &[u8],
        content: Bytes,
        mode: u32,
        parents: bool,
    ) -> Result<(), FileFailure> {
        let op = FileOp::Write {
            mode,
            parents,
            limit: as_u64(content.len()),
        };
        let mut opened = self.file(rule, path, op).await?;
        let Opened { reader, writer, .. } = &mut opened;
        let send = async {
            for piece in content.chunks(RAW_BYTES_MAX) {
                patient(async { sent(writer.raw(Tag::Content, piece).await) }).await?;
            }
            patient(async { sent(writer.message(&WriteControl::End).await) }).await
        };
        // A refusal may come while content is still on its way.
        let early = tokio::select! {
            biased;
            frame = reader.expect() => Some(frame?),
            result = send => {
                match result {
                    // A broken substream may still hold the guest's reason.
                    Ok(()) | Err(LinkError::Gone) => None,
                    Err(error) => return Err(error.into()),
                }
            }
        };
        let frame = match early {
            Some(frame) => frame,
            None => patient(reader.expect()).await?,
        };
        match answer(&frame)? {
            FileAnswer::Done => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    /// What is at a path.
    ///
    /// # Errors
    /// As the guest says.
    pub async fn stat(&self, rule: PathRule, path: &[u8]) -> Result<Entry, FileFailure> {
        match self.file(rule, path, FileOp::Stat).await?.answer().await? {
            FileAnswer::Entry(entry) => Ok(entry),
            other => Err(unexpected(other)),
        }
    }

    /// The entries of a directory, sorted by name.
    ///
    /// # Errors
    /// [`FileError::TooMany`] over `limit` entries; every other file error as the guest says.
    pub async fn list(
        &self,
        rule: PathRule,
        path: &[u8],
        limit: u32,
    ) -> Result<Vec<Entry>, FileFailure> {
        let mut opened = self.file(rule, path, FileOp::List { limit }).await?;
        let mut all: Vec<Entry> = Vec::new();
        loop {
            let (entries, more) = match opened.answer().await? {
                FileAnswer::Entries { entries, more } => (entries, more),
                other => return Err(unexpected(other)),
            };
            if entries.len() > ENTRIES_PER_BATCH || (more && entries.is_empty()) {
                return Err(protocol("a batch of a wrong size"));
            }
            if as_u64(all.len() + entries.len()) > u64::from(limit) {
                return Err(protocol("more entries than were asked for"));
            }
            for entry in entries {
                if !plain_name(&entry.name) {
                    return Err(protocol("an entry whose name is none"));
                }
                if all.last().is_some_and(|last| last.name >= entry.name) {
                    return Err(protocol("entries out of order"));
                }
                all.push(entry);
            }
            if !more {
                return Ok(all);
            }
        }
    }

    /// Makes a directory and its parents.
    ///
    /// # Errors
    /// As the guest says.
    pub async fn make_dir(&self, rule: PathRule, path: &[u8]) -> Result<(), FileFailure> {
        self.done(rule, path, FileOp::MakeDir).await
    }

    /// Removes a file or a tree.
    ///
    /// # Errors
    /// As the guest says.
    pub async fn remove(&self, rule: PathRule, path: &[u8]) -> Result<(), FileFailure> {
        self.done(rule, path, FileOp::Remove).await
    }

    /// Renames.
    ///
    /// # Errors
    /// As the guest says.
    pub async fn rename(&self, rule: PathRule, path: &[u8], to: &[u8]) -> Result<(), FileFailure> {
        self.done(rule, path, FileOp::Rename { to: to.to_vec() })
            .await
    }

    /// The resolved path.
    ///
    /// # Errors
    /// As the guest says.
    pub async fn real_path(&self, rule: PathRule, path: &[u8]) -> Result<Vec<u8>, FileFailure> {
        let mut opened = self.file(rule, path, FileOp::RealPath).await?;
        match opened.answer().await? {
            FileAnswer::Path(path) => Ok(path),
            other => Err(unexpected(other)),
        }
    }

    /// Connects to a TCP port on the sandbox's loopback. The error is errno.
    ///
    /// # Errors
    /// [`FileError::Os`] with what connect(2) said, or the link's.
    pub async fn dial(&self, port: u16) -> Result<Box<dyn Duplex>, FileFailure> {
        let mut opened = self.ask(&Request::Dial { port }).await?;
        match opened.answer().await? {
            FileAnswer::Done => {}
            other => return Err(unexpected(other)),
        }
        let Opened {
            reader,
            writer,
            hold,
            keep,
        } = opened;
        Ok(Box::new(Channel::new(reader, writer, (hold, keep))))
    }

    async fn file(&self, rule: PathRule, path: &[u8], op: FileOp) -> Result<Opened, LinkError> {
        let request = FileRequest {
            rule,
            path: path.to_vec(),
            op,
        };
        self.ask(&Request::File(request)).await
    }

    async fn done(&self, rule: PathRule, path: &[u8], op: FileOp) -> Result<(), FileFailure> {
        match self.file(rule, path, op).await?.answer().await? {
            FileAnswer::Done => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    /// A substream with its request on the way.
    async fn ask(&self, request: &impl Serialize) -> Result<Opened, LinkError> {
        within(OPEN_SECONDS_MAX, async {
            let mut opened = self.open().await?;
            sent(opened.writer.message(request).await)?;
            Ok(opened)
        })
        .await
    }

    async fn open(&self) -> Result<Opened, LinkError> {
        let inner = &self.inner;
        let open = async {
            let permit = inner.permits.clone().acquire_owned().await;
            let permit = permit.map_err(|_| LinkError::Gone)?;
            let (ready, opened) = oneshot::channel();
            let handed = inner.openings.send(Opening { ready }).await;
            handed.map_err(|_| LinkError::Gone)?;
            let stream = opened.await.map_err(|_| LinkError::Gone)?;
            Ok((stream, permit))
        };
        let (stream, permit) = tokio::select! {
            biased;
            () = inner.over.cancelled() => return Err(LinkError::Gone),
            opened = open => opened?,
        };
        let (reader, writer, hold) = halves(stream, inner.over.clone(), ANSWER_BYTES_MAX);
        Ok(Opened {
            reader,
            writer,
            hold,
            keep: Keep {
                _inner: inner.clone(),
                _permit: Arc::new(permit),
            },
        })
    }
}

impl Opened {
    async fn answer(&mut self) -> Result<FileAnswer, FileFailure> {
        Ok(patient(self.reader.message()).await?)
    }
}

/// A duplex byte stream.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// Waits at most `seconds`.
async fn within<T>(
    seconds: u64,
    work: impl Future<Output = Result<T, LinkError>>,
) -> Result<T, LinkError> {
    match tokio::time::timeout(Duration::from_secs(seconds), work).await {
        Ok(result) => result,
        Err(_) => Err(LinkError::Silent(seconds * 1000)),
    }
}

/// Waits as long as a guest may be silent within an operation.
pub(crate) async fn patient<T>(
    work: impl Future<Output = Result<T, LinkError>>,
) -> Result<T, LinkError> {
    within(SILENCE_SECONDS_MAX, work).await
}

/// What a failed write means to the caller.
pub(crate) fn sent(result: Result<(), Broken>) -> Result<(), LinkError> {
    match result {
        Ok(()) => Ok(()),
        Err(Broken::Closed) => Err(LinkError::Gone),
        Err(Broken::Garbage(error)) => Err(LinkError::Protocol(error.to_string())),
    }
}

pub(crate) fn answer(frame: &Frame) -> Result<FileAnswer, LinkError> {
    if frame.tag != Tag::Message {
        return Err(LinkError::Protocol(
            "raw bytes where a message belongs".to_owned(),
        ));
    }
    frame::message(&frame.payload).map_err(|error| LinkError::Protocol(error.to_string()))
}

pub(crate) fn unexpected(answer: FileAnswer) -> FileFailure {
    match answer {
        FileAnswer::Error(error) => error.into(),
        FileAnswer::Done
        | FileAnswer::Content { .. }
        | FileAnswer::Entry(_)
        | FileAnswer::Entries { .. }
        | FileAnswer::Path(_) => protocol("an answer to another question"),
    }
}

pub(crate) fn protocol(how: &str) -> FileFailure {
    LinkError::Protocol(how.to_owned()).into()
}

fn plain_name(name: &[u8]) -> bool {
    !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && name != b"."
        && name != b".."
        && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

pub(crate) fn as_u64(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
