//! From a path to descriptors. The kernel walks, under flags that forbid what the rule forbids, so that nothing can be
//! swapped between a check and its use.

use crate::limits::{LINKS_MAX, OPEN_TRIES};
use crate::{Files, Rule, path, verdict};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, openat2, readlinkat, statat,
};
use rustix::io::Errno;
use sandboxd_protocol::message::FileError;

/// A name in an open directory.
#[derive(Debug)]
pub(crate) struct Spot {
    pub(crate) parent: OwnedFd,
    pub(crate) name: Vec<u8>,
}

impl Files {
    /// The path as this rule walks it from the root.
    pub(crate) fn words(&self, path: &[u8]) -> Result<Vec<u8>, FileError> {
        match self.rule {
            Rule::Beneath => path::beneath(path),
            Rule::Follow => path::follow(path),
        }
    }

    /// Opens what a path leads to from `base`.
    pub(crate) fn open_at(
        &self,
        base: impl AsFd,
        path: &[u8],
        flags: OFlags,
    ) -> Result<OwnedFd, Errno> {
        let resolve = match self.rule {
            Rule::Beneath => {
                ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS
            }
            Rule::Follow => ResolveFlags::NO_MAGICLINKS,
        };
        let path = if path.is_empty() { b"." } else { path };
        let flags = flags | OFlags::CLOEXEC;
        for _ in 0..OPEN_TRIES {
            match openat2(&base, path, flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                result => return result,
            }
        }
        Err(Errno::AGAIN)
    }

    /// The directory that a path's last name is in; `None` for the root itself.
    pub(crate) fn spot(&self, words: &[u8]) -> Result<Option<Spot>, FileError> {
        let Some((directory, name)) = path::split(words) else {
            return Ok(None);
        };
        let parent = self.directory(self.root.as_fd(), directory)?;
        let name = name.to_vec();
        Ok(Some(Spot { parent, name }))
    }

    pub(crate) fn directory(
        &self,
        base: BorrowedFd<'_>,
        path: &[u8],
    ) -> Result<OwnedFd, FileError> {
        self.open_at(base, path, OFlags::PATH | OFlags::DIRECTORY)
            .map_err(|errno| self.verdict(errno))
    }

    /// As [`Files::directory`] from the root, making what is missing.
    pub(crate) fn make_directories(
        &self,
        base: BorrowedFd<'_>,
        path: &[u8],
    ) -> Result<OwnedFd, FileError> {
        match self.open_at(base, path, OFlags::PATH | OFlags::DIRECTORY) {
            Err(Errno::NOENT) => {}
            result => return result.map_err(|errno| self.verdict(errno)),
        }
        let mut at = self.directory(base, b"")?;
        for name in path::components(path) {
            let flags = OFlags::PATH | OFlags::DIRECTORY;
            at = match self.open_at(&at, name, flags) {
                Err(Errno::NOENT) => self.make_directory(&at, name)?,
                result => result.map_err(|errno| self.verdict(errno))?,
            };
        }
        Ok(at)
    }

    /// Makes one directory, which may be there already by now, and opens it.
    fn make_directory(&self, parent: &OwnedFd, name: &[u8]) -> Result<OwnedFd, FileError> {
        let mode = Mode::from_raw_mode(0o777 & !self.new.umask);
        let made = match rustix::fs::mkdirat(parent, name, mode) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(errno) => return Err(self.verdict(errno)),
        };
        // A dangling link is not there for an open and there for a mkdir.
        let directory = match self.open_at(parent, name, OFlags::RDONLY | OFlags::DIRECTORY) {
            Err(Errno::NOENT) => {
                return Err(match self.rule {
                    Rule::Beneath => verdict::link(self.rule),
                    Rule::Follow => FileError::Exists,
                });
            }
            result => result.map_err(|errno| self.verdict(errno))?,
        };
        if made {
            let dress = || {
                if let Some((uid, gid)) = self.new.owner {
                    let (uid, gid) = ids(uid, gid);
                    rustix::fs::fchown(&directory, uid, gid)?;
                }
                // The process's umask may be stricter.
                rustix::fs::fchmod(&directory, mode)
            };
            dress().map_err(|errno| self.verdict(errno))?;
        }
        Ok(directory)
    }

    /// What is at a spot, links not followed.
    pub(crate) fn look(&self, spot: &Spot) -> Result<Stat, Errno> {
        statat(&spot.parent, &spot.name[..], AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Goes through links at the end of a path to the spot that they lead to, which may be empty. Under
    /// [`Rule::Beneath`] a link is an error.
    pub(crate) fn through_links(
        &self,
        mut spot: Spot,
        parents: bool,
    ) -> Result<(Spot, Option<Stat>), FileError> {
        for _ in 0..LINKS_MAX {
            let stat = match self.look(&spot) {
                Ok(stat) => stat,
                Err(Errno::NOENT) => return Ok((spot, None)),
                Err(errno) => return Err(self.verdict(errno)),
            };
            if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
                return Ok((spot, Some(stat)));
            }
            if self.rule == Rule::Beneath {
                return Err(verdict::link(self.rule));
            }
            let target = readlinkat(&spot.parent, &spot.name[..], Vec::new())
                .map_err(|errno| self.verdict(errno))?
                .into_bytes();
            let absolute = target.starts_with(b"/");
            let words = path::join(path::components(&target));
            let Some((directory, name)) = path::split(&words) else {
                return Err(FileError::IsADirectory);
            };
            let base = if absolute { &self.root } else { &spot.parent };
            let parent = if parents {
                self.make_directories(base.as_fd(), directory)?
            } else {
                self.directory(base.as_fd(), directory)?
            };
            let name = name.to_vec();
            spot = Spot { parent, name };
        }
        Err(verdict::link(self.rule))
    }
}

pub(crate) fn ids(uid: u32, gid: u32) -> (Option<rustix::fs::Uid>, Option<rustix::fs::Gid>) {
    (
        Some(rustix::fs::Uid::from_raw(uid)),
        Some(rustix::fs::Gid::from_raw(gid)),
    )
}
