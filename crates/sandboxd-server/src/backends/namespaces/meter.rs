//! The meter of one sandbox.

use super::cgroups::counters::Counters;
use crate::backends::{Hits, Meter};
use std::sync::Arc;
use tokio::sync::watch;

/// Reads its cgroups' counters.
#[derive(Debug)]
pub(super) struct SandboxMeter {
    counters: Arc<Counters>,
}

impl SandboxMeter {
    /// Over these counters.
    pub(super) fn new(counters: Arc<Counters>) -> Self {
        Self { counters }
    }
}

impl Meter for SandboxMeter {
    fn hits(&self) -> Hits {
        self.counters.hits()
    }
    fn overfills(&self) -> watch::Receiver<u64> {
        watch::channel(0).1
    }
    fn stir(&self) {}
}
