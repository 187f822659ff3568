//! How a sandbox goes: put away with what lives on, removed with every trace, and what is written down of it.

use super::{Owner, bounded};
use crate::backends::KeepLayer;
use crate::id::SandboxId;
use crate::limits::{LEDGER_SECONDS_MAX, STOP_SECONDS_MAX, WORKSPACE_SECONDS_MAX};
use crate::sessions::journal;
use crate::sessions::ledger::Standing;
use crate::sessions::life::{self, Going, Sleep};
use crate::sessions::reaper::Claim;
use crate::sessions::state::{Event, State};

impl Owner {
    pub(super) async fn stop(&mut self, sandbox: SandboxId) {
        let layer = self.put_away(&sandbox).await;
        self.say_slept(layer, None);
        self.report(Event::Stopped { layer });
    }

    /// As [`Owner::stop`], for the daemon's end: what is not written yet is written first.
    pub(super) async fn suspend(&mut self, sandbox: SandboxId) {
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

    /// Whether the backend has a layer of this sandbox, and nothing that still writes into it. A backend that cannot be
    /// asked, such as an engine that is away, may have it: to take it for gone would have the next wake replace it.
    async fn is_kept(&self, sandbox: &SandboxId) -> bool {
        let listed = bounded(STOP_SECONDS_MAX, self.shared.backend.list()).await;
        let Some(Ok(found)) = listed else {
            return true;
        };
        let mut kept = found.iter().filter(|found| !found.running);
        kept.any(|found| found.id == *sandbox)
    }

    pub(super) async fn end(&mut self, sandbox: Option<SandboxId>, purge: bool) {
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

    pub(super) async fn strike_out(&self) -> Result<(), String> {
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
    pub(super) async fn clear(&self, sandbox: &SandboxId) {
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
    pub(super) async fn remove(&self, sandbox: &SandboxId) {
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
