//! Looking, listing, making directories, renaming, resolving.

use crate::lookup::Spot;
use crate::{Files, Rule, path, verdict};
use rustix::fd::AsFd;
use rustix::fs::{
    AtFlags, Dir, FileType, OFlags, RawMode, Stat, fstat, readlinkat, renameat, statat,
};
use rustix::io::Errno;
use sandboxd_protocol::message::{Entry, FileError, HandBack, Kind};

/// What a file's mode says it is.
pub fn kind_of(mode: RawMode) -> Kind {
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Link,
        FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => Kind::Special,
    }
}

pub(crate) fn entry(name: Vec<u8>, stat: &Stat, target: Option<Vec<u8>>) -> Entry {
    Entry {
        name,
        kind: kind_of(stat.st_mode),
        size: u64::try_from(stat.st_size).unwrap_or(0),
        mode: stat.st_mode & 0o7777,
        modified_nanos: nanos(stat),
        target,
    }
}

fn nanos(stat: &Stat) -> i64 {
    let fraction = i64::try_from(stat.st_mtime_nsec).unwrap_or(0);
    stat.st_mtime
        .saturating_mul(1_000_000_000)
        .saturating_add(fraction)
}

/// How much of a directory is wanted at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// Files and directories.
    pub entries: usize,
    /// Names that may be read to find them; links and special files count here too.
    pub names: usize,
}

/// A part of a directory, or all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its files and directories, sorted by name. Which ones they are is up to the file system where `more` is set.
    pub entries: Vec<Entry>,
    /// Whether something was left unread.
    pub more: bool,
    /// How many names were read.
    pub names: usize,
}

impl Files {
    /// What is at a path.
    ///
    /// # Errors
    /// Under the native rule, a link or a special file is handed back.
    pub fn stat(&self, path: &[u8]) -> Result<Entry, FileError> {
        let words = self.words(path)?;
        let file = self
            .open_at(&self.root, &words, OFlags::PATH)
            .map_err(|errno| self.verdict(errno))?;
        let stat = fstat(&file).map_err(|errno| self.verdict(errno))?;
        let name = path::split(&words).map_or_else(Vec::new, |(_, name)| name.to_vec());
        let entry = entry(name, &stat, None);
        if self.rule == Rule::Beneath && entry.kind == Kind::Special {
            return Err(verdict::special(self.rule));
        }
        Ok(entry)
    }

    /// The entries of a directory, sorted by name, at most `limit`.
    ///
    /// # Errors
    /// Under the native rule, a directory that holds a link or a special file, or a name that is no UTF-8 text, is
    /// handed back: the contract's listing cannot say them. More entries than `limit` are [`FileError::TooMany`].
    pub fn list(&self, path: &[u8], limit: u32) -> Result<Vec<Entry>, FileError> {
        let entries = self.entries(path, limit)?;
        if self.rule == Rule::Beneath {
            for entry in &entries {
                match entry.kind {
                    Kind::Link => return Err(HandBack::Link.into()),
                    Kind::Special => return Err(HandBack::Special.into()),
                    Kind::File | Kind::Directory => {}
                }
                if std::str::from_utf8(&entry.name).is_err() {
                    return Err(HandBack::Os.into());
                }
            }
        }
        Ok(entries)
    }

    /// The entries of a directory with everything that is in it, links and special files too: for a reader with rules of
    /// its own. Sorted by name, at most `limit`.
    ///
    /// # Errors
    /// As of [`Files::list`], except for what is in the directory.
    pub fn entries(&self, path: &[u8], limit: u32) -> Result<Vec<Entry>, FileError> {
        let words = self.words(path)?;
        let directory = self
            .open_at(&self.root, &words, OFlags::RDONLY | OFlags::DIRECTORY)
            .map_err(|errno| self.verdict(errno))?;
        let names = self.names(&directory, limit)?;
        let mut entries = Vec::with_capacity(names.len());
        for name in names {
            let stat = match statat(&directory, &name[..], AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                // Gone meanwhile.
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(self.verdict(errno)),
            };
            let target = if self.rule == Rule::Follow && kind_of(stat.st_mode) == Kind::Link {
                readlinkat(&directory, &name[..], Vec::new())
                    .ok()
                    .map(std::ffi::CString::into_bytes)
            } else {
                None
            };
            entries.push(entry(name, &stat, target));
        }
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        // A rename during the reading may show one name twice.
        entries.dedup_by(|a, b| a.name == b.name);
        Ok(entries)
    }

    /// The files and directories in a directory, without links and special files, read only as far as wanted: one more
    /// than `wanted.entries`, which tells whether there are more. A reader of one entry costs the same in a directory of
    /// ten and of ten million.
    ///
    /// # Errors
    /// As of [`Files::list`], except for what is in the directory. Never [`FileError::TooMany`].
    pub fn part(&self, path: &[u8], wanted: Wanted) -> Result<Part, FileError> {
        let words = self.words(path)?;
        let directory = self
            .open_at(&self.root, &words, OFlags::RDONLY | OFlags::DIRECTORY)
            .map_err(|errno| self.verdict(errno))?;
        let mut part = Part {
            entries: Vec::new(),
            more: false,
            names: 0,
        };
        for found in Dir::read_from(&directory).map_err(|errno| self.verdict(errno))? {
            let found = found.map_err(|errno| self.verdict(errno))?;
            let name = found.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            if part.names == wanted.names {
                part.more = true;
                break;
            }
            part.names += 1;
            let shown = matches!(
                found.file_type(),
                FileType::RegularFile | FileType::Directory | FileType::Unknown
            );
            if !shown {
                continue;
            }
            let stat = match statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                // Gone meanwhile.
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(self.verdict(errno)),
            };
            if !matches!(kind_of(stat.st_mode), Kind::File | Kind::Directory) {
                continue;
            }
            if part.entries.len() == wanted.entries {
                part.more = true;
                break;
            }
            part.entries.push(entry(name.to_vec(), &stat, None));
        }
        part.entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        // A rename during the reading may show one name twice.
        part.entries.dedup_by(|a, b| a.name == b.name);
        Ok(part)
    }

    fn names(&self, directory: impl AsFd, limit: u32) -> Result<Vec<Vec<u8>>, FileError> {
        let limit_entries = usize::try_from(limit).unwrap_or(usize::MAX);
        let entries = Dir::read_from(directory).map_err(|errno| self.verdict(errno))?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|errno| self.verdict(errno))?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            if names.len() == limit_entries {
                return Err(FileError::TooMany(limit));
            }
            names.push(name.to_vec());
        }
        Ok(names)
    }

    /// Makes a directory and its parents. One that is there already is fine.
    ///
    /// # Errors
    /// [`FileError::Exists`] where a file is in its place, [`FileError::NotADirectory`] where one is in its parents'.
    pub fn make_dir(&self, path: &[u8]) -> Result<(), FileError> {
        let words = self.words(path)?;
        match self.make_directories(self.root.as_fd(), &words) {
            Ok(_) => Ok(()),
            Err(FileError::NotADirectory) if self.is_there(&words) => Err(FileError::Exists),
            Err(error) => Err(error),
        }
    }

    fn is_there(&self, words: &[u8]) -> bool {
        self.open_at(&self.root, words, OFlags::PATH).is_ok()
    }

    /// Renames, onto a file that may be there; a link is renamed itself.
    ///
    /// # Errors
    /// [`FileError::Invalid`] for the root itself; under the native rule a link at the old path is handed back.
    pub fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), FileError> {
        let from = self.named(from)?;
        let to = self.named(to)?;
        let stat = self.look(&from).map_err(|errno| self.verdict(errno))?;
        if self.rule == Rule::Beneath && kind_of(stat.st_mode) == Kind::Link {
            return Err(verdict::link(self.rule));
        }
        renameat(&from.parent, &from.name[..], &to.parent, &to.name[..]).map_err(|errno| {
            match errno {
                // A directory into itself.
                Errno::INVAL => FileError::Invalid("a directory cannot go into itself".to_owned()),
                errno => self.verdict(errno),
            }
        })
    }

    /// A path's last name in its directory, for an operation on the name itself.
    pub(crate) fn named(&self, path: &[u8]) -> Result<Spot, FileError> {
        let spot = self.spot(&self.words(path)?)?;
        match spot {
            Some(spot) if !matches!(&spot.name[..], b"." | b"..") => Ok(spot),
            Some(_) | None => Err(FileError::Invalid(
                "that directory cannot be removed or renamed".to_owned(),
            )),
        }
    }

    /// The resolved path, in the form that the rule takes: relative to the root, or absolute. What is missing is kept as
    /// written.
    ///
    /// # Errors
    /// Under the native rule a link is handed back.
    pub fn real_path(&self, path: &[u8]) -> Result<Vec<u8>, FileError> {
        let words = self.words(path)?;
        match self.rule {
            Rule::Beneath => match self.open_at(&self.root, &words, OFlags::PATH) {
                Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => Ok(words),
                Err(errno) => Err(self.verdict(errno)),
            },
            Rule::Follow => self.resolved(&words),
        }
    }

    /// The kernel's own name for the longest part of a path that exists, and the rest by its words.
    fn resolved(&self, words: &[u8]) -> Result<Vec<u8>, FileError> {
        let mut rest: Vec<&[u8]> = Vec::new();
        let mut there = words;
        let found = loop {
            match self.open_at(&self.root, there, OFlags::PATH) {
                Ok(found) => break found,
                Err(Errno::NOENT | Errno::NOTDIR) => match path::split(there) {
                    Some((parent, name)) => {
                        rest.push(name);
                        there = parent;
                    }
                    None => return Err(FileError::NotFound),
                },
                Err(errno) => return Err(self.verdict(errno)),
            }
        };
        use rustix::fd::AsRawFd;
        let name = format!("/proc/self/fd/{}", found.as_raw_fd());
        let name = rustix::fs::readlink(name, Vec::new()).map_err(|errno| self.verdict(errno))?;
        let mut whole: Vec<&[u8]> = path::components(name.to_bytes()).collect();
        for name in rest.into_iter().rev() {
            match name {
                b"." => {}
                b".." => drop(whole.pop()),
                name => whole.push(name),
            }
        }
        let mut resolved = b"/".to_vec();
        resolved.extend(path::join(whole.into_iter()));
        Ok(resolved)
    }
}
