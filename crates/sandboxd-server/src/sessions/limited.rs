//! Which limit a run ran into: pure.
//!
//! The guest says who ended a run; the backend's counters say what the kernel refused or killed meanwhile in the whole
//! sandbox. A counter does not know runs, so what it tells of one is told with care: a kill for memory is a run's where
//! its own program died of a kill (or its shell says so of a child); a refusal is a run's where that run failed. Anything
//! else is only said to have been reached while the run went on.

use crate::backends::Hits;
use sandboxd_protocol::message::{Ended, Exit, NotStarted};

/// A limit that a run can run into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Limit {
    /// Memory: the kernel killed for it.
    Memory,
    /// Processes and threads: the kernel refused one.
    Pids,
    /// What is stored: bytes or files.
    Disk,
    /// The run's time.
    Time,
    /// The run's output.
    Output,
}

impl Limit {
    /// The name in answers and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Disk => "disk",
            Self::Time => "time",
            Self::Output => "output",
        }
    }
}

/// What is known of a run and its limits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Limited {
    /// The limit that ended the run, or by which it failed.
    pub killed_for: Option<Limit>,
    /// Every limit that this sandbox ran into while the run went on, in a fixed order, the one above among them. Another
    /// run of the session may have been the one.
    pub reached: Vec<Limit>,
}

/// Signal of a kill.
const KILL: u8 = 9;
/// Signal of a file that grew over its limit.
const FILE_SIZE: u8 = 25;
/// Exit code by which a shell says that its child was killed.
const KILL_CODE: u8 = 128 + KILL;

/// How a run ended, as far as its limits are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnd<'a> {
    /// The guest said how.
    Exited(&'a Exit),
    /// It did not start.
    NotStarted(&'a NotStarted),
    /// By its deadline, which the guest did not keep.
    Overdue,
    /// For more output than the guest may send.
    Flooded,
    /// Stopped before it began.
    Stopped,
}

/// What happened in the sandbox between a run's beginning and its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Meanwhile {
    /// The counters at the beginning.
    pub before: Hits,
    /// And at the end.
    pub after: Hits,
    /// Whether this run was ended because what is stored was found over its ceiling.
    pub overfilled: bool,
}

impl Limited {
    /// What is known after a run's end.
    #[must_use]
    pub fn of(end: RunEnd<'_>, meanwhile: Meanwhile) -> Self {
        let (memory, pids) = meanwhile.after.moved_since(meanwhile.before);
        let disk = meanwhile.overfilled || tells_of_disk(end);
        let killed_for = match end {
            _ if meanwhile.overfilled => Some(Limit::Disk),
            RunEnd::Exited(exit) => of_exit(exit, memory, pids),
            // The guest could not start it, and that was the reason.
            RunEnd::NotStarted(NotStarted::Resources(errno)) => out_of(*errno, pids),
            RunEnd::NotStarted(_) | RunEnd::Stopped => None,
            RunEnd::Overdue => Some(Limit::Time),
            RunEnd::Flooded => Some(Limit::Output),
        };
        let reached = [
            (Limit::Memory, memory),
            (Limit::Pids, pids),
            (Limit::Disk, disk),
            (Limit::Time, false),
            (Limit::Output, false),
        ];
        let reached = reached
            .into_iter()
            .filter(|(limit, moved)| *moved || killed_for == Some(*limit))
            .map(|(limit, _)| limit);
        Self {
            killed_for,
            reached: reached.collect(),
        }
    }

    /// A few words for the activity log; none where there is nothing to say.
    pub(super) fn words(&self) -> Option<String> {
        let name = self.killed_for?.name();
        Some(format!("ended for {name}"))
    }
}

fn of_exit(exit: &Exit, memory: bool, pids: bool) -> Option<Limit> {
    match exit.ended {
        Ended::Timeout => Some(Limit::Time),
        Ended::Output => Some(Limit::Output),
        Ended::Memory => Some(Limit::Memory),
        Ended::Stopped => None,
        Ended::Itself | Ended::Disk if exit.code == 0 => None,
        Ended::Itself | Ended::Disk => {
            let killed = exit.signal == Some(KILL) || exit.code == KILL_CODE;
            match () {
                () if killed && memory => Some(Limit::Memory),
                () if over_file_size(exit) => Some(Limit::Disk),
                () if pids => Some(Limit::Pids),
                () if exit.ended == Ended::Disk => Some(Limit::Disk),
                () => None,
            }
        }
    }
}

/// Why the guest had no means to start a program: processes where the kernel refused one, memory where it said so.
fn out_of(errno: i32, pids: bool) -> Option<Limit> {
    let is = |known: rustix::io::Errno| errno == known.raw_os_error();
    match () {
        () if is(rustix::io::Errno::AGAIN) && pids => Some(Limit::Pids),
        () if is(rustix::io::Errno::NOMEM) => Some(Limit::Memory),
        () => None,
    }
}

/// Whether a program grew a file over what one file may hold, or its shell says so of a child.
fn over_file_size(exit: &Exit) -> bool {
    exit.signal == Some(FILE_SIZE) || (exit.signal.is_none() && exit.code == 128 + FILE_SIZE)
}

fn tells_of_disk(end: RunEnd<'_>) -> bool {
    match end {
        RunEnd::Exited(exit) => exit.ended == Ended::Disk || over_file_size(exit),
        RunEnd::NotStarted(_) | RunEnd::Overdue | RunEnd::Flooded | RunEnd::Stopped => false,
    }
}

#[cfg(test)]
mod tests;
