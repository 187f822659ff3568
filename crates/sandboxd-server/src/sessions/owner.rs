//! The owner of a session's sandbox: one task per session that holds one. It alone makes, stops and removes the
//! sandbox, one order after the other, and reports how each went. Handlers only wait for the transitions, so a client
//! that hangs up leaves nothing half done. [`making`] is how a sandbox comes, [`parting`] how it goes.

mod making;
mod parting;

use super::detail::Detail;
use super::ledger::Standing;
use super::state::{Action, Event};
use super::table::Shared;
use crate::id::{SandboxId, SessionId};
use crate::limits::LEDGER_SECONDS_MAX;
use futures::FutureExt as _;
use sandboxd_protocol::client::Client;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Starts an owner. It ends when its mailbox is closed and empty.
pub(super) fn spawn(
    shared: Arc<Shared>,
    id: SessionId,
    serial: u64,
    orders: mpsc::Receiver<Action>,
) {
    let tasks = shared.tasks.clone();
    let owner = Owner {
        shared,
        id,
        serial,
        held: None,
        keeps: None,
        may_be_written: false,
    };
    tasks.spawn(owner.live(orders));
}

struct Owner {
    shared: Arc<Shared>,
    id: SessionId,
    serial: u64,
    held: Option<Held>,
    /// The sandbox that was made last, if its write layer is one that can be kept.
    keeps: Option<SandboxId>,
    /// Whether the record may name a sandbox of which nobody has heard yet.
    may_be_written: bool,
}

/// The sandbox that runs.
struct Held {
    sandbox: SandboxId,
    client: Client,
}

impl Owner {
    async fn live(mut self, mut orders: mpsc::Receiver<Action>) {
        loop {
            let order = match &self.held {
                Some(held) => tokio::select! {
                    biased;
                    order = orders.recv() => order,
                    () = held.client.closed() => {
                        self.died();
                        continue;
                    }
                },
                None => orders.recv().await,
            };
            let Some(order) = order else { break };
            self.carry_out(order).await;
        }
    }

    /// The sandbox has ended by itself.
    fn died(&mut self) {
        if let Some(held) = self.held.take() {
            tracing::warn!(session = %self.id, sandbox = %held.sandbox, "the sandbox ended by itself");
            self.report(Event::Died(held.sandbox));
        }
    }

    fn report(&self, event: Event) {
        self.report_cause(event, None);
    }

    /// `cause` is what waiters are told.
    fn report_cause(&self, event: Event, cause: Option<String>) {
        let note = {
            let event = event.clone();
            move |detail: &mut Detail| {
                detail.stage.change(|stage| match event {
                    Event::StartFailed => {
                        stage.failures += 1;
                        stage.cause = cause;
                    }
                    _ => stage.left = cause,
                });
            }
        };
        let reported = self.shared.report_with(&self.id, self.serial, event, note);
        if let Err(refusal) = reported {
            tracing::debug!(session = %self.id, %refusal, "a report changed nothing");
        }
    }

    /// Whatever happens, and be it a panic in a backend, the order is answered with a report: nobody waits in vain.
    async fn carry_out(&mut self, order: Action) {
        let attempt = match order.clone() {
            Action::Create { sandbox, layer } => {
                AssertUnwindSafe(self.create(sandbox, layer))
                    .catch_unwind()
                    .await
            }
            Action::Stop(sandbox) => AssertUnwindSafe(self.stop(sandbox)).catch_unwind().await,
            Action::Suspend(sandbox) => {
                AssertUnwindSafe(self.suspend(sandbox)).catch_unwind().await
            }
            Action::Clear(sandbox) => AssertUnwindSafe(self.clear(&sandbox)).catch_unwind().await,
            Action::End { sandbox, purge } => {
                AssertUnwindSafe(self.end(sandbox, purge))
                    .catch_unwind()
                    .await
            }
            Action::PassSlot(_) | Action::Forget => Ok(()),
        };
        if attempt.is_ok() {
            return;
        }
        tracing::error!(session = %self.id, ?order, "an order ended in a panic");
        self.shared.metrics.panicked();
        self.held = None;
        let cause = Some("internal error".to_owned());
        match order {
            Action::Create { sandbox, layer } => {
                let undone = AssertUnwindSafe(self.undo(&sandbox, layer));
                let _ = undone.catch_unwind().await;
                self.report_cause(Event::StartFailed, cause);
            }
            Action::Stop(sandbox) => {
                let removed = AssertUnwindSafe(self.remove(&sandbox));
                let _ = removed.catch_unwind().await;
                self.report(Event::Stopped { layer: false });
            }
            Action::End { sandbox, .. } => {
                if let Some(sandbox) = sandbox {
                    let removed = AssertUnwindSafe(self.remove(&sandbox));
                    let _ = removed.catch_unwind().await;
                }
                self.report_cause(Event::Closed, cause);
            }
            Action::Suspend(_) => self.report_cause(Event::Closed, cause),
            Action::Clear(_) | Action::PassSlot(_) | Action::Forget => {}
        }
    }

    /// Before anybody hears of it.
    async fn write_down(&self, standing: Standing) -> Result<(), String> {
        let record = self.shared.table().record(&self.id, standing);
        let record = record.ok_or("the session is gone")?;
        bounded(LEDGER_SECONDS_MAX, self.shared.ledger.put(record))
            .await
            .ok_or("not written down in time")?
            .map_err(|e| e.to_string())
    }
}

async fn bounded<T>(seconds: u64, work: impl Future<Output = T>) -> Option<T> {
    timeout(Duration::from_secs(seconds), work).await.ok()
}
