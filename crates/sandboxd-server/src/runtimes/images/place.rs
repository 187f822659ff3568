//! The directory that a tar is unpacked into: every step by descriptor, and never through a link.

use crate::limits::IMAGE_DISK_FREE_BYTES;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The mark of a directory that hides what layers below have there, by the name that overlays mounted with `userxattr`
/// look for: to set it, no privilege is needed.
pub(super) const OPAQUE: &str = "user.overlay.opaque";
/// Open directories that are kept at hand.
const OPEN_MAX: usize = 64;
/// Bytes copied at once.
const COPY_BYTES: usize = 256 * 1024;
/// How often the room left on the disk is looked at, in bytes written.
pub(super) const LOOK_BYTES: u64 = 64 * 1024 * 1024;
/// How much of a small disk stays free, in hundredths; of a large one it is [`IMAGE_DISK_FREE_BYTES`].
const FREE_PERCENT: u64 = 3;

/// Why an entry was not made.
pub(super) enum Unmade {
    /// It must not be.
    Refused(&'static str),
    /// It cannot be.
    Failed(io::Error),
}

impl From<Errno> for Unmade {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::LOOP | Errno::XDEV | Errno::NOTDIR => Self::Refused("it goes through a link"),
            errno => Self::Failed(errno.into()),
        }
    }
}

impl From<io::Error> for Unmade {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// What an entry has beside its content.
#[derive(Debug, Clone)]
pub(super) struct Attributes {
    pub(super) owner: Option<(u32, u32)>,
    pub(super) mode: u32,
    pub(super) modified: (i64, u32),
    pub(super) extended: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What a directory gets last: its mode, so that one that nobody may write does not stop what comes into it, and its
/// time, which everything that comes into it changes.
struct Last {
    mode: u32,
    modified: (i64, u32),
}

/// Where a tar goes.
pub(super) struct Place {
    top: Rc<OwnedFd>,
    open: HashMap<PathBuf, Rc<OwnedFd>>,
    last: BTreeMap<PathBuf, Last>,
    implied: BTreeSet<PathBuf>,
    since_look: u64,
    buffer: Vec<u8>,
}

impl Place {
    /// Makes the directory.
    pub(super) fn make(root: &Path) -> io::Result<Self> {
        std::fs::create_dir(root)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = rustix::fs::open(root, flags, Mode::empty())?;
        rustix::fs::fchmod(&top, Mode::from_raw_mode(0o755))?;
        let mut place = Self {
            top: Rc::new(top),
            open: HashMap::new(),
            last: BTreeMap::new(),
            implied: BTreeSet::new(),
            since_look: 0,
            buffer: vec![0; COPY_BYTES],
        };
        place.room()?;
        Ok(place)
    }

    /// Gives directories their modes and times. What had no entry of its own, and things in it.
    pub(super) fn finish(mut self) -> io::Result<BTreeSet<PathBuf>> {
        self.open.clear();
        // The deepest first: what is closed to us cannot be walked through any more.
        for (path, last) in self.last.iter().rev() {
            let directory = open(&*self.top, path)?;
            set_times(&directory, last.modified)?;
            rustix::fs::fchmod(&directory, Mode::from_raw_mode(last.mode))?;
        }
        Ok(self.implied)
    }

    pub(super) fn directory(&mut self, path: &Path, attributes: &Attributes) -> Result<(), Unmade> {
        let made = match path.file_name() {
            None => Rc::clone(&self.top),
            Some(name) => {
                let parent = self.parent(path.parent().unwrap_or(Path::new("")))?;
                self.make_directory(&parent, name)?;
                // What exists may be a link: then it is none of ours.
                Rc::new(open(&*parent, Path::new(name))?)
            }
        };
        self.implied.remove(path);
        own(&*made, attributes)?;
        extend(&*made, attributes)?;
        let last = Last {
            mode: attributes.mode,
            modified: attributes.modified,
        };
        self.last.insert(path.to_owned(), last);
        self.keep(path, &made);
        Ok(())
    }

    pub(super) fn file(
        &mut self,
        parent: &Path,
        name: &OsStr,
        content: &mut impl Read,
        size: u64,
        attributes: &Attributes,
    ) -> Result<(), Unmade> {
        let parent = self.parent(parent)?;
        remove_old(&parent, name)?;
        let file = rustix::fs::openat(
            &*parent,
            name,
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::from_raw_mode(0o600),
        )?;
        let mut file = File::from(file);
        let mut left = size;
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(COPY_BYTES).min(COPY_BYTES);
            let buffer = self.buffer.get_mut(..most).unwrap_or_default();
            let read = content.read(buffer)?;
            if read == 0 {
                return Err(Unmade::Refused("the archive ends in the middle of it"));
            }
            file.write_all(buffer.get(..read).unwrap_or_default())?;
            left = left.saturating_sub(read as u64);
            self.since_look += read as u64;
            self.room()?;
        }
        own(&file, attributes)?;
        extend(&file, attributes)?;
        // After the owner, since a change of owner takes bits away.
        rustix::fs::fchmod(&file, Mode::from_raw_mode(attributes.mode))?;
        set_times(&file, attributes.modified)?;
        Ok(())
    }

    pub(super) fn symlink(
        &mut self,
        parent: &Path,
        name: &OsStr,
        target: &[u8],
        attributes: &Attributes,
    ) -> Result<(), Unmade> {
        let parent = self.parent(parent)?;
        remove_old(&parent, name)?;
        rustix::fs::symlinkat(target, &*parent, name)?;
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        if let Some((uid, gid)) = attributes.owner {
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            rustix::fs::chownat(&*parent, name, Some(uid), Some(gid), flags)?;
        }
        rustix::fs::utimensat(&*parent, name, &times(attributes.modified), flags)?;
        Ok(())
    }

    pub(super) fn hard_link(
        &mut self,
        parent: &Path,
        name: &OsStr,
        target: &Path,
    ) -> Result<(), Unmade> {
        let missing = Unmade::Refused("it links to what this layer does not have");
        let from = match open(&*self.top, target.parent().unwrap_or(Path::new(""))) {
            Err(Errno::NOENT) => return Err(missing),
            other => other?,
        };
        let parent = self.parent(parent)?;
        let source = target.file_name().unwrap_or_default();
        let there = rustix::fs::statat(&from, source, AtFlags::SYMLINK_NOFOLLOW);
        let kind = match there {
            Err(Errno::NOENT) => return Err(missing),
            other => FileType::from_raw_mode(other?.st_mode),
        };
        if !matches!(kind, FileType::RegularFile | FileType::Symlink) {
            return Err(Unmade::Refused("it links to what is no file"));
        }
        if is_same(&from, source, &parent, name)? {
            return Ok(());
        }
        remove_old(&parent, name)?;
        rustix::fs::linkat(&from, source, &*parent, name, AtFlags::empty())?;
        Ok(())
    }

    /// Hides a name of the layers below. What this layer itself has under that name stays: a directory then hides what
    /// is below its own.
    pub(super) fn whiteout(&mut self, parent: &Path, name: &OsStr) -> Result<(), Unmade> {
        let parent = self.parent(parent)?;
        let mode = Mode::from_raw_mode(0o600);
        match rustix::fs::mknodat(&*parent, name, FileType::CharacterDevice, mode, 0) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => match open(&*parent, Path::new(name)) {
                Ok(directory) => Ok(Self::make_opaque(&directory)?),
                Err(Errno::NOTDIR | Errno::LOOP) => Ok(()),
                Err(errno) => Err(errno.into()),
            },
            Err(errno) => Err(errno.into()),
        }
    }

    /// Hides everything that layers below have in a directory.
    pub(super) fn opaque(&mut self, path: &Path) -> Result<(), Unmade> {
        let directory = self.parent(path)?;
        Ok(Self::make_opaque(&directory)?)
    }

    /// Makes a directory, or leaves what has its name. One that takes the place of a whiteout hides what that hid; then
    /// yes.
    fn make_directory(&self, parent: &OwnedFd, name: &OsStr) -> Result<bool, Errno> {
        let mode = Mode::from_raw_mode(0o755);
        match rustix::fs::mkdirat(parent, name, mode) {
            Err(Errno::EXIST) if is_whiteout(parent, name)? => {
                rustix::fs::unlinkat(parent, name, AtFlags::empty())?;
                rustix::fs::mkdirat(parent, name, mode)?;
                Self::make_opaque(&open(parent, Path::new(name))?)?;
                Ok(true)
            }
            Err(Errno::EXIST) | Ok(()) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    fn make_opaque(directory: &OwnedFd) -> Result<(), Errno> {
        rustix::fs::fsetxattr(directory, OPAQUE, b"y", XattrFlags::empty())
    }

    /// A directory that an entry's parents lie in; made where it is missing, never through a link.
    fn parent(&mut self, path: &Path) -> Result<Rc<OwnedFd>, Errno> {
        if path.as_os_str().is_empty() {
            return Ok(Rc::clone(&self.top));
        }
        if let Some(found) = self.open.get(path) {
            return Ok(Rc::clone(found));
        }
        let found = match open(&*self.top, path) {
            Ok(found) => Rc::new(found),
            Err(Errno::NOENT | Errno::NOTDIR) => {
                let above = self.parent(path.parent().unwrap_or(Path::new("")))?;
                let name = path.file_name().unwrap_or_default();
                if !self.make_directory(&above, name)? {
                    self.implied.insert(path.to_owned());
                }
                Rc::new(open(&*above, Path::new(name))?)
            }
            Err(errno) => return Err(errno),
        };
        self.keep(path, &found);
        Ok(found)
    }

    /// A directory stays one once it is there, so what was opened can be used again.
    fn keep(&mut self, path: &Path, directory: &Rc<OwnedFd>) {
        if path.as_os_str().is_empty() {
            return;
        }
        if self.open.len() == OPEN_MAX {
            self.open.clear();
        }
        self.open.insert(path.to_owned(), Rc::clone(directory));
    }

    /// Whether there is room: a full disk would harm more than this image.
    fn room(&mut self) -> io::Result<()> {
        if self.since_look < LOOK_BYTES && self.since_look > 0 {
            return Ok(());
        }
        self.since_look = 1;
        room(&*self.top)
    }
}

/// Whether the disk of a file has room.
pub(super) fn room(file: impl AsFd) -> io::Result<()> {
    let disk = rustix::fs::fstatvfs(file)?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let part = disk.f_blocks.saturating_mul(disk.f_frsize) / 100 * FREE_PERCENT;
    if free < part.min(IMAGE_DISK_FREE_BYTES) {
        return Err(io::Error::new(
            io::ErrorKind::StorageFull,
            format!(
                "the disk is nearly full: {} MiB are free, and images leave some of it",
                free / (1024 * 1024)
            ),
        ));
    }
    Ok(())
}

/// Copies all of a reader, as long as the disk has room.
pub(super) fn copy_while_there_is_room(from: &mut impl Read, to: &mut File) -> io::Result<()> {
    loop {
        room(&*to)?;
        if io::copy(&mut from.take(LOOK_BYTES), to)? < LOOK_BYTES {
            return Ok(());
        }
    }
}

/// A directory below another, never through a link.
pub(super) fn open(at: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    let path = match path.as_os_str().is_empty() {
        true => Path::new("."),
        false => path,
    };
    rustix::fs::openat2(
        at,
        path,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
    )
}

fn remove_old(parent: &OwnedFd, name: &OsStr) -> Result<(), Unmade> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::ISDIR) => Err(Unmade::Refused("it would take the place of a directory")),
        Err(errno) => Err(errno.into()),
    }
}

fn is_whiteout(parent: &OwnedFd, name: &OsStr) -> Result<bool, Errno> {
    let found = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let kind = FileType::from_raw_mode(found.st_mode);
    Ok(kind == FileType::CharacterDevice && found.st_rdev == 0)
}

/// Whether two names are one file already: then removing the old name would remove the file.
fn is_same(from: &OwnedFd, source: &OsStr, parent: &OwnedFd, name: &OsStr) -> Result<bool, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    let one = rustix::fs::statat(from, source, flags)?;
    match rustix::fs::statat(parent, name, flags) {
        Ok(other) => Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

fn own(file: impl AsFd, attributes: &Attributes) -> Result<(), Unmade> {
    if let Some((uid, gid)) = attributes.owner {
        rustix::fs::fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    }
    Ok(())
}

fn extend(file: impl AsFd, attributes: &Attributes) -> Result<(), Unmade> {
    for (name, value) in &attributes.extended {
        rustix::fs::fsetxattr(file.as_fd(), &**name, value, XattrFlags::empty())
            .map_err(extended_words)?;
    }
    Ok(())
}

fn extended_words(errno: Errno) -> io::Error {
    io::Error::other(format!(
        "its extended attributes cannot be kept on this file system: {}",
        io::Error::from(errno)
    ))
}

fn set_times(file: impl AsFd, modified: (i64, u32)) -> Result<(), Errno> {
    rustix::fs::futimens(file, &times(modified))
}

fn times((seconds, nanoseconds): (i64, u32)) -> Timestamps {
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds.into(),
    };
    Timestamps {
        last_access: time,
        last_modification: time,
    }
}
