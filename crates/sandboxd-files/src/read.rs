//! Reading one file, bounded while it is read: a file may grow meanwhile.

use crate::directory::entry;
use crate::{Files, Rule, path, verdict};
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, OFlags, fstat};
use rustix::io::{Errno, read};
use sandboxd_protocol::message::{Entry, FileError};

/// A file that is being read.
#[derive(Debug)]
pub struct Reading {
    file: OwnedFd,
    rule: Rule,
    entry: Entry,
    limit: u64,
    taken: u64,
}

impl Files {
    /// Opens a file for reading, at most `limit` bytes. Never blocks on a special file, and never opens a device.
    ///
    /// # Errors
    /// [`FileError::IsADirectory`]; a file that is over the limit already is refused here.
    pub fn read(&self, path: &[u8], limit: u64) -> Result<Reading, FileError> {
        let words = self.words(path)?;
        // Looked at before it is opened for real, since opening a device can do something.
        let seen = self
            .open_at(&self.root, &words, OFlags::PATH)
            .map_err(|errno| self.verdict(errno))?;
        self.regular(&seen)?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = self
            .open_at(&self.root, &words, flags)
            .map_err(|errno| self.verdict(errno))?;
        // Another one may be there by now.
        let stat = self.regular(&file)?;
        let name = path::split(&words).map_or_else(Vec::new, |(_, name)| name.to_vec());
        let entry = entry(name, &stat, None);
        if entry.size > limit {
            return Err(verdict::too_large(self.rule, entry.size, limit));
        }
        Ok(Reading {
            file,
            rule: self.rule,
            entry,
            limit,
            taken: 0,
        })
    }

    fn regular(&self, file: &OwnedFd) -> Result<rustix::fs::Stat, FileError> {
        let stat = fstat(file).map_err(|errno| self.verdict(errno))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(stat),
            FileType::Directory => Err(FileError::IsADirectory),
            _ => Err(verdict::special(self.rule)),
        }
    }
}

impl Reading {
    /// What the file was when it was opened.
    pub fn entry(&self) -> &Entry {
        &self.entry
    }

    /// Reads the next bytes; 0 at the end.
    ///
    /// # Errors
    /// Over the limit, which a growing file may get to.
    pub fn next(&mut self, buffer: &mut [u8]) -> Result<usize, FileError> {
        let length = loop {
            match read(&self.file, &mut *buffer) {
                Err(Errno::INTR) => {}
                result => break result.map_err(|errno| verdict::of(self.rule, errno))?,
            }
        };
        self.taken = self
            .taken
            .saturating_add(u64::try_from(length).unwrap_or(u64::MAX));
        if self.taken > self.limit {
            return Err(verdict::too_large(self.rule, self.taken, self.limit));
        }
        Ok(length)
    }

    /// Reads what is left.
    ///
    /// # Errors
    /// As of [`Reading::next`].
    pub fn rest(&mut self) -> Result<Vec<u8>, FileError> {
        let expected = self.entry.size.saturating_sub(self.taken).min(self.limit);
        let mut all = Vec::with_capacity(usize::try_from(expected).unwrap_or(0));
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match self.next(&mut buffer)? {
                0 => return Ok(all),
                length => all.extend_from_slice(&buffer[..length]),
            }
        }
    }
}
