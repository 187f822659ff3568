//! A second wall where the kernel has Landlock, for the day on which one of the first has a hole.
//!
//! It needs no capability, no namespace and no filter, and nothing inside can take it off. What it holds, also against a
//! root with every capability: no mount is made, moved or taken away; no process outside of the sandbox is traced, has its
//! memory read, gets a signal or is reached by an abstract socket; no device file is made; and only what lies below `/dev`
//! takes a device's requests. Reading and writing files it leaves to mounts and owners: its rules can only add to what lies
//! below a directory, never take `/proc` out of `/`.

use crate::spawn::at;
use crate::sys;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use sandboxd_jail::report::{Failure, Step};

/// Making a character device.
const MAKE_CHAR: u64 = 1 << 6;
/// Making a block device.
const MAKE_BLOCK: u64 = 1 << 11;
/// Moving and linking between directories: forbidden everywhere unless it is handled and allowed.
const REFER: u64 = 1 << 13;
/// A device's requests.
const IOCTL_DEV: u64 = 1 << 15;
/// Abstract sockets and signals stay among the restricted.
const SCOPES: u64 = 0b11;

/// The first generation in which files can be moved between directories at all.
const USABLE: i64 = 2;

/// What is handled, and what is scoped, by a kernel of this generation.
const fn handled(generation: i64) -> (u64, u64) {
    let devices = if generation >= 5 { IOCTL_DEV } else { 0 };
    let scopes = if generation >= 6 { SCOPES } else { 0 };
    (MAKE_CHAR | MAKE_BLOCK | REFER | devices, scopes)
}

/// Builds it, as far as the kernel can: its generation. One that has none, or an older one that would keep files from being
/// moved, goes without, which is a generation of zero, and the daemon reports that.
pub(crate) fn restrict() -> Result<u8, Failure> {
    let step = at(Step::Landlock);
    let generation = match sys::landlock_generation() {
        Ok(generation) if generation >= USABLE => generation,
        Ok(_) | Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM) => return Ok(0),
        Err(errno) => return Err(step(errno)),
    };
    let (files, scopes) = handled(generation);
    let rules = sys::landlock_rules(files, scopes).map_err(&step)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    for (path, allowed) in [("/", REFER), ("/dev", IOCTL_DEV & files)] {
        if allowed != 0 {
            let directory = rustix::fs::open(path, flags, Mode::empty()).map_err(&step)?;
            sys::landlock_allow(&rules, &directory, allowed).map_err(&step)?;
        }
    }
    sys::landlock_enforce(&rules).map_err(&step)?;
    Ok(u8::try_from(generation).unwrap_or(u8::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_kernel_is_asked_only_for_what_it_knows() {
        assert_eq!(handled(2), (MAKE_CHAR | MAKE_BLOCK | REFER, 0));
        assert_eq!(handled(5).0 & IOCTL_DEV, IOCTL_DEV);
        assert_eq!(handled(5).1, 0);
        assert_eq!(handled(7).1, SCOPES);
    }
}
