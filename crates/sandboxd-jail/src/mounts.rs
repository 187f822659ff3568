//! Mounts that are attached nowhere yet: made by descriptor, handed over by descriptor, so that no path of the daemon's
//! own view ever changes.

use crate::sys;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
    fsconfig_create, fsconfig_set_fd, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen,
    move_mount, open_tree, unmount,
};
use sandboxd_jail::plan::View;

/// `MOUNT_ATTR_RDONLY`.
pub(crate) const READ_ONLY: u64 = 0x1;
/// `MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV`.
pub(crate) const INERT: u64 = 0x2 | 0x4;
/// `MOUNT_ATTR_NOEXEC`.
pub(crate) const NOT_EXECUTABLE: u64 = 0x8;

/// A detached copy of what is at a path or descriptor.
pub(crate) fn copy(
    base: impl AsFd,
    path: &str,
    recursive: bool,
    attributes: u64,
    owners: Option<BorrowedFd<'_>>,
) -> Result<OwnedFd, Errno> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    if path.is_empty() {
        flags |= OpenTreeFlags::AT_EMPTY_PATH;
    }
    if recursive {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    let mount = open_tree(base, path, flags)?;
    sys::mount_setattr(&mount, recursive, attributes, true, owners)?;
    Ok(mount)
}

/// A host path, shown read-only, with the owners it has on the host. They are nobody inside, and that is the point: root
/// inside may read what everybody may, and nothing that the host keeps for its own root.
pub(crate) fn view(view: &View) -> Result<OwnedFd, Errno> {
    copy(CWD, &view.from, view.directory, READ_ONLY | INERT, None)
}

/// A new memory file system.
pub(crate) fn memory(
    bytes: u64,
    inodes: u64,
    mode: u32,
    attributes: u64,
) -> Result<OwnedFd, Errno> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "size", bytes.to_string())?;
    fsconfig_set_string(&context, "nr_inodes", inodes.to_string())?;
    fsconfig_set_string(&context, "mode", format!("{mode:o}"))?;
    finish(&context, attributes)
}

/// A new file system of a kind without a device.
pub(crate) fn kernel(
    kind: &str,
    options: &[(&str, &str)],
    attributes: u64,
) -> Result<OwnedFd, Errno> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (name, value) in options {
        if value.is_empty() {
            fsconfig_set_flag(&context, *name)?;
        } else {
            fsconfig_set_string(&context, *name, *value)?;
        }
    }
    finish(&context, attributes)
}

fn finish(context: &OwnedFd, attributes: u64) -> Result<OwnedFd, Errno> {
    fsconfig_create(context)?;
    let attributes = u32::try_from(attributes).map_err(|_| Errno::INVAL)?;
    fsmount(
        context,
        FsMountFlags::FSMOUNT_CLOEXEC,
        MountAttrFlags::from_bits_retain(attributes),
    )
}

/// An overlay of a layer over an image, whose own layers come with the topmost first. `volatile`, since syncing a whole
/// disk at every stop serves nobody: a layer that is kept is synced once, when it is kept.
///
/// Kernels before 6.15 make none of mounts that are attached nowhere. `aside` does what it is given in a mount namespace
/// where that may be done with them for a moment, and where nobody sees it.
pub(crate) fn overlay(
    lowers: &[OwnedFd],
    layer: BorrowedFd<'_>,
    aside: impl FnOnce(&dyn Fn() -> Result<OwnedFd, Errno>) -> Result<OwnedFd, Errno>,
) -> Result<OwnedFd, Errno> {
    // Through a mount of its own, whose root it is: what the sandbox can read of its mounts names no path of the host's.
    let layer = copy(layer, "", false, 0, None)?;
    forget_volatile(&directory(&layer, "work")?);
    match overlay_by_descriptor(lowers, &layer) {
        // What knows no descriptors here (before 6.13) says the one, or, before 6.5, the other.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => aside(&|| overlay_by_path(lowers, &layer)),
        other => other,
    }
}

fn overlay_by_descriptor(lowers: &[OwnedFd], layer: &OwnedFd) -> Result<OwnedFd, Errno> {
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for lower in lowers {
        fsconfig_set_fd(&context, "lowerdir+", lower)?;
    }
    fsconfig_set_fd(&context, "upperdir", directory(layer, "upper")?)?;
    fsconfig_set_fd(&context, "workdir", directory(layer, "work")?)?;
    finish_overlay(&context)
}

/// With everything attached for the moment of it, by names that tell nothing.
fn overlay_by_path(lowers: &[OwnedFd], layer: &OwnedFd) -> Result<OwnedFd, Errno> {
    // Always there, and needed by nothing meanwhile.
    const AT: &str = "/proc";
    let place = memory(
        1 << 20,
        1 + u64::try_from(lowers.len()).unwrap_or(0) + 2,
        0o700,
        INERT,
    )?;
    attach(&place, CWD, AT)?;
    let made = (|| {
        let put = |mount: &OwnedFd, name: &str| {
            rustix::fs::mkdirat(&place, name, Mode::RWXU)?;
            attach(mount, &place, name)
        };
        put(layer, "l")?;
        for (index, lower) in lowers.iter().enumerate() {
            put(lower, &index.to_string())?;
        }
        let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
        let all: Vec<String> = (0..lowers.len())
            .map(|index| format!("{AT}/{index}"))
            .collect();
        let text = all.join(":");
        // One text has so much room; kernels from 6.8 on take them one by one.
        if text.len() < 256 {
            fsconfig_set_string(&context, "lowerdir", text)?;
        } else {
            for lower in all {
                fsconfig_set_string(&context, "lowerdir+", lower)?;
            }
        }
        fsconfig_set_string(&context, "upperdir", format!("{AT}/l/upper"))?;
        fsconfig_set_string(&context, "workdir", format!("{AT}/l/work"))?;
        finish_overlay(&context)
    })();
    // It holds what it needs of them.
    unmount(AT, UnmountFlags::DETACH)?;
    made
}

fn finish_overlay(context: &OwnedFd) -> Result<OwnedFd, Errno> {
    fsconfig_set_flag(context, "volatile")?;
    // Its marks are attributes that their owner may set, so that who unpacks and stacks layers needs no privilege.
    fsconfig_set_flag(context, "userxattr")?;
    finish(context, INERT)
}

/// A volatile overlay refuses a layer that was mounted before, since the host may have crashed in between. The daemon
/// only sends layers here of which it knows that it did not.
fn forget_volatile(work: &OwnedFd) {
    let _ = rustix::fs::unlinkat(work, "work/incompat/volatile/dirty", AtFlags::empty());
    let _ = rustix::fs::unlinkat(work, "work/incompat/volatile", AtFlags::REMOVEDIR);
    let _ = rustix::fs::unlinkat(work, "work/incompat", AtFlags::REMOVEDIR);
}

/// A directory below another, never through a link.
pub(crate) fn directory(base: impl AsFd, path: &str) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(
        base,
        path,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// Puts a detached mount in place.
pub(crate) fn attach(mount: &OwnedFd, at: impl AsFd, path: &str) -> Result<(), Errno> {
    let mut flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    if path.is_empty() {
        flags |= MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    }
    move_mount(mount, "", at, path, flags)
}
