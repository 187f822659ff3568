//! How a sandbox comes: what it is to be, the backend that makes it, its guest's first words, its record.

use super::{Held, Owner, bounded};
use crate::backends::{
    self, Enforced, KeepLayer, Meter, PreparedImage, Running, SandboxSpec, Taken,
};
use crate::id::SandboxId;
use crate::limits::{
    CONNECT_SECONDS_MAX, CREATE_SECONDS_MAX, PREPARE_SECONDS_MAX, STOP_SECONDS_MAX,
    WORKSPACE_SECONDS_MAX,
};
use crate::runtimes::Runtime;
use crate::runtimes::images::Untold;
use crate::sessions::detail::Detail;
use crate::sessions::ledger::Standing;
use crate::sessions::life;
use crate::sessions::spec::sandbox_spec;
use crate::sessions::state::{Event, State};
use crate::sessions::words::Happened;
use crate::telemetry::metrics::Start;
use sandboxd_protocol::client::{Client, LinkError};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// One that was made.
pub(super) struct Made {
    client: Client,
    enforced: Enforced,
    keeps: bool,
    meter: Arc<dyn Meter>,
    user: u32,
    spec: Arc<SandboxSpec>,
}

/// A sandbox that runs.
enum Reached {
    /// It was made before, and its guest has been greeted.
    Parked(Taken),
    /// It was made now.
    New(Running),
}

/// One whose guest has said its first words.
struct Greeted {
    client: Client,
    enforced: Enforced,
    meter: Arc<dyn Meter>,
    layer_is_torn: bool,
}

/// Why a guest was not greeted.
enum NotGreeted {
    /// The sandbox had ended before it said a word.
    Gone(String),
    /// Anything else.
    Failed(String),
}

impl From<NotGreeted> for String {
    fn from(why: NotGreeted) -> Self {
        match why {
            NotGreeted::Gone(cause) | NotGreeted::Failed(cause) => cause,
        }
    }
}

async fn greet(reached: Reached) -> Result<Greeted, NotGreeted> {
    let running = match reached {
        Reached::New(running) => running,
        Reached::Parked(taken) => {
            return Ok(Greeted {
                client: taken.client,
                enforced: taken.enforced,
                meter: taken.meter,
                layer_is_torn: false,
            });
        }
    };
    let connected = bounded(CONNECT_SECONDS_MAX, Client::connect(running.link)).await;
    let (client, _welcome) = match connected {
        Some(Ok(connected)) => connected,
        Some(Err(error @ LinkError::Gone)) => return Err(NotGreeted::Gone(error.to_string())),
        Some(Err(error)) => return Err(NotGreeted::Failed(error.to_string())),
        None => return Err(NotGreeted::Failed("the guest did not answer".to_owned())),
    };
    Ok(Greeted {
        client,
        enforced: running.enforced,
        meter: running.meter,
        layer_is_torn: running.layer_is_torn,
    })
}

impl Owner {
    pub(super) async fn create(&mut self, sandbox: SandboxId, layer: bool) {
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
                    detail.user = Some(made.user);
                    detail.spec = Some(made.spec);
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

    /// Ends what there is of a sandbox that did not start, and takes back what its record says of it.
    pub(super) async fn undo(&mut self, sandbox: &SandboxId, layer: bool) {
        if layer {
            // What was kept must survive the failure: the next request tries again.
            let stopped = self.shared.backend.stop(sandbox, KeepLayer::Yes);
            let _ = timeout(Duration::from_secs(STOP_SECONDS_MAX), stopped).await;
        } else {
            self.remove(sandbox).await;
        }
        if std::mem::take(&mut self.may_be_written) {
            self.take_back(sandbox, layer).await;
        }
    }

    /// Image, workspace, sandbox, guest, record: each with its deadline, each with its cause.
    ///
    /// The record is on disk before anybody hears of the sandbox, and is written while it is being made. Only where it will
    /// name a write layer it waits for that: one that names a layer that is not there would never wake again.
    async fn make(&mut self, sandbox: &SandboxId, layer: bool) -> Result<Made, String> {
        let spec = self.specify(sandbox, layer).await?;
        let standing = Standing::Resident {
            sandbox: sandbox.clone(),
            keeps: spec.keep_layer,
        };
        let (made, written) = if spec.keep_layer {
            let reached = self.obtain(sandbox, &spec, layer).await?;
            self.may_be_written = true;
            let this = &*self;
            let greeting = this.greet_kept(reached, sandbox, &spec, layer);
            tokio::join!(greeting, this.write_down(standing))
        } else {
            self.may_be_written = true;
            let this = &*self;
            let making = async {
                let reached = this.obtain(sandbox, &spec, layer).await?;
                greet(reached).await.map_err(String::from)
            };
            // The disk first: a parked sandbox is there before the record is.
            let (written, made) = tokio::join!(this.write_down(standing), making);
            (made, written)
        };
        let greeted = made?;
        written?;
        self.may_be_written = false;
        if greeted.layer_is_torn {
            self.say_torn(sandbox);
        }
        Ok(Made {
            client: greeted.client,
            enforced: greeted.enforced,
            meter: greeted.meter,
            keeps: spec.keep_layer,
            user: spec.user.unwrap_or(0),
            spec: Arc::new(spec),
        })
    }

    /// Greets the guest of a sandbox whose layer is kept. Where a kept one ended before its guest's first word, it is started
    /// once more: what a daemon that was killed had begun with it may end it under our hands, such as a container engine
    /// that closes the input of a container when whoever had attached to it first is gone.
    async fn greet_kept(
        &self,
        reached: Reached,
        sandbox: &SandboxId,
        spec: &SandboxSpec,
        layer: bool,
    ) -> Result<Greeted, String> {
        match greet(reached).await {
            Err(NotGreeted::Gone(cause)) if layer => {
                tracing::info!(session = %self.id, %sandbox, cause, "started once more");
                let stopping = self.shared.backend.stop(sandbox, KeepLayer::Yes);
                let stopped = bounded(STOP_SECONDS_MAX, stopping).await;
                stopped
                    .ok_or("it could not be ended in time")?
                    .map_err(|error| error.to_string())?;
                let again = self.obtain(sandbox, spec, layer).await?;
                greet(again).await.map_err(String::from)
            }
            greeted => greeted.map_err(String::from),
        }
    }

    /// A sandbox: from the pool, where it has just the one that is wanted, or a new one.
    async fn obtain(
        &self,
        sandbox: &SandboxId,
        spec: &SandboxSpec,
        layer: bool,
    ) -> Result<Reached, String> {
        if !layer && let Some(pool) = self.shared.backend.pool() {
            let taken = bounded(CREATE_SECONDS_MAX, pool.take(sandbox, spec)).await;
            let taken = taken.flatten();
            self.say_asked(taken.is_some());
            if let Some(taken) = taken {
                return Ok(Reached::Parked(taken));
            }
        }
        let start = if layer {
            backends::Start::KeptLayer
        } else {
            backends::Start::Fresh
        };
        let creating = self.shared.backend.create(sandbox, spec, start);
        bounded(CREATE_SECONDS_MAX, creating)
            .await
            .ok_or_else(|| format!("not started within {CREATE_SECONDS_MAX} s"))?
            .map(Reached::New)
            .map_err(|e| e.to_string())
    }

    /// Counts who asked a pool, and has it filled again.
    fn say_asked(&self, hit: bool) {
        let table = self.shared.table();
        let alias = table.details.get(&self.id).map(|d| d.alias.clone());
        let service = table.service.clone();
        drop(table);
        let Some(alias) = alias else { return };
        if crate::sessions::pool::size(&service, &alias) > 0 {
            self.shared.metrics.pool_asked(&alias, hit);
            self.shared.pool_asked.notify_one();
        }
    }

    /// What the sandbox is to be, with its image and its workspace ready.
    async fn specify(&self, sandbox: &SandboxId, layer: bool) -> Result<SandboxSpec, String> {
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
        let image = self.image(sandbox, layer, &runtime).await?;
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
        spec.session = Some(self.id.clone());
        Ok(spec)
    }

    /// The image of a sandbox: the one that its kept layer lies over, or what the runtime's is now. That may be a fetch or a
    /// build, which takes as long as it may take; but not for a session that is to end meanwhile.
    async fn image(
        &self,
        sandbox: &SandboxId,
        layer: bool,
        runtime: &Runtime,
    ) -> Result<PreparedImage, String> {
        if layer && let Some(image) = self.shared.backend.kept_image(sandbox).await {
            return Ok(image);
        }
        let progress = Untold::watcher();
        let prepared = self.shared.backend.prepare(runtime, &progress);
        tokio::select! {
            biased;
            prepared = bounded(PREPARE_SECONDS_MAX, prepared) => prepared
                .ok_or("the image was not ready in time")?
                .map_err(|e| e.to_string()),
            () = self.is_to_end() => Err("it ended before its image was ready".to_owned()),
        }
    }

    /// Until the session is closing, or gone.
    async fn is_to_end(&self) {
        let mut stage = {
            let table = self.shared.table();
            match table.details.get(&self.id) {
                Some(detail) if detail.serial == self.serial => detail.stage.subscribe(),
                _ => return,
            }
        };
        loop {
            let state = {
                let table = self.shared.table();
                stage.mark_unchanged();
                table.house.get(&self.id).map(|rental| rental.state.clone())
            };
            if matches!(state, None | Some(State::Closing { .. })) || stage.changed().await.is_err()
            {
                return;
            }
        }
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
}
