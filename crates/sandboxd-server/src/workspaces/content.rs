//! A large stored file, read piece by piece, one piece ahead of whoever takes them.

use crate::limits::STORED_PIECE_BYTES;
use bytes::Bytes;
use rustix::io::Errno;
use sandboxd_files::Reading;
use sandboxd_protocol::message::FileError;
use tokio::task::{JoinHandle, spawn_blocking};

/// What a thread gives back: the file, and a piece of it.
type Read = (Reading, Result<Bytes, FileError>);

/// The content of a stored file on its way.
#[derive(Debug)]
pub(crate) struct StoredContent {
    size: u64,
    /// Bytes that no thread was sent for yet.
    ahead: u64,
    file: Option<Reading>,
    /// A thread that reads the next piece; it has one file and one piece, and ends by itself when this is dropped.
    under_way: Option<JoinHandle<Read>>,
}

impl StoredContent {
    pub(super) fn new(file: Reading) -> Self {
        let size = file.entry().size;
        Self {
            size,
            ahead: size,
            file: Some(file),
            under_way: None,
        }
    }

    /// How many bytes the file had when it was opened.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The next bytes, up to the size; `None` where the file ends, or after an error. Cancelling the wait loses nothing.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, FileError> {
        self.send_for_more();
        let Some(under_way) = self.under_way.as_mut() else {
            return Ok(None);
        };
        let joined = under_way.await;
        self.under_way = None;
        let Ok((file, read)) = joined else {
            return Err(FileError::Os(Errno::IO.raw_os_error()));
        };
        let piece = read?;
        if piece.is_empty() {
            return Ok(None);
        }
        let length = u64::try_from(piece.len()).unwrap_or(u64::MAX);
        self.ahead = self.ahead.saturating_sub(length);
        self.file = Some(file);
        self.send_for_more();
        Ok(Some(piece))
    }

    fn send_for_more(&mut self) {
        if self.under_way.is_some() || self.ahead == 0 {
            return;
        }
        let Some(mut file) = self.file.take() else {
            return;
        };
        let room = usize::try_from(self.ahead)
            .map_or(STORED_PIECE_BYTES, |ahead| ahead.min(STORED_PIECE_BYTES));
        self.under_way = Some(spawn_blocking(move || {
            let mut piece = vec![0; room];
            let read = file.next(&mut piece).map(|length| {
                piece.truncate(length);
                piece.into()
            });
            (file, read)
        }));
    }
}
