//! Whose files a workspace holds, on disk and inside.
//!
//! A managed workspace's files belong to the storage range, the same for all sessions, so that none of them is host root's
//! or any host user's; a mount maps that range to the sandbox's own. A tree that is not the range's yet (root's, another
//! service's) is shifted once, by descriptor, and a marker outside the directory that clients see remembers it. What root
//! on the host puts there later is shown as a user of its own that root inside may remove.
//!
//! A directory that is a user's own stays that user's: its owner is root inside, or the user of runs.

use super::users::{COUNT, STORAGE_FIRST};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use sandboxd_jail::plan::{Extent, Owners};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Ends the name of the file beside the workspace that says to which range its files belong.
const MARKER: &str = "owner-range";
/// What the contract calls a session's own directory in its parent, which is then no other's.
const WORKSPACE: &str = "workspace";
/// Deepest tree that is shifted; each level costs one descriptor.
const DEPTH_MAX: usize = 512;

/// Why a workspace cannot be used.
#[derive(Debug, thiserror::Error)]
pub(in crate::backends) enum WorkspaceError {
    /// Not there, or no directory.
    #[error("the workspace {path}: {cause}")]
    Open {
        /// Where.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// Owners could not be changed.
    #[error("changing the owner of files in the workspace {path}: {cause}")]
    Shift {
        /// Where.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// A tree too deep to walk.
    #[error("the workspace {path} is more than {DEPTH_MAX} directories deep")]
    Deep {
        /// Where.
        path: PathBuf,
    },
}

/// Opens a workspace. No component of what lies below it is looked at.
pub(in crate::backends) fn open(path: &Path) -> Result<OwnedFd, WorkspaceError> {
    rustix::fs::open(
        path,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(|errno| WorkspaceError::Open {
        path: path.to_owned(),
        cause: errno.into(),
    })
}

/// Makes a managed workspace belong to the range that begins at `first`, and its top directory to the user of runs.
pub(super) fn adopt(
    path: &Path,
    directory: &OwnedFd,
    first: u32,
    user: u32,
) -> Result<(), WorkspaceError> {
    let failed = |cause: io::Error| WorkspaceError::Shift {
        path: path.to_owned(),
        cause,
    };
    let parent = path.parent().unwrap_or(path);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name == WORKSPACE {
        super::instance::close_to_others(parent).map_err(failed)?;
    }
    let status = rustix::fs::fstat(directory).map_err(|errno| failed(errno.into()))?;
    // Another directory of the same name is another tree.
    let mark = format!("{first} {}", status.st_ino);
    let marker = parent.join(format!(".{name}.{MARKER}"));
    if fs::read_to_string(&marker)
        .ok()
        .is_none_or(|text| text.trim() != mark)
    {
        match shift(directory, |id| moved(id, first)) {
            Err(Errno::LOOP) => {
                return Err(WorkspaceError::Deep {
                    path: path.to_owned(),
                });
            }
            other => other.map_err(|errno| failed(errno.into()))?,
        }
        fs::write(&marker, mark).map_err(failed)?;
    }
    let wanted = first.saturating_add(user);
    let status = rustix::fs::fstat(directory).map_err(|errno| failed(errno.into()))?;
    if (status.st_uid, status.st_gid) != (wanted, wanted) && (user != 0 || status.st_uid == 0) {
        let (uid, gid) = (Uid::from_raw(wanted), Gid::from_raw(wanted));
        rustix::fs::fchown(directory, Some(uid), Some(gid))
            .map_err(|errno| failed(errno.into()))?;
    }
    Ok(())
}

/// Takes a managed workspace out of the storage range, where this backend put it once: each file gets the id on disk that
/// it has inside. Its top directory is given to the user of runs.
pub(in crate::backends) fn give_back(
    path: &Path,
    directory: &OwnedFd,
    user: u32,
) -> Result<(), WorkspaceError> {
    let failed = |cause: io::Error| WorkspaceError::Shift {
        path: path.to_owned(),
        cause,
    };
    let parent = path.parent().unwrap_or(path);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name == WORKSPACE {
        super::instance::close_to_others(parent).map_err(failed)?;
    }
    let marker = parent.join(format!(".{name}.{MARKER}"));
    let status = rustix::fs::fstat(directory).map_err(|errno| failed(errno.into()))?;
    let was_shifted = marker.exists();
    if was_shifted || status.st_uid >= STORAGE_FIRST {
        match shift(directory, outside) {
            Err(Errno::LOOP) => {
                return Err(WorkspaceError::Deep {
                    path: path.to_owned(),
                });
            }
            other => other.map_err(|errno| failed(errno.into()))?,
        }
        if was_shifted {
            fs::remove_file(&marker).map_err(failed)?;
        }
    }
    let status = rustix::fs::fstat(directory).map_err(|errno| failed(errno.into()))?;
    if status.st_uid != user && user != 0 {
        rustix::fs::fchown(directory, Some(Uid::from_raw(user)), None)
            .map_err(|errno| failed(errno.into()))?;
    }
    Ok(())
}

/// Gives every file of a tree the id in the range that it had outside of one: 0 becomes the first, 1000 the 1001st.
fn shift(top: &OwnedFd, moved: impl Fn(u32) -> u32) -> Result<(), Errno> {
    let status = rustix::fs::fstat(top)?;
    give(top, "", &status, &moved)?;
    let mut stack = vec![Dir::read_from(top)?];
    loop {
        let depth = stack.len();
        let Some(directory) = stack.last_mut() else {
            return Ok(());
        };
        let Some(entry) = directory.read() else {
            stack.pop();
            continue;
        };
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let at = directory.fd()?;
        let status = rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW)?;
        give(at, name, &status, &moved)?;
        if rustix::fs::FileType::from_raw_mode(status.st_mode).is_dir() {
            if depth >= DEPTH_MAX {
                return Err(Errno::LOOP);
            }
            let below = rustix::fs::openat2(
                at,
                name,
                OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
                Mode::empty(),
                ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV,
            )?;
            stack.push(Dir::new(below)?);
        }
    }
}

fn give<P: rustix::path::Arg>(
    at: impl AsFd,
    name: P,
    status: &rustix::fs::Stat,
    moved: &impl Fn(u32) -> u32,
) -> Result<(), Errno> {
    let (uid, gid) = (moved(status.st_uid), moved(status.st_gid));
    if (uid, gid) == (status.st_uid, status.st_gid) {
        return Ok(());
    }
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
    rustix::fs::chownat(
        at,
        name,
        Some(Uid::from_raw(uid)),
        Some(Gid::from_raw(gid)),
        flags,
    )
}

/// An id in the wanted range: one that is there stays, one of another range of ours moves with its place in it.
fn moved(id: u32, first: u32) -> u32 {
    if (first..first + COUNT).contains(&id) {
        id
    } else if !(COUNT..STORAGE_FIRST).contains(&id) {
        first + (id % COUNT)
    } else {
        first + COUNT - 2
    }
}

/// An id of the storage range, or of a sandbox's own, as it is inside; any other as it is.
const fn outside(id: u32) -> u32 {
    if id < STORAGE_FIRST { id } else { id % COUNT }
}

/// How a managed workspace's owners are mapped to the range of a sandbox.
pub(super) fn managed_owners(range: u32) -> Owners {
    // The last but two is the id that files of the host's root are shown with.
    let last = COUNT - 3;
    let map = vec![
        Extent {
            on_disk: STORAGE_FIRST,
            seen: range,
            count: last,
        },
        Extent {
            on_disk: 0,
            seen: range + last,
            count: 1,
        },
        Extent {
            on_disk: STORAGE_FIRST + last + 1,
            seen: range + last + 1,
            count: COUNT - last - 1,
        },
    ];
    Owners::Mapped {
        uids: map.clone(),
        gids: map,
    }
}

/// How the owners of a user's own directory are mapped: its owner is the user of runs, everybody else is nobody.
pub(super) fn own_owners(directory: &OwnedFd, range: u32, user: u32) -> Result<Owners, io::Error> {
    let status = rustix::fs::fstat(directory)?;
    let one = |on_disk| {
        vec![Extent {
            on_disk,
            seen: range + user,
            count: 1,
        }]
    };
    Ok(Owners::Mapped {
        uids: one(status.st_uid),
        gids: one(status.st_gid),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_keep_their_place_when_they_move() {
        assert_eq!(moved(0, STORAGE_FIRST), STORAGE_FIRST);
        assert_eq!(moved(1000, STORAGE_FIRST), STORAGE_FIRST + 1000);
        assert_eq!(moved(STORAGE_FIRST + 5, STORAGE_FIRST), STORAGE_FIRST + 5);
        assert_eq!(moved(STORAGE_FIRST + 5, 0x7001_0000), 0x7001_0005);
        // A host user with a large number is nobody inside.
        assert_eq!(moved(1_000_000, STORAGE_FIRST), STORAGE_FIRST + COUNT - 2);
    }

    #[test]
    fn the_three_extents_cover_the_range_and_overlap_nowhere() {
        let Owners::Mapped { uids, .. } = managed_owners(0x7001_0000) else {
            panic!("mapped");
        };
        let seen: u32 = uids.iter().map(|extent| extent.count).sum();
        assert_eq!(seen, COUNT);
        let mut next = 0x7001_0000;
        for extent in &uids {
            assert_eq!(extent.seen, next);
            next += extent.count;
        }
        assert_eq!(uids[1].on_disk, 0);
    }
}
