//! Work with mounts in a namespace of its own, of which nothing is left: on the host nothing is ever attached.

use crate::assign::{enter, own_mounts};
use crate::sys;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::UnshareFlags;

/// Does something in a copy of this process's mount namespace, from which nothing travels, and comes back.
pub(crate) fn aside(work: &dyn Fn() -> Result<OwnedFd, Errno>) -> Result<OwnedFd, Errno> {
    let home = own_mounts()?;
    sys::unshare(UnshareFlags::NEWNS)?;
    let done = alone().and_then(|()| work());
    if enter(&home).is_err() {
        // Whatever else is asked would be done in there. The daemon starts another launcher, which nothing is lost with.
        sys::leave(1);
    }
    done
}

fn alone() -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = rustix::fs::open("/", flags, Mode::empty())?;
    sys::mount_setattr(&top, true, 0, true, None)
}
