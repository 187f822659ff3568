//! Stored files on the host: `{workspace_root}/{session id}/workspace`, reached by directory descriptor and never by
//! name.
//!
//! - [`Workspaces`]: makes, finds, ages and removes them, and walks them for a session without a sandbox.
//! - `archive`: reads them for the operator, whether a session exists or not.
//! - `host_files`: the native file rule on one directory, by the descriptor walk; `content`: a large file of it, in pieces.
//! - [`mod@stored`]: what there is, seen from beside the service.
//!
//! Each operation runs on a thread of its own; what it holds is held until that thread is done, also when nobody waits
//! for it any more.

mod archive;
mod content;
mod host_files;
mod stored;

pub(crate) use content::StoredContent;
pub(crate) use host_files::HostFiles;
pub use stored::{Stored, stored};

use crate::id::SessionId;
use crate::limits::{CONTENT_PIECES_BYTES_MIN, LIST_ENTRIES_MAX};
use crate::sessions::{Content, Found, NativeDone, NativeError, NativeFile, Origin};
use host_files::to_io;
use rustix::fs::{Access, AtFlags, Mode, OFlags, Timestamps, UTIME_NOW, openat};
use rustix::io::Errno;
use sandboxd_files::{NewFiles, Removal};
use sandboxd_protocol::message::{FileError, HandBack};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The directory with the files, beside which a session's other belongings may come to lie.
const FILES: &str = "workspace";
/// Mode of a file that a native write makes, before the umask.
const NEW_FILE_MODE: u32 = 0o666;

/// All stored workspaces; cheap to clone.
#[derive(Debug, Clone)]
pub struct Workspaces {
    root: Option<Arc<Root>>,
}

#[derive(Debug)]
struct Root {
    path: PathBuf,
    dir: OwnedFd,
    /// Who owns what is made here; nobody in particular unless the daemon is root.
    owner: Option<u32>,
}

/// Why a workspace could not be made or removed.
#[derive(Debug, thiserror::Error)]
#[error("workspace {id}: {cause}")]
pub struct WorkspaceError {
    /// Whose.
    pub id: SessionId,
    /// What the system said.
    pub cause: io::Error,
}

impl Workspaces {
    /// Opens the root, made if need be. Without a root nothing is stored. With `in_range` what a daemon makes that is root
    /// belongs to the storage range, as the backend's sandboxes see it; otherwise to the daemon.
    ///
    /// # Errors
    /// What the system says about the root.
    pub async fn open(root: Option<PathBuf>, in_range: bool) -> io::Result<Self> {
        let Some(path) = root else {
            return Ok(Self { root: None });
        };
        let opened = on_a_thread(move || Root::open(&path, in_range)).await?;
        Ok(Self {
            root: Some(Arc::new(opened)),
        })
    }

    /// Whether anything is stored.
    pub fn is_on(&self) -> bool {
        self.root.is_some()
    }

    /// Moves the times of all workspaces, since the clock by which they were taken was set, `forward` or back.
    ///
    /// # Errors
    /// What the system says about the root; a workspace that cannot be changed keeps its time.
    pub async fn shift(self, forward: bool, by: Duration) -> io::Result<()> {
        let Some(root) = self.root else {
            return Ok(());
        };
        on_a_thread(move || root.shift(forward, by)).await
    }

    /// Whether the root is still where it was, and can be written to.
    ///
    /// # Errors
    /// What the system says; another directory in the root's place is one, too.
    pub async fn check(self) -> io::Result<()> {
        let Some(root) = self.root else {
            return Ok(());
        };
        on_a_thread(move || root.check()).await
    }

    /// Makes the workspace of a session, if it is not there, and marks it as used now. Answers with its path for the
    /// backend, or `None` where nothing is stored.
    ///
    /// # Errors
    /// What the system says.
    pub async fn make(self, id: SessionId) -> Result<Option<PathBuf>, WorkspaceError> {
        let Some(root) = self.root else {
            return Ok(None);
        };
        let made = {
            let id = id.clone();
            on_a_thread(move || root.make(&id)).await
        };
        made.map(Some).map_err(|cause| WorkspaceError { id, cause })
    }

    /// As [`Workspaces::make`] for a session that has been open before: its workspace has to be there, since an empty one
    /// in its place would look as if the files had never been.
    ///
    /// # Errors
    /// What the system says, also of a workspace that is gone.
    pub async fn find(self, id: SessionId) -> Result<Option<PathBuf>, WorkspaceError> {
        let Some(root) = self.root else {
            return Ok(None);
        };
        let found = {
            let id = id.clone();
            on_a_thread(move || root.find(&id)).await
        };
        found
            .map(Some)
            .map_err(|cause| WorkspaceError { id, cause })
    }

    /// Marks a workspace as used now; none there is fine.
    pub async fn touch(self, id: SessionId) {
        if let Some(root) = self.root {
            let touched = on_a_thread(move || touch(&root.home(&id)?)).await;
            if let Err(error) = touched {
                tracing::debug!(%error, "a workspace was not marked as used");
            }
        }
    }

    /// Whether there is a workspace of this id.
    pub async fn exists(self, id: SessionId) -> bool {
        let Some(root) = self.root else {
            return false;
        };
        on_a_thread(move || root.files(&id)).await.is_ok()
    }

    /// Removes everything of this id; nothing there is fine. With `unless_used_since`, one that was used later is left
    /// alone. `held` is let go when the removal is really over.
    ///
    /// # Errors
    /// What the system says about the first thing that could not be removed.
    pub async fn purge<H: Send + 'static>(
        self,
        id: SessionId,
        unless_used_since: Option<Duration>,
        held: H,
    ) -> Result<(), WorkspaceError> {
        let Some(root) = self.root else {
            return Ok(());
        };
        let purged = {
            let id = id.clone();
            on_a_thread(move || {
                let purged = root.purge(&id, unless_used_since);
                drop(held);
                purged
            })
            .await
        };
        purged.map_err(|cause| WorkspaceError { id, cause })
    }

    /// The workspaces that were last used before `oldest` (since the Unix epoch). Plain files under the root, and
    /// directories whose name is no session id, are nobody's business.
    ///
    /// # Errors
    /// What the system says about the root.
    pub async fn untouched_since(self, oldest: Duration) -> io::Result<Vec<SessionId>> {
        let Some(root) = self.root else {
            return Ok(Vec::new());
        };
        on_a_thread(move || root.untouched_since(oldest)).await
    }

    /// A native file operation on the stored files. `inner` is relative to the work directory.
    ///
    /// # Errors
    /// The contract's table of answers, as a guest would give them.
    pub(crate) async fn native(
        self,
        id: SessionId,
        inner: String,
        op: NativeFile,
        limit: u64,
    ) -> Result<Found, NativeError> {
        let root = self.root.ok_or(NativeError::Off)?;
        let walk = tokio::task::spawn_blocking(move || {
            let files = root.files(&id).map_err(|_| FileError::NotFound)?;
            let files = HostFiles::new(files, root.owner);
            Ok::<_, FileError>(Found::Done(match op {
                NativeFile::Read => {
                    let mut file = files.begin_read(&inner, limit)?;
                    if file.entry().size >= CONTENT_PIECES_BYTES_MIN {
                        return Ok(Found::Large(Origin::Stored(StoredContent::new(file))));
                    }
                    NativeDone::Content(Content::Whole(file.rest()?.into()))
                }
                NativeFile::Write(content) => {
                    files.write(&inner, &content, NEW_FILE_MODE, true)?;
                    NativeDone::Done
                }
                NativeFile::Stat => NativeDone::Entry(files.stat(&inner)?),
                NativeFile::List => NativeDone::Entries(files.list(&inner, LIST_ENTRIES_MAX)?),
                NativeFile::RealPath => {
                    let path = String::from_utf8(files.real_path(&inner)?);
                    NativeDone::Path(path.map_err(|_| FileError::HandBack(HandBack::Os))?)
                }
                NativeFile::MakeDir => {
                    files.make_dir(&inner)?;
                    NativeDone::Done
                }
                NativeFile::Remove => {
                    files.remove(&inner)?;
                    NativeDone::Done
                }
            }))
        });
        let walked = walk.await.map_err(|_| FileError::HandBack(HandBack::Os))?;
        Ok(walked?)
    }
}

impl Root {
    fn open(path: &Path, in_range: bool) -> io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt as _;
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        match std::fs::DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let path = path.canonicalize()?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(&path, flags, Mode::empty())?;
        let in_range = in_range && rustix::process::geteuid().is_root();
        let owner = in_range.then_some(crate::limits::STORAGE_OWNER);
        Ok(Self { path, dir, owner })
    }

    fn check(&self) -> io::Result<()> {
        let (held, named) = (rustix::fs::fstat(&self.dir)?, rustix::fs::stat(&self.path)?);
        if (held.st_dev, held.st_ino) != (named.st_dev, named.st_ino) {
            return Err(io::Error::other("another directory is in its place"));
        }
        Ok(rustix::fs::access(
            &self.path,
            Access::WRITE_OK | Access::EXEC_OK,
        )?)
    }

    /// `{root}/{id}`, 0700 and the daemon's own, and in it the files, which belong to the sandbox.
    fn make(&self, id: &SessionId) -> io::Result<PathBuf> {
        let private = Mode::from_raw_mode(0o700);
        make_dir(&self.dir, id.as_str(), private)?;
        let home = open_dir(&self.dir, id.as_str())?;
        if make_dir(&home, FILES, Mode::from_raw_mode(0o755))? {
            let files = open_dir(&home, FILES)?;
            rustix::fs::fchmod(&files, Mode::from_raw_mode(0o755))?;
            if let Some(owner) = self.owner {
                let (uid, gid) = ids(owner);
                rustix::fs::fchown(&files, Some(uid), Some(gid))?;
            }
        } else {
            open_dir(&home, FILES)?;
        }
        touch(&home)?;
        Ok(self.path.join(id.as_str()).join(FILES))
    }

    fn find(&self, id: &SessionId) -> io::Result<PathBuf> {
        let gone = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => io::Error::new(
                io::ErrorKind::NotFound,
                "the stored files are gone; delete the session to begin anew",
            ),
            _ => error,
        };
        let home = self.home(id).map_err(gone)?;
        open_dir(&home, FILES).map_err(gone)?;
        touch(&home)?;
        Ok(self.path.join(id.as_str()).join(FILES))
    }

    fn home(&self, id: &SessionId) -> io::Result<OwnedFd> {
        open_dir(&self.dir, id.as_str())
    }

    fn files(&self, id: &SessionId) -> io::Result<OwnedFd> {
        open_dir(&self.home(id)?, FILES)
    }

    fn purge(&self, id: &SessionId, unless_used_since: Option<Duration>) -> io::Result<()> {
        if let Some(oldest) = unless_used_since {
            match self.home(id) {
                Ok(home) if modified(&home)? >= oldest => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        let files = sandboxd_files::Files::beneath(self.dir.try_clone()?, NewFiles::default());
        let remove = || match files.remove(id.as_str().as_bytes()).map(Removal::finish) {
            Ok(Ok(())) | Err(FileError::NotFound) => Ok(()),
            Ok(Err(error)) | Err(error) => Err(error),
        };
        let removed = match remove() {
            Err(FileError::HandBack(HandBack::Denied) | FileError::Denied) => {
                // An ordinary user's own, closed to its owner: opened up on the way, at any depth.
                return Ok(sandboxd_jail::remains::remove_tree(
                    &self.path.join(id.as_str()),
                )?);
            }
            other => other,
        };
        removed.map_err(to_io)
    }

    fn shift(&self, forward: bool, by: Duration) -> io::Result<()> {
        let seconds = i64::try_from(by.as_secs()).unwrap_or(i64::MAX);
        for entry in rustix::fs::Dir::read_from(&self.dir)? {
            let Ok(entry) = entry else { break };
            let name = entry.file_name().to_str().ok();
            let Some(id) = name.and_then(|name| SessionId::parse(name).ok()) else {
                continue;
            };
            let Ok(home) = self.home(&id) else { continue };
            let Ok(stat) = rustix::fs::fstat(&home) else {
                continue;
            };
            let moved = if forward {
                stat.st_mtime.saturating_add(seconds)
            } else {
                stat.st_mtime.saturating_sub(seconds).max(0)
            };
            let moved = rustix::fs::Timespec {
                tv_sec: moved,
                tv_nsec: 0,
            };
            let times = Timestamps {
                last_access: moved,
                last_modification: moved,
            };
            if let Err(error) = rustix::fs::futimens(&home, &times) {
                tracing::warn!(workspace = %id, %error, "it keeps the time of the old clock");
            }
        }
        Ok(())
    }

    fn untouched_since(&self, oldest: Duration) -> io::Result<Vec<SessionId>> {
        let mut old = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.dir)? {
            let Ok(entry) = entry else { break };
            let name = entry.file_name().to_str().ok();
            let Some(id) = name.and_then(|name| SessionId::parse(name).ok()) else {
                continue;
            };
            // One that vanishes meanwhile, or that is no directory, stops nothing.
            let Ok(home) = self.home(&id) else { continue };
            if modified(&home).is_ok_and(|modified| modified < oldest) {
                old.push(id);
            }
        }
        Ok(old)
    }
}

/// Whether it was made now.
fn make_dir(parent: &OwnedFd, name: &str, mode: Mode) -> io::Result<bool> {
    match rustix::fs::mkdirat(parent, name, mode) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn open_dir(parent: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(parent, name, flags, Mode::empty())?)
}

fn ids(owner: u32) -> (rustix::fs::Uid, rustix::fs::Gid) {
    (
        rustix::fs::Uid::from_raw(owner),
        rustix::fs::Gid::from_raw(owner),
    )
}

fn touch(dir: &OwnedFd) -> io::Result<()> {
    let now = rustix::fs::Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW,
    };
    let times = Timestamps {
        last_access: now,
        last_modification: now,
    };
    Ok(rustix::fs::futimens(dir, &times)?)
}

/// Since the Unix epoch.
fn modified(dir: &OwnedFd) -> io::Result<Duration> {
    let stat = rustix::fs::statat(dir, "", AtFlags::EMPTY_PATH)?;
    Ok(Duration::from_secs(
        u64::try_from(stat.st_mtime).unwrap_or(0),
    ))
}

/// Runs blocking work on a thread for such, which a dropped future does not stop.
async fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(io::Error::other(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn times_follow_a_clock_that_is_set_so_that_nothing_is_older_for_it() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().join("workspaces");
        let workspaces = Workspaces::open(Some(root.clone()), true).await.unwrap();
        let id = SessionId::parse("a").unwrap();
        workspaces.clone().make(id.clone()).await.unwrap();
        std::fs::create_dir(root.join("not an id")).unwrap();
        let made = std::fs::metadata(root.join("a")).unwrap();
        let made = modified_secs(&made);
        let days = Duration::from_secs(3 * 24 * 3_600);
        let old = async |oldest: u64| {
            let oldest = Duration::from_secs(oldest);
            workspaces.clone().untouched_since(oldest).await.unwrap()
        };
        assert_eq!(old(made).await, []);
        workspaces.clone().shift(true, days).await.unwrap();
        assert_eq!(old(made + days.as_secs()).await, []);
        let later = made + days.as_secs() + 1;
        assert_eq!(old(later).await, std::slice::from_ref(&id));
        workspaces.clone().shift(false, days).await.unwrap();
        assert_eq!(old(made).await, []);
        assert_eq!(old(made + 1).await, [id]);
        let none = Workspaces::open(None, true).await.unwrap();
        none.shift(true, days).await.unwrap();
    }

    fn modified_secs(metadata: &std::fs::Metadata) -> u64 {
        use std::os::unix::fs::MetadataExt as _;
        u64::try_from(metadata.mtime()).unwrap()
    }
}
