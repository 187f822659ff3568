//! The new root takes the place of the host's, which is then let go.

use crate::mounts;
use crate::spawn::at;
use crate::sys;
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{UnmountFlags, unmount};
use sandboxd_jail::report::{Failure, Step};

/// Attaches the root over `/`, makes it the root, and detaches everything of the host's.
pub(crate) fn enter(root: &OwnedFd) -> Result<(), Failure> {
    let step = at(Step::Pivot);
    // No mount event may travel to the host or from it.
    let host = open()?;
    sys::mount_setattr(&host, true, 0, true, None).map_err(&step)?;
    drop(host);
    mounts::attach(root, CWD, "/").map_err(&step)?;
    rustix::process::fchdir(root).map_err(&step)?;
    rustix::process::pivot_root(".", ".").map_err(&step)?;
    // The old root now lies over the new one.
    unmount(".", UnmountFlags::DETACH).map_err(&step)?;
    rustix::process::chdir("/").map_err(&step)
}

/// The root directory.
pub(crate) fn open() -> Result<OwnedFd, Failure> {
    rustix::fs::open(
        "/",
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(at(Step::Pivot))
}
