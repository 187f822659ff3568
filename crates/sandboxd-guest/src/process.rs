//! One running program and its tree: its birth in one of two ways, its exit, its end by force.

use crate::children::{Children, Progress};
use crate::leaf::{Leaf, Leaves};
use crate::limits::{
    DEAD_LOOKS, LEAF_LOOK, LEFTOVERS_END_MAX, QUIET_LOOKS, TREE_END_MAX, TREE_PAUSE,
};
use crate::sys::{Birth, Born, NotBorn, Plan, give_birth};
use crate::tree::{Look, Proc};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use sandboxd_protocol::message::TreeEnd;
use std::collections::HashSet;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// How this guest ends trees.
#[derive(Debug)]
pub(crate) enum Ender {
    /// A cgroup per run.
    Cgroup(Leaves),
    /// A keeper per run, and the walk from there.
    Keeper(Proc),
}

impl Ender {
    pub(crate) fn kind(&self) -> TreeEnd {
        match self {
            Self::Cgroup(_) => TreeEnd::Cgroup,
            Self::Keeper(_) => TreeEnd::Keeper,
        }
    }

    /// Ends everything that ended runs left behind; whether nothing of it moves any more. What it took (places under the
    /// process ceiling, memory) is free a moment later.
    pub(crate) async fn end_leftovers(&self, children: &Children) -> bool {
        let proc = match self {
            Self::Cgroup(leaves) => {
                leaves.kill_left();
                return true;
            }
            Self::Keeper(proc) => proc,
        };
        let me = i32::try_from(std::process::id()).unwrap_or(1);
        let end = Instant::now() + LEFTOVERS_END_MAX;
        let mut seen = HashSet::new();
        let mut quiet = 0;
        while Instant::now() < end {
            let runs = children.waited_for();
            let look = proc.signal_others_below(me, Signal::STOP, &mut seen, runs);
            if look.alive == 0 {
                return true;
            }
            if stopped(look, &mut quiet) {
                let runs = children.waited_for();
                proc.signal_others_below(me, Signal::KILL, &mut seen, runs);
            }
            tokio::time::sleep(TREE_PAUSE).await;
        }
        false
    }

    /// Makes ready what the next run needs, when nobody waits for it.
    pub(crate) fn make_ready(&self) {
        match self {
            Self::Cgroup(leaves) => leaves.make_ready(),
            Self::Keeper(_) => {}
        }
    }

    /// Kills for memory so far, where they are counted.
    pub(crate) fn memory_kills(&self) -> Option<u64> {
        match self {
            Self::Cgroup(leaves) => leaves.memory_kills(),
            Self::Keeper(_) => None,
        }
    }
}

/// A tree that got out of hand: only the end of the whole sandbox ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lost;

/// Why a program did not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StartError {
    NotBorn(NotBorn),
    Lost,
}

/// A program that was started.
pub(crate) struct Process {
    born: Arc<Born>,
    follow: watch::Receiver<Progress>,
    leaf: Option<Leaf>,
    /// The guest itself killed the keeper of a dead tree, which somebody kept from reaping.
    put_down: bool,
}

impl Process {
    /// Starts a program.
    pub(crate) fn start(
        plan: &Plan,
        ender: &Ender,
        children: &Children,
    ) -> Result<Self, StartError> {
        let (born, leaf) = match ender {
            Ender::Keeper(_) => (give_birth(plan, Birth::Keeper), None),
            Ender::Cgroup(leaves) => {
                let leaf = leaves.take().map_err(|error| {
                    StartError::NotBorn(NotBorn {
                        stage: crate::sys::Stage::Clone,
                        errno: error.raw_os_error().unwrap_or(libc::EAGAIN),
                    })
                })?;
                let born = give_birth(plan, Birth::Cgroup(leaf.as_fd()));
                if born.is_err() {
                    leaves.put_away(leaf);
                    (born, None)
                } else {
                    (born, Some(leaf))
                }
            }
        };
        let born = born.map_err(|error| error.map_or(StartError::Lost, StartError::NotBorn))?;
        let born = Arc::new(born);
        let follow = children.enter(born.clone(), leaf.is_none());
        Ok(Self {
            born,
            follow,
            leaf,
            put_down: false,
        })
    }

    /// Waits for the program's own exit: its wait status.
    pub(crate) async fn exited(&mut self) -> Result<i32, Lost> {
        let over = |progress: &Progress| progress.status.is_some() || progress.reaped.is_some();
        match self.follow.wait_for(over).await {
            Ok(progress) => match progress.status {
                Some(status) => Ok(status),
                None if self.put_down => Ok(libc::SIGKILL),
                None => Err(Lost),
            },
            Err(_) => Err(Lost),
        }
    }

    /// Waits until nothing is left of the tree.
    pub(crate) async fn emptied(&mut self) {
        let reaped = |progress: &Progress| progress.reaped.is_some();
        // The table holds the other end until the reaping.
        let _ = self.follow.wait_for(reaped).await;
        while self
            .leaf
            .as_ref()
            .is_some_and(|leaf| leaf.populated().unwrap_or(false))
        {
            tokio::time::sleep(TREE_PAUSE).await;
        }
    }

    /// One signal to the program itself, if it is still there.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(pid) = self.alive() {
            let _ = kill_process(pid, signal);
        }
    }

    /// One signal to the program's process group, if the program is still there to lend it its number.
    pub(crate) fn signal_group(&self, signal: Signal) {
        if let Some(pid) = self.alive() {
            let _ = kill_process_group(pid, signal);
        }
    }

    fn alive(&self) -> Option<Pid> {
        let over = {
            let progress = self.follow.borrow();
            progress.status.is_some() || progress.reaped.is_some() || self.born.status().is_some()
        };
        (!over).then(|| Pid::from_raw(self.born.program)).flatten()
    }

    /// Ends the whole tree, also what has left its session or lost its parents.
    pub(crate) async fn end_tree(&mut self, ender: &Ender) -> Result<(), Lost> {
        match ender {
            Ender::Cgroup(_) => self.kill_leaf().await,
            Ender::Keeper(proc) => self.stop_and_kill(proc).await,
        }
    }

    async fn kill_leaf(&mut self) -> Result<(), Lost> {
        let end = Instant::now() + TREE_END_MAX;
        if let Some(leaf) = &self.leaf {
            leaf.kill().map_err(|_| Lost)?;
        }
        while timeout(LEAF_LOOK, self.emptied()).await.is_err() {
            if Instant::now() > end {
                return Err(Lost);
            }
            if let Some(leaf) = &self.leaf {
                leaf.kill_each().map_err(|_| Lost)?;
                leaf.kill().map_err(|_| Lost)?;
            }
        }
        Ok(())
    }

    async fn stop_and_kill(&mut self, proc: &Proc) -> Result<(), Lost> {
        let end = Instant::now() + TREE_END_MAX;
        let keeper = self.born.child;
        let mut seen = HashSet::new();
        let mut quiet = 0;
        let mut dead = 0;
        loop {
            let progress = *self.follow.borrow();
            if progress.reaped.is_some() {
                return if progress.keeper_lost() && !self.put_down {
                    Err(Lost)
                } else {
                    Ok(())
                };
            }
            if Instant::now() > end {
                return Err(Lost);
            }
            let look = proc.signal_below(keeper, Signal::STOP, &mut seen);
            dead = if look.alive == 0 { dead + 1 } else { 0 };
            if stopped(look, &mut quiet) {
                proc.signal_below(keeper, Signal::KILL, &mut seen);
                // Somebody may have stopped the keeper, which has to reap now, and may go on doing so.
                self.put_down = self.put_down || dead > DEAD_LOOKS;
                let signal = if self.put_down {
                    Signal::KILL
                } else {
                    Signal::CONT
                };
                if let Some(keeper) = Pid::from_raw(keeper) {
                    let _ = kill_process(keeper, signal);
                }
            }
            let reaped = |progress: &Progress| progress.reaped.is_some();
            // Not gone within the pause: look again.
            let _ = timeout(TREE_PAUSE, self.follow.wait_for(reaped)).await;
        }
    }

    /// Whether a process of the guest's stands between it and the program.
    pub(crate) fn has_keeper(&self) -> bool {
        self.leaf.is_none()
    }

    /// Lets go of what the program left behind: it lives on under the guest, and the leaf goes when it is empty.
    pub(crate) fn release(&mut self, ender: &Ender) {
        if let (Some(leaf), Ender::Cgroup(leaves)) = (self.leaf.take(), ender) {
            leaves.put_away(leaf);
        } else if self.follow.borrow().reaped.is_none()
            && let Some(keeper) = Pid::from_raw(self.born.child)
        {
            let _ = kill_process(keeper, Signal::KILL);
        }
    }
}

/// Whether a tree stands still: nothing new, nothing that could fork. What waits uninterruptibly counts as still when
/// that has lasted for a few looks.
fn stopped(look: Look, quiet: &mut u32) -> bool {
    if look.new > 0 || look.moving > 0 {
        *quiet = 0;
        return false;
    }
    *quiet += 1;
    look.waiting == 0 || *quiet >= QUIET_LOOKS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_still_when_nothing_is_new_or_moving() {
        let look = |new, moving, waiting| Look {
            new,
            alive: 1,
            moving,
            waiting,
        };
        let mut quiet = 0;
        assert!(!stopped(look(1, 0, 0), &mut quiet));
        assert!(!stopped(look(0, 1, 0), &mut quiet));
        assert!(stopped(look(0, 0, 0), &mut quiet));
        quiet = 0;
        assert!(!stopped(look(0, 0, 1), &mut quiet));
        assert!(!stopped(look(0, 0, 1), &mut quiet));
        assert!(stopped(look(0, 0, 1), &mut quiet));
    }
}
