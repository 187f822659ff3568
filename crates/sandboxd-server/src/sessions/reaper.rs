//! Ends what nobody uses: idle sessions, long sleepers, kept layers and stored workspaces past their time, and at the
//! start layers that no session has.

use super::ledger::Standing;
use super::state::{Event, Why};
use super::table::Shared;
use crate::id::{SandboxId, SessionId};
use crate::limits::{LEDGER_SECONDS_MAX, STOP_SECONDS_MAX, WORKSPACE_SECONDS_MAX};
use crate::telemetry::metrics::Eviction;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Passes over everything, again and again, until the room closes. A pass that fails is logged; the next one runs.
pub(super) async fn live(shared: Arc<Shared>) {
    loop {
        let pause = Duration::from_secs(shared.service().cleanup_interval.max(1));
        tokio::select! {
            () = shared.stopping.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        pass(&shared).await;
    }
}

/// One pass.
pub(super) async fn pass(shared: &Arc<Shared>) {
    reap(shared);
    sweep(shared).await;
}

/// Closes what is idle. The sessions' owners do the work; nothing is waited for.
fn reap(shared: &Arc<Shared>) {
    let service = shared.service();
    let than = Duration::from_secs(service.idle_timeout);
    let layers_than = service.container_ttl.map(Duration::from_secs);
    let all: Vec<(SessionId, u64)> = {
        let table = shared.table();
        let each = table.house.iter();
        each.map(|(id, rental)| (id.clone(), rental.serial))
            .collect()
    };
    for (id, serial) in all {
        // Asked again under the lock: one that was used since is refused.
        if shared
            .report(&id, serial, Event::Close(Why::Idle { than }))
            .is_ok()
        {
            shared.metrics.evicted(Eviction::Idle);
            tracing::info!(session = %id, "closed: idle");
        } else if let Some(than) = layers_than
            && shared.report(&id, serial, Event::Expire { than }).is_ok()
        {
            tracing::info!(session = %id, "its kept layer is past its time");
        }
    }
}

/// Removes the layers that no session on record has: nobody could ever wake them. To be called before the first open.
pub(super) async fn clear_strays(shared: &Arc<Shared>) {
    let limit = Duration::from_secs(STOP_SECONDS_MAX);
    let (listed, records) = tokio::join!(
        timeout(limit, shared.backend.list()),
        timeout(Duration::from_secs(LEDGER_SECONDS_MAX), shared.ledger.all()),
    );
    let (Ok(Ok(found)), Ok(Ok(records))) = (listed, records) else {
        tracing::error!("layers without a session could not be looked for");
        return;
    };
    let has_an_owner = |id: &SandboxId| {
        records.iter().any(|record| match &record.standing {
            Standing::Resident(sandbox) | Standing::Hibernated(Some(sandbox)) => sandbox == id,
            Standing::Hibernated(None) => false,
        })
    };
    let strays = found
        .into_iter()
        .filter(|found| !found.running && !has_an_owner(&found.id));
    for stray in strays {
        match timeout(limit, shared.backend.destroy(&stray.id)).await {
            Ok(Ok(())) => tracing::info!(layer = %stray.id, "removed: no session has it"),
            Ok(Err(error)) => tracing::error!(layer = %stray.id, %error, "not removed"),
            Err(_) => {
                // One that hangs would not be the last; the next start tries again.
                tracing::error!(layer = %stray.id, "not removed in time");
                return;
            }
        }
    }
}

/// Removes stored workspaces that are older than their time and belong to no session.
async fn sweep(shared: &Arc<Shared>) {
    let Some(ttl) = shared.service().workspace_ttl else {
        return;
    };
    let now = shared.clock.now();
    let oldest = now.saturating_sub(Duration::from_secs(ttl));
    let limit = Duration::from_secs(WORKSPACE_SECONDS_MAX);
    let listing = shared.workspaces.clone().untouched_since(oldest);
    let old = match timeout(limit, listing).await {
        Ok(Ok(old)) => old,
        Ok(Err(error)) => {
            tracing::error!(%error, "the stored workspaces could not be listed");
            return;
        }
        Err(_) => {
            tracing::error!("the stored workspaces were not listed in time");
            return;
        }
    };
    for id in old {
        if shared.stopping.is_cancelled() {
            return;
        }
        let Some(claim) = Claim::of_nobodys(shared, &id) else {
            continue;
        };
        let purge = shared
            .workspaces
            .clone()
            .purge(id.clone(), Some(oldest), claim);
        match timeout(limit, purge).await {
            Ok(Ok(())) => tracing::info!(workspace = %id, "removed: past its time"),
            Ok(Err(error)) => tracing::error!(workspace = %id, %error, "not removed"),
            Err(_) => tracing::error!(workspace = %id, "not removed in time"),
        }
    }
}

/// Nobody opens this id for as long as this lives, which is until its workspace has been removed, also when nobody
/// waits for that any more.
pub(super) struct Claim {
    shared: Arc<Shared>,
    id: SessionId,
}

impl Claim {
    /// Of an id that no session has.
    fn of_nobodys(shared: &Arc<Shared>, id: &SessionId) -> Option<Self> {
        let mut table = shared.table();
        if table.house.get(id).is_some() || !table.sweeping.insert(id.clone()) {
            return None;
        }
        drop(table);
        Some(Self {
            shared: shared.clone(),
            id: id.clone(),
        })
    }

    /// Of the id of a session that ends, for its owner.
    pub(super) fn of_own(shared: &Arc<Shared>, id: &SessionId) -> Self {
        shared.table().sweeping.insert(id.clone());
        Self {
            shared: shared.clone(),
            id: id.clone(),
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.shared.table().sweeping.remove(&self.id);
    }
}
