//! A cgroup of its own for each run, where the sandbox was given a cgroup2 directory: born inside, ended by one write.
//!
//! A leaf whose run left programs in the background stays with them and is removed when they have gone.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, unlinkat};
use rustix::io::{Errno, pread, write};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::{HashSet, VecDeque};
use std::io::{self, Read};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The directory that runs get their leaves in.
#[derive(Debug)]
pub(crate) struct Leaves {
    directory: OwnedFd,
    next: AtomicU64,
    left: Mutex<VecDeque<String>>,
    /// One that is made and that no run has had yet, so that a run need not wait for its making.
    ready: Mutex<Option<Leaf>>,
    /// Where the kernel counts kills for memory in the whole sandbox, where it counts them here.
    memory_events: Option<OwnedFd>,
}

/// One run's cgroup.
#[derive(Debug)]
pub(crate) struct Leaf {
    name: String,
    directory: OwnedFd,
}

/// Leaves that are looked at, oldest first, whenever a run ends.
const LOOKED_AT: usize = 16;
/// Longest list of counters in bytes.
const MEMORY_EVENTS_BYTES: usize = 1024;

impl Leaves {
    /// Uses a directory if leaves can be made in it and ended; says why not.
    pub(crate) fn open(directory: OwnedFd) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let memory_events = openat(&directory, "memory.events", flags, Mode::empty()).ok();
        let leaves = Self {
            directory,
            next: AtomicU64::new(0),
            left: Mutex::new(VecDeque::new()),
            ready: Mutex::new(None),
            memory_events,
        };
        // Not to be used: where processes of a leaf were ever killed, the kernel may kill what is born there later.
        let leaf = leaves.make()?;
        let ended = leaf.kill();
        leaves.remove(&leaf.name)?;
        ended?;
        Ok(leaves)
    }

    fn ready(&self) -> MutexGuard<'_, Option<Leaf>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A leaf that no run has had.
    pub(crate) fn take(&self) -> io::Result<Leaf> {
        let ready = self.ready().take();
        ready.map_or_else(|| self.make(), Ok)
    }

    /// Makes one for the next run, where there is none. Without it that run makes its own, and says why it cannot.
    pub(crate) fn make_ready(&self) {
        let mut ready = self.ready();
        if ready.is_none() {
            *ready = self.make().ok();
        }
    }

    fn make(&self) -> io::Result<Leaf> {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let name = format!("run-{number}");
            match mkdirat(&self.directory, &name, Mode::from_raw_mode(0o755)) {
                Ok(()) => {}
                // Left by a guest before this one.
                Err(Errno::EXIST) => continue,
                Err(error) => return Err(error.into()),
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let directory = openat(&self.directory, &name, flags, Mode::empty())?;
            return Ok(Leaf { name, directory });
        }
    }

    /// Removes a leaf if it is empty.
    fn remove(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.directory, name, AtFlags::REMOVEDIR)?)
    }

    /// Puts a leaf away: removed now if its processes are gone, else at the end of a later run.
    pub(crate) fn put_away(&self, leaf: Leaf) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.push_front(leaf.name);
        for _ in 0..left.len().min(LOOKED_AT) {
            if let Some(name) = left.pop_front()
                && self.remove(&name).is_err()
            {
                left.push_back(name);
            }
        }
    }

    /// Kills everything that ended runs left behind.
    pub(crate) fn kill_left(&self) {
        let left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        for name in &*left {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            // One that is empty by now may be gone.
            if let Ok(directory) = openat(&self.directory, name, flags, Mode::empty()) {
                let leaf = Leaf {
                    name: name.clone(),
                    directory,
                };
                let _ = leaf.kill();
                let _ = leaf.kill_each();
            }
        }
    }

    /// Kills for memory that the kernel counted in the whole sandbox, where it counts them here.
    pub(crate) fn memory_kills(&self) -> Option<u64> {
        let mut text = [0; MEMORY_EVENTS_BYTES];
        let length = pread(self.memory_events.as_ref()?, &mut text, 0).ok()?;
        counter(std::str::from_utf8(text.get(..length)?).ok()?, "oom_kill")
    }
}

impl Leaf {
    /// For a birth inside.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Kills everything inside, forks under way included, but for what [`Leaf::kill_each`] is for.
    pub(crate) fn kill(&self) -> io::Result<()> {
        self.write("cgroup.kill", b"1")
    }

    /// Kills what is inside one process at a time. The kernel's own way passes over a process whose first thread has ended
    /// while others go on: it signals that first thread, which can take no signal any more.
    ///
    /// A number may belong to another process a moment later, so the list is read twice, with descriptors of the
    /// processes taken in between: what is in both lists is the process that the descriptor means.
    pub(crate) fn kill_each(&self) -> io::Result<()> {
        // Whoever is left makes no more of its kind meanwhile; a frozen process can be killed.
        self.write("cgroup.freeze", b"1")?;
        let held: Vec<(i32, OwnedFd)> = self
            .processes()?
            .into_iter()
            .filter_map(|number| {
                let process = pidfd_open(Pid::from_raw(number)?, PidfdFlags::empty()).ok()?;
                Some((number, process))
            })
            .collect();
        let still = self.processes()?;
        for (number, process) in held {
            if still.contains(&number) {
                // One that has ended meanwhile is no concern.
                let _ = pidfd_send_signal(process, Signal::KILL);
            }
        }
        Ok(())
    }

    fn processes(&self) -> io::Result<HashSet<i32>> {
        let list = read(&self.directory, "cgroup.procs")?;
        Ok(list.lines().filter_map(|line| line.parse().ok()).collect())
    }

    fn write(&self, name: &str, value: &[u8]) -> io::Result<()> {
        let file = openat(
            &self.directory,
            name,
            OFlags::WRONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        write(&file, value)?;
        Ok(())
    }

    /// Whether anything lives inside.
    pub(crate) fn populated(&self) -> io::Result<bool> {
        let events = read(&self.directory, "cgroup.events")?;
        Ok(counter(&events, "populated") != Some(0))
    }
}

fn read(directory: &OwnedFd, name: &str) -> io::Result<String> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = openat(directory, name, flags, Mode::empty())?;
    let mut text = String::new();
    std::fs::File::from(file).read_to_string(&mut text)?;
    Ok(text)
}

fn counter(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (word, value) = line.split_once(' ')?;
        (word == name).then(|| value.trim().parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_their_whole_name() {
        let text = "low 0\noom 3\noom_kill 7\n";
        assert_eq!(counter(text, "oom_kill"), Some(7));
        assert_eq!(counter(text, "oom"), Some(3));
        assert_eq!(counter(text, "populated"), None);
    }
}
