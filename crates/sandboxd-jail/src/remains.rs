//! What sandboxes leave behind, and how it goes: cgroup directories and trees of files.
//!
//! The files were written by untrusted code: every step goes by descriptor and never through a link, and a tree of any
//! depth is removed with a handful of descriptors.

use crate::wire::Instance;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the kernel may take to let go of the last task of a cgroup.
const CGROUP_WAIT: Duration = Duration::from_secs(10);
/// The first pause between two attempts; it doubles.
const CGROUP_PAUSE: Duration = Duration::from_millis(1);
/// The longest pause between two attempts.
const CGROUP_PAUSE_MAX: Duration = Duration::from_millis(100);

/// Removes everything that belongs to one instance of the daemon, as far as it can. Its directory, which names its
/// cgroups, goes only after them: what cannot be removed now is found again by the next start.
pub fn remove_instance(instance: &Instance) {
    // In the second generation's tree everything can be ended at once, in the first's one by one; then all are empty.
    for cgroup in &instance.cgroups {
        end_cgroup(Path::new(cgroup));
    }
    let mut all_gone = true;
    for cgroup in &instance.cgroups {
        all_gone &= remove_cgroup(Path::new(cgroup)).is_ok();
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

/// Removes a directory with everything in it; one that is not there is fine.
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
    empty_tree(&top)?;
    rustix::fs::rmdir(directory)
}

/// Removes everything in a directory, but not itself.
///
/// # Errors
///
/// What the file system says to the first thing that cannot be removed.
pub fn empty_tree(top: &OwnedFd) -> Result<(), Errno> {
    let mut moved = 0_u64;
    loop {
        let mut found_directory = false;
        for (name, kind) in children(top)? {
            if kind != FileType::Directory {
                unlink(top, &name)?;
                continue;
            }
            if rustix::fs::unlinkat(top, &*name, AtFlags::REMOVEDIR).is_ok() {
                continue;
            }
            found_directory = true;
            let below = open_or_unlock(top, &name)?;
            for (child, kind) in children(&below)? {
                if kind == FileType::Directory
                    && rustix::fs::unlinkat(&below, &*child, AtFlags::REMOVEDIR).is_err()
                {
                    moved += 1;
                    rename_up(top, &below, &child, moved)?;
                } else if kind != FileType::Directory {
                    unlink(&below, &child)?;
                }
            }
            match rustix::fs::unlinkat(top, &*name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
        if !found_directory {
            return Ok(());
        }
    }
}

fn rename_up(top: &OwnedFd, from: &OwnedFd, name: &[u8], number: u64) -> Result<(), Errno> {
    // A directory that nobody may write cannot be moved by an ordinary user, since its `..` changes.
    let _ = rustix::fs::chmodat(from, name, Mode::RWXU, AtFlags::empty());
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
            rustix::fs::chmodat(at, name, Mode::RWXU, AtFlags::empty())?;
            open_directory(at, name)
        }
        Err(errno) => Err(errno),
    }
}

/// Names and kinds of what is in a directory.
fn children(directory: &OwnedFd) -> Result<Vec<(Vec<u8>, FileType)>, Errno> {
    let mut found = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => {
                let status = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
                FileType::from_raw_mode(status.st_mode)
            }
            kind => kind,
        };
        found.push((name.to_vec(), kind));
    }
    Ok(found)
}
