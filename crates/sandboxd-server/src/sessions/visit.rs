//! One operation's stay with a session: it is counted from its beginning to its end, so that nobody puts the session
//! to sleep meanwhile, and it wakes or heals the session where it needs the sandbox.

use super::admission::{NoRoom, NoStep};
use super::life;
use super::state::{Event, Refusal, State};
use super::table::Shared;
use super::words::UseError;
use crate::backends::Meter;
use crate::id::{SandboxId, SessionId};
use crate::limits::WAKE_SECONDS_MAX;
use sandboxd_protocol::client::{Client, LinkError};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Counts as one operation in flight for as long as it lives.
#[derive(Debug)]
pub(super) struct Visit {
    pub(super) shared: Arc<Shared>,
    pub(super) id: SessionId,
    pub(super) serial: u64,
}

/// A sandbox that runs, and the way to its guest.
#[derive(Debug, Clone)]
pub(crate) struct Reached {
    pub(super) sandbox: SandboxId,
    pub(super) client: Client,
    pub(super) meter: Arc<dyn Meter>,
}

impl Drop for Visit {
    fn drop(&mut self) {
        // A session that is gone has nobody in it any more.
        let _ = self.shared.report(&self.id, self.serial, Event::Leave);
    }
}

impl Visit {
    /// Begins an operation on a session that is there.
    pub(super) fn begin(shared: &Arc<Shared>, id: &SessionId) -> Result<Self, UseError> {
        let serial = {
            let table = shared.table();
            let (rental, _) = table
                .visible(id)
                .ok_or_else(|| UseError::NotFound(id.clone()))?;
            rental.serial
        };
        match shared.report(id, serial, Event::Enter) {
            Ok(()) => Ok(Self {
                shared: shared.clone(),
                id: id.clone(),
                serial,
            }),
            Err(NoStep::Refused(Refusal::Lost)) => Err(UseError::Gone(id.clone())),
            Err(_) => Err(UseError::NotFound(id.clone())),
        }
    }

    /// The way to the guest, if the sandbox runs now; nothing is woken.
    pub(super) fn reached_now(&self) -> Option<Reached> {
        let table = self.shared.table();
        let rental = table
            .house
            .get(&self.id)
            .filter(|r| r.serial == self.serial)?;
        let detail = table.details.get(&self.id)?;
        let (client, meter) = (detail.client.clone()?, detail.meter.clone());
        match &rental.state {
            State::Resident { sandbox, .. } if !client.is_closed() => Some(Reached {
                sandbox: sandbox.clone(),
                client,
                meter,
            }),
            _ => None,
        }
    }

    /// The way to the guest; wakes and heals first.
    pub(super) async fn reach(&self) -> Result<Reached, UseError> {
        self.reach_within(WAKE_SECONDS_MAX).await
    }

    /// As [`Visit::reach`], for whoever waits longer or less long. The owner goes on either way.
    pub(super) async fn reach_within(&self, seconds: u64) -> Result<Reached, UseError> {
        let waiting = self.reach_in_any_time();
        match timeout(Duration::from_secs(seconds), waiting).await {
            Ok(reached) => reached,
            Err(_) => Err(UseError::WakeFailed {
                id: self.id.clone(),
                cause: format!("not awake within {seconds} s"),
            }),
        }
    }

    async fn reach_in_any_time(&self) -> Result<Reached, UseError> {
        let mut stage = {
            let table = self.shared.table();
            let detail = table
                .details
                .get(&self.id)
                .filter(|d| d.serial == self.serial);
            detail.ok_or_else(|| self.gone())?.stage.subscribe()
        };
        let failures_before = stage.borrow().failures;
        loop {
            if let Some(reached) = self.look(&mut stage, failures_before)? {
                return Ok(reached);
            }
            // The sender goes with the session.
            stage.changed().await.map_err(|_| self.gone())?;
        }
    }

    /// One look under the lock: reached, to be waited for, or hopeless.
    fn look(
        &self,
        stage: &mut tokio::sync::watch::Receiver<super::detail::Stage>,
        failures_before: u64,
    ) -> Result<Option<Reached>, UseError> {
        let now = self.shared.clock.now();
        let mut table = self.shared.table();
        let failed = {
            let seen = stage.borrow_and_update();
            (seen.failures > failures_before).then(|| seen.cause.clone().unwrap_or_default())
        };
        let state = match table.house.get(&self.id) {
            Some(rental) if rental.serial == self.serial => rental.state.clone(),
            _ => return Err(self.gone()),
        };
        match state {
            State::Resident { sandbox, .. } => {
                let detail = table.details.get(&self.id);
                let reached = detail.and_then(|d| Some((d.client.clone()?, d.meter.clone())));
                match reached.filter(|(client, _)| !client.is_closed()) {
                    Some((client, meter)) => Ok(Some(Reached {
                        sandbox,
                        client,
                        meter,
                    })),
                    None => {
                        // Dead, and the owner has not looked yet: say it, then heal in the next look.
                        drop(table);
                        self.say_dead(&sandbox);
                        Ok(None)
                    }
                }
            }
            State::Waking { .. } | State::Hibernating { .. } | State::Falling { .. } => Ok(None),
            State::Fallen { .. } | State::Hibernated { .. } => {
                if let Some(cause) = failed {
                    return Err(UseError::WakeFailed {
                        id: self.id.clone(),
                        cause,
                    });
                }
                match table.wake(&self.id, now) {
                    Ok(orders) => {
                        self.shared.carry_out(&mut table, Some(&self.id), orders);
                        Ok(None)
                    }
                    Err(NoRoom::Slots(limit)) => {
                        drop(table);
                        let why = format!("session limit reached ({limit})");
                        life::refuse(&self.shared, &self.id, self.serial, "wake", why);
                        Err(UseError::CannotWake {
                            id: self.id.clone(),
                            limit,
                        })
                    }
                    Err(_) => Err(self.gone()),
                }
            }
            State::Lost | State::Opening { .. } | State::Closing { .. } => Err(self.gone()),
        }
    }

    fn say_dead(&self, sandbox: &SandboxId) {
        let _ = self
            .shared
            .report(&self.id, self.serial, Event::Died(sandbox.clone()));
    }

    /// The guest is gone, silent or lies: its sandbox is ended. Answers with what the operation that noticed is told.
    pub(super) fn broken(&self, reached: &Reached, error: &LinkError) -> UseError {
        if *error != LinkError::Gone {
            tracing::warn!(session = %self.id, sandbox = %reached.sandbox, %error, "the sandbox is ended");
        }
        reached.client.close();
        self.say_dead(&reached.sandbox);
        self.gone()
    }

    pub(super) fn gone(&self) -> UseError {
        UseError::Gone(self.id.clone())
    }
}
