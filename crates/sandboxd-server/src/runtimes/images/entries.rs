//! The entries of a tar, one meaning each.
//!
//! Parsers of this format disagree where an archive says a thing twice: a size in the header and another in an
//! extension, a name in each of two kinds of extension. An archive that does is refused, and not guessed at: whoever
//! looked at it with another program then saw the same entries.

use std::io::Read;
use tar::{Archive, Entry, EntryType};

/// Most bytes of one extension header: a name, a link, or attributes.
const EXTENSION_BYTES_MAX: u64 = 1024 * 1024;
/// Longest path, and longest target of a link, in bytes; the kernel's own bound.
const PATH_BYTES_MAX: usize = 4095;
/// Ids that a sandbox has: an owner is one of them.
pub(super) const IDS: u32 = 65_536;
/// The prefix of an extended attribute's record.
const ATTRIBUTE: &[u8] = b"SCHILY.xattr.";

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
    Symlink,
    HardLink,
    /// A device or a FIFO.
    Special,
}

/// One entry, without its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) path: Vec<u8>,
    pub(super) link: Vec<u8>,
    pub(super) kind: Kind,
    pub(super) size: u64,
    pub(super) mode: u32,
    pub(super) uid: u64,
    pub(super) gid: u64,
    /// Seconds, and nanoseconds.
    pub(super) modified: (i64, u32),
    pub(super) attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Why an archive is none.
#[derive(Debug, thiserror::Error)]
pub(super) enum EntryError {
    /// It says something twice, or something unknown, or too much.
    #[error("{why}")]
    Refused {
        /// As far as it is known.
        entry: String,
        why: &'static str,
    },
    /// It cannot be read.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Reads entries.
pub(super) struct Entries<'a, R: Read> {
    raw: tar::Entries<'a, R>,
}

impl<'a, R: Read> Entries<'a, R> {
    pub(super) fn of(archive: &'a mut Archive<R>) -> std::io::Result<Self> {
        Ok(Self {
            raw: archive.entries()?.raw(true),
        })
    }

    /// The next entry; nothing at the end.
    pub(super) fn next(&mut self) -> Result<Option<(Head, Entry<'a, R>)>, EntryError> {
        let mut long = Extensions::default();
        loop {
            let Some(entry) = self.raw.next() else {
                return match long.is_empty() {
                    true => Ok(None),
                    false => Err(refused(b"", "an extension at the end belongs to no entry")),
                };
            };
            let mut entry = entry?;
            let kind = entry.header().entry_type();
            match kind {
                EntryType::XHeader => long.pax(&extension(&mut entry)?)?,
                EntryType::GNULongName => {
                    long.set_gnu(|long| &mut long.path, &extension(&mut entry)?)?;
                }
                EntryType::GNULongLink => {
                    long.set_gnu(|long| &mut long.link, &extension(&mut entry)?)?;
                }
                EntryType::XGlobalHeader => global(&extension(&mut entry)?)?,
                _ => return Ok(Some((long.head(&entry)?, entry))),
            }
        }
    }
}

pub(super) fn refused(entry: &[u8], why: &'static str) -> EntryError {
    EntryError::Refused {
        entry: String::from_utf8_lossy(entry).into_owned(),
        why,
    }
}

fn extension<R: Read>(entry: &mut Entry<'_, R>) -> Result<Vec<u8>, EntryError> {
    let size = entry.header().entry_size()?;
    if size > EXTENSION_BYTES_MAX {
        return Err(refused(b"", "its name or its attributes are too long"));
    }
    let mut bytes = Vec::new();
    entry.take(size).read_to_end(&mut bytes)?;
    if bytes.len() as u64 != size {
        return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
    }
    Ok(bytes)
}

/// What extension headers say of the entry that follows.
#[derive(Default)]
struct Extensions {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<u64>,
    gid: Option<u64>,
    modified: Option<(i64, u32)>,
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
    pax: bool,
    gnu: bool,
}

impl Extensions {
    fn is_empty(&self) -> bool {
        !self.pax && !self.gnu
    }

    fn set_gnu(
        &mut self,
        field: fn(&mut Self) -> &mut Option<Vec<u8>>,
        bytes: &[u8],
    ) -> Result<(), EntryError> {
        self.gnu = true;
        let end = bytes.iter().position(|byte| *byte == 0);
        let text = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
        let twice = self.pax || field(self).replace(text.to_vec()).is_some();
        match twice {
            true => Err(refused(text, "its name is said twice")),
            false => Ok(()),
        }
    }

    fn pax(&mut self, bytes: &[u8]) -> Result<(), EntryError> {
        if !self.is_empty() {
            return Err(refused(b"", "its name is said twice"));
        }
        self.pax = true;
        for (key, value) in records(bytes)? {
            let name = self.path.clone().unwrap_or_default();
            let twice = match key {
                b"path" => self.path.replace(value.to_vec()).is_some(),
                b"linkpath" => self.link.replace(value.to_vec()).is_some(),
                b"size" => self.size.replace(number(value)?).is_some(),
                b"uid" => self.uid.replace(number(value)?).is_some(),
                b"gid" => self.gid.replace(number(value)?).is_some(),
                b"mtime" => self.modified.replace(moment(value)?).is_some(),
                key if key.starts_with(b"GNU.sparse.") => {
                    return Err(refused(&name, "it is a sparse file"));
                }
                key => match key.strip_prefix(ATTRIBUTE) {
                    Some(attribute) => {
                        let twice = self.attributes.iter().any(|(name, _)| name == attribute);
                        self.attributes.push((attribute.to_vec(), value.to_vec()));
                        twice
                    }
                    None => false,
                },
            };
            if twice {
                return Err(refused(&name, "an extension says the same thing twice"));
            }
        }
        Ok(())
    }

    fn head<R: Read>(self, entry: &Entry<'_, R>) -> Result<Head, EntryError> {
        let header = entry.header();
        let path = match self.path {
            Some(path) => path,
            None => header.path_bytes().into_owned(),
        };
        let refuse = |why| refused(&path, why);
        let size = header.entry_size()?;
        if self.size.is_some_and(|said| said != size) {
            return Err(refuse(
                "its size is one in its header and another in an extension",
            ));
        }
        let link = match self.link {
            Some(link) => link,
            None => header.link_name_bytes().unwrap_or_default().into_owned(),
        };
        if path.len() > PATH_BYTES_MAX || link.len() > PATH_BYTES_MAX {
            return Err(refuse("its name is too long"));
        }
        if path.contains(&0) || link.contains(&0) {
            return Err(refuse("its name has a NUL byte"));
        }
        let slash = path.ends_with(b"/");
        let kind = match header.entry_type() {
            // As the oldest archives say it, and every reader takes it.
            EntryType::Regular | EntryType::Continuous if slash && size == 0 => Kind::Directory,
            EntryType::Regular | EntryType::Continuous if slash => {
                return Err(refuse("it is a directory with content"));
            }
            EntryType::Regular | EntryType::Continuous => Kind::File,
            EntryType::Directory => Kind::Directory,
            EntryType::Symlink => Kind::Symlink,
            EntryType::Link => Kind::HardLink,
            EntryType::Char | EntryType::Block | EntryType::Fifo => Kind::Special,
            EntryType::GNUSparse => return Err(refuse("it is a sparse file")),
            _ => return Err(refuse("it is of an unknown kind")),
        };
        if kind != Kind::File && size != 0 {
            return Err(refuse("it has content and is no file"));
        }
        Ok(Head {
            kind,
            size,
            mode: header.mode()?,
            uid: self.uid.map_or_else(|| header.uid(), Ok)?,
            gid: self.gid.map_or_else(|| header.gid(), Ok)?,
            modified: match self.modified {
                Some(modified) => modified,
                None => (i64::try_from(header.mtime()?).unwrap_or(0), 0),
            },
            attributes: self.attributes,
            link,
            path,
        })
    }
}

/// A header about the whole archive: words for people may stand there, and nothing that changes an entry.
fn global(bytes: &[u8]) -> Result<(), EntryError> {
    let harmless = |key: &[u8]| key == b"comment" || key == b"charset";
    match records(bytes)?.iter().all(|(key, _)| harmless(key)) {
        true => Ok(()),
        false => Err(refused(b"", "a header changes all entries after it")),
    }
}

/// A key and its value.
type Record<'a> = (&'a [u8], &'a [u8]);

/// The records of an extension: each begins with its own length, so that values may hold any byte.
fn records(bytes: &[u8]) -> Result<Vec<Record<'_>>, EntryError> {
    let malformed = || refused(b"", "an extension is malformed");
    let mut rest = bytes;
    let mut found = Vec::new();
    while !rest.is_empty() {
        let space = rest.iter().position(|byte| *byte == b' ');
        let digits = rest.get(..space.ok_or_else(malformed)?);
        let digits = digits.unwrap_or_default();
        let length = usize::try_from(number(digits)?).map_err(|_| malformed())?;
        let record = rest
            .get(digits.len() + 1..length)
            .and_then(|record| record.strip_suffix(b"\n"))
            .ok_or_else(malformed)?;
        let equals = record.iter().position(|byte| *byte == b'=');
        let (key, value) = record.split_at(equals.ok_or_else(malformed)?);
        found.push((key, value.get(1..).unwrap_or_default()));
        rest = rest.get(length..).unwrap_or_default();
    }
    Ok(found)
}

fn number(text: &[u8]) -> Result<u64, EntryError> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let parsed = std::str::from_utf8(text)
        .ok()
        .filter(|_| digits)
        .and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| refused(b"", "an extension has a number that is none"))
}

/// Seconds with a fraction, since 1970 or before.
fn moment(text: &[u8]) -> Result<(i64, u32), EntryError> {
    let bad = || refused(b"", "an extension has a time that is none");
    let text = std::str::from_utf8(text).map_err(|_| bad())?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().map_err(|_| bad())?;
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(bad());
    }
    let mut nanos = 0;
    for digit in fraction.bytes().chain(std::iter::repeat(b'0')).take(9) {
        nanos = nanos * 10 + u32::from(digit - b'0');
    }
    // A time before 1970 with a fraction counts from below.
    match whole.starts_with('-') && nanos > 0 {
        true => Ok((
            seconds.checked_sub(1).ok_or_else(bad)?,
            1_000_000_000 - nanos,
        )),
        false => Ok((seconds, nanos)),
    }
}

#[cfg(test)]
mod tests;
