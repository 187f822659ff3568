//! Replacing one file, all or nothing: the content goes to a temporary sibling, which is renamed when it is complete.

use crate::limits::{NAME_BYTES_MAX, TEMPORARY_HEX, TEMPORARY_TRIES};
use crate::lookup::{Spot, ids};
use crate::{Files, Rule, path, verdict};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Stat, fchmod, fchown, fstat, openat, renameat, unlinkat,
};
use rustix::io::{Errno, write};
use rustix::rand::{GetRandomFlags, getrandom};
use sandboxd_protocol::message::{FileError, HandBack};

/// A file that is being written. Dropped before [`Writing::finish`], it leaves nothing behind and the old file as it was.
#[derive(Debug)]
pub struct Writing {
    spot: Spot,
    temporary: Option<Vec<u8>>,
    file: OwnedFd,
    rule: Rule,
    limit: u64,
    taken: u64,
}

impl Files {
    /// Starts to replace a file, or to make a new one with `mode` (less the umask), with at most `limit` bytes. The mode
    /// and the owner of an old file are kept (its set-uid and set-gid bits are not), and its hard links are not written.
    /// Under [`Rule::Follow`] a link at the end is written through.
    ///
    /// # Errors
    /// [`FileError::IsADirectory`] over a directory, [`FileError::NotFound`] without its parent unless `parents`.
    pub fn write(
        &self,
        path: &[u8],
        mode: u32,
        parents: bool,
        limit: u64,
    ) -> Result<Writing, FileError> {
        let words = self.words(path)?;
        let Some((directory, name)) = path::split(&words) else {
            return Err(FileError::IsADirectory);
        };
        let parent = if parents {
            self.make_directories(self.root.as_fd(), directory)?
        } else {
            self.directory(self.root.as_fd(), directory)?
        };
        let name = name.to_vec();
        let (spot, old) = self.through_links(Spot { parent, name }, parents)?;
        if matches!(&spot.name[..], b"." | b"..") {
            return Err(FileError::IsADirectory);
        }
        if let Some(old) = &old {
            match FileType::from_raw_mode(old.st_mode) {
                FileType::RegularFile => {}
                FileType::Directory => return Err(FileError::IsADirectory),
                _ => return Err(verdict::special(self.rule)),
            }
        }
        let (temporary, file) = self.temporary(&spot)?;
        let writing = Writing {
            spot,
            temporary: Some(temporary),
            file,
            rule: self.rule,
            limit,
            taken: 0,
        };
        self.dress(&writing.file, old.as_ref(), mode)
            .map_err(|errno| self.verdict(errno))?;
        Ok(writing)
    }

    /// Gives a new file its owner and mode, in this order, since a change of owner may take bits of the mode away.
    fn dress(&self, file: &OwnedFd, old: Option<&Stat>, mode: u32) -> Result<(), Errno> {
        let now = fstat(file)?;
        let (owner, mode) = match old {
            Some(old) => (Some((old.st_uid, old.st_gid)), old.st_mode & 0o1777),
            None => (self.new.owner, mode & 0o1777 & !self.new.umask),
        };
        if let Some((uid, gid)) = owner
            && (now.st_uid, now.st_gid) != (uid, gid)
        {
            let (uid, gid) = ids(uid, gid);
            fchown(file, uid, gid)?;
        }
        fchmod(file, Mode::from_raw_mode(mode))
    }

    fn temporary(&self, spot: &Spot) -> Result<(Vec<u8>, OwnedFd), FileError> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for _ in 0..TEMPORARY_TRIES {
            let name = self.temporary_name(&spot.name)?;
            match openat(&spot.parent, &name[..], flags, Mode::from_raw_mode(0o600)) {
                Ok(file) => return Ok((name, file)),
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(self.verdict(errno)),
            }
        }
        Err(self.verdict(Errno::EXIST))
    }

    fn temporary_name(&self, name: &[u8]) -> Result<Vec<u8>, FileError> {
        let mut random = [0; TEMPORARY_HEX / 2];
        getrandom(&mut random, GetRandomFlags::empty()).map_err(|errno| self.verdict(errno))?;
        let mut end = b".".to_vec();
        for byte in random {
            for digit in [byte >> 4, byte & 0xf] {
                end.push(b"0123456789abcdef"[usize::from(digit)]);
            }
        }
        end.extend_from_slice(b".tmp");
        let mut whole = b".".to_vec();
        if whole.len() + name.len() + end.len() <= NAME_BYTES_MAX {
            whole.extend_from_slice(name);
        } else if name.len() > NAME_BYTES_MAX || self.rule == Rule::Beneath {
            return Err(match self.rule {
                Rule::Beneath => HandBack::NameTooLong.into(),
                Rule::Follow => self.verdict(Errno::NAMETOOLONG),
            });
        }
        whole.extend_from_slice(&end);
        Ok(whole)
    }
}

impl Writing {
    /// Adds bytes.
    ///
    /// # Errors
    /// Over the limit; what write(2) says. The write is then lost.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<(), FileError> {
        self.taken = self
            .taken
            .saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        if self.taken > self.limit {
            return Err(verdict::too_large(self.rule, self.taken, self.limit));
        }
        while !bytes.is_empty() {
            match write(&self.file, bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(Errno::INTR) => {}
                Err(errno) => return Err(verdict::of(self.rule, errno)),
            }
        }
        Ok(())
    }

    /// Puts the file in place.
    ///
    /// # Errors
    /// What rename(2) says; [`FileError::IsADirectory`] where a directory has come meanwhile.
    pub fn finish(mut self) -> Result<(), FileError> {
        let Some(temporary) = &self.temporary else {
            return Ok(());
        };
        let (parent, name) = (&self.spot.parent, &self.spot.name[..]);
        renameat(parent, &temporary[..], parent, name)
            .map_err(|errno| verdict::of(self.rule, errno))?;
        self.temporary = None;
        Ok(())
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // Best effort: the directory may be gone with it.
            let _ = unlinkat(&self.spot.parent, &temporary[..], AtFlags::empty());
        }
    }
}
