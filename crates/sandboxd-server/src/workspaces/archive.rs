//! Reads stored workspaces for the operator.

use super::Workspaces;
use crate::id::SessionId;
use crate::sessions::ArchiveError;
use bytes::Bytes;
use sandboxd_protocol::message::Entry;

impl Workspaces {
    /// One directory; directories first, then by name. Links are left out.
    ///
    /// # Errors
    /// [`ArchiveError`].
    pub async fn archive_list(
        self,
        id: SessionId,
        path: String,
        work_dir: String,
    ) -> Result<Vec<Entry>, ArchiveError> {
        let _ = (id, path, work_dir);
        Err(ArchiveError::NoRoot)
    }

    /// One file, at most `limit` bytes.
    ///
    /// # Errors
    /// [`ArchiveError`].
    pub async fn archive_read(
        self,
        id: SessionId,
        path: String,
        work_dir: String,
        limit: u64,
    ) -> Result<Bytes, ArchiveError> {
        let _ = (id, path, work_dir, limit);
        Err(ArchiveError::NoRoot)
    }
}
