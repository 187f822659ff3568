//! The accounted limit: what a sandbox stores on a file system that has no quota for it is counted while it works.
//!
//! [`Level`] is the rule, and pure: over its ceiling a sandbox is told so once, and again whenever it has grown since, so
//! that a run that only clears up is let alone. [`keep`] counts: soon after a program has started, and then the more
//! seldom the longer a count takes; not at all while the sandbox uses no CPU, for then it writes nothing either. One count
//! at a time goes on in the whole daemon.

use super::account::{Stored, count};
use rustix::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::Instant;

/// Shortest time between two counts.
const PAUSE_LEAST: Duration = Duration::from_secs(1);
/// Longest time between two looks at a sandbox that does nothing.
const PAUSE_IDLE: Duration = Duration::from_secs(8);
/// Longest time between two counts.
const PAUSE_MOST: Duration = Duration::from_secs(60);
/// A pause is so many times as long as the count before it took.
const PAUSE_PER_COUNT: u32 = 20;
/// CPU time that a sandbox uses which does nothing.
const IDLE_CPU: Duration = Duration::from_millis(1);
/// Counted up to so many times the ceiling, so that growth above it is seen.
const FILES_COUNTED: u64 = 2;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The ceiling of what is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Most {
    /// Bytes.
    pub(super) bytes: u64,
    /// Files.
    pub(super) files: u64,
}

/// How much may be stored before somebody is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Level {
    most: Most,
    /// What was stored when it was last told; within the ceiling, the ceiling.
    told: Most,
}

impl Level {
    fn new(most: Most) -> Self {
        Self { most, told: most }
    }

    /// Takes a count; whether it has to be told. What was there before the first count is nobody's fault who runs now.
    fn take(&mut self, stored: Stored, is_first: bool) -> bool {
        let within = stored.bytes <= self.most.bytes && stored.files <= self.most.files;
        if within {
            self.told = self.most;
            return false;
        }
        let grown = stored.bytes > self.told.bytes || stored.files > self.told.files;
        let above = Most {
            bytes: stored.bytes.saturating_add(self.most.bytes / 64),
            files: stored.files.saturating_add(self.most.files / 64),
        };
        if grown {
            self.told = Most {
                bytes: above.bytes.max(self.most.bytes),
                files: above.files.max(self.most.files),
            };
        } else {
            // It has shrunk: growing again is growing.
            self.told = Most {
                bytes: self.told.bytes.min(above.bytes).max(self.most.bytes),
                files: self.told.files.min(above.files).max(self.most.files),
            };
        }
        grown && !is_first
    }
}

/// What the counting and the meter share.
#[derive(Debug)]
pub(super) struct Tally {
    overfills: watch::Sender<u64>,
    stir: Notify,
    is_full: AtomicBool,
    /// The last count; none before the first one.
    stored: Mutex<Option<Stored>>,
}

impl Tally {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            overfills: watch::Sender::new(0),
            stir: Notify::new(),
            is_full: AtomicBool::new(false),
            stored: Mutex::default(),
        })
    }

    /// What was stored when it was last counted; nothing where nobody has counted.
    pub(super) fn stored(&self) -> Option<Stored> {
        *lock(&self.stored)
    }

    /// See [`crate::backends::Meter::overfills`].
    pub(super) fn overfills(&self) -> watch::Receiver<u64> {
        self.overfills.subscribe()
    }

    /// See [`crate::backends::Meter::stir`].
    pub(super) fn stir(&self) {
        self.stir.notify_one();
    }

    /// See [`crate::backends::Meter::is_full`].
    pub(super) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }
}

/// What is counted.
pub(super) struct Counted {
    /// Below these directories.
    pub(super) places: Vec<OwnedFd>,
    /// At most.
    pub(super) most: Most,
    /// CPU time that the sandbox has used: says whether it does anything.
    pub(super) cpu_time: Box<dyn Fn() -> Option<Duration> + Send + Sync>,
    /// Who hears of it.
    pub(super) tally: Arc<Tally>,
    /// One count at a time.
    pub(super) turn: Arc<Semaphore>,
}

/// Counts for as long as it is let; `overfilled` ends what the sandbox has running.
pub(super) async fn keep(counted: Counted, overfilled: impl Fn() + Send + 'static) {
    let Counted {
        places,
        most,
        cpu_time,
        tally,
        turn,
    } = counted;
    let places = Arc::new(Mutex::new(places));
    let mut level = Level::new(most);
    let mut pause = PAUSE_LEAST;
    let mut is_first = true;
    let mut cpu_before = None;
    loop {
        if !is_first {
            let stirred = tokio::select! {
                () = tally.stir.notified() => true,
                () = tokio::time::sleep(pause) => false,
            };
            let idle = match (cpu_time(), cpu_before) {
                (Some(now), Some(before)) => now.saturating_sub(before) < IDLE_CPU,
                _ => false,
            };
            if idle && !stirred {
                pause = (pause * 2).min(PAUSE_IDLE);
                continue;
            }
            if stirred {
                // What has only just begun has written nothing yet.
                tokio::time::sleep(PAUSE_LEAST).await;
            }
        }
        cpu_before = cpu_time();
        let Ok(_turn) = turn.acquire().await else {
            return;
        };
        let began = Instant::now();
        let theirs = Arc::clone(&places);
        let files_max = most.files.saturating_mul(FILES_COUNTED);
        let stored = tokio::task::spawn_blocking(move || {
            let places = lock(&theirs);
            let each = places.iter().map(|place| count(place.as_fd(), files_max));
            each.fold(Stored::default(), Stored::plus)
        });
        let Ok(stored) = stored.await else {
            return;
        };
        pause = (began.elapsed() * PAUSE_PER_COUNT).clamp(PAUSE_LEAST, PAUSE_MOST);
        let tell = level.take(stored, is_first);
        is_first = false;
        let full = stored.bytes > most.bytes || stored.files > most.files;
        tally.is_full.store(full, Ordering::Relaxed);
        *lock(&tally.stored) = Some(stored);
        if tell {
            tracing::warn!(
                bytes = stored.bytes,
                files = stored.files,
                "a sandbox stores more than it may; what it runs is ended"
            );
            // Heard of first, so that whoever is ended knows why.
            tally.overfills.send_modify(|count| *count += 1);
            overfilled();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Most = Most {
        bytes: 64_000,
        files: 640,
    };

    fn stored(bytes: u64, files: u64) -> Stored {
        Stored { bytes, files }
    }

    #[test]
    fn going_over_is_told_once_and_again_only_after_growing() {
        let mut level = Level::new(MOST);
        assert!(!level.take(stored(64_000, 640), false));
        assert!(level.take(stored(64_001, 1), false));
        assert!(!level.take(stored(64_001, 1), false));
        // A little more is no growth, for counts are not exact.
        assert!(!level.take(stored(64_500, 1), false));
        assert!(level.take(stored(70_000, 1), false));
        // Clearing up is let alone, also while there is still too much.
        assert!(!level.take(stored(66_000, 1), false));
        assert!(level.take(stored(69_000, 1), false));
        assert!(!level.take(stored(10, 1), false));
        assert!(level.take(stored(64_001, 1), false));
    }

    #[test]
    fn files_are_counted_as_bytes_are() {
        let mut level = Level::new(MOST);
        assert!(level.take(stored(1, 641), false));
        assert!(!level.take(stored(1, 645), false));
        assert!(level.take(stored(1, 700), false));
    }

    #[test]
    fn what_was_there_before_is_nobodys_fault() {
        let mut level = Level::new(MOST);
        assert!(!level.take(stored(900_000, 5), true));
        assert!(!level.take(stored(900_000, 5), false));
        assert!(level.take(stored(910_000, 5), false));
    }
}
