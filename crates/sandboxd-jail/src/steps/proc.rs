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
        protect(proc, path).map_err(on(Step::Proc, path))?;
    }
    let mut empty = None;
    for path in &rules.masked {
        hide(proc, path, null, &mut empty).map_err(on(Step::Proc, path))?;
    }
    Ok(())
}

fn protect(proc: &OwnedFd, path: &str) -> Result<(), Errno> {
    let Some(target) = find(proc, path)? else {
        return Ok(());
    };
    let attributes = mounts::READ_ONLY | mounts::INERT | mounts::NOT_EXECUTABLE;
    let mount = mounts::copy(&target, "", false, attributes, None)?;
    mounts::attach(&mount, target.as_fd(), "")
}

/// A file by one that is empty, a directory by one: `empty` is that one once it is in place. Kernels before 6.15 copy no
/// mount that is attached nowhere.
fn hide(
    proc: &OwnedFd,
    path: &str,
    null: &OwnedFd,
    empty: &mut Option<OwnedFd>,
) -> Result<(), Errno> {
    let Some(target) = find(proc, path)? else {
        return Ok(());
    };
    let status = rustix::fs::fstat(&target)?;
    if !FileType::from_raw_mode(status.st_mode).is_dir() {
        let mount = mounts::copy(null, "", false, 0x2 | mounts::NOT_EXECUTABLE, None)?;
        return mounts::attach(&mount, target.as_fd(), "");
    }
    let mount = match empty {
        Some(first) => mounts::copy(&*first, "", false, 0, None)?,
        None => mounts::memory(4096, 2, 0o555, mounts::READ_ONLY | mounts::INERT)?,
    };
    mounts::attach(&mount, target.as_fd(), "")?;
    empty.get_or_insert(mount);
    Ok(())
}

/// A path of `/proc`, where it exists.
fn find(proc: &OwnedFd, path: &str) -> Result<Option<OwnedFd>, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(proc, path, flags, Mode::empty()) {
        Err(Errno::NOENT) => Ok(None),
        other => Ok(Some(other?)),
    }
}
