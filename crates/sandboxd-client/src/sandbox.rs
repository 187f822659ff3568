//! A sandbox that opens by itself.

use crate::error::RequestError;
use crate::http::Ask;
use crate::limits::{MARGIN, STOP_TIMEOUT};
use crate::opening::{Open, OpenError, Plan};
use crate::run::{Command, Ending, Output, RunError, RunId};
use crate::service::{session_path, usage_query};
use crate::shell::Shell;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use sandboxd_api::policy::ServicePolicy;
use sandboxd_api::run::{RunRequest, RunResponse};
use sandboxd_api::sessions::SessionInfo;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;

type Opening = Shared<BoxFuture<'static, Result<Arc<Open>, OpenError>>>;

/// Where a sandbox is on its way.
#[derive(Debug)]
enum State {
    /// Not opened, or stopped.
    Closed,
    /// On its way, for everybody who waits.
    Opening(Opening),
    /// Open, as far as we know.
    Open(Arc<Open>),
}

#[derive(Debug)]
struct Inner {
    plan: Plan,
    /// Guards who opens; never held while something is awaited.
    state: Mutex<State>,
}

/// A sandbox that opens when it is first used, once, whoever comes first. Cheap to clone; clones are the same sandbox.
///
/// Opening goes on when the caller who began it goes away, so that a session is not lost that the service has already
/// made. When the last clone is dropped, an open under way is given up; an open session stays with the service until it
/// is stopped, purged, or idle for too long.
#[derive(Debug, Clone)]
pub struct Sandbox {
    inner: Arc<Inner>,
}

/// Ends the task of an open that nobody waits for any more.
struct Owned<T>(JoinHandle<T>);

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Sandbox {
    pub(crate) fn new(plan: Plan) -> Self {
        let state = Mutex::new(State::Closed);
        Self {
            inner: Arc::new(Inner { plan, state }),
        }
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.inner.plan
    }

    /// Opens the session now, if it is not open.
    ///
    /// # Errors
    /// Where it does not open.
    pub async fn start(&self) -> Result<(), OpenError> {
        self.open().await.map(drop)
    }

    /// The session's id: the one that was asked for, or, once it is open, the one that the service gave it.
    #[must_use]
    pub fn session_id(&self) -> Option<String> {
        match self.opened() {
            Some(open) => Some(open.session_id.clone()),
            None => self.plan().which.id().map(str::to_owned),
        }
    }

    /// What the service allowed when the session opened.
    ///
    /// # Errors
    /// Where it does not open.
    pub async fn policy(&self) -> Result<Option<ServicePolicy>, OpenError> {
        Ok(self.open().await?.policy.clone())
    }

    /// The longest that a run may take.
    ///
    /// # Errors
    /// Where the session does not open.
    pub async fn execute_timeout(&self) -> Result<Duration, OpenError> {
        Ok(self.open().await?.execute_timeout)
    }

    /// What the service shows of the session, with a usage sample where `usage` asks for it. Opens nothing: `None` where
    /// the sandbox was not opened yet.
    ///
    /// # Errors
    /// Where the session is gone or there is no usable answer.
    pub async fn info(&self, usage: bool) -> Result<Option<SessionInfo>, RequestError> {
        let Some(open) = self.opened() else {
            return Ok(None);
        };
        let path = session_path(&open.session_id, usage_query(usage));
        let ask = Ask::get(path, Some(&open.token), self.plan().request_timeout);
        self.http().fetch(ask, "a session").await.map(Some)
    }

    /// Puts the session to sleep, and returns once it sleeps; its next use wakes it. Opens nothing: `None` where the sandbox
    /// was not opened yet.
    ///
    /// # Errors
    /// Where it cannot sleep now (409, with the reason) or there is no usable answer.
    pub async fn hibernate(&self) -> Result<Option<SessionInfo>, RequestError> {
        let Some(open) = self.opened() else {
            return Ok(None);
        };
        let service = &self.plan().service;
        let slept = service.put_to_sleep(&open.session_id, Some(&open.token));
        slept.await.map(Some)
    }

    /// Runs a program to its end.
    ///
    /// If this future is dropped or the connection breaks, the service is asked to stop the run.
    ///
    /// # Errors
    /// Where the session does not open or is gone, or the program was ended by its deadline or for its output.
    pub async fn run(&self, command: &Command) -> Result<Output, RunError> {
        command.check()?;
        let open = self.open().await?;
        let asked = command.timeout;
        let ceiling = open.execute_timeout;
        let within = asked.map_or(ceiling, |asked| asked.min(ceiling)) + MARGIN;
        let run_id = command.run_id.clone().unwrap_or_else(RunId::fresh);
        let mut env = self.plan().env.clone();
        env.extend(command.env.clone());
        let request = RunRequest {
            argv: command.argv.clone(),
            env,
            timeout_seconds: asked.map(|asked| asked.as_secs_f64()),
            run_id: run_id.to_string(),
        };
        let ask = Ask::post(
            session_path(&open.session_id, "/run"),
            Some(&open.token),
            within,
        );
        let mut guard = StopOnDrop {
            sandbox: self,
            open: &open,
            run_id: &run_id,
            armed: true,
        };
        let answer: Result<RunResponse, _> = self
            .http()
            .fetch(ask.json(&request), "the outcome of a run")
            .await;
        guard.armed = matches!(&answer, Err(error) if error.in_transit());
        drop(guard);
        Ending { asked, ceiling }.of(answer)
    }

    /// Asks the service to stop a run. A run that is unknown or over is stopped already.
    ///
    /// # Errors
    /// Where the session does not open or is gone, or there is no usable answer.
    pub async fn stop_run(&self, run_id: &RunId) -> Result<(), RunError> {
        let open = self.open().await?;
        self.send_stop(&open, run_id, self.plan().request_timeout)
            .await?;
        Ok(())
    }

    async fn send_stop(
        &self,
        open: &Open,
        run_id: &RunId,
        within: Duration,
    ) -> Result<(), RequestError> {
        let path = session_path(&open.session_id, &format!("/runs/{run_id}/stop"));
        let ask = Ask::post(path, Some(&open.token), within);
        self.http().send(ask).await.map(drop)
    }

    /// The work directory as the sandbox sees it; asked for once.
    ///
    /// # Errors
    /// As [`Sandbox::run`].
    pub async fn working_dir(&self) -> Result<String, RunError> {
        let open = self.open().await?;
        let asked = open.working_dir.get_or_try_init(|| async {
            let output = self.run(&Command::new(["sh", "-c", "pwd -P"])).await?;
            if output.exit_code != 0 {
                return Err(RunError::NoWorkingDirectory(output));
            }
            Ok(output
                .stdout
                .strip_suffix('\n')
                .unwrap_or(&output.stdout)
                .to_owned())
        });
        asked.await.cloned()
    }

    /// The older routes of the same session: one shell command with both streams merged, and what goes with it.
    #[must_use]
    pub fn shell(&self) -> Shell<'_> {
        Shell::new(self)
    }

    /// Closes the session and keeps its stored files. The next use opens it anew. Does nothing where it is not open.
    ///
    /// # Errors
    /// Where there is no usable answer. A session that is gone is closed.
    pub async fn stop(&self) -> Result<(), RequestError> {
        self.end(false).await
    }

    /// Closes the session and deletes its stored files. A named or attached session that this sandbox did not open yet
    /// is opened for it.
    ///
    /// # Errors
    /// Where it does not open for another reason than that there is nothing, or there is no usable answer.
    pub async fn purge(&self) -> Result<(), OpenError> {
        if self.plan().which.id().is_some() {
            match self.open().await {
                Ok(_) => {}
                Err(OpenError::NothingToAttachTo { .. }) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(self.end(true).await?)
    }

    async fn end(&self, purge: bool) -> Result<(), RequestError> {
        let before = std::mem::replace(&mut *self.state(), State::Closed);
        let open = match before {
            State::Closed => return Ok(()),
            State::Open(open) => open,
            // What did not open needs no end.
            State::Opening(opening) => match opening.await {
                Ok(open) => open,
                Err(_) => return Ok(()),
            },
        };
        let plan = self.plan();
        // A purge outlives the session: with the service's token it also works where the session's has gone stale.
        let token = if purge {
            plan.service.token.as_ref()
        } else {
            Some(&open.token)
        };
        let done = plan
            .service
            .delete(&open.session_id, purge, token, plan.request_timeout)
            .await;
        match done {
            Err(error) if matches!(error.status(), Some(404 | 410)) => Ok(()),
            // A stopped session's own token is as dead as the session.
            Err(error) if !purge && error.status() == Some(401) => Ok(()),
            other => other,
        }
    }

    /// The open session; opens it where it is not, once for all who ask meanwhile.
    pub(crate) async fn open(&self) -> Result<Arc<Open>, OpenError> {
        let opening = {
            let mut state = self.state();
            match &*state {
                State::Open(open) => return Ok(open.clone()),
                State::Opening(opening) => opening.clone(),
                State::Closed => {
                    let opening = self.begin();
                    *state = State::Opening(opening.clone());
                    opening
                }
            }
        };
        let outcome = opening.clone().await;
        let mut state = self.state();
        if matches!(&*state, State::Opening(current) if current.ptr_eq(&opening)) {
            *state = match &outcome {
                Ok(open) => State::Open(open.clone()),
                Err(_) => State::Closed,
            };
        }
        outcome
    }

    /// Begins to open, on a task that lives as long as somebody holds the answer: the state above, or a waiting caller.
    fn begin(&self) -> Opening {
        let mut task = Owned(tokio::spawn(self.plan().clone().open()));
        async move {
            match (&mut task.0).await {
                Ok(outcome) => outcome,
                Err(_) => Err(OpenError::Interrupted),
            }
        }
        .boxed()
        .shared()
    }

    pub(crate) fn opened(&self) -> Option<Arc<Open>> {
        match &*self.state() {
            State::Open(open) => Some(open.clone()),
            State::Opening(opening) => opening
                .peek()
                .and_then(|outcome| outcome.as_ref().ok().cloned()),
            State::Closed => None,
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.inner
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn http(&self) -> &crate::http::Http {
        &self.plan().service.http
    }
}

/// Asks for the stop of a run whose caller went away before the answer came.
struct StopOnDrop<'a> {
    sandbox: &'a Sandbox,
    open: &'a Arc<Open>,
    run_id: &'a RunId,
    armed: bool,
}

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        // Outside a runtime nothing can be sent; the run then ends at its deadline.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let (sandbox, open) = (self.sandbox.clone(), self.open.clone());
        let run_id = self.run_id.clone();
        // Owned by the runtime: it holds nothing but this request, and ends within the request's deadline.
        runtime.spawn(async move {
            let asked = sandbox.send_stop(&open, &run_id, STOP_TIMEOUT).await;
            drop(asked); // best effort: the service's own deadline ends the run anyway
        });
    }
}
