//! What is known of one session besides its life, and how little of it a sleeper needs.

use super::events::EventLog;
use super::ledger::Record;
use super::life::Going;
use super::state::Action;
use super::words::Labels;
use crate::auth::session_tokens::Nonce;
use crate::backends::{Enforced, Meter, NoMeter, SandboxSpec, Usage};
use crate::id::{RunId, SandboxId};
use crate::runtimes::Runtime;
use sandboxd_protocol::client::Client;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// What is known of a session besides its life.
#[derive(Debug)]
pub(super) struct Detail {
    pub(super) serial: u64,
    /// What its runtime is called.
    pub(super) alias: String,
    /// Its runtime; none where a restart did not find it on the allowlist any more.
    pub(super) runtime: Option<Arc<Runtime>>,
    pub(super) nonce: Nonce,
    /// What clients call it.
    pub(super) labels: Labels,
    pub(super) created: Duration,
    /// Whether its stored files have to be there already when it first opens.
    pub(super) attached: bool,
    pub(super) log: EventLog,
    /// On its way to sleep, and why.
    pub(super) going: Option<Going>,
    /// When its log last said that it was refused something.
    pub(super) refused: Option<Instant>,
    pub(super) sample: Option<Box<Sample>>,
    /// Kills for memory in the last sandbox that were seen.
    pub(super) kills: Option<(SandboxId, u64)>,
    pub(super) runs: Runs,
    /// The sandbox's guest, while the session is resident.
    pub(super) client: Option<Client>,
    /// What its ceilings have done.
    pub(super) meter: Arc<dyn Meter>,
    pub(super) enforced: Enforced,
    /// What its sandbox was made with.
    pub(super) spec: Option<Arc<SandboxSpec>>,
    /// The uid that runs have, once a sandbox has started.
    pub(super) user: Option<u32>,
    /// Whoever waits for a transition looks here; the owner says here why one failed.
    pub(super) stage: Board,
    /// The owner's mailbox, while there is an owner.
    pub(super) owner: Option<mpsc::Sender<Action>>,
}

/// Where waiters look. There is one only once somebody has looked, and not for sessions that sleep unwatched: most of
/// those that exist.
#[derive(Debug, Default)]
pub(super) struct Board(OnceLock<Box<watch::Sender<Stage>>>);

impl Board {
    fn sender(&self) -> &watch::Sender<Stage> {
        self.0.get_or_init(Box::default)
    }

    /// Hears of every change from now on.
    pub(super) fn subscribe(&self) -> watch::Receiver<Stage> {
        self.sender().subscribe()
    }

    /// Changes what stands there.
    pub(super) fn change(&self, change: impl FnOnce(&mut Stage)) {
        self.sender().send_modify(change);
    }

    /// Something else changed.
    pub(super) fn ring(&self) {
        if let Some(sender) = self.0.get() {
            sender.send_modify(|_| {});
        }
    }

    /// Takes it down where nobody looks; what stood there was for those who looked then.
    fn take_down_unwatched(&mut self) {
        if self
            .0
            .get()
            .is_some_and(|sender| sender.receiver_count() == 0)
        {
            self.0.take();
        }
    }
}

/// What waiters look at: it changes with every transition.
#[derive(Debug, Clone, Default)]
pub(super) struct Stage {
    /// How many times a sandbox of this session did not start.
    pub(super) failures: u64,
    /// Why the last one did not.
    pub(super) cause: Option<String>,
    /// Why something is left of the session, although it is closed.
    pub(super) left: Option<String>,
}

/// The last usage sample of a session.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    pub(super) sandbox: SandboxId,
    /// By the steady clock.
    pub(super) at: Duration,
    pub(super) usage: Option<Usage>,
    pub(super) cpu_percent: Option<f64>,
}

/// The runs that can be stopped by their ids; one id may be in use twice.
#[derive(Debug, Default)]
pub(super) struct Runs {
    pub(super) by_id: HashMap<RunId, Vec<Arc<RunSwitch>>>,
    /// Rings whenever a run appears; made when somebody waits for one.
    pub(super) appeared: OnceLock<Arc<Notify>>,
}

/// Stops one run, and says when it is over.
#[derive(Debug, Default)]
pub(super) struct RunSwitch {
    /// Asks it to stop.
    pub(super) stop: CancellationToken,
    /// It is over.
    pub(super) over: CancellationToken,
}

impl Detail {
    /// Keeps nothing in memory that a sleeper does not need.
    pub(super) fn rest(&mut self) {
        self.stage.take_down_unwatched();
        let is_waited_for = |appeared: &Arc<Notify>| Arc::strong_count(appeared) > 1;
        if self.runs.by_id.is_empty() && !self.runs.appeared.get().is_some_and(is_waited_for) {
            self.runs = Runs::default();
        }
    }

    /// Of a session that an earlier daemon has written down.
    pub(super) fn taken_up(
        serial: u64,
        record: Record,
        runtime: Option<Arc<Runtime>>,
        latest_event: u64,
    ) -> Self {
        Self {
            attached: true,
            log: EventLog::written_to(latest_event),
            labels: record.labels,
            ..Self::bare(
                serial,
                record.runtime,
                runtime,
                record.nonce,
                record.created,
            )
        }
    }

    /// Of a session that begins.
    pub(super) fn new(
        serial: u64,
        runtime: Arc<Runtime>,
        labels: Labels,
        created: Duration,
    ) -> Self {
        let alias = runtime.alias.clone();
        Self {
            labels,
            ..Self::bare(serial, alias, Some(runtime), Nonce::generate(), created)
        }
    }

    /// Without anything that comes with a sandbox.
    fn bare(
        serial: u64,
        alias: String,
        runtime: Option<Arc<Runtime>>,
        nonce: Nonce,
        created: Duration,
    ) -> Self {
        Self {
            serial,
            alias,
            runtime,
            nonce,
            labels: Labels::default(),
            created,
            attached: false,
            log: EventLog::default(),
            going: None,
            refused: None,
            sample: None,
            kills: None,
            runs: Runs::default(),
            client: None,
            meter: Arc::new(NoMeter),
            enforced: Enforced::default(),
            spec: None,
            user: None,
            stage: Board::default(),
            owner: None,
        }
    }
}
