//! The files in an archive of images, whether it is a directory or a tar: found by name, and never outside of it.

use super::super::digest::Digest;
use super::super::error::{ImageError, at};
use super::super::manifest::{DOCUMENT_BYTES_MAX, Descriptor};
use super::super::{pack, place};
use rustix::fs::{Mode, OFlags};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

/// Files in an archive of images.
const MEMBERS_MAX: usize = 100_000;
/// Links between files of an archive that are followed.
const LINKS_MAX: usize = 8;

/// The files of an archive of images.
pub(super) enum Members {
    Directory(PathBuf),
    Tar {
        file: File,
        index: BTreeMap<Vec<u8>, Member>,
    },
}

/// Where a file lies in a tar, or what it is a link to.
pub(super) enum Member {
    At { offset: u64, size: u64 },
    Link(Vec<u8>),
}

impl Members {
    pub(super) fn index(mut file: File) -> io::Result<Self> {
        file.seek(SeekFrom::Start(0))?;
        let mut archive = tar::Archive::new(file.try_clone()?);
        let mut index = BTreeMap::new();
        for entry in archive.entries_with_seek()? {
            let entry = entry?;
            let name = entry.path_bytes().into_owned();
            let name = name.strip_prefix(b"./").unwrap_or(&name).to_vec();
            let kind = entry.header().entry_type();
            let member = if kind.is_file() {
                Member::At {
                    offset: entry.raw_file_position(),
                    size: entry.size(),
                }
            } else if kind.is_symlink() || kind.is_hard_link() {
                let target = entry.link_name_bytes().unwrap_or_default();
                Member::Link(beside(&name, &target, kind.is_symlink()))
            } else {
                continue;
            };
            index.insert(name, member);
            // A root filesystem has many files, and none of these names.
            if index.len() > MEMBERS_MAX {
                break;
            }
        }
        Ok(Self::Tar { file, index })
    }

    pub(super) fn has(&self, name: &str) -> bool {
        match self {
            Self::Directory(directory) => pack::exists(&directory.join(name)),
            Self::Tar { index, .. } => index.contains_key(name.as_bytes()),
        }
    }

    /// A file and its size.
    pub(super) fn open(&self, name: &str) -> Result<(Box<dyn Read>, u64), ImageError> {
        let missing = || ImageError::Useless(format!("it has no file {name:?}"));
        match self {
            Self::Directory(directory) => {
                let name = Path::new(name);
                let top = File::open(directory).map_err(at(directory))?;
                let parent = place::open(&top, name.parent().unwrap_or(Path::new("")));
                let opened = parent.and_then(|parent| {
                    let flags =
                        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
                    let name = name.file_name().unwrap_or_default();
                    rustix::fs::openat(&parent, name, flags, Mode::empty())
                });
                let file = File::from(opened.map_err(|_| missing())?);
                let found = file.metadata().map_err(at(directory))?;
                match found.is_file() {
                    true => Ok((Box::new(file), found.len())),
                    false => Err(missing()),
                }
            }
            Self::Tar { file, index } => {
                let mut name = name.as_bytes();
                for _ in 0..LINKS_MAX {
                    match index.get(name) {
                        Some(Member::Link(target)) => name = target,
                        Some(Member::At { offset, size }) => {
                            let part = Part {
                                file: file.try_clone().map_err(at("archive"))?,
                                at: *offset,
                                end: offset.saturating_add(*size),
                            };
                            return Ok((Box::new(part), *size));
                        }
                        None => break,
                    }
                }
                Err(missing())
            }
        }
    }

    pub(super) fn document(&self, name: &str) -> Result<Vec<u8>, ImageError> {
        let (reader, size) = self.open(name)?;
        let mut bytes = Vec::new();
        reader
            .take(DOCUMENT_BYTES_MAX)
            .read_to_end(&mut bytes)
            .map_err(at(name))?;
        match bytes.len() as u64 == size {
            true => Ok(bytes),
            false => Err(ImageError::Useless(format!(
                "{name} is cut short or too large"
            ))),
        }
    }

    /// A document by its digest.
    pub(super) fn blob(&self, descriptor: &Descriptor) -> Result<Vec<u8>, ImageError> {
        let wanted = descriptor.digest().map_err(ImageError::Useless)?;
        let bytes = self.document(&blob_path(&wanted))?;
        let found = Digest::of(&bytes);
        match found == wanted {
            true => Ok(bytes),
            false => Err(ImageError::Digest {
                what: blob_path(&wanted),
                wanted,
                found,
            }),
        }
    }
}

/// A part of a file, read at its own place, whoever else reads the file.
struct Part {
    file: File,
    at: u64,
    end: u64,
}

impl Read for Part {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        use std::os::unix::fs::FileExt as _;
        let left = usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let most = left.min(buffer.len());
        let read = self
            .file
            .read_at(buffer.get_mut(..most).unwrap_or_default(), self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

pub(super) fn blob_path(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

/// What a link in an archive means there: a symbolic one counts from its own directory.
fn beside(name: &[u8], target: &[u8], symbolic: bool) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = match symbolic {
        true => name.split(|byte| *byte == b'/').collect(),
        false => Vec::new(),
    };
    parts.pop();
    for part in target.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join(&b'/')
}
