//! A root filesystem in a tar file that the configuration names, unpacked once.
//!
//! It is unpacked beside its place and renamed into it, so that a half-unpacked image is never one. A tar that was
//! changed since is another image.

use super::digest::Digest;
use super::locks;
use super::stream::{self, Cancel};
use super::unpack::{self, Bounds, Rules, UnpackError};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Where unpacked ones are, below the image store.
const PLACE: &str = "tars";

/// Why a tar is no image.
#[derive(Debug, thiserror::Error)]
pub(super) enum TarError {
    /// It cannot be read.
    #[error("{path}: {cause}")]
    Open {
        /// Which.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// What is in it.
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    /// The place it goes to.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// The directory of an unpacked tar, and its key; unpacks it if that has not been done.
pub(super) fn unpacked(
    tar: &Path,
    store: &Path,
    cancel: &Cancel,
) -> Result<(PathBuf, String), TarError> {
    let open = |cause| TarError::Open {
        path: tar.to_owned(),
        cause,
    };
    let path = tar.canonicalize().map_err(open)?;
    let file = File::open(&path).map_err(open)?;
    let metadata = file.metadata().map_err(open)?;
    let identity = format!(
        "{}\0{}\0{}\0{}.{}",
        path.display(),
        metadata.len(),
        metadata.ino(),
        metadata.mtime(),
        metadata.mtime_nsec()
    );
    let key: String = Digest::of(identity.as_bytes())
        .hex()
        .chars()
        .take(32)
        .collect();
    let place = store.join(PLACE).join(&key);
    let root = place.join("root");
    if root.is_dir() {
        return Ok((root, key));
    }
    locks::private(&store.join(PLACE))?;
    // Another daemon, or another session of this one, may be at it.
    let lock = format!("tar-{key}");
    let _making = locks::take(store, &lock, cancel)?;
    if root.is_dir() {
        return Ok((root, key));
    }
    let making = locks::making(store, &lock)?;
    let outcome = (|| {
        fs::write(making.join("source"), path.as_os_str().as_encoded_bytes())?;
        let tar = stream::tar_of(file, metadata.len(), cancel.clone())?;
        let rules = Rules {
            owners: rustix::process::geteuid().is_root(),
            whiteouts: false,
            bounds: Bounds::of_images(),
        };
        unpack::unpack(tar, &making.join("root"), &rules)?;
        locks::commit(&making, &place)?;
        Ok(())
    })();
    if outcome.is_err() {
        locks::discard(&making)?;
    }
    outcome.map(|()| (root, key))
}

/// Removes what was unpacked from tars that are no more where they were. How many there were.
pub(super) fn forget_gone(store: &Path) -> io::Result<usize> {
    let mut gone = 0;
    for place in locks::entries(&store.join(PLACE))? {
        let source = fs::read(place.join("source")).unwrap_or_default();
        use std::os::unix::ffi::OsStrExt as _;
        let source = Path::new(std::ffi::OsStr::from_bytes(&source));
        if source.as_os_str().is_empty() || !source.exists() {
            locks::discard(&place)?;
            gone += 1;
        }
    }
    Ok(gone)
}

#[cfg(test)]
mod tests;
