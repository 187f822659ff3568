//! What makes the double misbehave.

use super::super::{CreateError, Hits, Meter, Room};
use crate::id::SandboxId;
use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Semaphore, watch};

/// Switches of the whole double.
#[derive(Debug, Default)]
pub struct Switches {
    set: Mutex<Set>,
}

#[derive(Debug, Default)]
struct Set {
    create_fails: Option<String>,
    create_panics: bool,
    keep_fails: bool,
    layers_torn: bool,
    create_gate: Option<Arc<Semaphore>>,
    stop_gate: Option<Arc<Semaphore>>,
    prepare_gate: Option<Arc<Semaphore>>,
    create_delay: Duration,
    create_attempts: u64,
    room: Option<Room>,
    missing: HashMap<String, String>,
    sandboxes: HashMap<SandboxId, Arc<SandboxSwitches>>,
}

/// Switches of one sandbox.
#[derive(Debug, Default)]
pub(super) struct SandboxSwitches {
    /// Answers nothing any more.
    silent: AtomicBool,
    /// Writes garbage onto the link.
    garbage: AtomicBool,
    /// Runs neither end by their deadline nor by a stop.
    deaf: AtomicBool,
    /// File operations are answered with something else.
    lies: AtomicBool,
    /// So many bytes more, or less, than there are is what files are said to have.
    size_off: AtomicI64,
    /// Output limits are not kept.
    floods: AtomicBool,
    /// What the meter shows.
    memory_kills: AtomicU64,
    process_refusals: AtomicU64,
    overfills: watch::Sender<u64>,
    full: AtomicBool,
}

impl Meter for SandboxSwitches {
    fn hits(&self) -> Hits {
        Hits {
            memory_kills: Some(self.memory_kills.load(Ordering::Relaxed)),
            process_refusals: Some(self.process_refusals.load(Ordering::Relaxed)),
        }
    }
    fn overfills(&self) -> watch::Receiver<u64> {
        self.overfills.subscribe()
    }
    fn stir(&self) {}
    fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }
}

impl SandboxSwitches {
    pub(super) fn is_silent(&self) -> bool {
        self.silent.load(Ordering::Relaxed)
    }
    pub(super) fn is_deaf(&self) -> bool {
        self.deaf.load(Ordering::Relaxed)
    }
    pub(super) fn lies(&self) -> bool {
        self.lies.load(Ordering::Relaxed)
    }
    pub(super) fn size_off(&self) -> i64 {
        self.size_off.load(Ordering::Relaxed)
    }
    pub(super) fn floods(&self) -> bool {
        self.floods.load(Ordering::Relaxed)
    }
}

impl Switches {
    fn set(&self) -> MutexGuard<'_, Set> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sandboxes do not start, for this cause; `None` mends it.
    pub fn fail_creates(&self, cause: Option<&str>) {
        self.set().create_fails = cause.map(str::to_owned);
    }

    /// How much memory the host has for a pool.
    pub fn leave_room(&self, room: Room) {
        self.set().room = Some(room);
    }

    pub(super) fn room(&self) -> Room {
        self.set().room.unwrap_or(Room::Enough)
    }

    /// Making a sandbox panics.
    pub fn panic_in_create(&self, on: bool) {
        self.set().create_panics = on;
    }

    /// A stop that keeps the layer says that it failed, although the layer is there.
    pub fn fail_keeps(&self, on: bool) {
        self.set().keep_fails = on;
    }

    /// The host went down while the layers were in use.
    pub fn tear_layers(&self, on: bool) {
        self.set().layers_torn = on;
    }

    pub(super) fn layers_are_torn(&self) -> bool {
        self.set().layers_torn
    }

    pub(super) fn keep_fails(&self) -> bool {
        self.set().keep_fails
    }

    /// Each sandbox takes so long to start.
    pub fn delay_creates(&self, by: Duration) {
        self.set().create_delay = by;
    }

    /// No sandbox starts until the answer is let go; each permit added to it lets one start.
    pub fn hold_creates(&self) -> Arc<Semaphore> {
        let gate = Arc::new(Semaphore::new(0));
        self.set().create_gate = Some(gate.clone());
        gate
    }

    /// No sandbox stops until permits are added to the answer, one for each.
    pub fn hold_stops(&self) -> Arc<Semaphore> {
        let gate = Arc::new(Semaphore::new(0));
        self.set().stop_gate = Some(gate.clone());
        gate
    }

    /// No image is ready until the gate is opened or given permits.
    pub fn hold_prepares(&self) -> Arc<Semaphore> {
        let gate = Arc::new(Semaphore::new(0));
        self.set().prepare_gate = Some(gate.clone());
        gate
    }

    /// The gates are open again.
    pub fn release(&self) {
        let mut set = self.set();
        let gates = [
            set.create_gate.take(),
            set.stop_gate.take(),
            set.prepare_gate.take(),
        ];
        for gate in gates.into_iter().flatten() {
            gate.close();
        }
    }

    /// How many times a sandbox was to be made.
    pub fn create_attempts(&self) -> u64 {
        self.set().create_attempts
    }

    /// The image of this runtime is there again.
    pub fn find_image(&self, alias: &str) {
        self.set().missing.remove(alias);
    }

    /// The image of this runtime is missing, for this cause.
    pub fn miss_image(&self, alias: &str, how: &str) {
        self.set().missing.insert(alias.to_owned(), how.to_owned());
    }

    /// Every guest that exists falls silent.
    pub fn silence_guests(&self) {
        self.each(|switches| &switches.silent);
    }

    /// Every guest that exists writes garbage from now on.
    pub fn corrupt_links(&self) {
        self.each(|switches| &switches.garbage);
    }

    /// Every guest that exists keeps no deadline and hears no stop.
    pub fn deafen_guests(&self) {
        self.each(|switches| &switches.deaf);
    }

    /// Every guest that exists answers file operations with something else.
    pub fn make_guests_lie(&self) {
        self.each(|switches| &switches.lies);
    }

    /// Every guest that exists says of a file that is read that it has so many bytes more than it has, or less.
    pub fn misstate_sizes(&self, by: i64) {
        for switches in self.set().sandboxes.values() {
            switches.size_off.store(by, Ordering::Relaxed);
        }
    }

    /// Every guest that exists ignores output limits.
    pub fn let_guests_flood(&self) {
        self.each(|switches| &switches.floods);
    }

    /// The meters of every sandbox that exists count a kill for memory.
    pub fn count_memory_kill(&self) {
        for switches in self.set().sandboxes.values() {
            switches.memory_kills.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The meters of every sandbox that exists count a refused process.
    pub fn count_process_refusal(&self) {
        for switches in self.set().sandboxes.values() {
            switches.process_refusals.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What every sandbox that exists stores is found over its ceiling.
    pub fn overfill(&self) {
        for switches in self.set().sandboxes.values() {
            switches.full.store(true, Ordering::Relaxed);
            switches.overfills.send_modify(|count| *count += 1);
        }
    }

    fn each(&self, which: impl Fn(&SandboxSwitches) -> &AtomicBool) {
        for switches in self.set().sandboxes.values() {
            which(switches).store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn note(&self, id: &SandboxId, switches: Arc<SandboxSwitches>) {
        self.set().sandboxes.insert(id.clone(), switches);
    }

    pub(super) fn forget(&self, id: &SandboxId) {
        self.set().sandboxes.remove(id);
    }

    pub(super) fn missing_image(&self, alias: &str) -> Option<String> {
        self.set().missing.get(alias).cloned()
    }

    pub(super) async fn before_create(&self) -> Result<(), CreateError> {
        let (gate, delay) = {
            let mut set = self.set();
            set.create_attempts += 1;
            (set.create_gate.clone(), set.create_delay)
        };
        pass(gate).await;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let (fails, panics) = {
            let set = self.set();
            (set.create_fails.clone(), set.create_panics)
        };
        assert!(!panics, "the double was told to panic");
        match fails {
            Some(cause) => Err(CreateError::Step {
                step: "start".to_owned(),
                cause,
            }),
            None => Ok(()),
        }
    }

    pub(super) async fn before_stop(&self) {
        let gate = self.set().stop_gate.clone();
        pass(gate).await;
    }

    pub(super) async fn before_prepare(&self) {
        let gate = self.set().prepare_gate.clone();
        pass(gate).await;
    }
}

/// Waits at a gate, where there is one.
async fn pass(gate: Option<Arc<Semaphore>>) {
    if let Some(gate) = gate
        && let Ok(permit) = gate.acquire().await
    {
        permit.forget();
    }
}

/// A link whose guest's bytes can be turned into garbage.
#[derive(Debug)]
pub(super) struct Corruptible<L> {
    link: L,
    switches: Arc<SandboxSwitches>,
}

impl<L> Corruptible<L> {
    pub(super) fn new(link: L, switches: Arc<SandboxSwitches>) -> Self {
        Self { link, switches }
    }
}

impl<L: AsyncRead + Unpin> AsyncRead for Corruptible<L> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.link).poll_read(cx, buf)
    }
}

impl<L: AsyncWrite + Unpin> AsyncWrite for Corruptible<L> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.switches.garbage.load(Ordering::Relaxed) {
            let garbage = vec![0xA5; buf.len().min(4096)];
            return Pin::new(&mut self.link).poll_write(cx, &garbage);
        }
        Pin::new(&mut self.link).poll_write(cx, buf)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.link).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.link).poll_shutdown(cx)
    }
}
