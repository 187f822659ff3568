//! The native file rule on one stored workspace, done by the descriptor walk in one go per operation.

use bytes::Bytes;
use rustix::io::Errno;
use sandboxd_files::{Files, NewFiles, Part, Reading, Wanted};
use sandboxd_protocol::message::{Entry, FileError};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

/// One directory, and everything below it. Paths are relative to it.
#[derive(Debug, Clone)]
pub(crate) struct HostFiles {
    files: Arc<Files>,
}

impl HostFiles {
    /// Over an open directory; what is made belongs to `owner`, or to the daemon.
    pub(super) fn new(dir: OwnedFd, owner: Option<u32>) -> Self {
        let new = NewFiles {
            owner: owner.map(|owner| (owner, owner)),
            ..NewFiles::default()
        };
        Self {
            files: Arc::new(Files::beneath(dir, new)),
        }
    }

    /// Over a directory by its host path, for a backend in this process.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let files = Files::beneath_path(path, NewFiles::default())?;
        Ok(Self {
            files: Arc::new(files),
        })
    }

    pub(crate) fn read(&self, path: &str, limit: u64) -> Result<Bytes, FileError> {
        let mut reading = self.files.read(path.as_bytes(), limit)?;
        Ok(reading.rest()?.into())
    }

    /// Opens a file to be read in steps.
    pub(super) fn begin_read(&self, path: &str, limit: u64) -> Result<Reading, FileError> {
        self.files.read(path.as_bytes(), limit)
    }

    pub(crate) fn write(
        &self,
        path: &str,
        content: &[u8],
        mode: u32,
        parents: bool,
    ) -> Result<(), FileError> {
        let limit = u64::try_from(content.len()).unwrap_or(u64::MAX);
        let mut writing = self.files.write(path.as_bytes(), mode, parents, limit)?;
        writing.push(content)?;
        writing.finish()
    }

    pub(crate) fn stat(&self, path: &str) -> Result<Entry, FileError> {
        self.files.stat(path.as_bytes())
    }

    pub(crate) fn list(&self, path: &str, limit: u32) -> Result<Vec<Entry>, FileError> {
        self.files.list(path.as_bytes(), limit)
    }

    /// A directory's files and directories, read only as far as wanted.
    pub(super) fn part(&self, path: &str, wanted: Wanted) -> Result<Part, FileError> {
        self.files.part(path.as_bytes(), wanted)
    }

    pub(crate) fn make_dir(&self, path: &str) -> Result<(), FileError> {
        self.files.make_dir(path.as_bytes())
    }

    pub(crate) fn remove(&self, path: &str) -> Result<(), FileError> {
        self.files.remove(path.as_bytes())?.finish()
    }

    pub(crate) fn rename(&self, path: &str, to: &str) -> Result<(), FileError> {
        self.files.rename(path.as_bytes(), to.as_bytes())
    }

    pub(crate) fn real_path(&self, path: &str) -> Result<Vec<u8>, FileError> {
        self.files.real_path(path.as_bytes())
    }
}

/// What a file error is to the daemon itself.
pub(super) fn to_io(error: FileError) -> io::Error {
    let errno = match &error {
        FileError::NotFound => Errno::NOENT,
        FileError::Denied => Errno::ACCESS,
        FileError::NoSpace => Errno::NOSPC,
        FileError::Os(raw) => Errno::from_raw_os_error(*raw),
        _ => return io::Error::other(error),
    };
    errno.into()
}
