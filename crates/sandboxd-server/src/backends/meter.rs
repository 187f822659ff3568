//! What a sandbox's ceilings have done so far: asked at the beginning and at the end of every run, so it has to be cheap.

use std::fmt;
use tokio::sync::watch;

/// Reads one sandbox's counters. May outlive its sandbox, whose counters are then no more.
pub trait Meter: Send + Sync + fmt::Debug {
    /// The counters now. Takes some microseconds and waits for nothing.
    fn hits(&self) -> Hits;
    /// Counts how often what is stored was found over its ceiling, and grown since it was found so before. A backend whose
    /// file systems refuse by themselves never counts.
    fn overfills(&self) -> watch::Receiver<u64>;
    /// A program is about to run: what is stored is worth counting again soon.
    fn stir(&self);
    /// Whether what is stored was over its ceiling when it was last counted.
    fn is_full(&self) -> bool;
}

/// How often a sandbox's ceilings have bitten since it began. A counter that is not there is one that this host does not
/// keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hits {
    /// Processes that the kernel killed for memory.
    pub memory_kills: Option<u64>,
    /// Processes and threads that the kernel refused to start.
    pub process_refusals: Option<u64>,
}

impl Hits {
    /// Which counters have moved since an earlier reading: of memory, of processes.
    #[must_use]
    pub fn moved_since(self, before: Self) -> (bool, bool) {
        let moved = |now: Option<u64>, then: Option<u64>| now > then && now.is_some();
        (
            moved(self.memory_kills, before.memory_kills.or(Some(0))),
            moved(self.process_refusals, before.process_refusals.or(Some(0))),
        )
    }
}

/// The meter of a sandbox whose ceilings tell nothing.
#[derive(Debug)]
pub struct NoMeter;

impl Meter for NoMeter {
    fn hits(&self) -> Hits {
        Hits::default()
    }
    fn overfills(&self) -> watch::Receiver<u64> {
        watch::channel(0).1
    }
    fn stir(&self) {}
    fn is_full(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_counter_that_is_kept_moves() {
        let hits = |memory_kills, process_refusals| Hits {
            memory_kills,
            process_refusals,
        };
        let none = Hits::default();
        assert_eq!(none.moved_since(none), (false, false));
        assert_eq!(
            hits(Some(1), Some(0)).moved_since(hits(Some(0), Some(0))),
            (true, false)
        );
        assert_eq!(
            hits(Some(1), Some(3)).moved_since(hits(Some(1), Some(2))),
            (false, true)
        );
        assert_eq!(
            hits(None, None).moved_since(hits(Some(1), Some(2))),
            (false, false)
        );
    }
}
