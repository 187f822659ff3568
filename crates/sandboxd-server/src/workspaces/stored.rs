//! The stored workspaces of a root, as they are seen from beside the service.

use super::{FILES, modified, open_dir};
use crate::id::SessionId;
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where one session's files are stored.
#[derive(Debug)]
pub struct Stored {
    /// Whose.
    pub id: SessionId,
    /// The directory with all of it.
    pub path: PathBuf,
    /// The same, open.
    pub directory: OwnedFd,
    /// When it was last used, since the Unix epoch.
    pub used: Duration,
}

/// Every stored workspace, by its id; none where the root is not there. What is no session's is nobody's business.
///
/// # Errors
/// What the system says about the root.
pub fn stored(root: &Path) -> io::Result<Vec<Stored>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = match rustix::fs::open(root, flags, Mode::empty()) {
        Err(rustix::io::Errno::NOENT) => return Ok(Vec::new()),
        opened => opened?,
    };
    let mut all = Vec::new();
    for entry in rustix::fs::Dir::read_from(&top)? {
        let entry = entry?;
        let name = entry.file_name().to_str().ok();
        let Some(id) = name.and_then(|name| SessionId::parse(name).ok()) else {
            continue;
        };
        // One that vanishes meanwhile, or that is none, is passed over.
        let Ok(directory) = open_dir(&top, id.as_str()) else {
            continue;
        };
        if open_dir(&directory, FILES).is_err() {
            continue;
        }
        all.push(Stored {
            used: modified(&directory)?,
            path: root.join(id.as_str()),
            directory,
            id,
        });
    }
    all.sort_by(|a, b| a.id.as_str().cmp(b.id.as_str()));
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_a_sessions_is_listed() {
        let root = tempfile::tempdir().unwrap();
        let at = root.path();
        for name in ["b/workspace", "a/workspace", "no files", "other/things"] {
            std::fs::create_dir_all(at.join(name)).unwrap();
        }
        std::fs::write(at.join("file"), b"").unwrap();
        std::os::unix::fs::symlink("a", at.join("link")).unwrap();
        let all = stored(at).unwrap();
        let ids: Vec<&str> = all.iter().map(|stored| stored.id.as_str()).collect();
        assert_eq!(ids, ["a", "b"]);
        assert_eq!(all[0].path, at.join("a"));
        assert!(stored(&at.join("nowhere")).unwrap().is_empty());
        assert!(stored(&at.join("file")).is_err());
    }
}
