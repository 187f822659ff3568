//! Who rents what until when.
//!
//! A request walks: [`Sessions`] (asked by `api`) → `visit` (counted as in flight; wakes and heals) → `runs` or `files`
//! (what is done inside; `content` is a file on its way out) or `opening` (the checks of an open). What a session may become is decided in `state` and
//! `admission`, which are pure; `table` holds all of it, each session's `detail` too, under one lock that nobody holds over
//! I/O; `owner` makes and removes sandboxes, one task per session that holds one, and writes into the `ledger`, as the
//! `journal` does for what may be written a moment late; `recovery` takes up what an earlier daemon has written; `reaper`
//! ends what nobody uses, and `pool` keeps sandboxes ready for sessions to come: `chores`, which outlive a panic.

mod admission;
mod chores;
mod clock_jump;
mod content;
mod detail;
mod events;
mod files;
mod journal;
mod ledger;
mod life;
mod lifetime;
mod limited;
mod metered;
mod opening;
mod owner;
mod pool;
mod readiness;
mod reaper;
mod recovery;
mod runs;
mod spec;
mod state;
mod table;
mod usage;
mod visit;
mod words;

pub(crate) use content::Origin;
pub use content::{BrokenOff, Content, Pieces};
pub(crate) use files::Found;
pub use ledger::{Activity, Ledger, LedgerError, MemoryLedger, Record, Recorded, Standing};
pub use limited::{Limit, Limited, Meanwhile, RunEnd};
pub use readiness::Readiness;
pub use spec::{SpecError, sandbox_spec};
pub use words::*;

use crate::auth::session_tokens::SessionTokens;
use crate::backends::{Backend, Ceiling, Enforcement};
use crate::clock::Clock;
use crate::config::Service;
use crate::id::{RunId, SessionId};
use crate::limits::{
    PREPARE_SECONDS_MAX, PREWARM_PAUSE_SECONDS, SHUTDOWN_BACKEND_SECONDS, SHUTDOWN_SECONDS_MAX,
    WAKE_SECONDS_MAX,
};
use crate::runtimes::images::Untold;
use crate::runtimes::{Runtime, Source};
use crate::telemetry::metrics::{Metrics, SessionStates};
use crate::workspaces::Workspaces;
use bytes::Bytes;
use sandboxd_files::{Part, Wanted};
use state::{State, Why};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use table::Shared;
use tokio::time::timeout;

/// What the room is made of.
#[derive(Debug)]
pub struct Parts {
    /// What makes sandboxes.
    pub backend: Arc<dyn Backend>,
    /// The service's settings.
    pub service: Service,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// What derives the sessions' tokens (`store.session_tokens()`).
    pub tokens: SessionTokens,
}

/// All sessions of one daemon. Handlers ask and wait; the work itself belongs to the sessions' owner tasks, so that a
/// dropped future (a client that hung up) cancels nothing.
#[derive(Debug)]
pub struct Sessions {
    shared: Arc<Shared>,
    buildkit: bool,
}

impl Sessions {
    /// Opens the room: checks the settings, takes up the sessions on record, starts the reaper. Needs a Tokio runtime.
    ///
    /// # Errors
    /// [`StartError`]: settings that contradict each other, a workspace root that cannot be used, records that cannot be
    /// read.
    pub async fn start(parts: Parts) -> Result<Arc<Self>, StartError> {
        Self::start_with(parts, Arc::new(MemoryLedger::default())).await
    }

    /// As [`Sessions::start`], with a ledger of the caller's.
    ///
    /// # Errors
    /// As of [`Sessions::start`].
    pub async fn start_with(
        parts: Parts,
        ledger: Arc<dyn Ledger>,
    ) -> Result<Arc<Self>, StartError> {
        check(&parts.service)?;
        let capabilities = parts.backend.capabilities().await;
        let owner = capabilities.ceilings.get(&Ceiling::WorkspaceOwner);
        let buildkit = capabilities.buildkit;
        let in_range = matches!(owner, Some(Enforcement::Enforced(_)));
        let root = parts.service.workspace_root.clone();
        let workspaces = Workspaces::open(root, in_range).await;
        let workspaces = workspaces.map_err(|cause| StartError::WorkspaceRoot {
            path: parts.service.workspace_root.clone().unwrap_or_default(),
            cause,
        })?;
        let shared = Arc::new(Shared::new(
            parts.backend,
            parts.clock,
            parts.tokens,
            workspaces,
            ledger,
            parts.service,
        ));
        recovery::take_up(&shared).await?;
        chores::keep(&shared, "reaper", reaper::live);
        chores::keep(&shared, "journal", journal::live);
        chores::keep(&shared, "pool", pool::live);
        if shared.service().prewarm {
            chores::keep(&shared, "prewarm", prewarm);
        }
        Ok(Arc::new(Self { shared, buildkit }))
    }

    /// Opens a session, or takes an open one, as [`Open`] says. Waits until its sandbox runs.
    ///
    /// # Errors
    /// [`OpenError`], checked in the contract's order; nothing is left of an open that failed.
    pub async fn open(&self, ask: Open) -> Result<Opened, OpenError> {
        opening::open(&self.shared, ask).await
    }

    /// Whether images are built by BuildKit.
    pub const fn buildkit(&self) -> bool {
        self.buildkit
    }

    /// One session, without touching it. A session that is still being opened is not there yet.
    pub fn get(&self, id: &SessionId) -> Option<View> {
        let now = self.shared.clock.now();
        self.shared.table().view(id, now)
    }

    /// All sessions, in order of creation.
    pub fn list(&self) -> Vec<View> {
        let now = self.shared.clock.now();
        let table = self.shared.table();
        let mut all: Vec<(u64, View)> = table
            .house
            .iter()
            .filter_map(|(id, rental)| Some((rental.serial, table.view(id, now)?)))
            .collect();
        drop(table);
        all.sort_by_key(|(serial, _)| *serial);
        all.into_iter().map(|(_, view)| view).collect()
    }

    /// A usage sample of each, at most five seconds old; none for one that sleeps or cannot be sampled.
    pub async fn usage(&self, ids: &[SessionId]) -> Vec<Option<UsageView>> {
        usage::usage(&self.shared, ids).await
    }

    /// What the sandboxes that run have stored together, in bytes, as far as it was counted. Samples first, as
    /// [`Sessions::usage`] does.
    pub async fn stored_bytes(&self) -> u64 {
        let all: Vec<SessionId> = {
            let table = self.shared.table();
            table.house.iter().map(|(id, _)| id.clone()).collect()
        };
        usage::usage(&self.shared, &all).await;
        usage::stored(&self.shared)
    }

    /// Whether `presented` is the token of this session; compared in constant time, and an unknown id takes as long.
    pub fn check_token(&self, id: &SessionId, presented: &[u8]) -> bool {
        let nonce = {
            let table = self.shared.table();
            table.visible(id).map(|(_, detail)| detail.nonce)
        };
        self.shared.tokens.check(id, nonce.as_ref(), presented)
    }

    /// Runs a program to its end; heals and wakes first. Logged as `run`.
    ///
    /// # Errors
    /// [`UseError`]; [`UseError::Gone`] where the sandbox went before or during the run.
    pub async fn run(&self, id: &SessionId, ask: RunAsk) -> Result<RunDone, UseError> {
        self.run_told(id, ask).await.map(|ran| ran.done)
    }

    /// As [`Sessions::run`], with what is known of the limits that it ran into.
    ///
    /// # Errors
    /// As of [`Sessions::run`].
    pub async fn run_told(&self, id: &SessionId, ask: RunAsk) -> Result<Ran, UseError> {
        runs::run(&self.shared, id, ask).await
    }

    /// Stops a run by its id: waits up to a second for it to appear; an unknown one is fine. Never queued behind runs.
    ///
    /// # Errors
    /// [`UseError::NotFound`].
    pub async fn stop_run(&self, id: &SessionId, run: &RunId) -> Result<(), UseError> {
        runs::stop(&self.shared, id, run).await
    }

    /// `sh -c` in the work directory with one merged stream (era A). `timeout_seconds` as the client sent it: clamped
    /// to the service's ceiling, which is also the default; 0 means the ceiling; negatives answer 125. Logged as `exec`.
    ///
    /// # Errors
    /// [`UseError`]; [`UseError::Ceiling`] where the command's turn did not come in its time.
    pub async fn exec(
        &self,
        id: &SessionId,
        command: String,
        timeout_seconds: Option<i64>,
    ) -> Result<ExecDone, UseError> {
        runs::exec(&self.shared, id, command, timeout_seconds).await
    }

    /// A program that the service itself needs inside (`find`, `grep`): as [`Sessions::run`], and not logged.
    ///
    /// # Errors
    /// As [`Sessions::run`].
    pub async fn search(
        &self,
        id: &SessionId,
        argv: Vec<String>,
        timeout: Duration,
    ) -> Result<RunDone, UseError> {
        let ran = runs::search(&self.shared, id, argv, timeout).await;
        ran.map(|ran| ran.done)
    }

    /// A native file operation (era B) on an absolute path as the sandbox sees it; never wakes, counts as activity.
    /// Logged under its own name.
    ///
    /// # Errors
    /// [`NativeError`]: the contract's table of answers.
    pub async fn native(
        &self,
        id: &SessionId,
        path: &str,
        op: NativeFile,
    ) -> Result<NativeDone, NativeError> {
        files::native(&self.shared, id, path, op).await
    }

    /// Whether native writes are possible for this session: native files are on, and its runs are root's.
    pub fn native_writes(&self, id: &SessionId) -> bool {
        let table = self.shared.table();
        let on = table.service.native_files && self.shared.workspaces.is_on();
        let writes = table
            .visible(id)
            .is_some_and(|(_, detail)| files::native_writes(&table.service, detail));
        on && writes
    }

    /// A file operation of era A; heals and wakes first. Not logged: the caller knows how it came out
    /// ([`Sessions::record_event`]).
    ///
    /// # Errors
    /// [`FollowError`]; [`UseError::Ceiling`] where it outlasts the service's ceiling (it goes on).
    pub async fn follow(
        &self,
        id: &SessionId,
        path: &str,
        op: FollowFile,
    ) -> Result<FollowDone, FollowError> {
        files::follow(&self.shared, id, path, op).await
    }

    /// Writes a row of the activity log; nothing for a session that is gone.
    pub fn record_event(&self, id: &SessionId, event: Happened) {
        self.shared.log(id, None, event);
    }

    /// The rows after `after`, and the highest number ever given; those that are not in memory are read from the ledger.
    ///
    /// # Errors
    /// [`UseError::NotFound`]; [`UseError::NotRead`].
    pub async fn events(&self, id: &SessionId, after: u64) -> Result<(Vec<Event>, u64), UseError> {
        journal::events(&self.shared, id, after).await
    }

    /// Closes a session; `purge` removes its stored workspace too, also of a session that is closed already. Waits until
    /// it is done; goes on if nobody waits.
    ///
    /// # Errors
    /// [`UseError::NotFound`], also of one that is being opened or closed; [`UseError::NotRemoved`].
    pub async fn delete(&self, id: &SessionId, purge: bool) -> Result<(), UseError> {
        let not_found = || UseError::NotFound(id.clone());
        let found = {
            let table = self.shared.table();
            let visible = table.visible(id);
            visible.map(|(rental, detail)| (rental.serial, detail.stage.subscribe()))
        };
        let Some((serial, mut stage)) = found else {
            return match purge {
                true => reaper::purge_closed(&self.shared, id).await,
                false => Err(not_found()),
            };
        };
        let close = state::Event::Close(Why::Delete { purge });
        let closing = self.shared.report(id, serial, close);
        closing.map_err(|_| not_found())?;
        let closed = timeout(Duration::from_secs(WAKE_SECONDS_MAX), async {
            while stage.changed().await.is_ok() {}
        });
        let not_removed = |cause: String| UseError::NotRemoved {
            id: id.clone(),
            cause,
        };
        closed
            .await
            .map_err(|_| not_removed("not closed in time".to_owned()))?;
        let left = stage.borrow().left.clone();
        left.map_or(Ok(()), |cause| Err(not_removed(cause)))
    }

    /// Puts a session to sleep, and waits until it sleeps. One that sleeps already is fine.
    ///
    /// # Errors
    /// [`UseError::NotFound`]; [`UseError::NotAsleep`] with the reason where it cannot sleep now, or did not get to.
    pub async fn hibernate(&self, id: &SessionId) -> Result<(), UseError> {
        lifetime::hibernate(&self.shared, id).await
    }

    /// Sets a session's end anew: `ttl` from now, or never. Written down when this returns.
    ///
    /// # Errors
    /// [`UseError::NotFound`]; [`UseError::NotWritten`], and it ends when it would have.
    pub async fn renew(&self, id: &SessionId, ttl: Option<Duration>) -> Result<(), UseError> {
        lifetime::renew(&self.shared, id, ttl).await
    }

    /// The settings in force.
    pub fn service(&self) -> Arc<Service> {
        self.shared.service()
    }

    /// Puts other settings in force; sandboxes that run keep theirs.
    ///
    /// # Errors
    /// [`StartError::Settings`], and nothing has changed.
    pub fn update_service(&self, service: Service) -> Result<(), StartError> {
        check(&service)?;
        let mut table = self.shared.table();
        if service.workspace_root != table.service.workspace_root {
            return Err(StartError::Settings(
                "workspace_root cannot change while the service runs".to_owned(),
            ));
        }
        table.service = Arc::new(service);
        drop(table);
        self.shared.pool_asked.notify_one();
        Ok(())
    }

    /// How many sandboxes are kept ready for sessions to come, by runtime.
    pub fn parked(&self) -> BTreeMap<String, usize> {
        let pool = self.shared.backend.pool();
        pool.map(|pool| pool.ready()).unwrap_or_default()
    }

    /// What is counted and timed of this service.
    pub fn metrics(&self) -> Arc<Metrics> {
        self.shared.metrics.clone()
    }

    /// Whether each part that this room depends on can serve.
    pub async fn readiness(&self) -> Vec<Readiness> {
        readiness::ask(&self.shared).await
    }

    /// How many sessions there are of each kind.
    pub fn states(&self) -> SessionStates {
        self.shared.table().states()
    }

    /// How many sessions there are.
    pub fn counts(&self) -> Counts {
        let table = self.shared.table();
        Counts {
            resident: table.house.slots(),
            open: table.house.open_count(),
        }
    }

    /// The stored workspace of an id, one directory as far as wanted; starts nothing. Directories first, then by name;
    /// links left out.
    ///
    /// # Errors
    /// [`ArchiveError`].
    pub async fn archive_list(
        &self,
        id: &SessionId,
        path: &str,
        wanted: Wanted,
    ) -> Result<Part, ArchiveError> {
        let work_dir = self.shared.service().work_dir.clone();
        let workspaces = self.shared.workspaces.clone();
        workspaces
            .archive_list(id.clone(), path.to_owned(), work_dir, wanted)
            .await
    }

    /// The stored workspace of an id, one file, at most `max_read_bytes`; starts nothing.
    ///
    /// # Errors
    /// [`ArchiveError`].
    pub async fn archive_read(&self, id: &SessionId, path: &str) -> Result<Bytes, ArchiveError> {
        let service = self.shared.service();
        let workspaces = self.shared.workspaces.clone();
        workspaces
            .archive_read(
                id.clone(),
                path.to_owned(),
                service.work_dir.clone(),
                service.max_read_bytes,
            )
            .await
    }

    /// Refuses new sessions from now on, and waits until no operation is under way.
    pub async fn finish(&self) {
        self.shared.table().stopping = true;
        loop {
            // Enabled before the look, so that an end between the two is heard.
            let mut left = std::pin::pin!(self.shared.left.notified());
            left.as_mut().enable();
            if self.operations() == 0 {
                return;
            }
            left.await;
        }
    }

    /// How many operations are under way.
    pub fn operations(&self) -> u64 {
        let table = self.shared.table();
        let uses = table.house.iter().map(|(_, rental)| u64::from(rental.uses));
        uses.sum()
    }

    /// Refuses what is new, ends every sandbox (all at once), and waits for it, within a bound. The sessions stay on record:
    /// the next daemon takes them up.
    pub async fn shutdown(&self) {
        let shared = &self.shared;
        let all: Vec<(SessionId, u64)> = {
            let mut table = shared.table();
            table.stopping = true;
            let each = table.house.iter();
            each.map(|(id, rental)| (id.clone(), rental.serial))
                .collect()
        };
        shared.stopping.cancel();
        for (id, serial) in all {
            // One that sleeps, or is being closed already, needs nothing more.
            let _ = shared.report(&id, serial, state::Event::Suspend);
        }
        shared.tasks.close();
        let patience = SHUTDOWN_SECONDS_MAX - SHUTDOWN_BACKEND_SECONDS;
        let owners = timeout(Duration::from_secs(patience), shared.tasks.wait());
        if owners.await.is_err() {
            tracing::error!(
                "some sessions did not end in time; their sandboxes end with the daemon"
            );
        }
        if let Err(cause) = journal::write_all(shared).await {
            tracing::error!(cause, "the last activity was not written down");
        }
        let rest = Duration::from_secs(SHUTDOWN_BACKEND_SECONDS);
        let backend = timeout(rest, shared.backend.shutdown());
        if backend.await.is_err() {
            tracing::error!(backend = shared.backend.name(), "did not end in time");
        }
    }

    /// Runs one pass of the reaper now (it runs by itself every `cleanup_interval`).
    pub async fn sweep(&self) {
        reaper::pass(&self.shared).await;
    }

    /// Whether a session sleeps (its sandbox is gone, not only going).
    pub fn is_hibernated(&self, id: &SessionId) -> bool {
        let table = self.shared.table();
        let rental = table.house.get(id);
        rental.is_some_and(|rental| matches!(rental.state, State::Hibernated { .. }))
    }
}

/// Makes the images of the allowlist ready before somebody waits for them, one after the other. One that cannot be is
/// said by the open that asks for it.
async fn prewarm(shared: Arc<Shared>) {
    let service = shared.service();
    let all: Vec<Runtime> = service.runtimes.values().cloned().collect();
    for runtime in all {
        // A list that nobody wrote is no reason to ask a registry; whoever opens a session of it has one.
        if !service.runtimes_given && matches!(runtime.source, Source::Image(_)) {
            continue;
        }
        tokio::select! {
            () = shared.stopping.cancelled() => return,
            () = prewarm_one(&shared, &runtime) => {}
        }
    }
}

/// A build is tried twice: what it fetches comes from elsewhere, and may be there a moment later.
async fn prewarm_one(shared: &Shared, runtime: &Runtime) {
    let tries = match runtime.source {
        Source::Recipe(_) => 2,
        _ => 1,
    };
    for again in (0..tries).rev() {
        let limit = Duration::from_secs(PREPARE_SECONDS_MAX);
        let progress = Untold::watcher();
        let prepared = timeout(limit, shared.backend.prepare(runtime, &progress)).await;
        match prepared {
            Ok(Ok(_)) => {
                tracing::debug!(runtime = runtime.alias, "its image is ready");
                return;
            }
            Ok(Err(error)) => {
                tracing::info!(runtime = runtime.alias, %error, again, "its image is not ready");
            }
            Err(_) => {
                tracing::info!(runtime = runtime.alias, "its image was not ready in time");
                return;
            }
        }
        if again > 0 {
            tokio::time::sleep(Duration::from_secs(PREWARM_PAUSE_SECONDS)).await;
        }
    }
}

/// Settings that contradict each other.
fn check(service: &Service) -> Result<(), StartError> {
    if service.evict_idle_after.is_some() && service.workspace_root.is_none() {
        return Err(StartError::Settings(
            "evict_idle_after needs a workspace_root: without one, eviction loses files".to_owned(),
        ));
    }
    if let (Some(open), Some(resident)) = (service.max_open_sessions, service.max_sessions)
        && open < resident
    {
        return Err(StartError::Settings(format!(
            "max_open_sessions ({open}) is smaller than max_sessions ({resident})"
        )));
    }
    if !service.runtimes.contains_key(&service.default_runtime) {
        return Err(StartError::Settings(format!(
            "default_runtime {:?} is not on the allowlist",
            service.default_runtime
        )));
    }
    Ok(())
}
