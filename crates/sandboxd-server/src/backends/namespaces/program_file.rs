//! An embedded program as something that can be executed: a sealed memory file, or, where those may not be executed, a
//! read-only file in a private directory.

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};

/// What the launcher is called.
const LAUNCHER: &str = "sandboxd-jail";

/// A program that can be executed by descriptor and by path.
#[derive(Debug)]
pub(in crate::backends) struct ProgramFile {
    descriptor: OwnedFd,
}

impl ProgramFile {
    /// A sealed memory file: nobody, not even we, can change it, and it has no name.
    pub(super) fn sealed(name: &str, content: &[u8]) -> Result<Self, Errno> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Kernels before 6.3 do not know the flag that says it is to be executed, and allow it without.
        let descriptor = match rustix::fs::memfd_create(name, flags | MemfdFlags::EXEC) {
            Err(Errno::INVAL) => rustix::fs::memfd_create(name, flags)?,
            other => other?,
        };
        write_all(&descriptor, content)?;
        rustix::fs::fchmod(&descriptor, Mode::from_raw_mode(0o555))?;
        rustix::fs::fcntl_add_seals(
            &descriptor,
            SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE,
        )?;
        Ok(Self { descriptor })
    }

    /// The launcher, by whichever of the two is executed here; `instance` is a directory of this instance's own.
    ///
    /// # Errors
    /// Where neither can be made.
    pub(in crate::backends) fn of_launcher(content: &[u8], instance: &Path) -> io::Result<Self> {
        if let Ok(sealed) = Self::sealed(LAUNCHER, content)
            && super::probe::can_execute(&sealed)
        {
            return Ok(sealed);
        }
        let directory = instance.join("programs");
        crate::backends::instance::private(&directory)?;
        Ok(Self::plain(&directory, LAUNCHER, content)?)
    }

    /// A file of its own in a private directory.
    pub(super) fn plain(directory: &Path, name: &str, content: &[u8]) -> Result<Self, Errno> {
        let path = directory.join(name);
        let file = rustix::fs::open(
            &path,
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC,
            Mode::from_raw_mode(0o500),
        )?;
        write_all(&file, content)?;
        rustix::fs::fchmod(&file, Mode::from_raw_mode(0o555))?;
        drop(file);
        let descriptor = rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { descriptor })
    }

    /// By descriptor.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// By path, for this process and its children before their exec.
    pub(super) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.descriptor.as_raw_fd()))
    }
}

fn write_all(file: &OwnedFd, content: &[u8]) -> Result<(), Errno> {
    let mut rest = content;
    while !rest.is_empty() {
        let written = rustix::io::retry_on_intr(|| rustix::io::write(file, rest))?;
        rest = rest.get(written..).unwrap_or_default();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn both_kinds_can_be_executed_and_neither_written() {
        let program = std::fs::read("/bin/true").unwrap();
        let directory = tempfile::tempdir().unwrap();
        let sealed = ProgramFile::sealed("true", &program).unwrap();
        let plain = ProgramFile::plain(directory.path(), "true", &program).unwrap();
        for file in [sealed, plain] {
            assert!(Command::new(file.path()).status().unwrap().success());
            assert!(rustix::io::write(file.descriptor(), b"x").is_err());
        }
    }
}
