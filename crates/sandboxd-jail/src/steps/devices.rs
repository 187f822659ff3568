//! `/dev`: a directory in memory, the harmless device files of the host, terminals of its own.
//!
//! A user namespace cannot make device files, so the host's are mounted, each on an empty file.

use crate::mounts;
use crate::spawn::{at, on};
use crate::steps::entries;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use sandboxd_jail::plan::Root;
use sandboxd_jail::report::{Failure, Step};

const LINKS: &[(&str, &str)] = &[
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

/// Room for device files and links; nothing else belongs there.
const BYTES: u64 = 64 * 1024;
const INODES: u64 = 256;

/// Fills `/dev`, and gives `null` back, to hide files behind.
pub(crate) fn mount(
    top: &OwnedFd,
    root: &Root,
    devices: &[(String, OwnedFd)],
) -> Result<OwnedFd, Failure> {
    let attributes = 0x2 | mounts::NOT_EXECUTABLE;
    let target = entries::directory(top, "dev", 0o755).map_err(on(Step::Devices, "dev"))?;
    let dev = match root {
        // In memory already: a directory of it will do.
        Root::Memory { .. } => mounts::copy(&target, "", false, attributes, None),
        Root::Layer | Root::Overlay { .. } => mounts::memory(BYTES, INODES, 0o755, attributes),
    };
    let dev = dev.map_err(at(Step::Devices))?;
    mounts::attach(&dev, target, "").map_err(at(Step::Devices))?;
    for (name, device) in devices {
        entries::file(&dev, name)
            .and_then(|target| mounts::attach(device, target, ""))
            .map_err(on(Step::Devices, name))?;
    }
    for (name, target) in LINKS {
        rustix::fs::symlinkat(*target, &dev, *name).map_err(on(Step::Devices, name))?;
    }
    let terminals = mounts::kernel(
        "devpts",
        &[("newinstance", ""), ("ptmxmode", "0666"), ("mode", "0620")],
        attributes,
    );
    put(&dev, "pts", terminals)?;
    match mounts::kernel("mqueue", &[], 0x2 | 0x4 | mounts::NOT_EXECUTABLE) {
        // Not every kernel has message queues.
        Err(Errno::NODEV) => {}
        queues => put(&dev, "mqueue", queues)?,
    }
    let null = devices.iter().find(|(name, _)| name == "null");
    let (_, null) = null.ok_or_else(|| on(Step::Devices, "null")(Errno::NOENT))?;
    null.try_clone()
        .map_err(|_| at(Step::Devices)(Errno::MFILE))
}

fn put(dev: &OwnedFd, name: &str, mount: Result<OwnedFd, Errno>) -> Result<(), Failure> {
    mount
        .and_then(|mount| {
            let target = entries::directory(dev, name, 0o755)?;
            mounts::attach(&mount, target.as_fd(), "")
        })
        .map_err(on(Step::Devices, name))
}
