//! Ending a whole process tree that a keeper holds together.
//!
//! Every process of the tree is a descendant of the keeper for as long as the keeper lives: an orphan falls to the
//! keeper, whatever session it made for itself. So the tree is walked from there. It is stopped before it is killed: a
//! stopped process keeps its place under the process ceiling, so a program that forks without end runs into that
//! ceiling and is stopped there, where killing one by one would only make room for the next. When the tree has stopped
//! growing, everything is killed, and the keeper goes by itself when nothing is left.
//!
//! A number read from `/proc` may belong to another process a moment later, one of another run even. So a signal goes to
//! a descriptor of the process, after its parent was looked at once more through it.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, openat};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::HashSet;
use std::io::{self, Read};

/// The `/proc` of this PID namespace, opened at the start.
#[derive(Debug)]
pub(crate) struct Proc(OwnedFd);

/// What one look at a tree found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Look {
    /// Processes that no earlier look had seen.
    pub(crate) new: usize,
    /// Processes that are alive.
    pub(crate) alive: usize,
    /// Of those, the ones that may still fork.
    pub(crate) moving: usize,
    /// Of those, the ones in an uninterruptible wait, which cannot stop for now.
    pub(crate) waiting: usize,
}

/// A process as `/proc/N/stat` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    state: u8,
    parent: i32,
}

impl Proc {
    /// Opens `/proc`, and sees whether it can say who descends from whom.
    pub(crate) fn open() -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let proc = Self(openat(rustix::fs::CWD, "/proc", flags, Mode::empty())?);
        let me = std::process::id();
        proc.text(&format!("{me}/task/{me}/children"))?;
        Ok(proc)
    }

    /// Sends a signal to everything below `root` (not to it), as far as `seen` says or to all, and counts.
    pub(crate) fn signal_below(&self, root: i32, signal: Signal, seen: &mut HashSet<i32>) -> Look {
        self.signal_others_below(root, signal, seen, HashSet::new())
    }

    /// As [`Proc::signal_below`], and leaves `spared` alone, and what is below them.
    pub(crate) fn signal_others_below(
        &self,
        root: i32,
        signal: Signal,
        seen: &mut HashSet<i32>,
        spared: HashSet<i32>,
    ) -> Look {
        let mut look = Look::default();
        let mut todo = vec![root];
        let mut visited = spared;
        while let Some(parent) = todo.pop() {
            for child in self.children(parent) {
                // A walk over a tree that changes may meet a process twice; it must not go round.
                if !visited.insert(child) {
                    continue;
                }
                let Some(stat) = self.signal_child(child, parent, signal) else {
                    continue;
                };
                if seen.insert(child) {
                    look.new += 1;
                }
                if !matches!(stat.state, b'Z' | b'X' | b'x') {
                    look.alive += 1;
                    match stat.state {
                        b'T' | b't' => {}
                        b'D' => look.waiting += 1,
                        _ => look.moving += 1,
                    }
                }
                todo.push(child);
            }
        }
        look
    }

    /// Signals a process if it still is `parent`'s child; what it was a moment before.
    fn signal_child(&self, child: i32, parent: i32, signal: Signal) -> Option<Stat> {
        let pid = Pid::from_raw(child)?;
        let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        let stat = self.stat(child)?;
        if stat.parent != parent {
            return None;
        }
        // One that has ended meanwhile is no concern.
        let _ = pidfd_send_signal(process.as_fd(), signal);
        Some(stat)
    }

    fn children(&self, pid: i32) -> Vec<i32> {
        let mut all = Vec::new();
        for thread in self.threads(pid) {
            if let Ok(list) = self.text(&format!("{pid}/task/{thread}/children")) {
                all.extend(
                    list.split_ascii_whitespace()
                        .filter_map(|word| word.parse::<i32>().ok()),
                );
            }
        }
        all
    }

    fn threads(&self, pid: i32) -> Vec<i32> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(tasks) = openat(&self.0, format!("{pid}/task"), flags, Mode::empty()) else {
            return Vec::new();
        };
        let Ok(entries) = rustix::fs::Dir::new(tasks) else {
            return Vec::new();
        };
        entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str().ok()?.parse().ok())
            .collect()
    }

    fn stat(&self, pid: i32) -> Option<Stat> {
        parse_stat(&self.text(&format!("{pid}/stat")).ok()?)
    }

    fn text(&self, path: &str) -> io::Result<String> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = openat(&self.0, path, flags, Mode::empty())?;
        let mut bytes = Vec::new();
        std::fs::File::from(file).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// The program's own name stands in brackets and may hold anything, brackets too: the last one ends it.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(')')?;
    let mut words = rest.split_ascii_whitespace();
    let state = *words.next()?.as_bytes().first()?;
    let parent = words.next()?.parse().ok()?;
    Some(Stat { state, parent })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_blanks_does_not_fool_the_parser() {
        let stat = |state, parent| Some(Stat { state, parent });
        assert_eq!(parse_stat("7 (sh) S 1 7 7 0"), stat(b'S', 1));
        assert_eq!(parse_stat("7 (x) Z 9 (y) T 1 7"), stat(b'T', 1));
        assert_eq!(parse_stat("7 (a\nb) R 12 7"), stat(b'R', 12));
        assert_eq!(parse_stat("7 (x"), None);
        assert_eq!(parse_stat(""), None);
    }
}
