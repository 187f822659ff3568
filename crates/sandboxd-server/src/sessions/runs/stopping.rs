//! Stopping a run by its id.

use super::super::detail::RunSwitch;
use super::super::table::Shared;
use super::super::visit::Visit;
use super::super::words::UseError;
use crate::id::{RunId, SessionId};
use crate::limits::{STOP_APPEAR_MILLIS, STOP_GRACE_MILLIS, WORD_MILLIS_MAX};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

/// Stops a run; see [`crate::sessions::Sessions::stop_run`].
pub(in crate::sessions) async fn stop(
    shared: &Arc<Shared>,
    id: &SessionId,
    run: &RunId,
) -> Result<(), UseError> {
    let deadline = Instant::now() + Duration::from_millis(STOP_APPEAR_MILLIS);
    let switches = loop {
        let appeared = {
            let table = shared.table();
            let (_, detail) = table
                .visible(id)
                .ok_or_else(|| UseError::NotFound(id.clone()))?;
            if let Some(switches) = detail.runs.by_id.get(run) {
                break switches.clone();
            }
            // Enabled under the lock, so that a run that appears after it is heard.
            let appeared = detail.runs.appeared.get_or_init(Arc::default).clone();
            let mut appeared = Box::pin(appeared.notified_owned());
            appeared.as_mut().enable();
            appeared
        };
        if timeout_at(deadline, appeared).await.is_err() {
            return Ok(());
        }
    };
    for switch in &switches {
        switch.stop.cancel();
    }
    // The answer says that it is over, as far as that is known in time.
    let patience = Duration::from_millis(STOP_GRACE_MILLIS + WORD_MILLIS_MAX);
    let _ = timeout(patience, async {
        for switch in &switches {
            switch.over.cancelled().await;
        }
    })
    .await;
    Ok(())
}

/// A run that can be stopped by its id, for as long as this lives.
pub(super) struct Registered {
    shared: Arc<Shared>,
    id: SessionId,
    serial: u64,
    run: RunId,
    switch: Arc<RunSwitch>,
}

impl Registered {
    pub(super) fn enter(visit: &Visit, run: RunId, switch: Arc<RunSwitch>) -> Self {
        let mut table = visit.shared.table();
        if let Some(detail) = table.details.get_mut(&visit.id)
            && detail.serial == visit.serial
        {
            let switches = detail.runs.by_id.entry(run.clone()).or_default();
            switches.push(switch.clone());
            if let Some(appeared) = detail.runs.appeared.get() {
                appeared.notify_waiters();
            }
        }
        Self {
            shared: visit.shared.clone(),
            id: visit.id.clone(),
            serial: visit.serial,
            run,
            switch,
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.switch.over.cancel();
        let mut table = self.shared.table();
        let Some(detail) = table.details.get_mut(&self.id) else {
            return;
        };
        if detail.serial != self.serial {
            return;
        }
        if let Some(switches) = detail.runs.by_id.get_mut(&self.run) {
            switches.retain(|switch| !Arc::ptr_eq(switch, &self.switch));
            if switches.is_empty() {
                detail.runs.by_id.remove(&self.run);
            }
        }
    }
}
