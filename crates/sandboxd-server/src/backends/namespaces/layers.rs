//! Write layers on disk.
//!
//! A layer is a directory with `upper` and `work` in it. One that may be kept lies in the state directory, with a note of
//! the id range that it was written with and of the boot during which it was last in use; any other lies in the
//! instance's own directory and goes with it. A layer that was in use when the host went down may be torn, and is marked as
//! such for good.

use super::instance::{Instance, private};
use crate::id::SandboxId;
use rustix::fd::OwnedFd;
use rustix::process::{Gid, Uid};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The directory of layers that may be kept, in a state directory.
pub(super) const KEPT: &str = "layers";
/// The file with the note.
const NOTE: &str = "note";
/// Its next content, on its way.
const FRESH_NOTE: &str = "note.new";

/// Where layers are.
#[derive(Debug)]
pub(super) struct Layers {
    kept: PathBuf,
    scratch: PathBuf,
    trash: PathBuf,
    boot: String,
}

/// One layer, ready to be mounted.
#[derive(Debug)]
pub(super) struct Layer {
    /// Where it is.
    pub(super) path: PathBuf,
    /// Its descriptor.
    pub(super) directory: OwnedFd,
}

/// What a kept layer's note says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Note {
    /// The first id of the range that it was written with; without privilege none.
    pub(super) range: Option<u32>,
    /// Whether everything in it reached the disk at each of its ends, or the host has been up since.
    pub(super) whole: bool,
    /// The image that it lies over.
    pub(super) image: String,
}

impl Note {
    fn text(&self, boot: &str) -> String {
        let range = self.range;
        let range = range.map_or_else(|| "-".to_owned(), |first| first.to_string());
        let torn = if self.whole { "" } else { "torn\n" };
        format!("{range}\n{boot}\n{}\n{torn}", self.image)
    }
}

impl Layers {
    /// In a state directory, for one instance.
    pub(super) fn new(state_dir: &Path, instance: &Instance) -> io::Result<Self> {
        let kept = state_dir.join(KEPT);
        private(&kept)?;
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Ok(Self {
            kept,
            scratch: instance.layers(),
            trash: instance.trash(),
            boot: boot.trim().to_owned(),
        })
    }

    fn path(&self, id: &SandboxId, kept: bool) -> PathBuf {
        let base = if kept { &self.kept } else { &self.scratch };
        base.join(id.as_str())
    }

    /// Makes a fresh layer whose root belongs to `range` (where there is one).
    pub(super) fn make(
        &self,
        id: &SandboxId,
        kept: bool,
        range: Option<u32>,
        image: &str,
    ) -> io::Result<Layer> {
        let path = self.path(id, kept);
        self.throw_away(&path)?;
        private(&path)?;
        let note = Note {
            range,
            whole: true,
            image: image.to_owned(),
        };
        write_note(&path, &note.text(&self.boot))?;
        for part in ["upper", "work"] {
            let directory = path.join(part);
            fs::create_dir(&directory)?;
            set_mode(&directory, 0o755)?;
            if let Some(first) = range {
                let (uid, gid) = (Uid::from_raw(first), Gid::from_raw(first));
                rustix::fs::chown(&directory, Some(uid), Some(gid))?;
            }
        }
        Self::opened(path)
    }

    /// What a sandbox whose layer goes with it has written.
    pub(super) fn scratch_upper(&self, id: &SandboxId) -> PathBuf {
        self.path(id, false).join("upper")
    }

    /// Makes a scratch layer one that may be kept, for the sandbox that it is now.
    pub(super) fn hand_over(&self, from: &SandboxId, to: &SandboxId) -> io::Result<()> {
        fs::rename(self.path(from, false), self.path(to, true))
    }

    /// Opens a kept layer; nothing where there is none.
    pub(super) fn open(&self, id: &SandboxId) -> io::Result<Option<(Layer, Note)>> {
        let path = self.path(id, true);
        let Some(note) = self.note(&path) else {
            return Ok(None);
        };
        if !path.join("upper").is_dir() {
            return Ok(None);
        }
        // From now on it is in use again, in this boot.
        write_note(&path, &note.text(&self.boot))?;
        Ok(Some((Self::opened(path)?, note)))
    }

    fn opened(path: PathBuf) -> io::Result<Layer> {
        let directory = fs::File::open(&path)?.into();
        Ok(Layer { path, directory })
    }

    fn note(&self, path: &Path) -> Option<Note> {
        note(path, &self.boot)
    }

    /// The range that a kept layer was written with.
    pub(super) fn range(&self, id: &SandboxId) -> Option<u32> {
        self.note(&self.path(id, true))?.range
    }

    /// The image that a kept layer lies over.
    pub(super) fn image(&self, id: &SandboxId) -> Option<String> {
        Some(self.note(&self.path(id, true))?.image)
    }

    /// The ranges that kept layers were written with: nobody else may have them.
    pub(super) fn ranges(&self) -> Vec<u32> {
        self.kept()
            .into_iter()
            .filter_map(|id| self.note(&self.path(&id, true))?.range)
            .collect()
    }

    /// Every kept layer.
    pub(super) fn kept(&self) -> Vec<SandboxId> {
        fs::read_dir(&self.kept)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| SandboxId::parse(entry.file_name().to_str()?).ok())
            .collect()
    }

    /// Writes a layer to disk, once, and notes that.
    pub(super) fn keep(&self, id: &SandboxId) -> io::Result<()> {
        let path = self.path(id, true);
        rustix::fs::syncfs(fs::File::open(&path)?)?;
        let note = self.note(&path);
        let note = note.ok_or_else(|| io::Error::other("the layer's note is missing"))?;
        write_note(&path, &note.text("synced"))
    }

    /// Removes a sandbox's layer: at once out of sight, the content later.
    pub(super) fn remove(&self, id: &SandboxId) -> io::Result<()> {
        self.throw_away(&self.path(id, true))?;
        self.throw_away(&self.path(id, false))
    }

    fn throw_away(&self, path: &Path) -> io::Result<()> {
        let target = self.trash.join(SandboxId::generate().as_str());
        match fs::rename(path, target) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Deletes what was thrown away. Slow; off every path on which somebody waits.
    pub(super) fn empty_trash(&self) {
        for entry in fs::read_dir(&self.trash).into_iter().flatten().flatten() {
            if let Err(errno) = sandboxd_jail::remains::remove_tree(&entry.path()) {
                tracing::warn!(path = %entry.path().display(), %errno, "a layer could not be deleted");
            }
        }
    }
}

/// The images that kept layers of a state directory lie over.
pub(super) fn images_of(state_dir: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(state_dir.join(KEPT))
        .into_iter()
        .flatten()
        .flatten();
    entries
        .filter_map(|entry| image_in(&entry.path()))
        .collect()
}

/// The image that the layer in a directory lies over.
pub(super) fn image_in(layer: &Path) -> Option<String> {
    Some(note(layer, "")?.image)
}

fn note(path: &Path, now: &str) -> Option<Note> {
    let text = fs::read_to_string(path.join(NOTE)).ok()?;
    let mut lines = text.lines();
    let range = match lines.next()? {
        "-" => None,
        first => Some(first.parse().ok()?),
    };
    let boot = lines.next()?;
    let image = lines.next().unwrap_or_default().to_owned();
    let torn = lines.next() == Some("torn");
    Some(Note {
        range,
        image,
        whole: !torn && (boot == "synced" || boot == now),
    })
}

/// Whole or not at all: a disk that is full must not cost a layer its note, without which nobody can use it.
fn write_note(layer: &Path, text: &str) -> io::Result<()> {
    let fresh = layer.join(FRESH_NOTE);
    fs::write(&fresh, text)?;
    fs::rename(fresh, layer.join(NOTE))
}

fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_layer_remembers_its_range_and_whether_it_is_whole() {
        let state = tempfile::tempdir().unwrap();
        let instance = Instance::make(state.path()).unwrap();
        let mut layers = Layers::new(state.path(), &instance).unwrap();
        let id = SandboxId::generate();
        assert!(layers.open(&id).unwrap().is_none());
        layers.make(&id, true, None, "image").unwrap();
        let note = |layers: &Layers| layers.open(&id).unwrap().unwrap().1;
        assert_eq!(
            note(&layers),
            Note {
                range: None,
                whole: true,
                image: "image".to_owned(),
            }
        );
        // Another boot while it was in use.
        layers.boot = "another".to_owned();
        assert!(!note(&layers).whole);
        // Not forgotten by the wake that found it, nor by a sleep after it.
        assert!(!note(&layers).whole);
        layers.keep(&id).unwrap();
        layers.boot = "a third".to_owned();
        assert!(!note(&layers).whole);
        // Kept well, the next boot finds it whole.
        layers.make(&id, true, None, "image").unwrap();
        layers.keep(&id).unwrap();
        layers.boot = "a fourth".to_owned();
        assert!(note(&layers).whole);
        assert_eq!(layers.kept(), std::slice::from_ref(&id));
        layers.remove(&id).unwrap();
        assert!(layers.open(&id).unwrap().is_none());
        layers.empty_trash();
        assert_eq!(fs::read_dir(instance.trash()).unwrap().count(), 0);
    }
}
