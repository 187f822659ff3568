//! Removing a file or a whole tree, in steps.
//!
//! A tree of any depth takes three descriptors and no stack: what lies below a directory of the tree is moved up into
//! the tree's top, until every directory there is empty. Nothing is ever reached through `..`, which would lead elsewhere
//! if somebody moved a directory meanwhile.

use crate::lookup::Spot;
use crate::{Files, Rule, directory::kind_of, verdict};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, OFlags, openat, renameat, statat, unlinkat};
use rustix::io::Errno;
use sandboxd_protocol::message::{FileError, Kind};

/// A removal that goes on step by step.
#[derive(Debug)]
pub struct Removal {
    spot: Spot,
    rule: Rule,
    top: Option<OwnedFd>,
    moved: u64,
}

impl Files {
    /// Starts to remove a file, a link or special file itself, or a whole tree.
    ///
    /// # Errors
    /// [`FileError::NotFound`]; [`FileError::Invalid`] for the root itself.
    pub fn remove(&self, path: &[u8]) -> Result<Removal, FileError> {
        let spot = self.named(path)?;
        let stat = self.look(&spot).map_err(|errno| self.verdict(errno))?;
        let rule = self.rule;
        let top = if kind_of(stat.st_mode) == Kind::Directory {
            let top = open_directory(spot.parent.as_fd(), &spot.name);
            Some(top.map_err(|errno| self.verdict(errno))?)
        } else {
            None
        };
        Ok(Removal {
            spot,
            rule,
            top,
            moved: 0,
        })
    }
}

impl Removal {
    /// Does about `budget` entries' work; true when everything is gone.
    ///
    /// # Errors
    /// What the kernel says; what is gone by then is gone.
    pub fn step(&mut self, budget: usize) -> Result<bool, FileError> {
        // A directory and one thing in it: less would go round in a circle.
        let mut left = budget.max(2);
        self.advance(&mut left)
            .map_err(|errno| verdict::of(self.rule, errno))
    }

    /// Removes everything.
    ///
    /// # Errors
    /// As of [`Removal::step`].
    pub fn finish(mut self) -> Result<(), FileError> {
        while !self.step(usize::MAX)? {}
        Ok(())
    }

    fn advance(&mut self, left: &mut usize) -> Result<bool, Errno> {
        if let Some(top) = self.top.take() {
            let emptied = self.empty_top(&top, left);
            if !matches!(emptied, Ok(true)) {
                self.top = Some(top);
                return emptied;
            }
        } else {
            match unlinkat(&self.spot.parent, &self.spot.name[..], AtFlags::empty()) {
                // A directory has come in its place: what was asked for is gone.
                Ok(()) | Err(Errno::NOENT | Errno::ISDIR) => return Ok(true),
                Err(errno) => return Err(errno),
            }
        }
        let flags = AtFlags::REMOVEDIR;
        match unlinkat(&self.spot.parent, &self.spot.name[..], flags) {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            // Somebody puts files in: once more.
            Err(Errno::NOTEMPTY) => {
                self.top = Some(open_directory(self.spot.parent.as_fd(), &self.spot.name)?);
                Ok(false)
            }
            Err(errno) => Err(errno),
        }
    }

    /// Empties the top as far as the budget goes; true when it was found empty.
    fn empty_top(&mut self, top: &OwnedFd, left: &mut usize) -> Result<bool, Errno> {
        let mut empty = true;
        for entry in Dir::read_from(top)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            empty = false;
            if *left == 0 {
                return Ok(false);
            }
            *left -= 1;
            if !unlink(top.as_fd(), name)? {
                self.dissolve(top, name, left)?;
            }
        }
        Ok(empty)
    }

    /// Removes one directory of the top: its files go, its directories move up beside it.
    fn dissolve(&mut self, top: &OwnedFd, name: &[u8], left: &mut usize) -> Result<(), Errno> {
        let directory = match open_directory(top.as_fd(), name) {
            Ok(directory) => directory,
            // Gone, or no directory any more: the next look at the top sees.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let below = entry.file_name().to_bytes();
            if matches!(below, b"." | b"..") {
                continue;
            }
            if *left == 0 {
                return Ok(());
            }
            *left -= 1;
            if !unlink(directory.as_fd(), below)? {
                self.move_up(top, &directory, below)?;
            }
        }
        match unlinkat(top, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::NOTDIR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    fn move_up(&mut self, top: &OwnedFd, from: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
        match unlinkat(from, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        loop {
            self.moved += 1;
            let place = format!(".removed-{}", self.moved);
            // Only onto a name that nobody has: an empty directory there would be replaced, which is no harm.
            match statat(top, &place, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(_) => continue,
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
            return match renameat(from, name, top, &place) {
                Ok(()) | Err(Errno::NOENT) => Ok(()),
                Err(errno) => Err(errno),
            };
        }
    }
}

/// Removes a name that is no directory; false when it is one.
fn unlink(parent: BorrowedFd<'_>, name: &[u8]) -> Result<bool, Errno> {
    match unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::ISDIR) => Ok(false),
        // Some file systems say so of a directory.
        Err(Errno::PERM) => {
            let stat = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
            if kind_of(stat.st_mode) == Kind::Directory {
                Ok(false)
            } else {
                Err(Errno::PERM)
            }
        }
        Err(errno) => Err(errno),
    }
}

fn open_directory(parent: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, rustix::fs::Mode::empty())
}
