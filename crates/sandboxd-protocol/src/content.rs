//! The content of a file that is being read: piece by piece, as fast as it is asked for and no faster.

use crate::client::{FileFailure, Opened, answer, as_u64, patient, protocol, unexpected};
use crate::frame::Tag;
use crate::message::FileAnswer;
use bytes::{Bytes, BytesMut};
use std::fmt;

/// A file whose content is on its way. The guest sends no more than fits the substream's window; dropping this ends the
/// reading.
pub struct FileContent {
    opened: Opened,
    size: u64,
    limit: u64,
    taken: u64,
    over: bool,
}

impl fmt::Debug for FileContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileContent")
            .field("size", &self.size)
            .field("taken", &self.taken)
            .finish_non_exhaustive()
    }
}

impl FileContent {
    pub(crate) fn new(opened: Opened, size: u64, limit: u64) -> Self {
        Self {
            opened,
            size,
            limit,
            taken: 0,
            over: false,
        }
    }

    /// How many bytes the file had when it was opened, as the guest says; never more than the limit.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The next bytes; `None` at the end of the file, which may come earlier or later than [`FileContent::size`] says.
    ///
    /// # Errors
    /// As the guest says, also in the middle; the link's.
    pub async fn next(&mut self) -> Result<Option<Bytes>, FileFailure> {
        if self.over {
            return Ok(None);
        }
        let frame = patient(self.opened.reader.expect()).await?;
        match frame.tag {
            Tag::Content => {
                self.taken = self.taken.saturating_add(as_u64(frame.payload.len()));
                if self.taken > self.limit {
                    return Err(protocol("more content than was asked for"));
                }
                if frame.payload.is_empty() {
                    return Err(protocol("a piece of content with nothing in it"));
                }
                Ok(Some(frame.payload))
            }
            Tag::Message => match answer(&frame)? {
                FileAnswer::Done => {
                    self.over = true;
                    Ok(None)
                }
                other => Err(unexpected(other)),
            },
            Tag::Stdout | Tag::Stderr => Err(protocol("a stream in a file's content")),
        }
    }

    /// All that is left.
    ///
    /// # Errors
    /// As of [`FileContent::next`].
    pub async fn whole(mut self) -> Result<Bytes, FileFailure> {
        // A small file is one frame: handed on as it came.
        let Some(first) = self.next().await? else {
            return Ok(Bytes::new());
        };
        let Some(second) = self.next().await? else {
            return Ok(first);
        };
        let mut content = BytesMut::from(first);
        content.extend_from_slice(&second);
        while let Some(more) = self.next().await? {
            content.extend_from_slice(&more);
        }
        Ok(content.freeze())
    }
}
