//! What the daemon may not do itself about quotas: taking a number for a project, and setting its limits.
//!
//! Daemons that share a file system share a lock, which comes with each request: a number is free as long as no file bears
//! it, so whoever takes one gives it to a directory before it lets go.

use crate::spawn::at;
use rustix::fd::OwnedFd;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use sandboxd_jail::projects::{self, Most, Project};
use sandboxd_jail::report::{Failure, Step};
use sandboxd_jail::wire::{Quota, Tie};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long others may hold the lock.
const LOCK_WAIT: Duration = Duration::from_secs(5);
/// The pause between two attempts to have it.
const LOCK_PAUSE: Duration = Duration::from_millis(2);

/// The file systems, by device, from which limits have been taken that nothing is under any more: once by each launcher.
pub(crate) type Tidied = BTreeSet<u64>;

/// Does what is asked about the file system of a directory. Where a number is taken, the directory bears it from then on,
/// and hands it on.
pub(crate) fn quota(
    wanted: &Quota,
    descriptors: Vec<OwnedFd>,
    tidied: &mut Tidied,
) -> Result<(), Failure> {
    let given: Result<[OwnedFd; 2], _> = descriptors.try_into();
    let [lock, directory] = given.map_err(|_| at(Step::Receive)(Errno::BADF))?;
    done(wanted, &lock, &directory, tidied).map_err(at(Step::Quota))
}

fn done(
    wanted: &Quota,
    lock: &OwnedFd,
    directory: &OwnedFd,
    tidied: &mut Tidied,
) -> Result<(), Errno> {
    let _held = Held::take(lock)?;
    let most = Most {
        bytes: wanted.bytes,
        files: wanted.files,
    };
    match &wanted.tie {
        Tie::To(id) => projects::limit(directory, *id, most),
        Tie::Fresh(ids) => {
            let device = rustix::fs::fstat(directory)?.st_dev;
            if tidied.insert(device) {
                // What stays is of no harm: it is set anew for whoever gets the number.
                let _ = projects::tidy(directory, ids.clone());
            }
            let id = projects::free(directory, ids.clone())?.ok_or(Errno::NOSPC)?;
            // Of somebody's before: without that one's limits, whoever gets it brings files along.
            projects::limit(directory, id, Most::default())?;
            projects::set_project(
                directory,
                Project {
                    id,
                    handed_on: true,
                },
            )?;
            projects::limit(directory, id, most)
        }
    }
}

/// The lock, as long as it is held.
struct Held<'a>(&'a OwnedFd);

impl<'a> Held<'a> {
    fn take(lock: &'a OwnedFd) -> Result<Self, Errno> {
        let deadline = Instant::now() + LOCK_WAIT;
        loop {
            match rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self(lock)),
                Err(Errno::WOULDBLOCK) if Instant::now() < deadline => {
                    std::thread::sleep(LOCK_PAUSE);
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // The daemon has the same open file: closing ours would not let go.
        let _ = rustix::fs::flock(self.0, FlockOperation::Unlock);
    }
}
