//! Opens up directories that forbid themselves to their owner, so that a tree can be removed. Root never needs it.

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RawMode, chmodat, openat, statat};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Levels that are walked down; each costs one descriptor.
const LEVELS_MAX: usize = 128;
/// What the owner of a directory needs to empty it.
const OWNERS: RawMode = 0o700;

/// Gives the owner every directory of a tree back. No link is followed.
///
/// # Errors
/// What the system says; a tree that is too deep to be walked.
pub(super) fn unlock(parent: &OwnedFd, name: &CStr) -> io::Result<()> {
    unlock_below(parent.as_fd(), name, LEVELS_MAX)
}

fn unlock_below(parent: BorrowedFd<'_>, name: &CStr, levels: usize) -> io::Result<()> {
    if levels == 0 {
        return Err(io::Error::other("the tree is too deep to be unlocked"));
    }
    let stat = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Ok(());
    }
    if stat.st_mode & OWNERS != OWNERS {
        // Nobody else writes here: the session is closed.
        let mode = Mode::from_raw_mode((stat.st_mode & 0o7777) | OWNERS);
        chmodat(parent, name, mode, AtFlags::empty())?;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = openat(parent, name, flags, Mode::empty())?;
    for entry in Dir::read_from(&dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let may_be_one = matches!(entry.file_type(), FileType::Directory | FileType::Unknown);
        if may_be_one && name != c"." && name != c".." {
            unlock_below(dir.as_fd(), name, levels - 1)?;
        }
    }
    Ok(())
}
