//! What the host sees of a sandbox.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// One process as the host sees it.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) pid: i32,
    status: String,
}

impl Seen {
    fn look(pid: i32) -> Option<Self> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        Some(Self { pid, status })
    }

    /// A line of its status.
    pub(crate) fn field(&self, name: &str) -> &str {
        self.status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map_or("missing", str::trim)
    }

    fn parent(&self) -> i32 {
        self.field("PPid").parse().unwrap_or(0)
    }

    pub(crate) fn is_zombie(&self) -> bool {
        self.field("State").starts_with('Z')
    }

    /// Whether it is in a PID namespace of its own, as everything of a sandbox is.
    pub(crate) fn is_inside(&self) -> bool {
        self.inner().0 > 1
    }

    /// Its number in its own PID namespace.
    fn inner(&self) -> (usize, &str) {
        let numbers: Vec<&str> = self.field("NSpid").split_whitespace().collect();
        (numbers.len(), numbers.last().copied().unwrap_or_default())
    }

    /// Something of it below `/proc`.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.pid))
    }
}

/// Every process below this one, this one not included; zombies too.
pub(crate) fn descendants() -> Vec<Seen> {
    let me = rustix::process::getpid().as_raw_nonzero().get();
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    let all: BTreeMap<i32, Seen> = pids
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, Seen::look(pid)?)))
        .collect();
    let below = |seen: &Seen| {
        let mut at = seen.parent();
        while let Some(parent) = all.get(&at) {
            if at == me {
                return true;
            }
            at = parent.parent();
        }
        false
    };
    all.values().filter(|seen| below(seen)).cloned().collect()
}

/// The first processes of the sandboxes of this test.
pub(crate) fn guests() -> Vec<Seen> {
    descendants()
        .into_iter()
        .filter(|seen| !seen.is_zombie() && matches!(seen.inner(), (2.., "1")))
        .collect()
}

/// How many processes of a sandbox are alive, and how many are dead and not reaped, by the name that its PID namespace has
/// inside. An engine's containers are no children of this process, and what others run may not be looked at by everybody:
/// an ordinary user's test has this one sandbox.
pub(crate) fn in_pid_namespace(name: &str) -> (usize, usize) {
    let theirs: Vec<Seen> = if crate::ordinary::is_root() {
        let pids = std::fs::read_dir("/proc").unwrap().flatten();
        pids.filter_map(|entry| Seen::look(entry.file_name().to_str()?.parse().ok()?))
            .filter(|seen| {
                std::fs::read_link(seen.path("ns/pid")).is_ok_and(|link| link == Path::new(name))
            })
            .collect()
    } else {
        descendants().into_iter().filter(Seen::is_inside).collect()
    };
    let dead = theirs.iter().filter(|seen| seen.is_zombie()).count();
    (theirs.len() - dead, dead)
}
