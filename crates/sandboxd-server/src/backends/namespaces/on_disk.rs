//! Write layers as they are seen from beside the service, and how much is stored.

use super::account;
use super::layers::{KEPT, image_in};
use crate::id::SandboxId;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub use account::Stored;

/// A write layer on disk.
#[derive(Debug)]
pub struct LayerOnDisk {
    /// The sandbox that wrote it.
    pub sandbox: SandboxId,
    /// Where it is.
    pub path: PathBuf,
    /// The same, open.
    pub directory: OwnedFd,
    /// Whether it outlives its sandbox.
    pub kept: bool,
    /// The image that it lies over: a digest, or what else names it.
    pub image: Option<String>,
}

/// Every write layer below a state directory: those that are kept, and those of sandboxes that run or whose remains
/// nobody has removed yet.
///
/// # Errors
/// What the system says, but for what vanishes meanwhile.
pub fn layers_on_disk(state_dir: &Path) -> io::Result<Vec<LayerOnDisk>> {
    let mut all = Vec::new();
    gather(&state_dir.join(KEPT), true, &mut all)?;
    for instance in entries(&state_dir.join("instances"))? {
        gather(&instance.join("layers"), false, &mut all)?;
    }
    Ok(all)
}

fn gather(directory: &Path, kept: bool, all: &mut Vec<LayerOnDisk>) -> io::Result<()> {
    for path in entries(directory)? {
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(sandbox) = name.and_then(|name| SandboxId::parse(name).ok()) else {
            continue;
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = match rustix::fs::open(&path, flags, Mode::empty()) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
            opened => opened?,
        };
        all.push(LayerOnDisk {
            image: image_in(&path),
            sandbox,
            directory,
            kept,
            path,
        });
    }
    Ok(())
}

fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let read = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read?,
    };
    let mut found: Vec<PathBuf> = Vec::new();
    for entry in read {
        found.push(entry?.path());
    }
    found.sort();
    Ok(found)
}

/// How much is stored below a directory, itself included. Links are not followed, what has several names counts once.
pub fn stored_below(directory: BorrowedFd<'_>) -> Stored {
    account::count(directory, u64::MAX)
}

/// Removes a kept layer while no service runs; one that is not there is fine.
///
/// # Errors
/// What the system says.
pub fn remove_kept_layer(state_dir: &Path, sandbox: &SandboxId) -> io::Result<()> {
    let layer = state_dir.join(KEPT).join(sandbox.as_str());
    match sandboxd_jail::remains::remove_tree(&layer) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::instance::Instance;
    use super::super::layers::Layers;
    use super::*;
    use rustix::fd::AsFd as _;

    #[test]
    fn kept_layers_and_others_are_found_with_their_images_and_removed() {
        let state = tempfile::tempdir().unwrap();
        assert!(layers_on_disk(state.path()).unwrap().is_empty());
        let instance = Instance::make(state.path()).unwrap();
        let layers = Layers::new(state.path(), &instance).unwrap();
        let (kept, scratch) = (SandboxId::generate(), SandboxId::generate());
        let made = layers.make(&kept, true, None, "sha256:one").unwrap();
        fs::write(made.path.join("upper/file"), vec![1; 100_000]).unwrap();
        layers.make(&scratch, false, None, "host").unwrap();
        let all = layers_on_disk(state.path()).unwrap();
        let said: Vec<_> = all
            .iter()
            .map(|layer| (&layer.sandbox, layer.kept, layer.image.as_deref()))
            .collect();
        assert_eq!(
            said,
            [
                (&kept, true, Some("sha256:one")),
                (&scratch, false, Some("host"))
            ]
        );
        let stored = stored_below(all[0].directory.as_fd());
        assert!(stored.bytes >= 100_000 && stored.files >= 4, "{stored:?}");
        remove_kept_layer(state.path(), &kept).unwrap();
        remove_kept_layer(state.path(), &kept).unwrap();
        assert_eq!(layers_on_disk(state.path()).unwrap().len(), 1);
    }
}
