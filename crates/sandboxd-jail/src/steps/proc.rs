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

/// Hides and protects. `top` is the root, with all in place that the rules need of it.
pub(crate) fn restrict(
    top: &OwnedFd,
    proc: &OwnedFd,
    rules: &ProcRules,
    null: &OwnedFd,
) -> Result<(), Failure> {
    for path in &rules.read_only {
        protect(proc, path).map_err(on(Step::Proc, path))?;
    }
    let empty =
        entries::found_directory(top, &rules.empty).map_err(on(Step::Proc, &rules.empty))?;
    for path in &rules.masked {
        hide(proc, path, null, &empty).map_err(on(Step::Proc, path))?;
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

/// A file by one that is empty, a directory by one.
fn hide(proc: &OwnedFd, path: &str, null: &OwnedFd, empty: &OwnedFd) -> Result<(), Errno> {
    let Some(target) = find(proc, path)? else {
        return Ok(());
    };
    let status = rustix::fs::fstat(&target)?;
    let mount = if FileType::from_raw_mode(status.st_mode).is_dir() {
        let attributes = mounts::READ_ONLY | mounts::INERT | mounts::NOT_EXECUTABLE;
        mounts::copy(empty, "", false, attributes, None)?
    } else {
        mounts::copy(null, "", false, 0x2 | mounts::NOT_EXECUTABLE, None)?
    };
    mounts::attach(&mount, target.as_fd(), "")
}

/// A path of `/proc`, where it exists.
fn find(proc: &OwnedFd, path: &str) -> Result<Option<OwnedFd>, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(proc, path, flags, Mode::empty()) {
        Err(Errno::NOENT) => Ok(None),
        other => Ok(Some(other?)),
    }
}
