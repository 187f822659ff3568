//! Layers whose owners are shifted on disk, for file systems whose mounts cannot do that.
//!
//! A layer is copied once, with every owner moved into one range of ids, and the copy is shared by all sandboxes: they have
//! that one range then, and not one each. Where mounts map owners nobody needs a copy.

use super::error::{ImageError, at};
use super::locks;
use super::place::{self, Attributes, Place, Unmade};
use super::store::Images;
use super::stream::Cancel;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Bytes of one file's list of attributes, and of one attribute.
const ATTRIBUTE_BYTES_MAX: usize = 64 * 1024;

impl Images {
    /// Copies of layers of this store (their root directories) whose owners begin at `first`; made where they are not here
    /// yet. Blocks. The layers are held by whoever asks.
    ///
    /// # Errors
    /// What the file system says; no half of a copy is left.
    pub fn shifted(&self, layers: &[PathBuf], first: u32) -> Result<Vec<PathBuf>, ImageError> {
        let all = layers.iter().map(|root| self.shifted_layer(root, first));
        all.collect()
    }

    fn shifted_layer(&self, root: &Path, first: u32) -> Result<PathBuf, ImageError> {
        let layer = root.parent().unwrap_or(root);
        let place = shifted_place(layer).ok_or_else(|| {
            ImageError::Useless(format!("{} is no layer of this store", root.display()))
        })?;
        if place.is_dir() {
            return Ok(place.join("root"));
        }
        let name = place.file_name().unwrap_or_default().to_string_lossy();
        let _adding = locks::adding(self.home()).map_err(at(self.home()))?;
        let lock = locks::take(self.home(), &name, &Cancel::default());
        let _making = lock.map_err(at(self.home()))?;
        if place.is_dir() {
            return Ok(place.join("root"));
        }
        tracing::info!(layer = %layer.display(), "copying it, since its file system has no idmapped mounts");
        let making = locks::making(self.home(), &name).map_err(at(self.home()))?;
        let copied = copy(root, &making.join("root"), first).and_then(|()| {
            fs::copy(layer.join("facts"), making.join("facts"))?;
            locks::commit(&making, &place)
        });
        if copied.is_err() {
            locks::discard(&making).map_err(at(&making))?;
        }
        copied.map_err(at(&place))?;
        Ok(place.join("root"))
    }
}

/// Where the copy of a layer is, beside it.
pub(super) fn shifted_place(layer: &Path) -> Option<PathBuf> {
    let hex = layer.file_name()?.to_str()?.strip_prefix("owned-")?;
    Some(layer.with_file_name(format!("shifted-{hex}")))
}

fn copy(from: &Path, to: &Path, first: u32) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = rustix::fs::open(from, flags, Mode::empty())?;
    let mut copying = Copying {
        to: Place::make(to)?,
        first,
        linked: HashMap::new(),
    };
    let attributes = copying.attributes(&top, &rustix::fs::fstat(&top)?)?;
    made(copying.to.directory(Path::new(""), &attributes))?;
    let mut waiting = vec![PathBuf::new()];
    while let Some(path) = waiting.pop() {
        let directory = place::open(&top, &path)?;
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let name = OsStr::from_bytes(name.to_bytes());
            if copying.entry(&directory, &path, name)? {
                waiting.push(path.join(name));
            }
        }
    }
    copying.to.finish().map(drop)
}

struct Copying {
    to: Place,
    first: u32,
    /// What has several names, by the first of them that was met.
    linked: HashMap<(u64, u64), PathBuf>,
}

impl Copying {
    /// Copies one entry of a directory; whether it is one itself.
    fn entry(&mut self, from: &OwnedFd, path: &Path, name: &OsStr) -> io::Result<bool> {
        let status = rustix::fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let kind = FileType::from_raw_mode(status.st_mode);
        if kind != FileType::Directory && status.st_nlink > 1 {
            let id = (status.st_dev, status.st_ino);
            if let Some(target) = self.linked.get(&id) {
                let target = target.clone();
                made(self.to.hard_link(path, name, &target))?;
                return Ok(false);
            }
            self.linked.insert(id, path.join(name));
        }
        match kind {
            FileType::Directory => {
                let directory = place::open(from, Path::new(name))?;
                let attributes = self.attributes(&directory, &status)?;
                made(self.to.directory(&path.join(name), &attributes))?;
            }
            FileType::RegularFile => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = rustix::fs::openat(from, name, flags, Mode::empty())?;
                let attributes = self.attributes(&file, &status)?;
                let size = u64::try_from(status.st_size).unwrap_or(0);
                let mut file = File::from(file);
                made(self.to.file(path, name, &mut file, size, &attributes))?;
            }
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(from, name, Vec::new())?;
                let attributes = self.plain(&status, Vec::new());
                made(self.to.symlink(path, name, target.to_bytes(), &attributes))?;
            }
            FileType::CharacterDevice if status.st_rdev == 0 => {
                made(self.to.whiteout(path, name))?;
            }
            _ => return Err(io::Error::other("a layer has what no layer can have")),
        }
        Ok(kind == FileType::Directory)
    }

    fn attributes(&self, file: impl AsFd, status: &Stat) -> io::Result<Attributes> {
        Ok(self.plain(status, extended(file)?))
    }

    fn plain(&self, status: &Stat, extended: Vec<(Vec<u8>, Vec<u8>)>) -> Attributes {
        let nanoseconds = u32::try_from(status.st_mtime_nsec).unwrap_or(0);
        Attributes {
            owner: Some((
                self.first.saturating_add(status.st_uid),
                self.first.saturating_add(status.st_gid),
            )),
            mode: status.st_mode & 0o7777,
            modified: (status.st_mtime, nanoseconds),
            extended,
        }
    }
}

fn made(outcome: Result<(), Unmade>) -> io::Result<()> {
    outcome.map_err(|unmade| match unmade {
        Unmade::Refused(why) => io::Error::other(why),
        Unmade::Failed(error) => error,
    })
}

/// The attributes that layers keep: files' own, and what the overlay reads.
fn extended(file: impl AsFd) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut names = vec![0_u8; ATTRIBUTE_BYTES_MAX];
    let length = match rustix::fs::flistxattr(&file, &mut names) {
        Err(Errno::OPNOTSUPP) => 0,
        other => other?,
    };
    names.truncate(length);
    let mut all = Vec::new();
    for name in names.split(|byte| *byte == 0) {
        if !name.starts_with(b"user.") {
            continue;
        }
        let mut value = vec![0_u8; ATTRIBUTE_BYTES_MAX];
        let length = rustix::fs::fgetxattr(&file, name, &mut value)?;
        value.truncate(length);
        all.push((name.to_vec(), value));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};

    #[test]
    fn a_copy_differs_in_nothing_but_its_owners() {
        if !rustix::process::geteuid().is_root() {
            println!("needs root");
            return;
        }
        let home = tempfile::tempdir().unwrap();
        let from = home.path().join("layers/owned-abc");
        let root = from.join("root");
        fs::create_dir_all(root.join("usr/closed")).unwrap();
        fs::write(from.join("facts"), b"{}").unwrap();
        fs::write(root.join("usr/file"), b"content").unwrap();
        fs::hard_link(root.join("usr/file"), root.join("again")).unwrap();
        symlink("usr/file", root.join("link")).unwrap();
        chown(root.join("usr/file"), Some(5), Some(6)).unwrap();
        std::os::unix::fs::lchown(root.join("link"), Some(7), Some(7)).unwrap();
        let mode = fs::Permissions::from_mode(0o500);
        fs::set_permissions(root.join("usr/closed"), mode).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            root.join("gone"),
            FileType::CharacterDevice,
            Mode::empty(),
            0,
        )
        .unwrap();
        let opaque = File::open(root.join("usr")).unwrap();
        let name = "user.overlay.opaque";
        rustix::fs::fsetxattr(&opaque, name, b"y", rustix::fs::XattrFlags::empty()).unwrap();
        let store = Images::at_home(home.path());
        let first = 0x7000_0000;
        let copies = store.shifted(std::slice::from_ref(&root), first).unwrap();
        let copy = home.path().join("layers/shifted-abc/root");
        assert_eq!(copies, std::slice::from_ref(&copy));
        for path in ["", "usr", "usr/closed", "usr/file", "again", "link"] {
            let (old, new) = (root.join(path), copy.join(path));
            let (old, new) = (
                old.symlink_metadata().unwrap(),
                new.symlink_metadata().unwrap(),
            );
            let owners = (first + old.uid(), first + old.gid());
            assert_eq!((new.uid(), new.gid()), owners, "{path}");
            assert_eq!(new.mode(), old.mode(), "{path}");
            assert_eq!(
                (new.mtime(), new.mtime_nsec()),
                (old.mtime(), old.mtime_nsec())
            );
        }
        assert_eq!(fs::read(copy.join("usr/file")).unwrap(), b"content");
        assert_eq!(
            fs::read_link(copy.join("link")).unwrap(),
            Path::new("usr/file")
        );
        let ino = |path: &str| copy.join(path).metadata().unwrap().ino();
        assert_eq!(ino("again"), ino("usr/file"));
        let gone = copy.join("gone").symlink_metadata().unwrap();
        assert_eq!(gone.rdev(), 0);
        assert!(gone.mode() & 0o170_000 == 0o020_000);
        let mut value = [0];
        let opaque = File::open(copy.join("usr")).unwrap();
        rustix::fs::fgetxattr(&opaque, name, &mut value[..]).unwrap();
        assert_eq!(value, *b"y");
        // Made once.
        fs::write(copy.join("mark"), b"").unwrap();
        store.shifted(&[root], first).unwrap();
        assert!(copy.join("mark").exists());
    }
}
