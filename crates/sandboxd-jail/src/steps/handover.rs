//! The child waits for its users and mounts. If the launcher ends instead, so does the child.

use crate::launcher;
use crate::spawn::at;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use sandboxd_jail::report::{Failure, Step};

/// The mounts that the launcher made: root, views, workspace.
pub(crate) fn wait(launcher: &OwnedFd) -> Result<Vec<OwnedFd>, Failure> {
    let mut word = [0_u8; 8];
    loop {
        match launcher::receive(launcher.as_fd(), &mut word) {
            Ok((0, _)) => return Err(at(Step::Handover)(Errno::PIPE)),
            Ok((_, descriptors)) => return Ok(descriptors),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(at(Step::Handover)(errno)),
        }
    }
}
