//! The meter of one container.

use super::kernel::Counters;
use crate::backends::tally::Tally;
use crate::backends::{Hits, Meter};
use std::sync::Arc;
use tokio::sync::watch;

/// Reads its cgroups' counters, where the engine is on this host, and what was counted of its files.
#[derive(Debug)]
pub(super) struct ContainerMeter {
    counters: Option<Arc<Counters>>,
    tally: Arc<Tally>,
}

impl ContainerMeter {
    /// Over these counters and this tally.
    pub(super) const fn new(counters: Option<Arc<Counters>>, tally: Arc<Tally>) -> Self {
        Self { counters, tally }
    }
}

impl Meter for ContainerMeter {
    fn hits(&self) -> Hits {
        let counters = self.counters.as_ref();
        counters.map(|counters| counters.hits()).unwrap_or_default()
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
