//! A root filesystem tar, unpacked once.
//!
//! The tar is believed to be what the operator meant, and nothing more: an entry that would land outside, that is no
//! plain file, directory or link, or that goes through a link is refused, and with it the whole image. It is unpacked
//! beside its place and renamed into it, so that a half-unpacked image is never one.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

/// Entries of one image.
const ENTRIES_MAX: u64 = 2_000_000;
/// Directories above one entry.
const DEPTH_MAX: usize = 128;
/// Bytes of one image, unpacked.
const BYTES_MAX: u64 = 64 * 1024 * 1024 * 1024;

/// Why a tar is no image.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// It cannot be read.
    #[error("{path}: {cause}")]
    Open {
        /// Which.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// An entry that is refused.
    #[error("the entry {entry:?} is refused: {why}")]
    Refused {
        /// Its name.
        entry: String,
        /// Why.
        why: &'static str,
    },
    /// An entry that cannot be made.
    #[error("the entry {entry:?}: {cause}")]
    Entry {
        /// Its name.
        entry: String,
        /// Why.
        cause: io::Error,
    },
    /// The archive itself, or the place it goes to.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// The directory of an unpacked tar, and its key; unpacks it if that has not been done. A tar that was changed since is
/// another image.
///
/// # Errors
///
/// Where it cannot be read, or is refused. Nothing is left then.
pub fn unpacked(tar: &Path, store: &Path) -> Result<(PathBuf, String), UnpackError> {
    let open = |cause| UnpackError::Open {
        path: tar.to_owned(),
        cause,
    };
    let tar_path = tar.canonicalize().map_err(open)?;
    let mut file = File::open(&tar_path).map_err(open)?;
    let metadata = file.metadata().map_err(open)?;
    let identity = format!(
        "{}\0{}\0{}\0{}.{}",
        tar_path.display(),
        metadata.len(),
        metadata.ino(),
        metadata.mtime(),
        metadata.mtime_nsec()
    );
    let digest = Sha256::digest(identity.as_bytes());
    let key: String = digest
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let place = store.join(&key);
    let root = place.join("root");
    if root.is_dir() {
        return Ok((root, key));
    }
    private(store)?;
    let lock = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(store.join(format!(".{key}.lock")))?;
    // Another daemon, or another session of this one, may be at it.
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).map_err(io::Error::from)?;
    if root.is_dir() {
        return Ok((root, key));
    }
    let making = store.join(format!(".{key}.making"));
    discard(&making)?;
    private(&making)?;
    let outcome = unpack(&mut file, &making.join("root"));
    let outcome = outcome.and_then(|()| std::fs::rename(&making, &place).map_err(Into::into));
    if let Err(error) = outcome {
        discard(&making)?;
        return Err(error);
    }
    Ok((root, key))
}

/// Removes what an unpacking that came to nothing left. Its depth is bounded by [`DEPTH_MAX`].
fn discard(making: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(making) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn private(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
}

fn unpack(file: &mut File, root: &Path) -> Result<(), UnpackError> {
    std::fs::create_dir(root)?;
    let top = rustix::fs::open(
        root,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(io::Error::from)?;
    rustix::fs::fchmod(&top, Mode::from_raw_mode(0o755)).map_err(io::Error::from)?;
    let owners = rustix::process::geteuid().is_root();
    let mut archive = tar::Archive::new(file);
    let mut bytes = 0_u64;
    let mut modes: Vec<(PathBuf, u32)> = Vec::new();
    for (number, entry) in archive.entries()?.enumerate() {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let name = path.display().to_string();
        let refuse = |why| UnpackError::Refused {
            entry: name.clone(),
            why,
        };
        bytes = bytes.saturating_add(entry.size());
        if number as u64 >= ENTRIES_MAX || bytes > BYTES_MAX {
            return Err(refuse("the image is too large"));
        }
        let Some(path) = inside(&path).ok_or_else(|| refuse("it lies outside the image"))? else {
            continue;
        };
        if path.components().count() > DEPTH_MAX {
            return Err(refuse("it lies too deep"));
        }
        let made = make(&top, &path, &mut entry, owners, &mut modes);
        made.map_err(|error| match error {
            Unmade::Refused(why) => refuse(why),
            Unmade::Failed(cause) => UnpackError::Entry {
                entry: name.clone(),
                cause,
            },
        })?;
    }
    // Last, so that a directory without write permission does not stop what comes into it.
    for (path, mode) in modes.iter().rev() {
        let directory = directory(&top, path).map_err(io::Error::from)?;
        rustix::fs::fchmod(&directory, Mode::from_raw_mode(*mode)).map_err(io::Error::from)?;
    }
    Ok(())
}

/// A path below the root, without `.`; nothing for the root itself, an error for what lies outside.
fn inside(path: &Path) -> Option<Option<PathBuf>> {
    let mut clean = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(part) if !part.as_bytes().contains(&0) => clean.push(part),
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some((!clean.as_os_str().is_empty()).then_some(clean))
}

enum Unmade {
    Refused(&'static str),
    Failed(io::Error),
}

impl From<Errno> for Unmade {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::LOOP | Errno::XDEV => Self::Refused("it goes through a link"),
            errno => Self::Failed(errno.into()),
        }
    }
}

impl From<io::Error> for Unmade {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

fn make<R: io::Read>(
    top: &OwnedFd,
    path: &Path,
    entry: &mut tar::Entry<'_, R>,
    owners: bool,
    modes: &mut Vec<(PathBuf, u32)>,
) -> Result<(), Unmade> {
    let kind = entry.header().entry_type();
    let mode = entry.header().mode()? & 0o7777;
    let name = path.file_name().unwrap_or_default();
    let parent = parents(top, path.parent().unwrap_or(Path::new("")))?;
    if kind.is_dir() {
        match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        // What exists may be a link: then it is none of ours.
        let made = directory(&parent, Path::new(name))?;
        own(&made, entry, owners)?;
        modes.push((path.to_owned(), mode));
        return Ok(());
    }
    remove_old(&parent, name)?;
    if kind.is_file() || kind.is_contiguous() {
        let file = rustix::fs::openat(
            &parent,
            name,
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::from_raw_mode(0o600),
        )?;
        let mut file = File::from(file);
        let size = entry.size();
        let copied = io::copy(&mut entry.by_ref().take(size), &mut file)?;
        if copied != size {
            return Err(Unmade::Refused("the archive ends in the middle of it"));
        }
        let file = OwnedFd::from(file);
        own(&file, entry, owners)?;
        // After the owner, since a change of owner takes setuid and setgid away.
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
    } else if kind.is_symlink() {
        let target = entry
            .link_name_bytes()
            .ok_or(Unmade::Refused("it is a link to nothing"))?;
        rustix::fs::symlinkat(&*target, &parent, name)?;
        if owners {
            let (uid, gid) = ids(entry)?;
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            rustix::fs::chownat(&parent, name, Some(uid), Some(gid), flags)?;
        }
    } else if kind.is_hard_link() {
        let target = entry
            .link_name()?
            .ok_or(Unmade::Refused("it is a link to nothing"))?;
        let target = inside(&target)
            .flatten()
            .ok_or(Unmade::Refused("it links to something outside the image"))?;
        let from = parents(top, target.parent().unwrap_or(Path::new("")))?;
        let source = target.file_name().unwrap_or_default();
        rustix::fs::linkat(&from, source, &parent, name, AtFlags::empty())?;
    } else if kind.is_character_special() && path.starts_with("dev") {
        // The sandbox has a `/dev` of its own.
    } else if kind.is_pax_global_extensions() {
        // Speaks of the archive, not of a file.
    } else {
        return Err(Unmade::Refused(
            "it is a device, a FIFO or something unknown",
        ));
    }
    Ok(())
}

fn remove_old(parent: &OwnedFd, name: &std::ffi::OsStr) -> Result<(), Unmade> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::ISDIR) => Err(Unmade::Refused("it would take the place of a directory")),
        Err(errno) => Err(errno.into()),
    }
}

/// A directory below the root that every entry's parents lie in; made where it is missing, never through a link.
fn parents(top: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    let mut at = rustix::io::fcntl_dupfd_cloexec(top, 3)?;
    for part in path {
        at = match directory(&at, Path::new(part)) {
            Err(Errno::NOENT) => {
                rustix::fs::mkdirat(&at, part, Mode::from_raw_mode(0o755))?;
                directory(&at, Path::new(part))?
            }
            other => other?,
        };
    }
    Ok(at)
}

fn directory(at: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::openat2(
        at,
        path,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
    )
}

fn ids<R: io::Read>(entry: &tar::Entry<'_, R>) -> Result<(Uid, Gid), Unmade> {
    let small = |id: u64| {
        u32::try_from(id)
            .ok()
            .filter(|id| *id < 65_536)
            .ok_or(Unmade::Refused("its owner is no id below 65536"))
    };
    let uid = small(entry.header().uid()?)?;
    let gid = small(entry.header().gid()?)?;
    Ok((Uid::from_raw(uid), Gid::from_raw(gid)))
}

fn own<R: io::Read>(file: &OwnedFd, entry: &tar::Entry<'_, R>, owners: bool) -> Result<(), Unmade> {
    if owners {
        let (uid, gid) = ids(entry)?;
        rustix::fs::fchown(file, Some(uid), Some(gid))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
