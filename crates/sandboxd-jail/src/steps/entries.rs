//! Directories, links and files in a root that nobody vouches for.
//!
//! An image, or a layer that a sandbox wrote, may hold a link where we expect a directory. Every component is opened
//! from its parent's descriptor and never through a link; what is in the way stops the start.

use crate::spawn::on;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use sandboxd_jail::plan::Entry;
use sandboxd_jail::report::{Failure, Step};

/// Makes them in their order. The process has no umask: what is asked for is what comes to be.
pub(crate) fn make(top: &OwnedFd, entries: &[Entry]) -> Result<(), Failure> {
    let mut parents = Parents { top, last: None };
    for entry in entries {
        match entry {
            Entry::Directory { path, mode, owner } => {
                let made = parents.of(path).and_then(|(at, name)| {
                    match make_directory(at, name, *mode, *owner)? {
                        true => Ok(()),
                        false => step_into(at, name).map(drop),
                    }
                });
                made.map_err(on(Step::Entries, path))?;
            }
            Entry::Link { path, target } => {
                let linked = parents
                    .of(path)
                    .and_then(|(at, name)| link(at, name, target));
                linked.map_err(on(Step::Entries, path))?;
            }
            Entry::File {
                path,
                content,
                mode,
                replace,
            } => {
                let written = parents
                    .of(path)
                    .and_then(|(at, name)| write(at, name, content, *mode, *replace));
                match written {
                    // An image that is somebody else's keeps its own: the file makes it nicer, not safer.
                    Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) if *replace => {}
                    outcome => outcome.map_err(on(Step::Entries, path))?,
                }
            }
        }
    }
    Ok(())
}

/// The directory that was stepped into last: entries that follow each other often lie in the same one, and nobody but
/// this process changes anything here yet.
struct Parents<'a> {
    top: &'a OwnedFd,
    last: Option<(&'a str, OwnedFd)>,
}

impl<'a> Parents<'a> {
    /// Where a path lies, made where that is missing, and what it is called there.
    fn of(&mut self, path: &'a str) -> Result<(BorrowedFd<'_>, &'a str), Errno> {
        let (above, name) = split(path)?;
        if above.is_empty() {
            return Ok((self.top.as_fd(), name));
        }
        let found = match self.last.take() {
            Some((known, found)) if known == above => found,
            _ => directory(self.top, above, 0o755)?,
        };
        let last = self.last.insert((above, found));
        Ok((last.1.as_fd(), name))
    }
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
    let mut inside: Option<OwnedFd> = None;
    let mut parts = components(path)?.peekable();
    while let Some(part) = parts.next() {
        let at = inside.as_ref().map_or(top.as_fd(), AsFd::as_fd);
        let (bits, owner) = match parts.peek() {
            None => (mode, owner),
            Some(_) => (0o755, 0),
        };
        make_directory(at, part, bits, owner)?;
        inside = Some(step_into(at, part)?);
    }
    match inside {
        Some(inside) => Ok(inside),
        None => top.try_clone().map_err(|_| Errno::MFILE),
    }
}

/// Makes a directory and gives it to somebody; whether it was made, and not there before.
fn make_directory(at: BorrowedFd<'_>, name: &str, mode: u32, owner: u32) -> Result<bool, Errno> {
    match rustix::fs::mkdirat(at, name, Mode::from_raw_mode(mode)) {
        Ok(()) => {}
        Err(Errno::EXIST | Errno::ROFS) => return Ok(false),
        Err(errno) => return Err(errno),
    }
    if owner != 0 {
        let (uid, gid) = (Uid::from_raw(owner), Gid::from_raw(owner));
        rustix::fs::chownat(at, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(true)
}

/// A directory that is there.
pub(crate) fn found_directory(top: &OwnedFd, path: &str) -> Result<OwnedFd, Errno> {
    let mut at = top.try_clone().map_err(|_| Errno::MFILE)?;
    for part in components(path)? {
        at = step_into(at.as_fd(), part)?;
    }
    Ok(at)
}

fn step_into(at: BorrowedFd<'_>, part: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at, part, flags, Mode::empty())
}

/// A regular file to mount on, made empty where it is missing.
pub(crate) fn file(top: &OwnedFd, path: &str) -> Result<OwnedFd, Errno> {
    let (above, name) = split(path)?;
    let parent = match above {
        "" => None,
        above => Some(directory(top, above, 0o755)?),
    };
    let parent = parent.as_ref().map_or(top.as_fd(), AsFd::as_fd);
    match create(parent, name, 0o644) {
        Err(Errno::EXIST) => {}
        made => return made,
    }
    let found = rustix::fs::openat(
        parent,
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

fn link(at: BorrowedFd<'_>, name: &str, target: &str) -> Result<(), Errno> {
    match rustix::fs::symlinkat(target, at, name) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno),
    }
}

fn write(
    at: BorrowedFd<'_>,
    name: &str,
    content: &[u8],
    mode: u32,
    replace: bool,
) -> Result<(), Errno> {
    let file = match create(at, name, mode) {
        Err(Errno::EXIST) if replace => {
            rustix::fs::unlinkat(at, name, AtFlags::empty())?;
            create(at, name, mode)?
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

fn create(at: BorrowedFd<'_>, name: &str, mode: u32) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at, name, flags, Mode::from_raw_mode(mode))
}

/// Where a path lies, and what it is called there.
fn split(path: &str) -> Result<(&str, &str), Errno> {
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    if name.is_empty() || name == "." || name == ".." {
        return Err(Errno::INVAL);
    }
    Ok((above, name))
}

fn components(path: &str) -> Result<impl Iterator<Item = &str>, Errno> {
    let parts = || path.split('/').filter(|part| !part.is_empty());
    if parts().any(|part| part == "." || part == "..") {
        return Err(Errno::INVAL);
    }
    Ok(parts())
}
