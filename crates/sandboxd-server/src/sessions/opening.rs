//! Opening a session, or taking an open one: the checks in their order, then a wait for the owner.

use super::admission::{Newcomer, NoRoom};
use super::detail::{Detail, Stage};
use super::state::State;
use super::table::{Shared, Table};
use super::visit::Visit;
use super::words::{Open, OpenError, Opened, UseError};
use crate::id::{SandboxId, SessionId};
use crate::limits::OPEN_SECONDS_MAX;
use crate::runtimes::Runtime;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// What the checks came to.
enum Found {
    /// One is being made.
    New {
        serial: u64,
        stage: watch::Receiver<Stage>,
    },
    /// It is open, and awake or beyond waking: handed out as it is.
    AsItIs,
    /// It is open, and has to be awake first.
    ToBeWoken,
}

pub(super) async fn open(shared: &Arc<Shared>, ask: Open) -> Result<Opened, OpenError> {
    let runtime = runtime_of(shared, &ask)?;
    if ask.attach && ask.id.is_none() {
        return Err(OpenError::AttachWithoutId);
    }
    let id = ask.id.clone().unwrap_or_else(SessionId::generate);
    // Asked before the lock is taken, and of use only where no session is open.
    let stored = !ask.attach || shared.workspaces.clone().exists(id.clone()).await;
    match check(shared, &ask, &id, runtime, stored)? {
        Found::AsItIs => {}
        Found::ToBeWoken => wake(shared, &id).await?,
        Found::New { serial, stage } => {
            let waiting = wait_until_open(shared, &id, serial, stage);
            timeout(Duration::from_secs(OPEN_SECONDS_MAX), waiting)
                .await
                .unwrap_or_else(|_| {
                    Err(OpenError::Start(format!(
                        "not started within {OPEN_SECONDS_MAX} s"
                    )))
                })?;
        }
    }
    opened(shared, &id)
}

/// The runtime asked for, or the default one.
fn runtime_of(shared: &Shared, ask: &Open) -> Result<Arc<Runtime>, OpenError> {
    let service = shared.service();
    let named = ask.runtime.as_deref().filter(|alias| !alias.is_empty());
    let alias = named.unwrap_or(&service.default_runtime);
    match service.runtimes.get(alias) {
        Some(runtime) => Ok(Arc::new(runtime.clone())),
        None => Err(OpenError::UnknownRuntime {
            alias: alias.to_owned(),
            allowed: service.runtimes.keys().cloned().collect(),
        }),
    }
}

/// All checks, and the claim of the id, under one lock.
fn check(
    shared: &Arc<Shared>,
    ask: &Open,
    id: &SessionId,
    runtime: Arc<Runtime>,
    stored: bool,
) -> Result<Found, OpenError> {
    let now = shared.clock.now();
    let mut table = shared.table();
    if table.stopping {
        return Err(OpenError::ShuttingDown);
    }
    if let Some(found) = look_up(&table, ask, id)? {
        return Ok(found);
    }
    if table.sweeping.contains(id) {
        return Err(OpenError::Opening(id.clone()));
    }
    if !stored {
        return Err(OpenError::NothingToAttach(id.clone()));
    }
    let newcomer = Newcomer {
        id: id.clone(),
        tenant: ask.tenant.clone(),
        files_outside: shared.workspaces.is_on(),
        expires: ask.ttl.map(|ttl| now.saturating_add(ttl)),
        sandbox: SandboxId::generate(),
    };
    let ceilings = table.ceilings();
    let (serial, orders) = table
        .house
        .open(newcomer, now, &ceilings)
        .map_err(|refusal| match refusal {
            NoRoom::Exists => OpenError::Exists(id.clone()),
            NoRoom::Open(limit) => OpenError::OpenLimit(limit),
            NoRoom::Tenant(limit) => match ask.tenant.clone() {
                Some(tenant) => OpenError::TenantLimit { tenant, limit },
                None => OpenError::ResidentLimit(limit),
            },
            NoRoom::Slots(limit) => OpenError::ResidentLimit(limit),
            NoRoom::Session(_) => OpenError::Opening(id.clone()),
        })?;
    let mut detail = Detail::new(serial, runtime, ask.labels.clone(), now);
    detail.attached = ask.attach;
    let stage = detail.stage.subscribe();
    table.details.insert(id.clone(), detail);
    shared.carry_out(&mut table, Some(id), orders);
    Ok(Found::New { serial, stage })
}

/// What is to be done about an id that is taken.
fn look_up(table: &Table, ask: &Open, id: &SessionId) -> Result<Option<Found>, OpenError> {
    let Some(rental) = table.house.get(id) else {
        return Ok(None);
    };
    if matches!(rental.state, State::Opening { .. } | State::Closing { .. }) {
        return Err(OpenError::Opening(id.clone()));
    }
    if !(ask.reuse || ask.attach) {
        return Err(OpenError::Exists(id.clone()));
    }
    let open = table.details.get(id).map(|d| d.alias.as_str());
    let asked = ask.runtime.as_deref().filter(|alias| !alias.is_empty());
    if let (Some(asked), Some(open)) = (asked, open)
        && asked != open
    {
        return Err(OpenError::OtherRuntime {
            id: id.clone(),
            open: open.to_owned(),
            asked: asked.to_owned(),
        });
    }
    Ok(Some(match rental.state {
        State::Resident { .. } | State::Falling { .. } | State::Fallen { .. } | State::Lost => {
            Found::AsItIs
        }
        _ => Found::ToBeWoken,
    }))
}

async fn wake(shared: &Arc<Shared>, id: &SessionId) -> Result<(), OpenError> {
    let woken = match Visit::begin(shared, id) {
        Ok(visit) => visit.reach_within(OPEN_SECONDS_MAX).await.map(|_| ()),
        Err(error) => Err(error),
    };
    match woken {
        Ok(()) => Ok(()),
        Err(UseError::CannotWake { id, limit }) => Err(OpenError::CannotWake { id, limit }),
        Err(UseError::WakeFailed { cause, .. }) => Err(OpenError::Start(cause)),
        // It was closed meanwhile: as while it is being closed.
        Err(_) => Err(OpenError::Opening(id.clone())),
    }
}

/// The owner goes on also when nobody waits any more.
async fn wait_until_open(
    shared: &Arc<Shared>,
    id: &SessionId,
    serial: u64,
    mut stage: watch::Receiver<Stage>,
) -> Result<(), OpenError> {
    loop {
        let opening = {
            let table = shared.table();
            stage.mark_unchanged();
            table.house.get(id).is_some_and(|rental| {
                rental.serial == serial && matches!(rental.state, State::Opening { .. })
            })
        };
        if !opening && stage.has_changed().is_ok() {
            return Ok(());
        }
        if stage.changed().await.is_err() {
            let cause = stage.borrow().cause.clone();
            return Err(match cause {
                // Whatever it failed for: the service's end is why, or would have been a moment later.
                _ if shared.table().stopping => OpenError::ShuttingDown,
                Some(cause) => OpenError::Start(cause),
                // It was open for a moment, and somebody has closed it: as while it is being closed.
                None => OpenError::Opening(id.clone()),
            });
        }
    }
}

fn opened(shared: &Shared, id: &SessionId) -> Result<Opened, OpenError> {
    let now = shared.clock.now();
    let table = shared.table();
    let view = table.view(id, now);
    match (view, table.details.get(id)) {
        (Some(session), Some(detail)) => Ok(Opened {
            session,
            token: shared.tokens.derive(id, &detail.nonce),
        }),
        _ if table.stopping => Err(OpenError::ShuttingDown),
        _ => Err(OpenError::Opening(id.clone())),
    }
}
