//! Memory file systems of the sandbox's own: `/tmp`, `/dev/shm`, and the little of `/sys` that programs read.

use crate::mounts;
use crate::spawn::on;
use crate::steps::entries;
use crate::sys;
use rustix::fd::OwnedFd;
use sandboxd_jail::plan::{MemoryMount, Root};
use sandboxd_jail::report::{Failure, Step};

/// Mounts and fills them in their order. What is read-only needs no file system of its own where the root is in memory as
/// well: it is a directory of that, shown read-only over itself. Each file system costs every other sandbox on the machine
/// a counter in the kernel, beside the time to make it.
pub(crate) fn mount(top: &OwnedFd, root: &Root, mounts: &[MemoryMount]) -> Result<(), Failure> {
    for wanted in mounts {
        let fail = on(Step::MemoryMount, &wanted.at);
        let attributes = mounts::INERT
            | if wanted.executable {
                0
            } else {
                mounts::NOT_EXECUTABLE
            };
        let target = entries::directory(top, &wanted.at, wanted.mode).map_err(&fail)?;
        if wanted.read_only && matches!(root, Root::Memory { .. }) {
            entries::make(&target, &wanted.entries)?;
            let mount = mounts::copy(&target, "", false, attributes | mounts::READ_ONLY, None);
            mounts::attach(&mount.map_err(&fail)?, target, "").map_err(&fail)?;
            continue;
        }
        let mount =
            mounts::memory(wanted.bytes, wanted.inodes, wanted.mode, attributes).map_err(&fail)?;
        mounts::attach(&mount, target, "").map_err(&fail)?;
        entries::make(&mount, &wanted.entries)?;
        if wanted.read_only {
            sys::mount_setattr(&mount, false, mounts::READ_ONLY, false, None).map_err(&fail)?;
        }
    }
    Ok(())
}
