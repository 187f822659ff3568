//! The meter of one sandbox.

use super::cgroups::counters::Counters;
use super::tally::Tally;
use crate::backends::{Hits, Meter};
use std::sync::Arc;
use tokio::sync::watch;

/// Reads its cgroups' counters, and what was counted of its files.
#[derive(Debug)]
pub(super) struct SandboxMeter {
    counters: Arc<Counters>,
    tally: Arc<Tally>,
}

impl SandboxMeter {
    /// Over these counters and this tally.
    pub(super) fn new(counters: Arc<Counters>, tally: Arc<Tally>) -> Self {
        Self { counters, tally }
    }
}

impl Meter for SandboxMeter {
    fn hits(&self) -> Hits {
        self.counters.hits()
    }
    fn overfills(&self) -> watch::Receiver<u64> {
        self.tally.overfills()
    }
    fn stir(&self) {
        self.tally.stir();
    }
    fn is_full(&self) -> bool {
        self.tally.is_full()
    }
}
