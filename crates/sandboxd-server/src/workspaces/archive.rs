//! Reads stored workspaces for the operator, whether a session exists or not. Nothing is started and nothing changed.
//!
//! Paths are relative to the work directory; one below the work directory's own path means the same file, and any other
//! absolute path is taken inside the workspace. No link is followed, none is listed.

use super::{HostFiles, Root, Workspaces};
use crate::id::SessionId;
use crate::sessions::ArchiveError;
use bytes::Bytes;
use sandboxd_files::{Part, Wanted};
use sandboxd_protocol::message::{FileError, HandBack, Kind};
use std::io;
use std::sync::Arc;

impl Workspaces {
    /// One directory, read only as far as wanted; directories first, then by name. Links and special files are left out.
    ///
    /// # Errors
    /// [`ArchiveError`].
    pub async fn archive_list(
        self,
        id: SessionId,
        path: String,
        work_dir: String,
        wanted: Wanted,
    ) -> Result<Part, ArchiveError> {
        let root = self.root.ok_or(ArchiveError::NoRoot)?;
        on_a_thread(path.clone(), move || {
            let (files, inner) = open(&root, &id, &path, &work_dir)?;
            let mut part = files.part(&inner, wanted).map_err(|e| refuse(&path, e))?;
            // By name they are sorted already.
            part.entries
                .sort_by_key(|entry| entry.kind != Kind::Directory);
            Ok(part)
        })
        .await
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
        let root = self.root.ok_or(ArchiveError::NoRoot)?;
        on_a_thread(path.clone(), move || {
            let (files, inner) = open(&root, &id, &path, &work_dir)?;
            let refused = |error| refuse(&path, error);
            // The native rule hands a large file back without its size; here it is told.
            let entry = files.stat(&inner).map_err(refused)?;
            if entry.kind == Kind::File && entry.size > limit {
                let size = entry.size;
                return Err(ArchiveError::TooLarge { size, limit });
            }
            match files.read(&inner, limit) {
                Err(FileError::HandBack(HandBack::TooLarge)) => Err(ArchiveError::TooLarge {
                    size: limit.saturating_add(1),
                    limit,
                }),
                other => other.map_err(refused),
            }
        })
        .await
    }
}

fn open(
    root: &Arc<Root>,
    id: &SessionId,
    path: &str,
    work_dir: &str,
) -> Result<(HostFiles, String), ArchiveError> {
    let inner = inner_path(path, work_dir)?;
    let dir = root.files(id).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            ArchiveError::NoWorkspace(id.clone())
        }
        _ => ArchiveError::Failed {
            path: path.to_owned(),
            cause: error.to_string(),
        },
    })?;
    Ok((HostFiles::new(dir, None), inner))
}

/// A path as the archive takes it, relative to the workspace.
fn inner_path(path: &str, work_dir: &str) -> Result<String, ArchiveError> {
    let plain = |text: &str| -> Vec<String> {
        let parts = text.split('/').filter(|part| !matches!(*part, "" | "."));
        parts.map(str::to_owned).collect()
    };
    let parts = plain(path);
    if path.contains('\0') || parts.iter().any(|part| part == "..") {
        return Err(ArchiveError::Outside(path.to_owned()));
    }
    // Two slashes at the start are a place of their own in POSIX paths, and not where the work directory is.
    let below = (path.starts_with('/') && !path.starts_with("//"))
        .then(|| parts.strip_prefix(plain(work_dir).as_slice()))
        .flatten();
    Ok(below.unwrap_or(&parts).join("/"))
}

fn refuse(path: &str, error: FileError) -> ArchiveError {
    let path = path.to_owned();
    match error {
        FileError::HandBack(HandBack::Link | HandBack::Outside) => ArchiveError::Outside(path),
        FileError::NotFound | FileError::HandBack(HandBack::Special | HandBack::NameTooLong) => {
            ArchiveError::NotFound(path)
        }
        FileError::NotADirectory => ArchiveError::NotADirectory(path),
        FileError::IsADirectory => ArchiveError::IsADirectory(path),
        other => ArchiveError::Failed {
            path,
            cause: other.to_string(),
        },
    }
}

async fn on_a_thread<T: Send + 'static>(
    path: String,
    work: impl FnOnce() -> Result<T, ArchiveError> + Send + 'static,
) -> Result<T, ArchiveError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(ArchiveError::Failed {
            path,
            cause: error.to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_always_inside_the_workspace() {
        let inner = |path| inner_path(path, "/workspace");
        for root in ["", ".", "/", "/workspace", "/workspace/"] {
            assert_eq!(inner(root).unwrap(), "", "{root:?}");
        }
        assert_eq!(inner("a//b/./c").unwrap(), "a/b/c");
        assert_eq!(inner("/workspace/a").unwrap(), "a");
        assert_eq!(inner("/etc/passwd").unwrap(), "etc/passwd");
        assert_eq!(inner("workspace/a").unwrap(), "workspace/a");
        assert_eq!(inner("//workspace/a").unwrap(), "workspace/a");
        for out in ["..", "a/../b", "/workspace/..", "a\0b"] {
            let refused = inner(out).unwrap_err();
            assert!(refused.to_string().contains("outside the workspace"));
        }
    }
}
