//! Directories, links and files in a root that nobody vouches for.
//!
//! An image, or a layer that a sandbox wrote, may hold a link where we expect a directory. Every component is opened
//! from its parent's descriptor and never through a link; what is in the way stops the start.

use crate::spawn::on;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use sandboxd_jail::plan::Entry;
use sandboxd_jail::report::{Failure, Step};

/// Makes them in their order.
pub(crate) fn make(top: &OwnedFd, entries: &[Entry]) -> Result<(), Failure> {
    for entry in entries {
        match entry {
            Entry::Directory { path, mode, owner } => owned_directory(top, path, *mode, *owner)
                .map(drop)
                .map_err(on(Step::Entries, path))?,
            Entry::Link { path, target } => {
                link(top, path, target).map_err(on(Step::Entries, path))?;
            }
            Entry::File {
                path,
                content,
                mode,
                replace,
            } => match write(top, path, content, *mode, *replace) {
                // An image that is somebody else's keeps its own: the file makes it nicer, not safer.
                Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) if *replace => {}
                outcome => outcome.map_err(on(Step::Entries, path))?,
            },
        }
    }
    Ok(())
}

/// A directory, made with its parents where it is missing.
pub(crate) fn directory(top: &OwnedFd, path: &str, mode: u32) -> Result<OwnedFd, Errno> {
    owned_directory(top, path, mode, 0)
}

/// A directory, made with its parents where it is missing, and given to somebody if it is made.
pub(crate) fn owned_directory(
    top: &OwnedFd,
    path: &str,
    mode: u32,
    owner: u32,
) -> Result<OwnedFd, Errno> {
    let mut at = top.try_clone().map_err(|_| Errno::MFILE)?;
    let mut parts = components(path)?.peekable();
    while let Some(part) = parts.next() {
        let last = parts.peek().is_none();
        let bits = if last { mode } else { 0o755 };
        match rustix::fs::mkdirat(&at, part, Mode::from_raw_mode(bits)) {
            // The umask is not ours to know; what was asked for is what it is.
            Ok(()) => {
                rustix::fs::chmodat(&at, part, Mode::from_raw_mode(bits), AtFlags::empty())?;
                if last && owner != 0 {
                    let (uid, gid) = (Uid::from_raw(owner), Gid::from_raw(owner));
                    let flags = AtFlags::SYMLINK_NOFOLLOW;
                    rustix::fs::chownat(&at, part, Some(uid), Some(gid), flags)?;
                }
            }
            Err(Errno::EXIST | Errno::ROFS) => {}
            Err(errno) => return Err(errno),
        }
        at = rustix::fs::openat(
            &at,
            part,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
    }
    Ok(at)
}

/// A regular file to mount on, made empty where it is missing.
pub(crate) fn file(top: &OwnedFd, path: &str) -> Result<OwnedFd, Errno> {
    let (parent, name) = parent(top, path)?;
    match create(&parent, name, 0o644) {
        Ok(_) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    let found = rustix::fs::openat(
        &parent,
        name,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let status = rustix::fs::fstat(&found)?;
    if rustix::fs::FileType::from_raw_mode(status.st_mode).is_file() {
        Ok(found)
    } else {
        Err(Errno::LOOP)
    }
}

fn link(top: &OwnedFd, path: &str, target: &str) -> Result<(), Errno> {
    let (parent, name) = parent(top, path)?;
    match rustix::fs::symlinkat(target, parent, name) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno),
    }
}

fn write(top: &OwnedFd, path: &str, content: &[u8], mode: u32, replace: bool) -> Result<(), Errno> {
    let (parent, name) = parent(top, path)?;
    let file = match create(&parent, name, mode) {
        Err(Errno::EXIST) if replace => {
            rustix::fs::unlinkat(&parent, name, AtFlags::empty())?;
            create(&parent, name, mode)?
        }
        Err(Errno::EXIST) => return Ok(()),
        other => other?,
    };
    let mut rest = content;
    while !rest.is_empty() {
        let written = rustix::io::write(&file, rest)?;
        rest = rest.get(written..).unwrap_or_default();
    }
    Ok(())
}

fn create(parent: &OwnedFd, name: &str, mode: u32) -> Result<OwnedFd, Errno> {
    let file = rustix::fs::openat(
        parent.as_fd(),
        name,
        OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::from_raw_mode(mode),
    )?;
    rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
    Ok(file)
}

fn parent<'a>(top: &OwnedFd, path: &'a str) -> Result<(OwnedFd, &'a str), Errno> {
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    if name.is_empty() || name == "." || name == ".." {
        return Err(Errno::INVAL);
    }
    Ok((directory(top, above, 0o755)?, name))
}

fn components(path: &str) -> Result<impl Iterator<Item = &str>, Errno> {
    let parts = || path.split('/').filter(|part| !part.is_empty());
    if parts().any(|part| part == "." || part == "..") {
        return Err(Errno::INVAL);
    }
    Ok(parts())
}
