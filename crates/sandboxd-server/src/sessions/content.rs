//! The content of a file on its way out. A small one is there as a whole; a large one comes in pieces, each when it is
//! asked for, and its session counts as used until the last has gone out.
//!
//! What is promised is the size that the file had when it was opened: a file that grows meanwhile is cut there, and
//! one that shrinks is broken off, since whoever was told the size would take less for the whole.

use super::files::{answers, patient};
use super::visit::{Reached, Visit};
use super::words::Happened;
use crate::limits::{CONTENT_SECONDS_MAX, WORKSPACE_SECONDS_MAX};
use crate::workspaces::StoredContent;
use bytes::Bytes;
use sandboxd_protocol::client::FileFailure;
use sandboxd_protocol::content::FileContent;
use sandboxd_protocol::message::FileError;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// The content of a file.
#[derive(Debug)]
pub enum Content {
    /// All of it.
    Whole(Bytes),
    /// To be taken piece by piece.
    Pieces(Box<Pieces>),
}

impl Content {
    /// All of it, once it has come.
    ///
    /// # Errors
    /// [`BrokenOff`].
    pub async fn whole(self) -> Result<Bytes, BrokenOff> {
        match self {
            Self::Whole(content) => Ok(content),
            Self::Pieces(mut pieces) => {
                let mut content = Vec::new();
                while let Some(piece) = pieces.next().await? {
                    content.extend_from_slice(&piece);
                }
                Ok(content.into())
            }
        }
    }
}

/// Why the rest of a content does not come.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BrokenOff {
    /// The file system said so in the middle.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file was cut shorter while it was read.
    #[error("the file became shorter while it was read")]
    Shrunk,
    /// The sandbox went.
    #[error("the sandbox went while a file was read")]
    Gone,
    /// It was not taken in time.
    #[error("the content was not taken within {0} s")]
    Slow(u64),
}

/// Where a content comes from.
#[derive(Debug)]
pub(crate) enum Origin {
    /// A guest.
    Guest(FileContent, Reached),
    /// A stored workspace.
    Stored(StoredContent),
}

/// A large content. Dropping it ends the reading.
#[derive(Debug)]
pub struct Pieces {
    origin: Origin,
    size: u64,
    left: u64,
    deadline: Instant,
    record: Record,
}

/// An operation that is told to the figures and the session's log once, when it is over.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) visit: Visit,
    pub(super) name: &'static str,
    pub(super) target: String,
    pub(super) began: Instant,
    told: bool,
}

impl Record {
    pub(super) fn new(visit: Visit, name: &'static str, target: String) -> Self {
        Self {
            visit,
            name,
            target,
            began: Instant::now(),
            told: false,
        }
    }

    /// It is over: how it came out.
    pub(super) fn tell(&mut self, ok: bool, detail: String) {
        if std::mem::replace(&mut self.told, true) {
            return;
        }
        let took = self.began.elapsed();
        let visit = &self.visit;
        visit.shared.metrics.file_op(self.name, took);
        let happened = Happened {
            op: self.name,
            target: std::mem::take(&mut self.target),
            ok,
            detail,
            took,
        };
        visit.shared.log(&visit.id, Some(visit.serial), happened);
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.tell(false, "cut off".to_owned());
    }
}

impl Pieces {
    pub(super) fn new(origin: Origin, record: Record) -> Self {
        let size = match &origin {
            Origin::Guest(content, _) => content.size(),
            Origin::Stored(content) => content.size(),
        };
        Self {
            origin,
            size,
            left: size,
            deadline: Instant::now() + Duration::from_secs(CONTENT_SECONDS_MAX),
            record,
        }
    }

    /// How many bytes come in all, unless it breaks off.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The next bytes; `None` when all have come.
    ///
    /// # Errors
    /// [`BrokenOff`]; nothing comes after it.
    pub async fn next(&mut self) -> Result<Option<Bytes>, BrokenOff> {
        if self.left == 0 {
            return Ok(None);
        }
        match self.piece().await {
            Ok(mut piece) => {
                piece.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
                self.left -= u64::try_from(piece.len()).unwrap_or(self.left);
                if self.left == 0 {
                    self.record.tell(true, String::new());
                }
                Ok(Some(piece))
            }
            Err(error) => {
                self.record.tell(false, error.to_string());
                Err(error)
            }
        }
    }

    async fn piece(&mut self) -> Result<Bytes, BrokenOff> {
        if Instant::now() >= self.deadline {
            return Err(BrokenOff::Slow(CONTENT_SECONDS_MAX));
        }
        match &mut self.origin {
            Origin::Guest(content, reached) => {
                match patient(content.next(), answers(&reached.client)).await {
                    Ok(piece) => piece.ok_or(BrokenOff::Shrunk),
                    Err(FileFailure::File(error)) => Err(error.into()),
                    Err(FileFailure::Link(error)) => {
                        self.record.visit.broken(reached, &error);
                        Err(BrokenOff::Gone)
                    }
                }
            }
            Origin::Stored(content) => {
                let limit = Duration::from_secs(WORKSPACE_SECONDS_MAX);
                match timeout(limit, content.next()).await {
                    Ok(piece) => piece?.ok_or(BrokenOff::Shrunk),
                    Err(_) => {
                        let errno = rustix::io::Errno::TIMEDOUT;
                        Err(FileError::Os(errno.raw_os_error()).into())
                    }
                }
            }
        }
    }
}
