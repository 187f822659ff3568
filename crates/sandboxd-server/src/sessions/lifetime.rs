//! How long a session lasts and when it sleeps, as its client asks.

use super::admission::NoStep;
use super::detail::Detail;
use super::life::{Going, Sleep};
use super::state::{Event, Refusal, State};
use super::table::Shared;
use super::words::UseError;
use crate::id::SessionId;
use crate::limits::{HIBERNATE_SECONDS_MAX, LEDGER_SECONDS_MAX};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Sets a session's end anew: so long from now, or never. Written down before it is answered.
pub(super) async fn renew(
    shared: &Arc<Shared>,
    id: &SessionId,
    ttl: Option<Duration>,
) -> Result<(), UseError> {
    let not_found = || UseError::NotFound(id.clone());
    let _one_at_a_time = shared.renewals.lock().await;
    let expires = ttl.map(|ttl| shared.clock.now().saturating_add(ttl));
    let (serial, nonce, before) = {
        let table = shared.table();
        let (rental, detail) = table.visible(id).ok_or_else(not_found)?;
        (rental.serial, detail.nonce, rental.expires)
    };
    // In the table first: a record that an owner writes meanwhile has it, too.
    let renewed = shared.report(id, serial, Event::Renew { expires });
    renewed.map_err(|_| not_found())?;
    let writing = shared.ledger.renew(id, &nonce, expires);
    let cause = match timeout(Duration::from_secs(LEDGER_SECONDS_MAX), writing).await {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "not written down in time".to_owned(),
    };
    // One that is gone meanwhile has no end to be put back.
    let _ = shared.report(id, serial, Event::Renew { expires: before });
    Err(UseError::NotWritten {
        id: id.clone(),
        cause,
    })
}

/// Puts a session to sleep, and waits until it sleeps. One that sleeps already is fine.
pub(super) async fn hibernate(shared: &Arc<Shared>, id: &SessionId) -> Result<(), UseError> {
    let not_found = || UseError::NotFound(id.clone());
    let refused = |why: String| UseError::NotAsleep {
        id: id.clone(),
        why,
    };
    let (serial, mut stage) = {
        let table = shared.table();
        let (rental, detail) = table.visible(id).ok_or_else(not_found)?;
        (rental.serial, detail.stage.subscribe())
    };
    let work = async {
        let mut asked = false;
        loop {
            let state = {
                stage.mark_unchanged();
                let table = shared.table();
                let rental = table.house.get(id).filter(|r| r.serial == serial);
                rental.ok_or_else(not_found)?.state.clone()
            };
            match state {
                State::Hibernated { .. } => return Ok(()),
                // It slept, and somebody has woken it since.
                State::Resident { .. } | State::Fallen { .. } if asked => return Ok(()),
                State::Resident { .. } | State::Fallen { .. } => {
                    let note = |detail: &mut Detail| detail.going = Some(Going::now(Sleep::Asked));
                    let event = Event::Hibernate { heir: None };
                    match shared.report_with(id, serial, event, note) {
                        Ok(()) => asked = true,
                        // It has changed since the look.
                        Err(NoStep::Refused(Refusal::Changing | Refusal::Asleep)) => {}
                        Err(NoStep::Refused(refusal)) => return Err(refused(refusal.to_string())),
                        Err(NoStep::Unknown) => return Err(not_found()),
                    }
                    continue;
                }
                State::Lost if asked => {
                    return Err(refused("what it wrote could not be kept".to_owned()));
                }
                State::Lost => return Err(refused(Refusal::Lost.to_string())),
                State::Opening { .. } | State::Closing { .. } => return Err(not_found()),
                State::Falling { .. } | State::Hibernating { .. } | State::Waking { .. } => {}
            }
            // The sender goes with the session.
            stage.changed().await.map_err(|_| not_found())?;
        }
    };
    match timeout(Duration::from_secs(HIBERNATE_SECONDS_MAX), work).await {
        Ok(done) => done,
        Err(_) => Err(refused(format!(
            "its sandbox did not end within {HIBERNATE_SECONDS_MAX} s"
        ))),
    }
}
