//! The native file rule on one directory of the host, by the descriptor walk.

use bytes::Bytes;
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use sandboxd_protocol::message::{Entry, FileError, HandBack, Kind};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

/// One directory, and everything below it.
#[derive(Debug, Clone)]
pub(crate) struct HostFiles {
    dir: Arc<OwnedFd>,
    owner: Option<u32>,
}

impl HostFiles {
    /// Over an open directory; what is made belongs to `owner`, or to the daemon.
    pub(super) fn new(dir: OwnedFd, owner: Option<u32>) -> Self {
        Self {
            dir: Arc::new(dir),
            owner,
        }
    }

    /// Over a directory by its host path, for a backend in this process.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Self::new(dir, None))
    }

    fn walk(&self, path: &str, flags: OFlags) -> Result<OwnedFd, FileError> {
        if path.split('/').any(|part| part == "." || part == "..") {
            return Err(FileError::HandBack(HandBack::Outside));
        }
        let path = if path.is_empty() { "." } else { path };
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        openat2(
            &self.dir,
            path,
            flags | OFlags::CLOEXEC,
            Mode::empty(),
            resolve,
        )
        .map_err(word)
    }

    fn parent<'a>(&self, path: &'a str) -> Result<(OwnedFd, &'a str), FileError> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        if name.is_empty() {
            return Err(FileError::IsADirectory);
        }
        Ok((self.walk(parent, OFlags::RDONLY | OFlags::DIRECTORY)?, name))
    }

    pub(crate) fn read(&self, path: &str, limit: u64) -> Result<Bytes, FileError> {
        let entry = self.stat(path)?;
        if entry.kind == Kind::Directory {
            return Err(FileError::IsADirectory);
        }
        let file = self.walk(path, OFlags::RDONLY | OFlags::NONBLOCK)?;
        let mut content = Vec::new();
        let most = limit.saturating_add(1);
        let read = File::from(file).take(most).read_to_end(&mut content);
        read.map_err(from_io)?;
        if content.len() as u64 > limit {
            return Err(FileError::HandBack(HandBack::TooLarge));
        }
        Ok(content.into())
    }

    pub(crate) fn write(
        &self,
        path: &str,
        content: &[u8],
        mode: u32,
        parents: bool,
    ) -> Result<(), FileError> {
        if let (true, Some((parent, _))) = (parents, path.rsplit_once('/')) {
            self.make_dir(parent)?;
        }
        match self.stat(path) {
            Ok(entry) if entry.kind == Kind::Directory => return Err(FileError::IsADirectory),
            Ok(_) | Err(FileError::NotFound) => {}
            Err(error) => return Err(error),
        }
        let (parent, name) = self.parent(path)?;
        let aside = format!(
            ".{name}.{:08x}.tmp",
            rustix::process::getpid().as_raw_nonzero()
        );
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&parent, &aside, flags, Mode::from_raw_mode(mode & 0o755));
        let file = file.map_err(word)?;
        if let Some(owner) = self.owner {
            let (uid, gid) = super::ids(owner);
            rustix::fs::fchown(&file, Some(uid), Some(gid)).map_err(word)?;
        }
        File::from(file).write_all(content).map_err(from_io)?;
        rustix::fs::renameat(&parent, &aside, &parent, name).map_err(word)
    }

    pub(crate) fn stat(&self, path: &str) -> Result<Entry, FileError> {
        let at = self.walk(path, OFlags::PATH | OFlags::NOFOLLOW)?;
        let stat = rustix::fs::statat(&at, "", AtFlags::EMPTY_PATH).map_err(word)?;
        let kind = match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
            rustix::fs::FileType::Directory => Kind::Directory,
            rustix::fs::FileType::RegularFile => Kind::File,
            rustix::fs::FileType::Symlink => return Err(FileError::HandBack(HandBack::Link)),
            _ => return Err(FileError::HandBack(HandBack::Special)),
        };
        Ok(Entry {
            name: Path::new(path)
                .file_name()
                .map_or(Vec::new(), |n| n.as_bytes().to_vec()),
            kind,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mode: stat.st_mode & 0o7777,
            modified_nanos: stat.st_mtime.saturating_mul(1_000_000_000),
            target: None,
        })
    }

    pub(crate) fn list(&self, path: &str, limit: u32) -> Result<Vec<Entry>, FileError> {
        let dir = self.walk(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut all = Vec::new();
        for entry in rustix::fs::Dir::read_from(&dir).map_err(word)? {
            let entry = entry.map_err(word)?;
            let Ok(name) = entry.file_name().to_str() else {
                return Err(FileError::HandBack(HandBack::Os));
            };
            if name == "." || name == ".." {
                continue;
            }
            if all.len() as u64 >= u64::from(limit) {
                return Err(FileError::TooMany(limit));
            }
            let full = if path.is_empty() {
                name.to_owned()
            } else {
                format!("{path}/{name}")
            };
            all.push(self.stat(&full)?);
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    pub(crate) fn make_dir(&self, path: &str) -> Result<(), FileError> {
        let mut at = String::new();
        for part in path.split('/').filter(|part| !part.is_empty()) {
            if !at.is_empty() {
                at.push('/');
            }
            at.push_str(part);
            match self.stat(&at) {
                Ok(entry) if entry.kind == Kind::Directory => {}
                Ok(_) if at == path => return Err(FileError::Exists),
                Ok(_) => return Err(FileError::NotADirectory),
                Err(FileError::NotFound) => {
                    let (parent, name) = self.parent(&at)?;
                    rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755)).map_err(word)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub(crate) fn remove(&self, path: &str) -> Result<(), FileError> {
        if path.is_empty() {
            return Err(FileError::Invalid("the work directory stays".to_owned()));
        }
        self.walk(path, OFlags::PATH | OFlags::NOFOLLOW)?;
        let (parent, name) = self.parent(path)?;
        super::tree::remove(&parent, name).map_err(from_io)
    }

    pub(crate) fn rename(&self, path: &str, to: &str) -> Result<(), FileError> {
        let (from_parent, from) = self.parent(path)?;
        let (to_parent, to) = self.parent(to)?;
        rustix::fs::renameat(&from_parent, from, &to_parent, to).map_err(word)
    }

    pub(crate) fn real_path(&self, path: &str) -> Result<Vec<u8>, FileError> {
        Ok(path.as_bytes().to_vec())
    }
}

fn word(errno: Errno) -> FileError {
    match errno {
        Errno::NOENT => FileError::NotFound,
        Errno::NOTDIR => FileError::NotADirectory,
        Errno::LOOP => FileError::HandBack(HandBack::Link),
        Errno::NAMETOOLONG => FileError::HandBack(HandBack::NameTooLong),
        Errno::ACCESS | Errno::PERM => FileError::HandBack(HandBack::Denied),
        other => FileError::Os(other.raw_os_error()),
    }
}

pub(super) fn from_io(error: io::Error) -> FileError {
    word(Errno::from_io_error(&error).unwrap_or(Errno::IO))
}
