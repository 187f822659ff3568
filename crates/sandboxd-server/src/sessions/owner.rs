//! The owner of a session's sandbox: one task per session that holds one. It alone makes, stops and removes the
//! sandbox, one order after the other, and reports how each went. Handlers only wait for the transitions, so a client
//! that hangs up leaves nothing half done.

use super::journal;
use super::ledger::Standing;
use super::life::{self, Going, Sleep};
use super::reaper::Claim;
use super::spec::sandbox_spec;
use super::state::{Action, Event, State};
use super::table::{Detail, Shared};
use super::words::Happened;
use crate::backends::{self, Enforced, KeepLayer, Meter, Running, SandboxSpec};
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
        keeps: None,
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
}

/// The sandbox that runs.
struct Held {
    sandbox: SandboxId,
    client: Client,
}

/// One that was made.
struct Made {
    client: Client,
    enforced: Enforced,
    keeps: bool,
    meter: Arc<dyn Meter>,
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

    async fn create(&mut self, sandbox: SandboxId, layer: bool) {
        // Also where it does not start: what was kept must survive that.
        self.keeps = layer.then(|| sandbox.clone());
        let began = Instant::now();
        let made = self.make(&sandbox, layer).await;
        let failed = made.as_ref().err().map(String::as_str);
        self.say_started(layer, failed, began.elapsed());
        match made {
            Ok(made) => {
                self.held = Some(Held {
                    sandbox: sandbox.clone(),
                    client: made.client.clone(),
                });
                let keeps = made.keeps;
                self.keeps = keeps.then_some(sandbox);
                let started = |detail: &mut Detail| {
                    detail.client = Some(made.client);
                    detail.enforced = made.enforced;
                    detail.meter = made.meter;
                };
                let event = Event::Started { keeps };
                let _ = self
                    .shared
                    .report_with(&self.id, self.serial, event, started);
            }
            Err(cause) => {
                tracing::warn!(session = %self.id, %sandbox, cause, "a sandbox did not start");
                self.undo(&sandbox, layer).await;
                self.report_cause(Event::StartFailed, Some(cause));
            }
        }
    }

    /// A first sandbox is a start, every other one a wake.
    fn say_started(&self, layer: bool, failed: Option<&str>, took: Duration) {
        let table = self.shared.table();
        let state = table.house.get(&self.id).map(|rental| &rental.state);
        let is_first = matches!(state, Some(State::Opening { .. }));
        let alias = table.details.get(&self.id).map(|d| d.alias.clone());
        drop(table);
        let outcome = match failed {
            None => Start::Ok,
            Some(_) => Start::Failed,
        };
        let Some(alias) = alias else { return };
        if is_first {
            self.shared.metrics.started(&alias, outcome, took);
            return;
        }
        self.shared.metrics.woke(outcome, took);
        let row = life::woke(&alias, layer, failed, took);
        self.shared.log(&self.id, Some(self.serial), row);
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

    /// Image, workspace, sandbox, guest, record: each with its deadline, each with its cause.
    async fn make(&self, sandbox: &SandboxId, layer: bool) -> Result<Made, String> {
        let spec = self.specify(layer).await?;
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
        let keeps = spec.keep_layer;
        let meter = running.meter.clone();
        let layer_is_torn = running.layer_is_torn;
        match self.greet(sandbox, running, keeps).await {
            Ok((client, enforced)) => {
                if layer_is_torn {
                    self.say_torn(sandbox);
                }
                Ok(Made {
                    client,
                    enforced,
                    meter,
                    keeps,
                })
            }
            Err(cause) => {
                self.take_back(sandbox, layer).await;
                Err(cause)
            }
        }
    }

    /// What the sandbox is to be, with its image and its workspace ready.
    async fn specify(&self, layer: bool) -> Result<SandboxSpec, String> {
        let (service, runtime, may_be_new, files_outside) = {
            let table = self.shared.table();
            let rental = table.house.get(&self.id).ok_or("the session is gone")?;
            let detail = table.details.get(&self.id).ok_or("the session is gone")?;
            let may_be_new = matches!(rental.state, State::Opening { .. }) && !detail.attached;
            let service = table.service.clone();
            // A policy update applies to the next sandbox; a runtime that left the allowlist is still this session's,
            // until a restart.
            let current = service.runtimes.get(&detail.alias).cloned().map(Arc::new);
            let runtime = current.or_else(|| detail.runtime.clone());
            let runtime = runtime.ok_or_else(|| {
                format!(
                    "its runtime {:?} is not on the allowlist any more",
                    detail.alias
                )
            })?;
            (service, runtime, may_be_new, rental.files_outside)
        };
        let image = bounded(PREPARE_SECONDS_MAX, self.shared.backend.prepare(&runtime))
            .await
            .ok_or("the image was not ready in time")?
            .map_err(|e| e.to_string())?;
        let workspaces = self.shared.workspaces.clone();
        let making = async {
            match (files_outside, may_be_new) {
                (false, _) => Ok(None),
                (true, true) => workspaces.make(self.id.clone()).await,
                (true, false) => workspaces.find(self.id.clone()).await,
            }
        };
        let workspace = bounded(WORKSPACE_SECONDS_MAX, making)
            .await
            .ok_or("the workspace was not ready in time")?
            .map_err(|e| e.to_string())?;
        if files_outside && workspace.is_none() {
            return Err("its files are stored, and no workspace_root is configured now".to_owned());
        }
        let mut spec =
            sandbox_spec(&service, &runtime, image, workspace).map_err(|e| e.to_string())?;
        // What was kept once is kept on, whatever is configured now.
        spec.keep_layer |= layer;
        Ok(spec)
    }

    /// The guest's first words, while the record is written: before anybody hears of the sandbox.
    async fn greet(
        &self,
        sandbox: &SandboxId,
        running: Running,
        keeps: bool,
    ) -> Result<(Client, Enforced), String> {
        let standing = Standing::Resident {
            sandbox: sandbox.clone(),
            keeps,
        };
        let connecting = bounded(CONNECT_SECONDS_MAX, Client::connect(running.link));
        let (connected, written) = tokio::join!(connecting, self.write_down(standing));
        let (client, _welcome) = connected
            .ok_or("the guest did not answer")?
            .map_err(|e| e.to_string())?;
        written?;
        Ok((client, running.enforced))
    }

    /// Never used in silence.
    fn say_torn(&self, sandbox: &SandboxId) {
        let what = "the host went down while this write layer was in use: what was written last may be lost or damaged";
        tracing::warn!(session = %self.id, %sandbox, "{what}");
        let happened = Happened {
            op: "layer",
            target: String::new(),
            ok: false,
            detail: what.to_owned(),
            took: Duration::ZERO,
        };
        self.shared.log(&self.id, Some(self.serial), happened);
    }

    /// The record of a sandbox that did not come to anything.
    async fn take_back(&self, sandbox: &SandboxId, layer: bool) {
        let before = {
            let table = self.shared.table();
            let rental = table.house.get(&self.id);
            rental.map(|rental| match rental.state {
                State::Opening { .. } => None,
                _ => Some(Standing::Hibernated {
                    layer: layer.then(|| sandbox.clone()),
                    since: self.shared.clock.now(),
                }),
            })
        };
        let taken_back = match before {
            Some(Some(standing)) => self.write_down(standing).await,
            Some(None) => self.strike_out().await,
            None => Ok(()),
        };
        if let Err(cause) = taken_back {
            tracing::error!(session = %self.id, cause, "its record says more than there is");
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

    async fn stop(&mut self, sandbox: SandboxId) {
        let layer = self.put_away(&sandbox).await;
        self.say_slept(layer, None);
        self.report(Event::Stopped { layer });
    }

    /// As [`Owner::stop`], for the daemon's end: what is not written yet is written first.
    async fn suspend(&mut self, sandbox: SandboxId) {
        let began = Going::now(Sleep::Shutdown);
        let layer = self.put_away(&sandbox).await;
        self.say_slept(layer, Some(began));
        if let Err(cause) = journal::write(&self.shared, std::slice::from_ref(&self.id)).await {
            tracing::error!(session = %self.id, cause, "its last activity was not written down");
        }
        self.report(Event::Closed);
    }

    /// A sandbox that fell by itself is no sleep, and says nothing here.
    fn say_slept(&self, layer: bool, going: Option<Going>) {
        let (going, files) = {
            let mut table = self.shared.table();
            let files = table.house.get(&self.id).is_some_and(|r| r.files_outside);
            let detail = table.details.get_mut(&self.id);
            let own = detail.and_then(|detail| detail.going.take());
            (going.or(own), files)
        };
        if let Some(going) = going {
            let row = life::slept(going, layer, files);
            self.shared.log(&self.id, Some(self.serial), row);
        }
    }

    /// Ends a sandbox, keeps what lives on, and writes down what that is. Answers whether a layer was kept.
    async fn put_away(&mut self, sandbox: &SandboxId) -> bool {
        let mut layer = false;
        let files_outside = {
            let table = self.shared.table();
            let rental = table.house.get(&self.id);
            rental.is_some_and(|rental| rental.files_outside)
        };
        // Where all of its files are in its layer, they are kept whatever is configured now.
        let keep = self.shared.service().persist_containers || !files_outside;
        if keep && self.keeps.as_ref() == Some(sandbox) {
            let stopped = self.shared.backend.stop(sandbox, KeepLayer::Yes);
            let problem = match bounded(STOP_SECONDS_MAX, stopped).await {
                Some(Ok(())) => None,
                Some(Err(error)) => Some(error.to_string()),
                None => Some("not in time".to_owned()),
            };
            // What is there all the same is not thrown away: a wake says so where it cannot be used.
            layer = match &problem {
                None => true,
                Some(_) => self.is_kept(sandbox).await,
            };
            if let Some(cause) = problem {
                tracing::error!(session = %self.id, cause, layer, "the write layer was not kept well");
            }
        }
        if !layer {
            self.remove(sandbox).await;
        }
        self.let_go(sandbox);
        self.mark_used().await;
        let standing = if layer || files_outside {
            Standing::Hibernated {
                layer: layer.then(|| sandbox.clone()),
                since: self.shared.clock.now(),
            }
        } else {
            Standing::Lost
        };
        if let Err(cause) = self.write_down(standing).await {
            tracing::error!(session = %self.id, cause, "that its sandbox ended was not written down");
        }
        layer
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
        // From here on there is no way back; what is begun is finished, by the next daemon if need be.
        if let Err(cause) = self.write_down(Standing::Closing { purge }).await {
            tracing::error!(session = %self.id, cause, "that it is being closed was not written down");
        }
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
        // What could not be purged stays on record: the next start tries again.
        if cause.is_none()
            && let Err(error) = self.strike_out().await
        {
            cause = Some(error);
        }
        self.report_cause(Event::Closed, cause);
    }

    async fn strike_out(&self) -> Result<(), String> {
        bounded(LEDGER_SECONDS_MAX, self.shared.ledger.remove(&self.id))
            .await
            .ok_or("not struck out in time")?
            .map_err(|e| e.to_string())
    }

    /// A workspace's time runs from its last use, not from the session's beginning.
    async fn mark_used(&self) {
        let touched = self.shared.workspaces.clone().touch(self.id.clone());
        let _ = bounded(WORKSPACE_SECONDS_MAX, touched).await;
    }

    /// Removes what is left of a sandbox. A sleeper's record names its layer no more before that goes.
    async fn clear(&self, sandbox: &SandboxId) {
        let standing = {
            let table = self.shared.table();
            match table.house.get(&self.id).map(|rental| &rental.state) {
                Some(State::Hibernated { layer: None, since }) => Some(Standing::Hibernated {
                    layer: None,
                    since: *since,
                }),
                Some(State::Lost) => Some(Standing::Lost),
                _ => None,
            }
        };
        if let Some(standing) = standing
            && let Err(cause) = self.write_down(standing).await
        {
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
