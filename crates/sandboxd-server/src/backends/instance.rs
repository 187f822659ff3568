//! One instance of the daemon, and what instances that are no more have left.
//!
//! An instance has a directory with a lock file in it. The lock is held by the daemon and its launcher, so as long as
//! either lives the instance does; one whose lock can be taken is dead, and everything in its directory, and the cgroups
//! that the directory names, are swept by the next start.

use crate::id::SandboxId;
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags};
use sandboxd_jail::network::HostRules;
use sandboxd_jail::remains;
use sandboxd_jail::wire::Instance as Told;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// The file that names an instance's cgroup directories.
const CGROUPS: &str = "cgroups";
/// The file that names what is to be taken out of the host's rules.
const HOST_RULES: &str = "host-rules";
/// What the names of tables of rules begin with.
pub(super) const TABLE_PREFIX: &str = "sandboxd-";
/// The lock file.
const LOCK: &str = "lock";

/// This instance.
#[derive(Debug)]
pub(super) struct Instance {
    /// Its name.
    pub(super) name: String,
    /// Its directory.
    pub(super) directory: PathBuf,
    /// Its lock.
    pub(super) lock: OwnedFd,
}

impl Instance {
    /// Makes the directory of a new instance.
    pub(super) fn make(state_dir: &Path) -> io::Result<Self> {
        private(state_dir)?;
        let all = state_dir.join("instances");
        private(&all)?;
        // While this is held nobody takes an instance that is only half made for a dead one.
        let _making = making_lock(&all, FlockOperation::LockShared)?;
        let name = SandboxId::generate().to_string();
        let directory = all.join(&name);
        // Made and locked under another name first: a sweep must not find it without its lock held.
        let making = all.join(format!(".{name}"));
        private(&making)?;
        let lock = take_lock(&making)?
            .ok_or_else(|| io::Error::other("the new instance's lock is already held"))?;
        for part in ["layers", "trash"] {
            private(&making.join(part))?;
        }
        fs::rename(&making, &directory)?;
        Ok(Self {
            name,
            directory,
            lock,
        })
    }

    /// Writes down which cgroup directories are its own, before the first is made.
    pub(super) fn note_cgroups(&self, directories: &[PathBuf]) -> io::Result<()> {
        let text: String = directories
            .iter()
            .map(|path| format!("{}\n", path.display()))
            .collect();
        fs::write(self.directory.join(CGROUPS), text)
    }

    /// What the launcher has to know to clean up.
    pub(super) fn told(&self, cgroups: &[PathBuf]) -> Told {
        Told {
            cgroups: cgroups
                .iter()
                .map(|path| path.display().to_string())
                .collect(),
            scratch: self.directory.display().to_string(),
            host_rules: None,
            router: None,
        }
    }

    /// Where layers lie that go with their sandbox.
    pub(super) fn layers(&self) -> PathBuf {
        self.directory.join("layers")
    }

    /// Where what is to be deleted waits for that.
    pub(super) fn trash(&self) -> PathBuf {
        self.directory.join("trash")
    }
}

/// Writes down what is put into the host's rules, before it is, in an instance's directory.
pub(super) fn note_host_rules(directory: &Path, rules: &HostRules) -> io::Result<()> {
    let text = format!("{}\n{}\n", rules.nft, rules.table);
    fs::write(directory.join(HOST_RULES), text)
}

/// The names of the instances that live.
pub(super) fn names(state_dir: &Path) -> io::Result<BTreeSet<String>> {
    let entries = fs::read_dir(state_dir.join("instances"))?;
    let names = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    Ok(names.filter(|name| !name.starts_with('.')).collect())
}

/// A directory that only we may enter.
pub(super) fn private(path: &Path) -> io::Result<()> {
    match fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
    {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// The lock of an instance's directory, or nothing while somebody holds it.
fn take_lock(directory: &Path) -> io::Result<Option<OwnedFd>> {
    let lock = rustix::fs::open(
        directory.join(LOCK),
        OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::from_raw_mode(0o600),
    )?;
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(lock)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// The lock on all instances together: shared by those who make one, alone for who sweeps half-made ones.
fn making_lock(all: &Path, operation: FlockOperation) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(all, flags, Mode::empty())?;
    rustix::io::retry_on_intr(|| rustix::fs::flock(&directory, operation))?;
    Ok(directory)
}

/// Removes what dead instances left. Returns how many there were.
pub(super) fn sweep(state_dir: &Path) -> usize {
    let all = state_dir.join("instances");
    let Ok(entries) = fs::read_dir(&all) else {
        return 0;
    };
    let mut swept = 0;
    for entry in entries.flatten() {
        let directory = entry.path();
        // A name with a dot is one that is being made, or whose maker died in the middle: only where nobody makes one
        // is it the latter. It has no cgroups yet, so this lock is not held for long.
        let half_made = entry.file_name().as_encoded_bytes().starts_with(b".");
        let alone = FlockOperation::NonBlockingLockExclusive;
        let _making = match half_made.then(|| making_lock(&all, alone)) {
            Some(Err(_)) => continue,
            Some(Ok(lock)) => Some(lock),
            None => None,
        };
        let Ok(Some(lock)) = take_lock(&directory) else {
            continue;
        };
        let cgroups = fs::read_to_string(directory.join(CGROUPS)).unwrap_or_default();
        let told = Told {
            cgroups: cgroups.lines().map(str::to_owned).collect(),
            scratch: directory.display().to_string(),
            host_rules: noted_host_rules(&directory),
            router: None,
        };
        remains::remove_instance(&told);
        if directory.exists() {
            tracing::warn!(directory = %directory.display(), "what a former instance left could not be removed yet");
        } else {
            swept += 1;
        }
        drop(lock);
    }
    swept
}

/// What a former instance put into the host's rules.
fn noted_host_rules(directory: &Path) -> Option<HostRules> {
    let text = fs::read_to_string(directory.join(HOST_RULES)).ok()?;
    let mut lines = text.lines();
    let (nft, table) = (lines.next()?.to_owned(), lines.next()?.to_owned());
    let ours = table.starts_with(TABLE_PREFIX);
    ours.then_some(HostRules { nft, table })
}

/// Makes sure that nobody but its owner may enter a directory.
pub(super) fn close_to_others(path: &Path) -> io::Result<()> {
    let mode = fs::metadata(path)?.permissions().mode();
    if mode & 0o077 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o700))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn instances_that_are_made_beside_sweeps_are_whole() {
        let state = tempfile::tempdir().expect("a directory");
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..25 {
                        sweep(state.path());
                        let made = Instance::make(state.path()).expect("an instance");
                        for part in [LOCK, "layers", "trash"] {
                            assert!(made.directory.join(part).exists(), "{part}");
                        }
                    }
                });
            }
        });
        sweep(state.path());
        let left = fs::read_dir(state.path().join("instances")).expect("a directory");
        assert_eq!(left.count(), 0);
    }

    #[test]
    fn a_half_made_instance_is_swept_when_nobody_makes_one() {
        let state = tempfile::tempdir().expect("a directory");
        let half = state.path().join("instances/.half");
        fs::create_dir_all(&half).expect("directories");
        let making = making_lock(&state.path().join("instances"), FlockOperation::LockShared);
        assert_eq!(sweep(state.path()), 0);
        assert!(half.exists());
        drop(making);
        assert_eq!(sweep(state.path()), 1);
        assert!(!half.exists());
    }
}
