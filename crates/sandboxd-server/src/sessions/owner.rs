//! The owner of a session's sandbox: one task per session that holds one. It alone makes, stops and removes the
//! sandbox, one order after the other, and reports how each went. Handlers only wait for the transitions, so a client
//! that hangs up leaves nothing half done.

use super::ledger::Standing;
use super::reaper::Claim;
use super::spec::sandbox_spec;
use super::state::{Action, Event, State};
use super::table::{Detail, Shared};
use crate::backends::{self, Enforced, KeepLayer};
use crate::id::{SandboxId, SessionId};
use crate::limits::{
    CONNECT_SECONDS_MAX, CREATE_SECONDS_MAX, LEDGER_SECONDS_MAX, PREPARE_SECONDS_MAX,
    STOP_SECONDS_MAX, WORKSPACE_SECONDS_MAX,
};
use crate::telemetry::metrics::Start;
use futures::FutureExt as _;
use sandboxd_protocol::client::Client;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

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
    };
    tasks.spawn(owner.live(orders));
}

struct Owner {
    shared: Arc<Shared>,
    id: SessionId,
    serial: u64,
    held: Option<Held>,
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
                detail.stage.send_modify(|stage| match event {
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
            Action::Clear(_) | Action::PassSlot(_) | Action::Forget => {}
        }
    }

    async fn create(&mut self, sandbox: SandboxId, layer: bool) {
        let began = Instant::now();
        let made = self.make(&sandbox, layer).await;
        self.count_start(made.is_ok(), began.elapsed());
        match made {
            Ok((client, enforced)) => {
                self.held = Some(Held {
                    sandbox,
                    client: client.clone(),
                });
                let started = |detail: &mut Detail| {
                    detail.client = Some(client);
                    detail.enforced = enforced;
                };
                let _ = self
                    .shared
                    .report_with(&self.id, self.serial, Event::Started, started);
            }
            Err(cause) => {
                tracing::warn!(session = %self.id, %sandbox, cause, "a sandbox did not start");
                self.undo(&sandbox, layer).await;
                self.report_cause(Event::StartFailed, Some(cause));
            }
        }
    }

    /// A first sandbox is a start, every other one a wake.
    fn count_start(&self, ok: bool, took: Duration) {
        let table = self.shared.table();
        let state = table.house.get(&self.id).map(|rental| &rental.state);
        let is_first = matches!(state, Some(State::Opening { .. }));
        let runtime = table.details.get(&self.id).map(|d| d.runtime.clone());
        drop(table);
        let outcome = if ok { Start::Ok } else { Start::Failed };
        match runtime {
            Some(runtime) if is_first => {
                let metrics = &self.shared.metrics;
                metrics.started(&runtime.alias, outcome, took);
            }
            _ => self.shared.metrics.woke(outcome, took),
        }
    }

    /// Ends what there is of a sandbox that did not start.
    async fn undo(&self, sandbox: &SandboxId, layer: bool) {
        if layer {
            // What was kept must survive the failure: the next request tries again.
            let stopped = self.shared.backend.stop(sandbox, KeepLayer::Yes);
            let _ = timeout(Duration::from_secs(STOP_SECONDS_MAX), stopped).await;
        } else {
            self.remove(sandbox).await;
        }
    }

    /// Image, workspace, sandbox, guest: each with its deadline, each with its cause.
    async fn make(&self, sandbox: &SandboxId, layer: bool) -> Result<(Client, Enforced), String> {
        let (service, runtime, is_first) = {
            let table = self.shared.table();
            let state = table.house.get(&self.id).map(|rental| &rental.state);
            let is_first = matches!(state, Some(State::Opening { .. }));
            let detail = table.details.get(&self.id).ok_or("the session is gone")?;
            let service = table.service.clone();
            // A policy update applies to the next sandbox; a runtime that left the allowlist is still this session's.
            let current = service.runtimes.get(&detail.runtime.alias).cloned();
            let runtime = current.map_or_else(|| detail.runtime.clone(), Arc::new);
            (service, runtime, is_first)
        };
        let image = bounded(PREPARE_SECONDS_MAX, self.shared.backend.prepare(&runtime))
            .await
            .ok_or("the image was not ready in time")?
            .map_err(|e| e.to_string())?;
        let workspaces = self.shared.workspaces.clone();
        let making = async {
            match is_first {
                true => workspaces.make(self.id.clone()).await,
                false => workspaces.find(self.id.clone()).await,
            }
        };
        let workspace = bounded(WORKSPACE_SECONDS_MAX, making)
            .await
            .ok_or("the workspace was not ready in time")?
            .map_err(|e| e.to_string())?;
        let spec = sandbox_spec(&service, &runtime, image, workspace).map_err(|e| e.to_string())?;
        let start = if layer {
            backends::Start::KeptLayer
        } else {
            backends::Start::Fresh
        };
        let running = bounded(
            CREATE_SECONDS_MAX,
            self.shared.backend.create(sandbox, &spec, start),
        )
        .await
        .ok_or_else(|| format!("not started within {CREATE_SECONDS_MAX} s"))?
        .map_err(|e| e.to_string())?;
        let (client, _welcome) = bounded(CONNECT_SECONDS_MAX, Client::connect(running.link))
            .await
            .ok_or("the guest did not answer")?
            .map_err(|e| e.to_string())?;
        let standing = Standing::Resident(sandbox.clone());
        self.write_down(standing).await?;
        Ok((client, running.enforced))
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

    async fn stop(&mut self, sandbox: SandboxId) {
        let keep = self.shared.service().persist_containers;
        let mut layer = false;
        if keep {
            let stopped = self.shared.backend.stop(&sandbox, KeepLayer::Yes);
            let problem = match bounded(STOP_SECONDS_MAX, stopped).await {
                Some(Ok(())) => None,
                Some(Err(error)) => Some(error.to_string()),
                None => Some("not in time".to_owned()),
            };
            // What is there all the same is not thrown away: a wake says so where it cannot be used.
            layer = match &problem {
                None => true,
                Some(_) => self.is_kept(&sandbox).await,
            };
            if let Some(cause) = problem {
                tracing::error!(session = %self.id, cause, layer, "the write layer was not kept well");
            }
        }
        if !layer {
            self.remove(&sandbox).await;
        }
        self.let_go(&sandbox);
        self.mark_used().await;
        let standing = Standing::Hibernated(layer.then_some(sandbox));
        if let Err(cause) = self.write_down(standing).await {
            tracing::error!(session = %self.id, cause, "that it sleeps was not written down");
        }
        self.report(Event::Stopped { layer });
    }

    /// Whether the backend has a layer of this sandbox, and nothing that still writes into it.
    async fn is_kept(&self, sandbox: &SandboxId) -> bool {
        let listed = bounded(STOP_SECONDS_MAX, self.shared.backend.list()).await;
        let Some(Ok(found)) = listed else {
            return false;
        };
        let mut kept = found.iter().filter(|found| !found.running);
        kept.any(|found| found.id == *sandbox)
    }

    async fn end(&mut self, sandbox: Option<SandboxId>, purge: bool) {
        if let Some(sandbox) = sandbox {
            self.remove(&sandbox).await;
            self.let_go(&sandbox);
        }
        self.held = None;
        let mut cause = None;
        if purge {
            let claim = Claim::of_own(&self.shared, &self.id);
            let workspaces = self.shared.workspaces.clone();
            let purged = workspaces.purge(self.id.clone(), None, claim);
            match bounded(WORKSPACE_SECONDS_MAX, purged).await {
                Some(Ok(())) => {}
                Some(Err(error)) => cause = Some(error.to_string()),
                None => cause = Some("not removed in time".to_owned()),
            }
            if let Some(cause) = &cause {
                tracing::error!(session = %self.id, cause, "the workspace was not purged");
            }
        } else {
            self.mark_used().await;
        }
        match bounded(LEDGER_SECONDS_MAX, self.shared.ledger.remove(&self.id)).await {
            Some(Ok(())) => {}
            Some(Err(error)) => cause = Some(error.to_string()),
            None => cause = Some("not struck out in time".to_owned()),
        }
        self.report_cause(Event::Closed, cause);
    }

    /// A workspace's time runs from its last use, not from the session's beginning.
    async fn mark_used(&self) {
        let touched = self.shared.workspaces.clone().touch(self.id.clone());
        let _ = bounded(WORKSPACE_SECONDS_MAX, touched).await;
    }

    /// Removes what is left of a sandbox. A sleeper's record names its layer no more before that goes.
    async fn clear(&self, sandbox: &SandboxId) {
        let is_asleep = {
            let table = self.shared.table();
            let state = table.house.get(&self.id).map(|rental| &rental.state);
            matches!(state, Some(State::Hibernated { layer: None, .. }))
        };
        if is_asleep && let Err(cause) = self.write_down(Standing::Hibernated(None)).await {
            tracing::error!(session = %self.id, cause, "that its layer goes was not written down");
        }
        self.remove(sandbox).await;
    }

    /// Removes every trace of a sandbox; the end of the link ends its processes even where that fails.
    async fn remove(&self, sandbox: &SandboxId) {
        match bounded(STOP_SECONDS_MAX, self.shared.backend.destroy(sandbox)).await {
            Some(Ok(())) => {}
            Some(Err(error)) => {
                tracing::error!(session = %self.id, %sandbox, %error, "a sandbox was not removed");
            }
            None => {
                tracing::error!(session = %self.id, %sandbox, "a sandbox was not removed in time")
            }
        }
    }

    /// Ends the link.
    fn let_go(&mut self, sandbox: &SandboxId) {
        if let Some(held) = self.held.take_if(|held| held.sandbox == *sandbox) {
            held.client.close();
        }
    }
}

async fn bounded<T>(seconds: u64, work: impl Future<Output = T>) -> Option<T> {
    timeout(Duration::from_secs(seconds), work).await.ok()
}
