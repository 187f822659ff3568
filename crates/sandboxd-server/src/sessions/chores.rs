//! What goes on in the background for as long as the room is open. A mistake of ours in one of them ends one turn of it, not
//! the chore: without the reaper, sessions would never end.

use super::table::Shared;
use crate::telemetry::metrics::Metrics;
use futures::FutureExt as _;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

/// From a chore's panic to its next beginning.
const PAUSE: Duration = Duration::from_secs(1);

/// Begins a chore, and again whenever it panics, until it ends by itself.
pub(super) fn keep<F: Future<Output = ()> + Send + 'static>(
    shared: &Arc<Shared>,
    name: &'static str,
    chore: impl Fn(Arc<Shared>) -> F + Send + Sync + 'static,
) {
    let own = Arc::clone(shared);
    shared.tasks.spawn(async move {
        again_after_panics(name, &own.metrics, || chore(Arc::clone(&own))).await;
    });
}

async fn again_after_panics<F: Future<Output = ()>>(
    name: &'static str,
    metrics: &Metrics,
    chore: impl Fn() -> F,
) {
    while AssertUnwindSafe(chore()).catch_unwind().await.is_err() {
        tracing::error!(chore = name, "ended in a panic; it begins again");
        metrics.panicked();
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::SessionStates;
    use std::cell::Cell;

    #[tokio::test(start_paused = true)]
    async fn a_chore_that_panics_begins_again_and_one_that_ends_has_ended() {
        let metrics = Metrics::default();
        let begun = Cell::new(0);
        let chore = async || {
            begun.set(begun.get() + 1);
            assert!(begun.get() > 2, "a mistake");
        };
        again_after_panics("test", &metrics, chore).await;
        assert_eq!(begun.get(), 3);
        let figures = metrics.render(SessionStates::default());
        assert!(figures.contains("sandboxd_panics_total 2"), "{figures}");
    }
}
