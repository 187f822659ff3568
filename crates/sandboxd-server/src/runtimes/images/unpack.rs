//! A tar, unpacked into a directory of its own.
//!
//! The tar is believed to be what its maker meant, and nothing more: an entry that would land outside, that is no plain
//! file, directory or link, or that goes through a link is refused, and with it the whole tar. A layer says what it
//! takes away from the layers below it by whiteouts; these become what overlayfs calls by that name, so that layers lie
//! over each other without being copied together.

use super::entries::{self, Entries, EntryError, Head, Kind};
use super::place::{Attributes, Place, Unmade};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

/// The prefix of a whiteout's name.
const WHITEOUT: &[u8] = b".wh.";
/// The whiteout of everything below a directory.
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Names that a former layer format used for itself.
const WHITEOUT_META: &[u8] = b".wh..wh.";

/// What a tar may be at most.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Entries.
    pub(super) entries: u64,
    /// Bytes, unpacked.
    pub(super) bytes: u64,
    /// Directories above one entry.
    pub(super) depth: usize,
}

impl Bounds {
    /// Those of images.
    pub(super) fn of_images() -> Self {
        use crate::limits::{IMAGE_DEPTH_MAX, IMAGE_ENTRIES_MAX, IMAGE_LAYER_BYTES_MAX};
        Self {
            entries: IMAGE_ENTRIES_MAX,
            bytes: IMAGE_LAYER_BYTES_MAX,
            depth: IMAGE_DEPTH_MAX,
        }
    }
}

/// How a tar is unpacked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    /// Files get the owners that the tar names; otherwise they are ours.
    pub(super) owners: bool,
    /// Whether whiteouts mean something, or are names like any other.
    pub(super) whiteouts: bool,
    /// What it may be at most.
    pub(super) bounds: Bounds,
}

/// What was unpacked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Unpacked {
    /// Bytes of all files together.
    pub(super) bytes: u64,
    /// Entries.
    pub(super) entries: u64,
    /// Directories that the tar has no entry for, but things in: a layer below has to say what they are.
    pub(super) implied: BTreeSet<PathBuf>,
}

/// Why a tar was not unpacked.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
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

impl From<EntryError> for UnpackError {
    fn from(error: EntryError) -> Self {
        match error {
            EntryError::Refused { entry, why } => Self::Refused { entry, why },
            EntryError::Io(error) => Self::Io(error),
        }
    }
}

/// Unpacks a tar into `root`, which is made, and reads it to its very end.
pub(super) fn unpack(tar: impl Read, root: &Path, rules: &Rules) -> Result<Unpacked, UnpackError> {
    let mut place = Place::make(root)?;
    let mut archive = tar::Archive::new(tar);
    let mut entries = Entries::of(&mut archive)?;
    let mut done = Unpacked::default();
    while let Some((head, mut content)) = entries.next()? {
        done.entries += 1;
        done.bytes = done.bytes.saturating_add(head.size);
        let name = || String::from_utf8_lossy(&head.path).into_owned();
        let refuse = |why| UnpackError::Refused { entry: name(), why };
        if done.entries > rules.bounds.entries {
            return Err(refuse("there are too many"));
        }
        if done.bytes > rules.bounds.bytes {
            return Err(refuse("there is too much in them"));
        }
        let path = Path::new(OsStr::from_bytes(&head.path));
        let path = inside(path).ok_or_else(|| refuse("it lies outside the image"))?;
        if path.components().count() > rules.bounds.depth {
            return Err(refuse("it lies too deep"));
        }
        one(&mut place, &path, &head, &mut content, rules).map_err(|error| match error {
            Unmade::Refused(why) => refuse(why),
            Unmade::Failed(cause) => UnpackError::Entry {
                entry: name(),
                cause,
            },
        })?;
    }
    done.implied = place.finish()?;
    // The digest is one of the whole, what follows the last entry included.
    io::copy(&mut archive.into_inner(), &mut io::sink())?;
    Ok(done)
}

/// A path below the root, without `.`; empty for the root itself, nothing for what lies outside.
fn inside(path: &Path) -> Option<PathBuf> {
    let mut clean = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => clean.push(part),
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(clean)
}

fn one(
    place: &mut Place,
    path: &Path,
    head: &Head,
    content: &mut impl Read,
    rules: &Rules,
) -> Result<(), Unmade> {
    let attributes = attributes(head, rules.owners)?;
    if head.kind == Kind::Directory {
        return place.directory(path, &attributes);
    }
    let Some(name) = path.file_name() else {
        return Err(Unmade::Refused("the root of an image is a directory"));
    };
    let parent = path.parent().unwrap_or(Path::new(""));
    if rules.whiteouts && name.as_bytes().starts_with(WHITEOUT) {
        return whiteout(place, parent, name.as_bytes());
    }
    match head.kind {
        Kind::File => place.file(parent, name, content, head.size, &attributes),
        Kind::Symlink if head.link.is_empty() => Err(Unmade::Refused("it is a link to nothing")),
        Kind::Symlink => place.symlink(parent, name, &head.link, &attributes),
        Kind::HardLink => {
            let target = inside(Path::new(OsStr::from_bytes(&head.link)));
            let target = target.filter(|target| target.file_name().is_some());
            let target =
                target.ok_or(Unmade::Refused("it links to something outside the image"))?;
            place.hard_link(parent, name, &target)
        }
        // The sandbox has a `/dev` of its own.
        Kind::Special if path.starts_with("dev") => Ok(()),
        Kind::Special => Err(Unmade::Refused("it is a device or a FIFO")),
        Kind::Directory => Ok(()),
    }
}

fn whiteout(place: &mut Place, parent: &Path, name: &[u8]) -> Result<(), Unmade> {
    if name == OPAQUE {
        return place.opaque(parent);
    }
    if name.starts_with(WHITEOUT_META) {
        return Ok(());
    }
    let hidden = name.get(WHITEOUT.len()..).unwrap_or_default();
    match hidden {
        b"" | b"." | b".." => Err(Unmade::Refused("it hides no name")),
        hidden => place.whiteout(parent, OsStr::from_bytes(hidden)),
    }
}

/// What is taken over of an entry's owners, bits and extended attributes.
fn attributes(head: &Head, owners: bool) -> Result<Attributes, Unmade> {
    let small = |id: u64| {
        u32::try_from(id)
            .ok()
            .filter(|id| *id < entries::IDS)
            .ok_or(Unmade::Refused("its owner is no id below 65536"))
    };
    let owner = match owners {
        true => Some((small(head.uid)?, small(head.gid)?)),
        false => None,
    };
    let mut extended = Vec::new();
    for (name, value) in &head.attributes {
        match fate(name) {
            Fate::Kept => extended.push((name.clone(), value.clone())),
            Fate::KeptByRoot if owners => extended.push((name.clone(), value.clone())),
            Fate::KeptByRoot | Fate::Dropped => {}
            Fate::Refused => {
                return Err(Unmade::Refused(
                    "it has an extended attribute that belongs to the file system itself",
                ));
            }
        }
    }
    Ok(Attributes {
        owner,
        // A set-uid file lends nothing inside a sandbox, and must lend nothing to whoever finds it on the host.
        mode: head.mode
            & if head.kind == Kind::Directory {
                0o3777
            } else {
                0o1777
            },
        modified: head.modified,
        extended,
    })
}

/// What becomes of an extended attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Kept,
    /// Only root can set it, and for others it would mean nothing.
    KeptByRoot,
    /// It speaks of the machine on which the image was made.
    Dropped,
    /// It would steer the overlay.
    Refused,
}

fn fate(name: &[u8]) -> Fate {
    match name {
        b"security.capability" | b"system.posix_acl_access" | b"system.posix_acl_default" => {
            Fate::KeptByRoot
        }
        name if name.starts_with(b"trusted.") || name.starts_with(b"user.overlay.") => {
            Fate::Refused
        }
        name if name.starts_with(b"user.") => Fate::Kept,
        _ => Fate::Dropped,
    }
}

#[cfg(test)]
pub(super) mod tests;
