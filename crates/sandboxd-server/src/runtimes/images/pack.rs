//! A directory with a root filesystem, as the tar of a layer: in one order, with owners, hard links and extended
//! attributes, so that the same directory always gives the same layer.

use super::unpack::UnpackError;
use rustix::fs::{AtFlags, FileType};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use tar::{Builder, EntryType, Header};

/// Bytes of a name that a header has room for; a longer one goes into an extension.
const NAME_BYTES: usize = 100;
/// Bytes of the extended attributes of one file.
const ATTRIBUTES_BYTES_MAX: usize = 256 * 1024;

/// Writes the tar of a directory.
pub(super) fn pack(directory: &Path, out: impl Write) -> Result<(), UnpackError> {
    let mut packer = Packer {
        tar: Builder::new(out),
        links: HashMap::new(),
    };
    packer.tree(directory)?;
    packer.tar.into_inner()?.flush()?;
    Ok(())
}

struct Packer<W: Write> {
    tar: Builder<W>,
    links: HashMap<(u64, u64), PathBuf>,
}

impl<W: Write> Packer<W> {
    fn tree(&mut self, top: &Path) -> Result<(), UnpackError> {
        let mut waiting = vec![PathBuf::new()];
        while let Some(path) = waiting.pop() {
            self.one(top, &path)?;
            let full = top.join(&path);
            if fs::symlink_metadata(&full)?.is_dir() {
                let mut names = Vec::new();
                for entry in fs::read_dir(&full)? {
                    names.push(entry?.file_name());
                }
                names.sort();
                waiting.extend(names.iter().rev().map(|name| path.join(name)));
            }
        }
        Ok(())
    }

    fn one(&mut self, top: &Path, path: &Path) -> Result<(), UnpackError> {
        let full = top.join(path);
        let found = fs::symlink_metadata(&full)?;
        let kind = FileType::from_raw_mode(found.mode());
        let shown = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        let mut header = Header::new_ustar();
        header.set_mode(found.mode() & 0o7777);
        header.set_uid(found.uid().into());
        header.set_gid(found.gid().into());
        header.set_mtime(u64::try_from(found.mtime()).unwrap_or(0));
        header.set_size(0);
        let mut records = Vec::new();
        if kind == FileType::Symlink {
            let target = fs::read_link(&full)?;
            header.set_entry_type(EntryType::Symlink);
            name(
                &mut header.as_old_mut().linkname,
                "linkpath",
                target.as_os_str().as_bytes(),
                &mut records,
            );
            return self.add(header, shown, records, io::empty());
        }
        match kind {
            FileType::Directory => header.set_entry_type(EntryType::Directory),
            FileType::RegularFile => {
                if found.nlink() > 1 {
                    let key = (found.dev(), found.ino());
                    if let Some(first) = self.links.get(&key) {
                        header.set_entry_type(EntryType::Link);
                        let first = first.as_os_str().as_bytes();
                        name(
                            &mut header.as_old_mut().linkname,
                            "linkpath",
                            first,
                            &mut records,
                        );
                        return self.add(header, shown, records, io::empty());
                    }
                    self.links.insert(key, path.to_owned());
                }
                header.set_entry_type(EntryType::Regular);
            }
            // A socket is nothing without its process, and a sandbox has a `/dev` of its own.
            FileType::Socket => return Ok(()),
            _ if path.starts_with("dev") => return Ok(()),
            _ => {
                return Err(UnpackError::Refused {
                    entry: path.display().to_string(),
                    why: "it is a device or a FIFO",
                });
            }
        }
        attributes(&full, &mut records)?;
        if kind == FileType::Directory {
            return self.add(header, shown, records, io::empty());
        }
        let file = File::open(&full)?;
        let size = file.metadata()?.len();
        header.set_size(size);
        self.add(header, shown, records, file.take(size))
    }

    fn add(
        &mut self,
        mut header: Header,
        path: &Path,
        mut records: Vec<(String, Vec<u8>)>,
        content: impl io::Read,
    ) -> Result<(), UnpackError> {
        let path = path.as_os_str().as_bytes();
        name(&mut header.as_old_mut().name, "path", path, &mut records);
        if !records.is_empty() {
            let records = records
                .iter()
                .map(|(key, value)| (key.as_str(), value.as_slice()));
            self.tar.append_pax_extensions(records)?;
        }
        header.set_cksum();
        self.tar.append(&header, content)?;
        Ok(())
    }
}

/// A name into its field, or into an extension where it is too long for it.
fn name(
    field: &mut [u8; NAME_BYTES],
    key: &str,
    bytes: &[u8],
    records: &mut Vec<(String, Vec<u8>)>,
) {
    let fits = bytes.len() <= NAME_BYTES;
    let shown = if fits { bytes } else { b"long" };
    for (to, from) in field.iter_mut().zip(shown) {
        *to = *from;
    }
    if !fits {
        records.push((key.to_owned(), bytes.to_vec()));
    }
}

fn attributes(path: &Path, records: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
    let mut names = vec![0_u8; ATTRIBUTES_BYTES_MAX];
    let length = match rustix::fs::listxattr(path, &mut names[..]) {
        Err(rustix::io::Errno::NOTSUP) => return Ok(()),
        length => length?,
    };
    names.truncate(length);
    let mut names: Vec<&[u8]> = names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .collect();
    names.sort_unstable();
    for name in names {
        let taken = name == b"security.capability"
            || name.starts_with(b"user.") && !name.starts_with(b"user.overlay.");
        if !taken {
            continue;
        }
        let mut value = vec![0_u8; ATTRIBUTES_BYTES_MAX];
        let length = rustix::fs::getxattr(path, name, &mut value[..])?;
        value.truncate(length);
        let key = format!("SCHILY.xattr.{}", String::from_utf8_lossy(name));
        records.push((key, value));
    }
    Ok(())
}

/// Whether a path is there at all, without following it.
pub(super) fn exists(path: &Path) -> bool {
    rustix::fs::statat(rustix::fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}
