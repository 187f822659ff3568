//! The processes that the guest waits for. As PID 1 it also reaps every orphan of the sandbox.

use crate::sys::Born;
use rustix::process::{Pid, WaitOptions, WaitStatus, wait};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// How far a run's processes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Progress {
    /// The program's wait status, once it has ended.
    pub(crate) status: Option<i32>,
    /// Whether what the guest waits for (the keeper, or the program itself) was reaped, and with what status.
    pub(crate) reaped: Option<i32>,
}

impl Progress {
    /// The keeper went without a word of how the program ended: something killed it, and the run's tree is lost.
    pub(crate) fn keeper_lost(self) -> bool {
        self.reaped.is_some() && self.status.is_none()
    }
}

struct Waiting {
    born: Arc<Born>,
    kept: bool,
    progress: watch::Sender<Progress>,
}

/// The table of what the guest waits for. A process is entered before anything can reap it: births and the reaper are
/// on one thread, and neither yields in between.
#[derive(Default)]
pub(crate) struct Children {
    waiting: Mutex<HashMap<i32, Waiting>>,
}

impl Children {
    fn table(&self) -> MutexGuard<'_, HashMap<i32, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters what was born; `kept` when a keeper stands between the guest and the program.
    pub(crate) fn enter(&self, born: Arc<Born>, kept: bool) -> watch::Receiver<Progress> {
        let (progress, follow) = watch::channel(Progress::default());
        let waiting = Waiting {
            born: born.clone(),
            kept,
            progress,
        };
        self.table().insert(born.child, waiting);
        follow
    }

    /// What the guest waits for: what stands between it and the programs of runs that go on.
    pub(crate) fn waited_for(&self) -> HashSet<i32> {
        self.table().keys().copied().collect()
    }

    /// Reaps everything that has ended and tells whom it concerns. Called for every SIGCHLD.
    pub(crate) fn reap(&self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            self.reaped(pid, status);
        }
        let mut table = self.table();
        for waiting in table.values_mut() {
            waiting.look();
        }
        // Nothing is kept of a rush of processes.
        if table.is_empty() && table.capacity() > 64 {
            table.shrink_to_fit();
        }
    }

    fn reaped(&self, pid: Pid, status: WaitStatus) {
        let Some(mut waiting) = self.table().remove(&pid.as_raw_pid()) else {
            return;
        };
        waiting.look();
        let raw = status.as_raw();
        waiting.progress.send_modify(|progress| {
            progress.reaped = Some(raw);
            if !waiting.kept {
                progress.status = Some(raw);
            }
        });
    }
}

impl Waiting {
    fn look(&mut self) {
        if !self.kept {
            return;
        }
        let status = self.born.status();
        self.progress.send_if_modified(|progress| {
            let news = progress.status != status;
            progress.status = status;
            news
        });
    }
}
