//! Ends what nobody uses and what is over: idle sessions, long sleepers, sessions, kept layers and stored workspaces past
//! their time.

use super::clock_jump;
use super::life::{Going, Sleep};
use super::state::{Event, Why};
use super::table::Shared;
use super::words::UseError;
use crate::id::SessionId;
use crate::limits::{DUE_LOOK_MILLIS, WORKSPACE_SECONDS_MAX};
use crate::telemetry::metrics::Eviction;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Looks at the clock and at what is due, again and again until the room closes, and passes over everything every
/// `cleanup_interval`. A pass that fails is logged; the next one runs.
pub(super) async fn live(shared: Arc<Shared>) {
    let mut passed = Instant::now();
    loop {
        tokio::select! {
            () = shared.stopping.cancelled() => return,
            () = tokio::time::sleep(Duration::from_millis(DUE_LOOK_MILLIS)) => {}
        }
        let interval = Duration::from_secs(shared.service().cleanup_interval.max(1));
        if passed.elapsed() >= interval {
            pass(&shared).await;
            passed = Instant::now();
        } else {
            clock_jump::follow(&shared).await;
            end_what_is_over(&shared);
            put_to_sleep(&shared);
        }
    }
}

/// One pass.
pub(super) async fn pass(shared: &Arc<Shared>) {
    clock_jump::follow(shared).await;
    end_what_is_over(shared);
    put_to_sleep(shared);
    reap(shared);
    sweep(shared).await;
}

/// Closes every session whose own time is over, whatever it does. Its owner does the work.
fn end_what_is_over(shared: &Arc<Shared>) {
    let now = shared.clock.now();
    let over: Vec<(SessionId, u64)> = {
        let table = shared.table();
        let each = table.house.iter();
        each.filter(|(_, rental)| rental.expires.is_some_and(|expires| expires <= now))
            .map(|(id, rental)| (id.clone(), rental.serial))
            .collect()
    };
    for (id, serial) in over {
        let close = Event::Close(Why::Expired);
        if shared.report(&id, serial, close).is_ok() {
            shared.metrics.evicted(Eviction::Expired);
            tracing::info!(session = %id, "closed: its time was over");
        }
    }
}

/// Puts to sleep what has been idle for `hibernate_after`.
fn put_to_sleep(shared: &Arc<Shared>) {
    let now = shared.clock.now();
    let mut table = shared.table();
    let Some(idle) = table.service.hibernate_after.map(Duration::from_secs) else {
        return;
    };
    let each = table.house.iter();
    let idle: Vec<(SessionId, u64)> = each
        .filter(|(_, rental)| rental.may_hibernate(idle, now).is_ok())
        .map(|(id, rental)| (id.clone(), rental.serial))
        .collect();
    for (id, serial) in idle {
        let event = Event::Hibernate { heir: None };
        if let Ok(orders) = table.house.apply(&id, serial, event, now) {
            if let Some(detail) = table.details.get_mut(&id) {
                detail.going = Some(Going::now(Sleep::Idle));
            }
            shared.carry_out(&mut table, Some(&id), orders);
            shared.metrics.evicted(Eviction::HibernateAfter);
            tracing::info!(session = %id, "on its way to sleep: idle");
        }
    }
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

/// Removes the stored workspace of a session that is closed.
pub(super) async fn purge_closed(shared: &Arc<Shared>, id: &SessionId) -> Result<(), UseError> {
    let not_found = || UseError::NotFound(id.clone());
    let not_removed = |cause: String| UseError::NotRemoved {
        id: id.clone(),
        cause,
    };
    let claim = Claim::of_nobodys(shared, id).ok_or_else(not_found)?;
    if !shared.workspaces.clone().exists(id.clone()).await {
        return Err(not_found());
    }
    let purge = shared.workspaces.clone().purge(id.clone(), None, claim);
    match timeout(Duration::from_secs(WORKSPACE_SECONDS_MAX), purge).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(not_removed(error.to_string())),
        Err(_) => Err(not_removed("not in time".to_owned())),
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
