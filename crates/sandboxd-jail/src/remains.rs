//! What sandboxes leave behind, and how it goes: cgroup directories and trees of files.
//!
//! The files were written by untrusted code: every step goes by descriptor and never through a link, and a tree of any
//! depth is removed with a handful of descriptors.

use crate::host_rules;
use crate::wire::Instance;
use rustix::fd::{AsFd, AsRawFd as _, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the kernel may take to let go of the last task of a cgroup.
const CGROUP_WAIT: Duration = Duration::from_secs(10);
/// How often a directory is emptied that others still fill.
const ATTEMPTS: u32 = 20;
/// Entries of a directory that are held in memory at once.
const LOOK_MAX: usize = 1_024;
/// The first pause between two attempts; it doubles.
const CGROUP_PAUSE: Duration = Duration::from_millis(1);
/// The longest pause between two attempts.
const CGROUP_PAUSE_MAX: Duration = Duration::from_millis(100);

/// Removes everything that belongs to one instance of the daemon, as far as it can. Its directory, which names its
/// cgroups, goes only after them: what cannot be removed now is found again by the next start.
pub fn remove_instance(instance: &Instance) {
    // The table of rules goes after the last sandbox that it keeps in.
    // In the second generation's tree everything can be ended at once, in the first's one by one; then all are empty.
    for cgroup in &instance.cgroups {
        end_cgroup(Path::new(cgroup));
    }
    let mut all_gone = true;
    for cgroup in &instance.cgroups {
        all_gone &= remove_cgroup(Path::new(cgroup)).is_ok();
    }
    if let Some(rules) = &instance.host_rules {
        all_gone &= host_rules::remove(rules).is_ok();
    }
    if all_gone {
        let _ = remove_tree(Path::new(&instance.scratch));
    }
}

/// Removes a cgroup directory with everything below it, once its last task has gone. One that is not there is fine.
///
/// # Errors
///
/// Where it is still busy after ten seconds, or cannot be removed for another reason.
pub fn remove_cgroup(directory: &Path) -> Result<(), Errno> {
    let deadline = Instant::now() + CGROUP_WAIT;
    let mut pause = CGROUP_PAUSE;
    loop {
        match remove_cgroup_once(directory) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::BUSY) if Instant::now() < deadline => {
                std::thread::sleep(pause);
                pause = (pause * 2).min(CGROUP_PAUSE_MAX);
            }
            Err(errno) => return Err(errno),
        }
    }
}

/// Ends every process in a cgroup directory and those below it.
pub fn end_cgroup(directory: &Path) {
    if std::fs::write(directory.join("cgroup.kill"), "1").is_ok() {
        return;
    }
    let processes = std::fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    for pid in processes.lines().filter_map(|line| line.parse().ok()) {
        // Zero and one stand for groups and for the machine's first process, neither of which is ours.
        if let Some(pid) = Pid::from_raw(pid).filter(|pid| pid.as_raw_nonzero().get() > 1) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            end_cgroup(&entry.path());
        }
    }
}

/// One attempt to remove a cgroup directory and those below it.
///
/// # Errors
///
/// `BUSY` while a task is in one of them.
pub fn remove_cgroup_once(directory: &Path) -> Result<(), Errno> {
    if rustix::fs::rmdir(directory).is_ok() {
        return Ok(());
    }
    let entries = std::fs::read_dir(directory).map_err(errno_of)?;
    for entry in entries {
        let entry = entry.map_err(errno_of)?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            // The tree is as deep as we and the guest made it: two levels; the kernel bounds it for us.
            match remove_cgroup_once(&entry.path()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
    rustix::fs::rmdir(directory)
}

fn errno_of(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// Removes a directory with everything in it; one that is not there is fine, and so is somebody else who removes it at
/// the same time.
///
/// A directory in it is first moved up beside the others, so that nesting costs neither stack nor descriptors.
///
/// # Errors
///
/// What the file system says to the first thing that cannot be removed.
pub fn remove_tree(directory: &Path) -> Result<(), Errno> {
    let top = match open_directory(rustix::fs::CWD, directory) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    for _ in 0..ATTEMPTS {
        empty_tree(&top)?;
        match rustix::fs::rmdir(directory) {
            // Somebody put something there in the meantime.
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(Errno::NOENT) => return Ok(()),
            other => return other,
        }
    }
    Err(Errno::NOTEMPTY)
}

/// Removes everything in a directory, but not itself.
fn empty_tree(top: &OwnedFd) -> Result<(), Errno> {
    let mut moved = 0_u64;
    loop {
        let found = children(top)?;
        if found.is_empty() {
            return Ok(());
        }
        for (name, kind) in found {
            if kind == FileType::Directory {
                remove_directory(top, &name, &mut moved)?;
            } else {
                unlink(top, &name)?;
            }
        }
    }
}

/// Removes a directory whose own directories are moved up if they are not empty; if it has too many entries for one
/// look, it stays for the next.
fn remove_directory(top: &OwnedFd, name: &[u8], moved: &mut u64) -> Result<(), Errno> {
    if rustix::fs::unlinkat(top, name, AtFlags::REMOVEDIR).is_ok() {
        return Ok(());
    }
    let below = match open_or_unlock(top, name) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    for (child, kind) in children(&below)? {
        if kind != FileType::Directory {
            unlink(&below, &child)?;
        } else if rustix::fs::unlinkat(&below, &*child, AtFlags::REMOVEDIR).is_err() {
            *moved += 1;
            rename_up(top, &below, &child, *moved)?;
        }
    }
    match rustix::fs::unlinkat(top, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno),
    }
}

fn rename_up(top: &OwnedFd, from: &OwnedFd, name: &[u8], number: u64) -> Result<(), Errno> {
    // A directory that nobody may write cannot be moved by an ordinary user, since its `..` changes.
    let _ = unlock(from, name);
    let mut number = number;
    loop {
        let target = format!(".removed-{number}");
        match rustix::fs::renameat_with(
            from,
            name,
            top,
            target.as_str(),
            rustix::fs::RenameFlags::NOREPLACE,
        ) {
            // Somebody chose our name; there are others.
            Err(Errno::NOENT) => return Ok(()),
            Err(Errno::EXIST) => number = number.wrapping_mul(31).wrapping_add(1_000_003),
            other => return other,
        }
    }
}

fn unlink(at: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    match rustix::fs::unlinkat(at, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno),
    }
}

fn open_directory<P: rustix::path::Arg>(at: impl AsFd, path: P) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(
        at,
        path,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

fn open_or_unlock(at: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    // An ordinary user's own directory may have no permission bits; it is a directory, and ours to remove.
    match open_directory(at, name) {
        Ok(directory) => {
            let _ = rustix::fs::fchmod(&directory, Mode::RWXU);
            Ok(directory)
        }
        Err(Errno::ACCESS) => {
            unlock(at, name)?;
            open_directory(at, name)
        }
        Err(errno) => Err(errno),
    }
}

/// Gives a directory back to its owner. By descriptor, since a name may be exchanged for a link while somebody that is
/// about to end still runs.
fn unlock(at: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = rustix::fs::openat(at, name, flags, Mode::empty())?;
    // An `O_PATH` descriptor is changed by the name that the kernel has for it.
    let path = format!("/proc/self/fd/{}", found.as_raw_fd());
    rustix::fs::chmodat(rustix::fs::CWD, path, Mode::RWXU, AtFlags::empty())
}

/// Names and kinds of what is in a directory, [`LOOK_MAX`] at a time.
fn children(directory: &OwnedFd) -> Result<Vec<(Vec<u8>, FileType)>, Errno> {
    let mut found = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        if found.len() == LOOK_MAX {
            break;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => {
                match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Err(Errno::NOENT) => continue,
                    status => FileType::from_raw_mode(status?.st_mode),
                }
            }
            kind => kind,
        };
        found.push((name.to_vec(), kind));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
    use std::path::PathBuf;

    /// A directory of this test's own.
    fn place(name: &str) -> PathBuf {
        let place = std::env::temp_dir().join(format!("remains-{name}-{}", std::process::id()));
        fs::create_dir_all(&place).unwrap();
        place
    }

    #[test]
    fn a_tree_goes_and_what_its_links_point_to_stays() {
        let place = place("links");
        let tree = place.join("tree");
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::create_dir_all(tree.join(".removed-1/x")).unwrap();
        fs::write(place.join("outside"), "stays").unwrap();
        symlink(place.join("outside"), tree.join("a/link")).unwrap();
        symlink(&place, tree.join("a/b/up")).unwrap();
        let closed = tree.join("a/closed");
        fs::create_dir_all(closed.join("inner/deeper")).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
        assert_eq!(remove_tree(&tree), Ok(()));
        assert!(!tree.exists());
        assert_eq!(fs::read(place.join("outside")).unwrap(), b"stays");
        assert_eq!(remove_tree(&tree), Ok(()));
        assert_eq!(remove_tree(&place), Ok(()));
    }

    #[test]
    fn what_is_unlocked_is_never_what_a_link_points_to() {
        let place = place("unlock");
        fs::create_dir(place.join("outside")).unwrap();
        fs::create_dir(place.join("inside")).unwrap();
        for name in ["outside", "inside"] {
            fs::set_permissions(place.join(name), fs::Permissions::from_mode(0o500)).unwrap();
        }
        symlink("outside", place.join("link")).unwrap();
        let at = open_directory(rustix::fs::CWD, &place).unwrap();
        assert!(unlock(&at, b"link").is_err());
        assert_eq!(unlock(&at, b"inside"), Ok(()));
        let mode = |name: &str| fs::metadata(place.join(name)).unwrap().mode() & 0o777;
        assert_eq!((mode("outside"), mode("inside")), (0o500, 0o700));
        assert_eq!(remove_tree(&place), Ok(()));
    }

    #[test]
    fn depth_costs_neither_stack_nor_descriptors() {
        let place = place("deep");
        let mut at = open_directory(rustix::fs::CWD, &place).unwrap();
        for _ in 0..1_200 {
            rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
            at = open_directory(&at, "d").unwrap();
        }
        assert_eq!(remove_tree(&place), Ok(()));
        assert!(!place.exists());
    }

    #[test]
    fn more_entries_than_one_look_go_too() {
        let place = place("many");
        fs::create_dir(place.join("inner")).unwrap();
        for number in 0..LOOK_MAX + 10 {
            fs::write(place.join("inner").join(number.to_string()), "").unwrap();
        }
        assert_eq!(remove_tree(&place), Ok(()));
        assert!(!place.exists());
    }
}
