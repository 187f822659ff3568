//! File operations on directories that untrusted code can change at any moment, by descriptor and never by name.
//!
//! There is one implementation and two executors of it: the guest, for a sandbox that runs, and the daemon, for a
//! workspace that is stored. Both speak the words of [`sandboxd_protocol::message`].
//!
//! - [`Files`] is a root and a [`Rule`]. [`Rule::Beneath`] is the native file rule of the HTTP contract: below the root,
//!   no link anywhere, no `.` or `..`, no special file, and whatever it will not do itself it hands back.
//!   [`Rule::Follow`] is what a program inside would see: links resolve.
//! - [`path`] judges paths before any file is looked at.
//! - [`Reading`], [`Writing`], [`Removal`] are operations in steps, so that a caller with other work can do it in between.

mod directory;
mod limits;
mod lookup;
pub mod path;
mod read;
mod remove;
mod verdict;
mod write;

pub use directory::{Part, Wanted, kind_of};
pub use read::Reading;
pub use remove::Removal;
pub use write::Writing;

use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use sandboxd_protocol::message::FileError;
use std::io;
use std::path::Path;

/// Which paths are acceptable and how links are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// The native rule: plainly below the root, or handed back.
    Beneath,
    /// As a program sees it.
    Follow,
}

/// What new files and directories get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewFiles {
    /// Their uid and gid; the process's own where absent.
    pub owner: Option<(u32, u32)>,
    /// Permission bits that they do not get. Said here, so that it does not depend on the process.
    pub umask: u32,
}

impl Default for NewFiles {
    fn default() -> Self {
        Self {
            owner: None,
            umask: 0o022,
        }
    }
}

/// A root and the rule for paths from there.
#[derive(Debug)]
pub struct Files {
    root: OwnedFd,
    rule: Rule,
    new: NewFiles,
}

impl Files {
    /// The native rule below a directory that is already open.
    pub fn beneath(root: OwnedFd, new: NewFiles) -> Self {
        Self {
            root,
            rule: Rule::Beneath,
            new,
        }
    }

    /// The native rule below a directory whose path nobody untrusted can change; it must not go through a link.
    ///
    /// # Errors
    /// What open(2) says; `ELOOP` for a link.
    pub fn beneath_path(root: &Path, new: NewFiles) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let root = openat2(CWD, root, flags, Mode::empty(), resolve)?;
        Ok(Self::beneath(root, new))
    }

    /// Everything that this process sees, links resolved.
    ///
    /// # Errors
    /// What open(2) says of `/`.
    pub fn everywhere(new: NewFiles) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open("/", flags, Mode::empty())?;
        Ok(Self {
            root,
            rule: Rule::Follow,
            new,
        })
    }

    /// The rule.
    pub fn rule(&self) -> Rule {
        self.rule
    }

    fn verdict(&self, errno: rustix::io::Errno) -> FileError {
        verdict::of(self.rule, errno)
    }
}

#[cfg(test)]
mod tests;
