//! How much is stored below a directory, and whatever else has to look at all of it: a walk from descriptor to descriptor,
//! over trees that untrusted programs change meanwhile.
//!
//! It follows no link, crosses no mount, and holds few descriptors however deep a tree is: beyond some levels it returns by
//! `..`, and looks whether that is where it came from. What moves about under it makes the count wrong, never the walk
//! leave the tree: a directory that has been moved ends the walk, and what was counted until then stands.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::CStr;

/// Levels that are kept open; deeper ones are returned to by `..`.
const OPEN_LEVELS: usize = 64;
/// Bytes of names of directories that are yet to be walked.
const NAMES_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes that a block of `st_blocks` stands for.
const BLOCK_BYTES: u64 = 512;

/// What is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stored {
    /// Bytes on disk, as the file system counts them.
    pub bytes: u64,
    /// Files, directories and everything else with an inode.
    pub files: u64,
}

impl Stored {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            files: self.files.saturating_add(other.files),
        }
    }
}

/// One directory on the way.
struct Level {
    id: (u64, u64),
    /// Names of the directories in it that are yet to be walked, each with a NUL after it.
    names: Vec<u8>,
    directory: Option<OwnedFd>,
}

/// Whether a walk goes on.
pub(super) enum Then {
    /// It does.
    Go,
    /// It has seen enough.
    End,
}

/// What is done with everything that a walk finds: an entry by the directory that it is in and its name there.
type Seen<'a> = dyn FnMut(BorrowedFd<'_>, &CStr, &Stat) -> Then + 'a;

struct Walk<'a> {
    seen: &'a mut Seen<'a>,
    names_bytes: usize,
    ended: bool,
    /// Whether nothing was passed over.
    whole: bool,
}

/// Shows everything below a directory, but not itself. Whether that was all of it: a tree that changes meanwhile may be
/// seen in part, and what cannot be entered is.
pub(super) fn walk<'a>(top: BorrowedFd<'_>, seen: &'a mut Seen<'a>) -> bool {
    let mut walk = Walk {
        seen,
        names_bytes: 0,
        ended: false,
        whole: true,
    };
    walk.all(top).is_ok() && walk.whole
}

/// Counts what is below a directory, itself included, up to `files_max` files.
pub(super) fn count(top: BorrowedFd<'_>, files_max: u64) -> Stored {
    let mut stored = Stored::default();
    // A directory that is gone or closed holds nothing that could be counted.
    let Ok(status) = rustix::fs::fstat(top) else {
        return stored;
    };
    stored = stored.plus(of(&status));
    // What has several names is counted once.
    let mut linked: HashSet<(u64, u64)> = HashSet::new();
    walk(top, &mut |_, _, status| {
        let is_directory = FileType::from_raw_mode(status.st_mode).is_dir();
        if is_directory || status.st_nlink <= 1 || linked.insert(id(status)) {
            stored = stored.plus(of(status));
        }
        if stored.files >= files_max {
            Then::End
        } else {
            Then::Go
        }
    });
    stored
}

/// What one file stores.
fn of(status: &Stat) -> Stored {
    let blocks = u64::try_from(status.st_blocks).unwrap_or(0);
    Stored {
        bytes: blocks.saturating_mul(BLOCK_BYTES),
        files: 1,
    }
}

fn id(status: &Stat) -> (u64, u64) {
    (status.st_dev, status.st_ino)
}

impl Walk<'_> {
    fn all(&mut self, top: BorrowedFd<'_>) -> Result<(), Errno> {
        let status = rustix::fs::fstat(top)?;
        let mut at = top.try_clone_to_owned().map_err(|_| Errno::MFILE)?;
        let names = self.read(&at)?;
        let mut levels = vec![Level {
            id: id(&status),
            names,
            directory: None,
        }];
        while let Some(level) = levels.last_mut() {
            if self.ended {
                self.whole = false;
                return Ok(());
            }
            let Some(name) = next(&mut level.names) else {
                levels.pop();
                let Some(above) = levels.last_mut() else {
                    return Ok(());
                };
                at = match above.directory.take() {
                    Some(directory) => directory,
                    None => back(&at, above.id)?,
                };
                continue;
            };
            self.names_bytes -= name.len() + 1;
            // It may be gone, closed to us, or another thing by now.
            let Ok((below, status)) = enter(&at, &name) else {
                self.whole = false;
                continue;
            };
            let names = self.read(&below).unwrap_or_else(|_| {
                self.whole = false;
                Vec::new()
            });
            if levels.len() <= OPEN_LEVELS
                && let Some(level) = levels.last_mut()
            {
                level.directory = Some(std::mem::replace(&mut at, below));
            } else {
                at = below;
            }
            levels.push(Level {
                id: id(&status),
                names,
                directory: None,
            });
        }
        Ok(())
    }

    /// Shows everything in one directory; the names of the directories in it.
    fn read(&mut self, directory: &OwnedFd) -> Result<Vec<u8>, Errno> {
        let mut names = Vec::new();
        let mut entries = Dir::read_from(directory)?;
        while let Some(entry) = entries.read() {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            if self.ended {
                break;
            }
            let Ok(status) = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            if let Then::End = (self.seen)(directory.as_fd(), name, &status) {
                self.ended = true;
            }
            let name = name.to_bytes_with_nul();
            if FileType::from_raw_mode(status.st_mode).is_dir() {
                if self.names_bytes + name.len() <= NAMES_BYTES_MAX {
                    self.names_bytes += name.len();
                    names.extend_from_slice(name);
                } else {
                    self.whole = false;
                }
            }
        }
        Ok(names)
    }
}

/// The last name of a list.
fn next(names: &mut Vec<u8>) -> Option<Vec<u8>> {
    names.pop()?;
    let start = names.iter().rposition(|byte| *byte == 0);
    Some(names.split_off(start.map_or(0, |nul| nul + 1)))
}

fn enter(at: &OwnedFd, name: &[u8]) -> Result<(OwnedFd, Stat), Errno> {
    let below = rustix::fs::openat2(
        at,
        name,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV,
    )?;
    let status = rustix::fs::fstat(&below)?;
    Ok((below, status))
}

/// The directory above, if it is still the one that was come from.
fn back(at: &OwnedFd, expected: (u64, u64)) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let above = rustix::fs::openat(at.as_fd(), "..", flags, Mode::empty())?;
    let status = rustix::fs::fstat(&above)?;
    if id(&status) == expected {
        Ok(above)
    } else {
        Err(Errno::XDEV)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    fn counted(path: &Path) -> Stored {
        count(fs::File::open(path).unwrap().as_fd(), u64::MAX)
    }

    #[test]
    fn everything_below_is_counted_once_and_links_are_not_followed() {
        let top = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("big"), vec![1; 1 << 20]).unwrap();
        fs::create_dir_all(top.path().join("a/b/c")).unwrap();
        fs::create_dir_all(top.path().join("d")).unwrap();
        fs::write(top.path().join("a/b/c/file"), vec![1; 100_000]).unwrap();
        fs::hard_link(top.path().join("a/b/c/file"), top.path().join("d/again")).unwrap();
        std::os::unix::fs::symlink(outside.path(), top.path().join("d/out")).unwrap();
        let stored = counted(top.path());
        // Itself, four directories, a file, a link.
        assert_eq!(stored.files, 7);
        assert!((100_000..200_000).contains(&stored.bytes), "{stored:?}");
        assert_eq!(
            count(fs::File::open(top.path()).unwrap().as_fd(), 3).files,
            3
        );
    }

    #[test]
    fn a_deep_tree_is_counted_with_few_descriptors() {
        let top = tempfile::tempdir().unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let mut at: OwnedFd = fs::File::open(top.path()).unwrap().into();
        let depth = 1_500;
        for _ in 0..depth {
            rustix::fs::mkdirat(&at, "x", Mode::from_raw_mode(0o700)).unwrap();
            rustix::fs::mkdirat(&at, "y", Mode::from_raw_mode(0o700)).unwrap();
            at = rustix::fs::openat(&at, "x", flags, Mode::empty()).unwrap();
        }
        let before = fs::read_dir("/proc/self/fd").unwrap().count();
        assert_eq!(counted(top.path()).files, 1 + 2 * depth);
        let after = fs::read_dir("/proc/self/fd").unwrap().count();
        assert!(after <= before + 16, "{before} became {after}");
        sandboxd_jail::remains::remove_tree(&top.path().join("x")).unwrap();
    }

    #[test]
    fn names_come_back_last_first() {
        let mut names = b"one\0two\0three\0".to_vec();
        let mut all = Vec::new();
        while let Some(name) = next(&mut names) {
            all.push(String::from_utf8(name).unwrap());
        }
        assert_eq!(all, ["three", "two", "one"]);
    }

    #[test]
    fn a_way_back_that_leads_elsewhere_ends_the_walk() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir_all(top.path().join("a/b")).unwrap();
        fs::create_dir(top.path().join("c")).unwrap();
        let b: OwnedFd = fs::File::open(top.path().join("a/b")).unwrap().into();
        let status = rustix::fs::stat(top.path().join("a")).unwrap();
        assert!(back(&b, id(&status)).is_ok());
        fs::rename(top.path().join("a/b"), top.path().join("c/b")).unwrap();
        assert_eq!(back(&b, id(&status)).err(), Some(Errno::XDEV));
    }
}
