//! Removes a whole tree by descriptor. No link is followed, however deep the tree is only a few descriptors are open,
//! and a directory that forbids itself to its owner is opened up first.

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;

/// Levels that are walked down; what lies deeper is first moved up to the top.
const LEVELS_MAX: usize = 32;
/// Times that the top is gone through; each takes away [`LEVELS_MAX`] levels.
const PASSES_MAX: usize = 100_000;

/// Removes `name` below `parent`, whatever it is. Nothing there is fine.
pub(super) fn remove(parent: &OwnedFd, name: &str) -> io::Result<()> {
    let name = CString::new(name)?;
    match unlinkat(parent, name.as_c_str(), AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    let top = open(parent, &name)?;
    let mut moved = 0_u64;
    for _ in 0..PASSES_MAX {
        if empty(&top, &top, LEVELS_MAX, &mut moved)? {
            unlinkat(parent, name.as_c_str(), AtFlags::REMOVEDIR)?;
            return Ok(());
        }
    }
    Err(io::Error::other("the tree does not come to an end"))
}

fn open(parent: &OwnedFd, name: &CStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(parent, name, flags, Mode::empty()) {
        Err(Errno::ACCESS) => {
            rustix::fs::chmodat(parent, name, Mode::from_raw_mode(0o700), AtFlags::empty())?;
            Ok(openat(parent, name, flags, Mode::empty())?)
        }
        other => Ok(other?),
    }
}

/// Takes everything out of `dir`; answers false where something was moved up to `top` instead.
fn empty(dir: &OwnedFd, top: &OwnedFd, levels: usize, moved: &mut u64) -> io::Result<bool> {
    let mut complete = true;
    let mut opened_up = false;
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let mut open_up = || -> io::Result<()> {
            if !opened_up {
                opened_up = true;
                rustix::fs::fchmod(dir, Mode::from_raw_mode(0o700))?;
            }
            Ok(())
        };
        if entry.file_type() != FileType::Directory {
            match unlinkat(dir, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => continue,
                Err(Errno::ACCESS) => {
                    open_up()?;
                    unlinkat(dir, name, AtFlags::empty())?;
                    continue;
                }
                // A file system that does not tell types.
                Err(Errno::ISDIR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if levels == 0 {
            *moved += 1;
            let aside = format!(".removed-{moved}");
            renameat(dir, name, top, aside.as_str())?;
            complete = false;
            continue;
        }
        let below = match open(dir, name) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                open_up()?;
                open(dir, name)?
            }
            other => other?,
        };
        complete &= empty(&below, top, levels - 1, moved)?;
        match unlinkat(dir, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::ACCESS) => {
                open_up()?;
                unlinkat(dir, name, AtFlags::REMOVEDIR)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(complete)
}
