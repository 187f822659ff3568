//! `/proc` of the sandbox's own PID namespace, without what speaks of the whole machine or changes it.

use crate::mounts;
use crate::spawn::{at, on};
use crate::steps::entries;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use sandboxd_jail::plan::ProcRules;
use sandboxd_jail::report::{Failure, Step};

/// Makes it, before the host's root goes: in a user namespace the kernel allows one only where another is in view, so
/// that nobody sees more by it than before.
pub(crate) fn make() -> Result<OwnedFd, Failure> {
    let attributes = mounts::INERT | mounts::NOT_EXECUTABLE;
    mounts::kernel("proc", &[], attributes).map_err(at(Step::Proc))
}

/// Mounts it.
pub(crate) fn mount(top: &OwnedFd, proc: &OwnedFd) -> Result<(), Failure> {
    let target = entries::directory(top, "proc", 0o555).map_err(on(Step::Proc, "proc"))?;
    mounts::attach(proc, target, "").map_err(at(Step::Proc))
}

/// Hides and protects.
pub(crate) fn restrict(proc: &OwnedFd, rules: &ProcRules, null: &OwnedFd) -> Result<(), Failure> {
    for path in &rules.read_only {
        let attributes = mounts::READ_ONLY | mounts::INERT | mounts::NOT_EXECUTABLE;
        over(proc, path, |target| {
            mounts::copy(target, "", false, attributes, None)
        })
        .map_err(on(Step::Proc, path))?;
    }
    let mut empty = None;
    for path in &rules.masked {
        over(proc, path, |target| {
            let status = rustix::fs::fstat(target)?;
            if FileType::from_raw_mode(status.st_mode).is_dir() {
                let directory = match empty.take() {
                    Some(directory) => directory,
                    None => mounts::memory(4096, 2, 0o555, mounts::READ_ONLY | mounts::INERT)?,
                };
                let copy = mounts::copy(&directory, "", false, 0, None);
                empty = Some(directory);
                copy
            } else {
                mounts::copy(null, "", false, 0x2 | mounts::NOT_EXECUTABLE, None)
            }
        })
        .map_err(on(Step::Proc, path))?;
    }
    Ok(())
}

/// Mounts something over a path of `/proc` that exists.
fn over(
    proc: &OwnedFd,
    path: &str,
    make: impl FnOnce(&OwnedFd) -> Result<OwnedFd, Errno>,
) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let target = match rustix::fs::openat(proc, path, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    let mount = make(&target)?;
    mounts::attach(&mount, target.as_fd(), "")
}
