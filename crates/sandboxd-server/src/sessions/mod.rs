//! Who rents what until when.

mod words;

pub use words::*;

use crate::auth::session_tokens::SessionTokens;
use crate::backends::Backend;
use crate::clock::Clock;
use crate::config::Service;
use crate::id::{RunId, SessionId};
use bytes::Bytes;
use sandboxd_protocol::message::Entry;
use std::sync::Arc;
use std::time::Duration;

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
pub struct Sessions {}

impl Sessions {
    /// Opens the room: checks the settings, starts the reaper.
    pub async fn start(_parts: Parts) -> Result<Arc<Self>, StartError> {
        unimplemented!()
    }
    /// Opens a session, or takes an open one, as [`Open`] says. Waits until its sandbox runs.
    pub async fn open(&self, _ask: Open) -> Result<Opened, OpenError> {
        unimplemented!()
    }
    /// One session, without touching it. A session that is still being opened is not there yet.
    pub fn get(&self, _id: &SessionId) -> Option<View> {
        unimplemented!()
    }
    /// All sessions, in order of creation.
    pub fn list(&self) -> Vec<View> {
        unimplemented!()
    }
    /// A usage sample of each, at most five seconds old; none for one that sleeps or cannot be sampled.
    pub async fn usage(&self, _ids: &[SessionId]) -> Vec<Option<UsageView>> {
        unimplemented!()
    }
    /// Whether `presented` is the token of this session; compared in constant time, and an unknown id takes as long.
    pub fn check_token(&self, _id: &SessionId, _presented: &[u8]) -> bool {
        unimplemented!()
    }
    /// Runs a program to its end; heals and wakes first. Logged as `run`.
    pub async fn run(&self, _id: &SessionId, _ask: RunAsk) -> Result<RunDone, UseError> {
        unimplemented!()
    }
    /// Stops a run by its id: waits up to a second for it to appear; an unknown one is fine. Never queued behind runs.
    pub async fn stop_run(&self, _id: &SessionId, _run: &RunId) -> Result<(), UseError> {
        unimplemented!()
    }
    /// `sh -c` in the work directory with one merged stream (era A). `timeout_seconds` as the client sent it: clamped
    /// to the service's ceiling, which is also the default; 0 means the ceiling; negatives answer 125. Logged as `exec`.
    pub async fn exec(
        &self,
        _id: &SessionId,
        _command: String,
        _timeout_seconds: Option<i64>,
    ) -> Result<ExecDone, UseError> {
        unimplemented!()
    }
    /// A program that the service itself needs inside (`find`, `grep`): as [`Sessions::run`], with output cut instead
    /// of ended, and not logged.
    pub async fn search(
        &self,
        _id: &SessionId,
        _argv: Vec<String>,
        _timeout: Duration,
    ) -> Result<RunDone, UseError> {
        unimplemented!()
    }
    /// A native file operation (era B); never wakes, counts as activity. Logged under its own name.
    pub async fn native(
        &self,
        _id: &SessionId,
        _path: &str,
        _op: NativeFile,
    ) -> Result<NativeDone, NativeError> {
        unimplemented!()
    }
    /// Whether native writes are possible for this session (policy `native_writes`, its runtime's user).
    pub fn native_writes(&self, _id: &SessionId) -> bool {
        unimplemented!()
    }
    /// A file operation of era A; heals and wakes first. Not logged: the caller knows how it came out
    /// ([`Sessions::record_event`]).
    pub async fn follow(
        &self,
        _id: &SessionId,
        _path: &str,
        _op: FollowFile,
    ) -> Result<FollowDone, FollowError> {
        unimplemented!()
    }
    /// Writes a row of the activity log; nothing for a session that is gone.
    pub fn record_event(&self, _id: &SessionId, _event: Happened) {
        unimplemented!()
    }
    /// The rows after `after`, and the highest number ever given. `None` for no such session.
    pub fn events(&self, _id: &SessionId, _after: u64) -> Option<(Vec<Event>, u64)> {
        unimplemented!()
    }
    /// Closes a session; `purge` removes its stored workspace too. Waits until it is done.
    pub async fn delete(&self, _id: &SessionId, _purge: bool) -> Result<(), UseError> {
        unimplemented!()
    }
    /// The settings in force.
    pub fn service(&self) -> Arc<Service> {
        unimplemented!()
    }
    /// Puts other settings in force; sandboxes that run keep theirs.
    pub fn update_service(&self, _service: Service) -> Result<(), StartError> {
        unimplemented!()
    }
    /// How many sessions there are.
    pub fn counts(&self) -> Counts {
        unimplemented!()
    }
    /// The stored workspace of an id, one directory; starts nothing. Directories first, then by name; links left out.
    pub async fn archive_list(
        &self,
        _id: &SessionId,
        _path: &str,
    ) -> Result<Vec<Entry>, ArchiveError> {
        unimplemented!()
    }
    /// The stored workspace of an id, one file, at most `max_read_bytes`; starts nothing.
    pub async fn archive_read(&self, _id: &SessionId, _path: &str) -> Result<Bytes, ArchiveError> {
        unimplemented!()
    }
    /// Refuses what is new, ends every sandbox (all at once), and waits for it, within a bound.
    pub async fn shutdown(&self) {
        unimplemented!()
    }
}
