//! A directory with a root filesystem, as the tar of a layer: in one order, with owners, hard links and extended
//! attributes, so that the same directory always gives the same layer; and what a sandbox changed, as the layer that
//! changes the same.

use super::place;
use super::unpack::UnpackError;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
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

/// What begins the name that hides another one in the layers below, and what hides all of a directory.
const WHITEOUT: &str = ".wh.";
const OPAQUE: &str = ".wh..wh..opq";

/// Writes the tar of a directory.
pub(super) fn pack(directory: &Path, out: impl Write) -> Result<(), UnpackError> {
    packed(directory, None, out)
}

/// What a write layer of an overlay holds beside files of its own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Changes<'a> {
    /// The id that is root's inside; nothing where owners mean nothing.
    pub(super) first: Option<u32>,
    /// Paths that are the sandbox's and not the image's, with all below them.
    pub(super) left_out: &'a [&'a str],
}

/// Writes the tar of the layer that changes what a sandbox changed. Nobody may write there any more.
pub(super) fn pack_changes(
    upper: &Path,
    changes: Changes<'_>,
    out: impl Write,
) -> Result<(), UnpackError> {
    packed(upper, Some(changes), out)
}

fn packed(
    directory: &Path,
    changes: Option<Changes<'_>>,
    out: impl Write,
) -> Result<(), UnpackError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = rustix::fs::open(directory, flags, Mode::empty()).map_err(io::Error::from)?;
    let mut packer = Packer {
        top,
        tar: Builder::new(out),
        links: HashMap::new(),
        changes,
    };
    packer.tree(directory)?;
    packer.tar.into_inner()?.flush()?;
    Ok(())
}

struct Packer<'a, W: Write> {
    top: OwnedFd,
    tar: Builder<W>,
    links: HashMap<(u64, u64), PathBuf>,
    changes: Option<Changes<'a>>,
}

impl<W: Write> Packer<'_, W> {
    fn tree(&mut self, top: &Path) -> Result<(), UnpackError> {
        let mut waiting = vec![PathBuf::new()];
        while let Some(path) = waiting.pop() {
            let mut left_out = self.changes.iter().flat_map(|changes| changes.left_out);
            if left_out.any(|one| path == Path::new(one)) {
                continue;
            }
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
        // The kernel's own, and nobody's inside.
        if kind == FileType::CharacterDevice && self.changes.is_some() && found.rdev() == 0 {
            return self.hidden(path);
        }
        let mut header = Header::new_ustar();
        header.set_mode(found.mode() & 0o7777);
        header.set_uid(self.inside(path, found.uid())?.into());
        header.set_gid(self.inside(path, found.gid())?.into());
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
            // Nothing without its processes, and they have ended.
            FileType::Fifo if self.changes.is_some() => return Ok(()),
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
        let file = self.open(path, &found)?;
        attributes(&file, &mut records)?;
        self.check_notes(path, &full)?;
        if kind == FileType::Directory {
            let opaque = self.changes.is_some() && overlay_note(&full, "opaque");
            self.add(header, shown, records, io::empty())?;
            return match opaque {
                true => self.whiteout(&path.join(OPAQUE)),
                false => Ok(()),
            };
        }
        let size = file.metadata()?.len();
        header.set_size(size);
        self.add(header, shown, records, file.take(size))
    }

    /// Opens what was found at a path. Somebody may change the directory meanwhile: nothing is followed out of it.
    fn open(&self, path: &Path, found: &fs::Metadata) -> Result<File, UnpackError> {
        let changed = || UnpackError::Refused {
            entry: path.display().to_string(),
            why: "it was changed while it was read",
        };
        let opened = match path.file_name() {
            None => place::open(&self.top, path),
            Some(name) => {
                let parent = path.parent().unwrap_or(Path::new(""));
                place::open(&self.top, parent).and_then(|parent| {
                    let flags =
                        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                    rustix::fs::openat(parent, name, flags, Mode::empty())
                })
            }
        };
        let file = match opened {
            Ok(file) => File::from(file),
            Err(Errno::LOOP | Errno::XDEV | Errno::NOTDIR | Errno::NOENT) => return Err(changed()),
            Err(errno) => {
                return Err(UnpackError::Entry {
                    entry: path.display().to_string(),
                    cause: errno.into(),
                });
            }
        };
        let now = file.metadata()?;
        if (now.dev(), now.ino()) == (found.dev(), found.ino()) {
            Ok(file)
        } else {
            Err(changed())
        }
    }

    /// The id that a sandbox sees.
    fn inside(&self, path: &Path, id: u32) -> Result<u32, UnpackError> {
        let Some(first) = self.changes.and_then(|changes| changes.first) else {
            return Ok(id);
        };
        id.checked_sub(first).ok_or_else(|| UnpackError::Refused {
            entry: path.display().to_string(),
            why: "its owner is none of the sandbox's",
        })
    }

    /// Some kernels note where something came from, instead of having it here.
    fn check_notes(&self, path: &Path, full: &Path) -> Result<(), UnpackError> {
        let mut notes = ["redirect", "metacopy"].iter();
        if self.changes.is_some() && notes.any(|note| overlay_note(full, note)) {
            return Err(UnpackError::Refused {
                entry: path.display().to_string(),
                why: "the kernel keeps a part of it in another layer (redirect_dir or metacopy of overlay)",
            });
        }
        Ok(())
    }

    /// What is gone.
    fn hidden(&mut self, path: &Path) -> Result<(), UnpackError> {
        let mut name = std::ffi::OsString::from(WHITEOUT);
        name.push(path.file_name().unwrap_or_default());
        self.whiteout(&path.with_file_name(name))
    }

    fn whiteout(&mut self, path: &Path) -> Result<(), UnpackError> {
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(0o600);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(0);
        self.add(header, path, Vec::new(), io::empty())
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

fn attributes(file: &File, records: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
    let mut names = vec![0_u8; ATTRIBUTES_BYTES_MAX];
    let length = match rustix::fs::flistxattr(file, &mut names[..]) {
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
        let length = rustix::fs::fgetxattr(file, name, &mut value[..])?;
        value.truncate(length);
        if name == b"security.capability" {
            value = of_any_namespace(value);
        }
        let key = format!("SCHILY.xattr.{}", String::from_utf8_lossy(name));
        records.push((key, value));
    }
    Ok(())
}

/// Capabilities that were set inside a sandbox hold for the root of its users only, whose number another sandbox's root
/// does not have; without that number they hold for whoever is root where the file is seen.
fn of_any_namespace(mut value: Vec<u8>) -> Vec<u8> {
    const REVISION: usize = 3;
    if let [_, _, _, revision @ 3, rest @ ..] = value.as_mut_slice()
        && rest.len() == 20
    {
        *revision = 2;
        value.truncate(REVISION + 1 + 16);
    }
    value
}

/// What the overlay notes on a file, by the name that it has for root or the one that it has for others.
fn overlay_note(path: &Path, note: &str) -> bool {
    let mut value = [0_u8; 4096];
    ["trusted", "user"].iter().any(|whose| {
        let name = format!("{whose}.overlay.{note}");
        rustix::fs::lgetxattr(path, name, &mut value[..]).is_ok()
    })
}

/// Whether a path is there at all, without following it.
pub(super) fn exists(path: &Path) -> bool {
    rustix::fs::statat(rustix::fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_is_changed_while_it_is_read_leads_nowhere_else() {
        let home = tempfile::tempdir().unwrap();
        let top = home.path().join("root");
        for directory in ["root/etc", "outside"] {
            fs::create_dir_all(home.path().join(directory)).unwrap();
            fs::write(home.path().join(directory).join("file"), directory).unwrap();
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let packer = Packer {
            top: rustix::fs::open(&top, flags, Mode::empty()).unwrap(),
            tar: Builder::new(Vec::new()),
            links: HashMap::new(),
            changes: None,
        };
        let path = Path::new("etc/file");
        let found = fs::symlink_metadata(top.join(path)).unwrap();
        let mut text = String::new();
        let mut file = packer.open(path, &found).unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "root/etc");
        // Another file in its place, a link in its place, and one above it.
        let old = top.join("old");
        fs::rename(top.join(path), &old).unwrap();
        fs::write(top.join(path), "another").unwrap();
        let refused = |why: &str| {
            let error = packer.open(path, &found).unwrap_err().to_string();
            assert!(
                error.contains("etc/file") && error.contains("changed"),
                "{why}: {error}"
            );
        };
        refused("another");
        fs::remove_file(top.join(path)).unwrap();
        symlink("../../outside/file", top.join(path)).unwrap();
        refused("a link");
        fs::remove_file(top.join(path)).unwrap();
        fs::remove_dir(top.join("etc")).unwrap();
        symlink("../outside", top.join("etc")).unwrap();
        refused("a link above");
    }
}
