//! Layers over each other, looked at without being mounted.

use super::place;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// What one layer says of a path.
#[derive(Debug)]
enum Says {
    /// There is something: its parent, and its kind.
    Something(OwnedFd, FileType),
    /// Nothing, and layers below may.
    Nothing,
    /// Nothing, and layers below do not count.
    Hidden,
}

fn ask(layer: &Path, path: &Path) -> io::Result<Says> {
    let mut at = rustix::fs::open(
        layer,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let mut below_counts = true;
    let mut parts = path.components().peekable();
    while let Some(part) = parts.next() {
        let name = part.as_os_str();
        let found = match rustix::fs::statat(&at, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => {
                return Ok(if below_counts {
                    Says::Nothing
                } else {
                    Says::Hidden
                });
            }
            found => found?,
        };
        let kind = FileType::from_raw_mode(found.st_mode);
        if kind == FileType::CharacterDevice {
            return Ok(Says::Hidden);
        }
        if parts.peek().is_none() {
            return Ok(Says::Something(at, kind));
        }
        if kind != FileType::Directory {
            return Ok(Says::Hidden);
        }
        at = place::open(&at, Path::new(name))?;
        below_counts &= !is_opaque(&at);
    }
    Ok(Says::Nothing)
}

fn is_opaque(directory: &OwnedFd) -> bool {
    let mut value = [0; 1];
    let got = rustix::fs::fgetxattr(directory, place::OPAQUE, &mut value[..]);
    got.is_ok_and(|length| length == 1) && value == *b"y"
}

/// The text of a file as a sandbox over these layers (the topmost first) sees it, up to a number of bytes; empty where
/// there is none. Links are not followed.
pub(super) fn text(layers: &[PathBuf], path: &Path, most: u64) -> io::Result<String> {
    for layer in layers {
        match ask(layer, path)? {
            Says::Nothing => {}
            Says::Something(parent, FileType::RegularFile) => {
                let file = rustix::fs::openat(
                    &parent,
                    path.file_name().unwrap_or_default(),
                    OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
                    Mode::empty(),
                )?;
                let mut bytes = Vec::new();
                File::from(file).take(most).read_to_end(&mut bytes)?;
                return Ok(String::from_utf8_lossy(&bytes).into_owned());
            }
            Says::Something(..) | Says::Hidden => break,
        }
    }
    Ok(String::new())
}

/// Of directories that a layer has things in and no entry for, the first that a layer below has as something else: a
/// link there would be meant to be followed, and is not.
pub(super) fn through_no_directory(
    below: &[PathBuf],
    implied: &[PathBuf],
) -> io::Result<Option<PathBuf>> {
    for path in implied {
        for layer in below {
            match ask(layer, path)? {
                Says::Nothing => {}
                Says::Something(_, FileType::Directory) | Says::Hidden => break,
                Says::Something(..) => return Ok(Some(path.clone())),
            }
        }
    }
    Ok(None)
}

/// Paths in one file: names may hold any byte but NUL.
pub(super) fn paths_of(bytes: &[u8]) -> Vec<PathBuf> {
    let names = bytes
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty());
    names
        .map(|name| PathBuf::from(std::ffi::OsStr::from_bytes(name)))
        .collect()
}

/// The same, the other way.
pub(super) fn bytes_of<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for path in paths {
        bytes.extend_from_slice(path.as_os_str().as_bytes());
        bytes.push(0);
    }
    bytes
}
