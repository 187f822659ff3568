//! Writes down what sessions do, many at once and a moment late: when they were last used, and the rows of their logs.
//! Nobody waits for it but the daemon's end. What is unwritten is bounded by what sessions keep in memory anyway.

use super::ledger::Activity;
use super::state::State;
use super::table::{Shared, Table};
use super::words::{Event, UseError};
use crate::id::SessionId;
use crate::limits::{EVENTS_PER_SESSION, JOURNAL_MILLIS, JOURNAL_SESSIONS_MAX, LEDGER_SECONDS_MAX};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Writes whenever there is something, until the room closes. Owners write what is theirs before they go.
pub(super) async fn live(shared: Arc<Shared>) {
    let mut failing = false;
    loop {
        tokio::select! {
            () = shared.stopping.cancelled() => return,
            () = shared.unwritten.notified() => {}
        }
        tokio::time::sleep(Duration::from_millis(JOURNAL_MILLIS)).await;
        match write_all(&shared).await {
            Ok(()) => failing = false,
            Err(cause) => {
                if !failing {
                    tracing::error!(
                        cause,
                        "what sessions do cannot be written down; it is tried again"
                    );
                }
                failing = true;
                tokio::time::sleep(Duration::from_secs(1)).await;
                shared.unwritten.notify_one();
            }
        }
    }
}

/// Writes all that is unwritten now.
pub(super) async fn write_all(shared: &Arc<Shared>) -> Result<(), String> {
    loop {
        let some: Vec<SessionId> = {
            let table = shared.table();
            let some = table.unwritten.iter().take(JOURNAL_SESSIONS_MAX);
            some.cloned().collect()
        };
        if some.is_empty() {
            return Ok(());
        }
        write(shared, &some).await?;
    }
}

/// Writes what is unwritten of these.
pub(super) async fn write(shared: &Arc<Shared>, ids: &[SessionId]) -> Result<(), String> {
    let activities: Vec<Activity> = {
        let mut table = shared.table();
        ids.iter()
            .filter(|id| table.unwritten.remove(*id))
            .cloned()
            .collect::<Vec<_>>()
            .iter()
            .filter_map(|id| activity(&table, id))
            .collect()
    };
    if activities.is_empty() {
        return Ok(());
    }
    let writing = shared.ledger.note(activities.clone());
    let written = match timeout(Duration::from_secs(LEDGER_SECONDS_MAX), writing).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("not in time".to_owned()),
    };
    let mut table = shared.table();
    for activity in activities {
        let Table {
            house,
            details,
            unwritten,
            ..
        } = &mut *table;
        let detail = details.get_mut(&activity.id);
        let Some(detail) = detail.filter(|detail| detail.nonce == activity.nonce) else {
            continue;
        };
        if written.is_err() {
            unwritten.insert(activity.id);
            continue;
        }
        if let Some(last) = activity.events.last() {
            detail.log.wrote(last.seq);
        }
        let rental = house.get(&activity.id);
        if rental.is_some_and(|rental| matches!(rental.state, State::Hibernated { .. })) {
            detail.log.shed();
        }
    }
    written
}

fn activity(table: &Table, id: &SessionId) -> Option<Activity> {
    let (rental, detail) = (table.house.get(id)?, table.details.get(id)?);
    Some(Activity {
        id: id.clone(),
        nonce: detail.nonce,
        last_used: rental.last_used,
        asleep_since: match rental.state {
            State::Hibernated { since, .. } => Some(since),
            _ => None,
        },
        events: detail.log.unwritten(),
    })
}

/// The rows of a session's log after `after`, and the highest number ever given.
pub(super) async fn events(
    shared: &Arc<Shared>,
    id: &SessionId,
    after: u64,
) -> Result<(Vec<Event>, u64), UseError> {
    let look = || {
        let table = shared.table();
        let (_, detail) = table.visible(id)?;
        let (rows, latest) = detail.log.after(after);
        Some((detail.nonce, rows, latest, detail.log.first_in_memory()))
    };
    let (nonce, rows, latest, first) = look().ok_or_else(|| UseError::NotFound(id.clone()))?;
    let wanted_before = first.saturating_sub(after.saturating_add(1));
    if wanted_before == 0 || rows.len() >= EVENTS_PER_SESSION {
        return Ok((rows, latest));
    }
    let reading = shared.ledger.events(id, &nonce, after, first);
    let not_read = |cause: String| UseError::NotRead {
        id: id.clone(),
        cause,
    };
    let mut all = timeout(Duration::from_secs(LEDGER_SECONDS_MAX), reading)
        .await
        .map_err(|_| not_read("not in time".to_owned()))?
        .map_err(|error| not_read(error.to_string()))?;
    all.extend(rows);
    let too_many = all.len().saturating_sub(EVENTS_PER_SESSION);
    all.drain(..too_many);
    Ok((all, latest))
}
