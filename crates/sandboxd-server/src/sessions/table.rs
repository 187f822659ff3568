//! The one table of sessions, and the one lock around it. Nobody holds the lock over I/O: every method here computes
//! and hands out orders; owners and handlers do the waiting.

use super::admission::{Ceilings, House, NoRoom, NoStep, Orders};
use super::clock_jump::Watched;
use super::detail::Detail;
use super::ledger::{Ledger, Record, Standing};
use super::life::{Going, Sleep};
use super::metered::Metered;
use super::owner;
use super::readiness::LastAnswer;
use super::state::{Action, Event, Rental, State};
use super::words::{Happened, View};
use crate::auth::session_tokens::SessionTokens;
use crate::backends::{Backend, Enforced, NoMeter};
use crate::budget::Budget;
use crate::clock::Clock;
use crate::config::Service;
use crate::id::{SandboxId, SessionId};
use crate::telemetry::metrics::{Eviction, Metrics, SessionStates};
use crate::workspaces::Workspaces;
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What all parts of this room share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) tokens: SessionTokens,
    pub(super) workspaces: Workspaces,
    pub(super) ledger: Arc<dyn Ledger>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) ready: LastAnswer,
    /// Held while usage is sampled.
    pub(super) sampling: tokio::sync::Mutex<()>,
    /// Held while an end is set anew, so that table and ledger hear of two in one order.
    pub(super) renewals: tokio::sync::Mutex<()>,
    /// Commands that may run at once.
    pub(super) permits: Semaphore,
    /// Commands that may wait at once (for a sandbox to wake, or for a permit).
    pub(super) queue: Semaphore,
    /// Memory for what runs print.
    pub(super) outputs: Budget,
    /// Every task of this room; a shutdown waits for them.
    pub(super) tasks: TaskTracker,
    /// Rings when an operation ends.
    pub(super) left: Notify,
    /// Ends the reaper and the journal.
    pub(super) stopping: CancellationToken,
    /// Rings when something is to be written down.
    pub(super) unwritten: Notify,
    /// Rings when the pool may have to be filled.
    pub(super) pool_asked: Notify,
    table: Mutex<Table>,
}

/// Everything that changes.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) house: House,
    pub(super) details: BTreeMap<SessionId, Detail>,
    pub(super) service: Arc<Service>,
    /// What the clock said last.
    pub(super) watched: Watched,
    /// Ids whose stored workspace is being swept; nobody opens them meanwhile.
    pub(super) sweeping: HashSet<SessionId>,
    /// Sessions of which something is not written down yet.
    pub(super) unwritten: HashSet<SessionId>,
    /// Whether the daemon ends.
    pub(super) stopping: bool,
}

/// Longest queue of orders that one owner can have: each order waits for the report of the one before, save for a
/// clearing and an end.
const ORDERS_MAX: usize = 8;

impl Shared {
    pub(super) fn new(
        backend: Arc<dyn Backend>,
        clock: Arc<dyn Clock>,
        tokens: SessionTokens,
        workspaces: Workspaces,
        ledger: Arc<dyn Ledger>,
        service: Service,
    ) -> Self {
        let commands = usize::try_from(service.max_running_commands).unwrap_or(usize::MAX);
        let commands = commands.clamp(1, Semaphore::MAX_PERMITS / 2);
        let metrics = Arc::<Metrics>::default();
        let ledger = Arc::new(Metered::new(ledger, metrics.clone()));
        let watched = Watched::new(&*clock);
        Self {
            backend,
            clock,
            tokens,
            workspaces,
            ledger,
            metrics,
            renewals: tokio::sync::Mutex::default(),
            sampling: tokio::sync::Mutex::default(),
            ready: LastAnswer::default(),
            permits: Semaphore::new(commands),
            queue: Semaphore::new(commands * 2),
            outputs: Budget::new(service.max_outputs_bytes),
            tasks: TaskTracker::new(),
            left: Notify::new(),
            stopping: CancellationToken::new(),
            unwritten: Notify::new(),
            pool_asked: Notify::new(),
            table: Mutex::new(Table {
                house: House::default(),
                details: BTreeMap::new(),
                service: Arc::new(service),
                watched,
                sweeping: HashSet::new(),
                unwritten: HashSet::new(),
                stopping: false,
            }),
        }
    }

    /// The lock. Held for a few computations, never over an await.
    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        // A panic under the lock is a bug of one request; the others go on.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn service(&self) -> Arc<Service> {
        self.table().service.clone()
    }

    /// Something happens to a session; the orders go to the owners.
    pub(super) fn report(
        self: &Arc<Self>,
        id: &SessionId,
        serial: u64,
        event: Event,
    ) -> Result<(), NoStep> {
        self.report_with(id, serial, event, |_| {})
    }

    /// As [`Shared::report`]; `note` sees the session's details before anybody else hears of the transition.
    pub(super) fn report_with(
        self: &Arc<Self>,
        id: &SessionId,
        serial: u64,
        event: Event,
        note: impl FnOnce(&mut Detail),
    ) -> Result<(), NoStep> {
        let now = self.clock.now();
        let leaves = event == Event::Leave;
        let is_use = matches!(event, Event::Enter | Event::Leave);
        let mut table = self.table();
        let orders = table.house.apply(id, serial, event, now)?;
        if is_use {
            self.is_unwritten(&mut table, id);
        }
        if leaves {
            self.left.notify_waiters();
        }
        if let Some(detail) = table.details.get_mut(id) {
            note(detail);
        }
        self.carry_out(&mut table, Some(id), orders);
        Ok(())
    }

    /// Sends orders to the owners, and tells waiters. To be called under the lock in which the orders came up, so that
    /// they arrive in that order.
    pub(super) fn carry_out(
        self: &Arc<Self>,
        table: &mut Table,
        about: Option<&SessionId>,
        orders: Orders,
    ) {
        let mut touched: Vec<SessionId> = about.cloned().into_iter().collect();
        let mut cleared: Option<SessionId> = None;
        for (id, action) in orders {
            // Whoever is touched without being asked about makes room for another one.
            if about != Some(&id) {
                match action {
                    Action::Stop(_) => {
                        self.metrics.evicted(Eviction::Slot);
                        if let Some(detail) = table.details.get_mut(&id) {
                            detail.going = Some(Going::now(Sleep::Room));
                        }
                    }
                    Action::End { .. } => self.metrics.evicted(Eviction::OpenCeiling),
                    _ => {}
                }
            }
            if matches!(action, Action::Clear(_)) {
                cleared = Some(id.clone());
            }
            match action {
                Action::Forget => {
                    // Waiters see their channel closed, with the last cause in it.
                    table.details.remove(&id);
                }
                action => self.order(table, &id, action),
            }
            if !touched.contains(&id) {
                touched.push(id);
            }
        }
        for id in touched {
            let Table { house, details, .. } = &mut *table;
            let (Some(rental), Some(detail)) = (house.get(&id), details.get_mut(&id)) else {
                continue;
            };
            if !matches!(rental.state, State::Hibernating { .. }) {
                detail.going = None;
            }
            if !matches!(rental.state, State::Resident { .. }) {
                detail.client = None;
                detail.meter = Arc::new(NoMeter);
                detail.sample = None;
                detail.enforced = Enforced::default();
                detail.spec = None;
            }
            // Nothing is left to be owned: the owner ends when it has done what was ordered before. A sleeper's that
            // is removing its layer stays, so that it and a wake do not write the session's record at once.
            let is_over = match rental.state {
                State::Hibernated { .. } => cleared.as_ref() != Some(&id),
                State::Lost => true,
                _ => false,
            };
            if is_over {
                detail.owner = None;
            }
            detail.stage.ring();
            if matches!(rental.state, State::Hibernated { .. }) {
                detail.rest();
            }
        }
    }

    fn order(self: &Arc<Self>, table: &mut Table, id: &SessionId, action: Action) {
        let Some(detail) = table.details.get_mut(id) else {
            return;
        };
        let mut action = action;
        // At most two owners: one that is gone (by a panic outside of its orders, or with the runtime that it ran in)
        // has left its mailbox closed, and the next one does what it is told without it.
        for _ in 0..2 {
            if detail.owner.is_none() && Handle::try_current().is_err() {
                break;
            }
            let mailbox = detail.owner.get_or_insert_with(|| {
                let (mailbox, orders) = mpsc::channel(ORDERS_MAX);
                owner::spawn(self.clone(), id.clone(), detail.serial, orders);
                mailbox
            });
            match mailbox.try_send(action) {
                Ok(()) => return,
                Err(TrySendError::Closed(back)) => {
                    tracing::warn!(session = %id, order = ?back, "the owner is gone");
                    detail.owner = None;
                    action = back;
                }
                Err(TrySendError::Full(_)) => {
                    debug_assert!(false, "an owner has at most {ORDERS_MAX} orders");
                    tracing::error!(session = %id, "an order was lost; the session is stuck");
                    return;
                }
            }
        }
        // Whatever the runtime is ended by, nobody is left to wait.
        tracing::debug!(session = %id, ?action, "an order came when everything ends");
    }

    /// A row of the activity log.
    pub(super) fn log(&self, id: &SessionId, serial: Option<u64>, happened: Happened) {
        let now = self.clock.now();
        let mut table = self.table();
        if let Some(detail) = table.details.get_mut(id)
            && serial.is_none_or(|serial| serial == detail.serial)
        {
            detail.log.push(happened, now);
            self.is_unwritten(&mut table, id);
        }
    }

    /// The journal looks at this session soon.
    pub(super) fn is_unwritten(&self, table: &mut Table, id: &SessionId) {
        if !table.unwritten.contains(id) {
            table.unwritten.insert(id.clone());
            self.unwritten.notify_one();
        }
    }
}

impl Table {
    /// The ceilings in force.
    pub(super) fn ceilings(&self) -> Ceilings {
        let service = &self.service;
        Ceilings {
            resident: service.max_sessions,
            open: service.max_open_sessions,
            per_tenant: service.max_sessions_per_tenant,
            evict_idle: service.evict_idle_after.map(Duration::from_secs),
        }
    }

    /// Wakes or heals a session, if there is room.
    pub(super) fn wake(&mut self, id: &SessionId, now: Duration) -> Result<Orders, NoRoom> {
        let ceilings = self.ceilings();
        self.house.wake(id, SandboxId::generate(), now, &ceilings)
    }

    /// How many sessions there are of each kind.
    pub(super) fn states(&self) -> SessionStates {
        let mut states = SessionStates::default();
        for (_, rental) in self.house.iter() {
            let count = match rental.state {
                State::Opening { .. } | State::Waking { .. } => &mut states.starting,
                State::Resident { .. } => &mut states.resident,
                State::Hibernating { .. } | State::Closing { .. } => &mut states.stopping,
                State::Hibernated { .. } => &mut states.hibernated,
                State::Falling { .. } | State::Fallen { .. } | State::Lost => &mut states.lost,
            };
            *count += 1;
        }
        states
    }

    /// One session as it is written down.
    pub(super) fn record(&self, id: &SessionId, standing: Standing) -> Option<Record> {
        let rental = self.house.get(id)?;
        let detail = self.details.get(id)?;
        Some(Record {
            id: id.clone(),
            runtime: detail.alias.clone(),
            tenant: rental.tenant.clone(),
            labels: detail.labels.clone(),
            nonce: detail.nonce,
            created: detail.created,
            expires: rental.expires,
            last_used: rental.last_used,
            files_outside: rental.files_outside,
            standing,
        })
    }

    /// One session as it is shown: one that opens is not there yet, one that closes no more.
    pub(super) fn view(&self, id: &SessionId, now: Duration) -> Option<View> {
        let rental = self.house.get(id)?;
        let detail = self.details.get(id)?;
        let (alive, hibernated, used) = match &rental.state {
            State::Opening { .. } | State::Closing { .. } => return None,
            State::Resident { .. } => {
                let alive = detail.client.as_ref().is_some_and(|c| !c.is_closed());
                (alive, false, rental.last_used)
            }
            State::Falling { .. } | State::Fallen { .. } | State::Lost => {
                (false, false, rental.last_used)
            }
            State::Hibernated { since, .. } => (true, true, rental.last_used.max(*since)),
            State::Hibernating { .. } | State::Waking { .. } => (true, true, rental.last_used),
        };
        Some(View {
            id: id.clone(),
            runtime: detail.alias.clone(),
            tenant: rental.tenant.clone(),
            alive,
            hibernated,
            created: detail.created,
            last_activity: used,
            idle: now.saturating_sub(used),
            expires: rental.expires,
            labels: detail.labels.clone(),
            enforced: detail.enforced.clone(),
            spec: detail.spec.clone(),
        })
    }

    /// A session that is there for clients.
    pub(super) fn visible(&self, id: &SessionId) -> Option<(&Rental, &Detail)> {
        let rental = self.house.get(id)?;
        match rental.state {
            State::Opening { .. } | State::Closing { .. } => None,
            _ => Some((rental, self.details.get(id)?)),
        }
    }
}
