//! Directories of the image store, and who may change them: several daemons and commands use one store at a time.
//!
//! What is made lies in `making` until it is whole and on the disk; then one rename puts it into its place. The lock of
//! its name says that its maker lives, so that a start can tell leftovers from work.

use super::stream::Cancel;
use crate::limits::{IMAGE_LOCK_SECONDS_MAX, IMAGE_MAKE_SECONDS_MAX};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where things are made.
const MAKING: &str = "making";
/// Where the locks are.
const LOCKS: &str = "locks";
/// How often a lock that somebody holds is tried.
const PAUSE: Duration = Duration::from_millis(50);

/// A lock that is held.
#[derive(Debug)]
pub(super) struct Lock(#[expect(dead_code, reason = "its end is the lock's")] File);

/// Makes a directory that only we may enter, with its parents.
pub(super) fn private(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
}

fn file(store: &Path, name: &str) -> io::Result<File> {
    let directory = store.join(LOCKS);
    private(&directory)?;
    File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(directory.join(name))
}

/// The lock of a name, once whoever makes the same is done.
pub(super) fn take(store: &Path, name: &str, cancel: &Cancel) -> io::Result<Lock> {
    let patience = Duration::from_secs(IMAGE_MAKE_SECONDS_MAX);
    hold(
        file(store, name)?,
        FlockOperation::NonBlockingLockExclusive,
        patience,
        cancel,
    )
}

/// The lock of a name, if nobody has it.
pub(super) fn try_take(store: &Path, name: &str) -> io::Result<Option<Lock>> {
    let file = file(store, name)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(Lock(file))),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// What everybody holds who uses an image: it is not removed meanwhile.
pub(super) fn using(store: &Path, image: &str) -> io::Result<Lock> {
    let file = file(store, &format!("image-{image}"))?;
    let patience = Duration::from_secs(IMAGE_LOCK_SECONDS_MAX);
    let shared = FlockOperation::NonBlockingLockShared;
    hold(file, shared, patience, &Cancel::default())
}

/// What is held by who removes an image; nothing while somebody uses it.
pub(super) fn unused(store: &Path, image: &str) -> io::Result<Option<Lock>> {
    try_take(store, &format!("image-{image}"))
}

/// Removes the lock of a name that nobody will take again.
pub(super) fn forget(store: &Path, name: &str) {
    let _ = fs::remove_file(store.join(LOCKS).join(name));
}

/// What everybody holds who adds images: nothing is collected meanwhile.
pub(super) fn adding(store: &Path) -> io::Result<Lock> {
    whole(store, FlockOperation::NonBlockingLockShared)
}

/// What is held by who removes images: nobody adds any meanwhile.
pub(super) fn removing(store: &Path) -> io::Result<Lock> {
    whole(store, FlockOperation::NonBlockingLockExclusive)
}

fn whole(store: &Path, operation: FlockOperation) -> io::Result<Lock> {
    let patience = Duration::from_secs(IMAGE_LOCK_SECONDS_MAX);
    hold(
        file(store, "store")?,
        operation,
        patience,
        &Cancel::default(),
    )
}

fn hold(
    file: File,
    operation: FlockOperation,
    patience: Duration,
    cancel: &Cancel,
) -> io::Result<Lock> {
    let deadline = Instant::now() + patience;
    loop {
        match rustix::fs::flock(&file, operation) {
            Ok(()) => return Ok(Lock(file)),
            Err(Errno::WOULDBLOCK) if cancel.is_cancelled() => {
                return Err(io::Error::other("given up while waiting for its turn"));
            }
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => std::thread::sleep(PAUSE),
            Err(Errno::WOULDBLOCK) => {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!(
                        "another sandboxd has been changing images for {} s; try again when it is done",
                        patience.as_secs()
                    ),
                ));
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// An empty directory in which something is made, under the lock of its name.
pub(super) fn making(store: &Path, name: &str) -> io::Result<PathBuf> {
    let making = store.join(MAKING).join(name);
    discard(&making)?;
    private(&making)?;
    Ok(making)
}

/// Puts what is whole into its place, on the disk before anybody can find it.
pub(super) fn commit(making: &Path, place: &Path) -> io::Result<()> {
    rustix::fs::syncfs(File::open(making)?)?;
    fs::rename(making, place)?;
    sync_parent(place)
}

/// A small file, whole or not at all, on the disk.
pub(super) fn write(place: &Path, content: &[u8]) -> io::Result<()> {
    use std::io::Write as _;
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    let fresh = place.with_file_name(format!(".{name}.{}", crate::id::SandboxId::generate()));
    let written = (|| {
        let mut file = File::create_new(&fresh)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&fresh, place)?;
        sync_parent(place)
    })();
    if written.is_err() {
        let _ = fs::remove_file(&fresh);
    }
    written
}

fn sync_parent(place: &Path) -> io::Result<()> {
    File::open(place.parent().unwrap_or(Path::new(".")))?.sync_all()
}

/// Removes a tree, of whatever kind its files are. One that is not there is fine.
pub(super) fn discard(tree: &Path) -> io::Result<()> {
    match sandboxd_jail::remains::remove_tree(tree) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// What is in a directory, but for what is on its way; nothing where there is none.
pub(super) fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let read = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read?,
    };
    let mut found = Vec::new();
    for entry in read {
        let entry = entry?;
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// Removes what makers that are no more have left. How many there were.
pub(super) fn sweep(store: &Path) -> io::Result<usize> {
    let mut swept = 0;
    for making in entries(&store.join(MAKING))? {
        let name = making.file_name().unwrap_or_default().to_string_lossy();
        if let Some(_lock) = try_take(store, &name)? {
            discard(&making)?;
            swept += 1;
        }
    }
    Ok(swept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_go_and_work_stays() {
        let home = tempfile::tempdir().unwrap();
        let store = home.path();
        let lock = take(store, "alive", &Cancel::default()).unwrap();
        for name in ["alive", "dead"] {
            let making = making(store, name).unwrap();
            fs::write(making.join("part"), b"x").unwrap();
        }
        assert_eq!(sweep(store).unwrap(), 1);
        assert!(store.join("making/alive/part").exists());
        assert!(!store.join("making/dead").exists());
        assert!(try_take(store, "alive").unwrap().is_none());
        drop(lock);
        assert_eq!(sweep(store).unwrap(), 1);
    }

    #[test]
    fn who_waits_can_be_told_to_give_up() {
        let home = tempfile::tempdir().unwrap();
        let _held = take(home.path(), "x", &Cancel::default()).unwrap();
        let cancel = Cancel::default();
        cancel.cancel();
        assert!(take(home.path(), "x", &cancel).is_err());
    }

    #[test]
    fn a_file_is_written_whole_and_leaves_nothing_beside_it() {
        let home = tempfile::tempdir().unwrap();
        let place = home.path().join("record");
        write(&place, b"one").unwrap();
        write(&place, b"two").unwrap();
        assert_eq!(fs::read(&place).unwrap(), b"two");
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
        // A directory in its place: nothing half-written is left.
        let taken = home.path().join("taken");
        fs::create_dir_all(taken.join("x")).unwrap();
        assert!(write(&taken, b"three").is_err());
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 2);
    }
}
