//! Takes up what an earlier daemon has written down, whatever ended it.
//!
//! A sandbox that ran has gone with its daemon. Its session sleeps, where its files are stored or its write layer was one
//! that can be kept; else it is lost, and says so until it is deleted: an empty sandbox that looks like the old one would
//! be a lie. What the records say differently afterwards is written before the first request. Layers that no session on
//! record has are removed: nobody could ever wake them.

use super::detail::Detail;
use super::ledger::{LedgerError, Record, Recorded, Standing};
use super::state::{Rental, State};
use super::table::Shared;
use super::words::StartError;
use crate::backends::Found;
use crate::id::{SandboxId, SessionId};
use crate::limits::{LEDGER_SECONDS_MAX, RECORDS_AT_ONCE, STOP_SECONDS_MAX, WORKSPACE_SECONDS_MAX};
use crate::runtimes::Runtime;
use futures::StreamExt as _;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Fills the table. To be called before the first request.
pub(super) async fn take_up(shared: &Arc<Shared>) -> Result<(), StartError> {
    let reading = timeout(Duration::from_secs(LEDGER_SECONDS_MAX), shared.ledger.all());
    let all = match reading.await {
        Ok(all) => all.map_err(StartError::Ledger)?,
        Err(_) => {
            return Err(StartError::Ledger(LedgerError(
                "not read in time".to_owned(),
            )));
        }
    };
    let recorded = all.len();
    let mut changed = Vec::new();
    let mut closing = Vec::new();
    let mut layers = BTreeSet::new();
    let mut lost: u64 = 0;
    {
        let mut table = shared.table();
        let service = table.service.clone();
        let runtimes: BTreeMap<&str, Arc<Runtime>> = service
            .runtimes
            .iter()
            .map(|(alias, runtime)| (alias.as_str(), Arc::new(runtime.clone())))
            .collect();
        for Recorded {
            record,
            latest_event,
        } in all
        {
            if let Standing::Closing { purge } = record.standing {
                closing.push((record.id, purge));
                continue;
            }
            let state = state_of(&record);
            if let State::Hibernated {
                layer: Some(layer), ..
            } = &state
            {
                layers.insert(layer.clone());
            }
            lost += u64::from(state == State::Lost);
            if let Some(standing) = standing_of(&state)
                && standing != record.standing
            {
                changed.push((record.id.clone(), standing));
            }
            let serial = table.house.take_up(&record.id, rental(&record, state));
            let runtime = runtimes.get(record.runtime.as_str()).cloned();
            let id = record.id.clone();
            let detail = Detail::taken_up(serial, record, runtime, latest_event);
            table.details.insert(id, detail);
        }
    }
    if recorded > 0 {
        tracing::info!(sessions = recorded, lost, "took up the sessions on record");
    }
    write(shared, changed).await;
    clear_strays(shared, &layers).await;
    for (id, purge) in closing {
        close(shared, id, purge).await;
    }
    Ok(())
}

/// Finishes what was begun: its layer is a stray by now. Where that fails the record stays, for the next start.
async fn close(shared: &Arc<Shared>, id: SessionId, purge: bool) {
    if purge {
        let purged = shared.workspaces.clone().purge(id.clone(), None, ());
        match timeout(Duration::from_secs(WORKSPACE_SECONDS_MAX), purged).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::error!(session = %id, %error, "its workspace was not purged");
                return;
            }
            Err(_) => {
                tracing::error!(session = %id, "its workspace was not purged in time");
                return;
            }
        }
    }
    let struck = timeout(
        Duration::from_secs(LEDGER_SECONDS_MAX),
        shared.ledger.remove(&id),
    );
    match struck.await {
        Ok(Ok(())) => tracing::info!(session = %id, purge, "finished closing it"),
        Ok(Err(error)) => tracing::error!(session = %id, %error, "not struck out"),
        Err(_) => tracing::error!(session = %id, "not struck out in time"),
    }
}

/// What became of a session when its daemon ended.
pub(super) fn state_of(record: &Record) -> State {
    match &record.standing {
        Standing::Closing { .. } => State::Closing {
            sandbox: None,
            heir: None,
        },
        Standing::Resident {
            sandbox,
            keeps: true,
        } => State::Hibernated {
            layer: Some(sandbox.clone()),
            since: record.last_used,
        },
        Standing::Resident { .. } if record.files_outside => State::Hibernated {
            layer: None,
            since: record.last_used,
        },
        Standing::Hibernated { layer, since } if record.files_outside || layer.is_some() => {
            State::Hibernated {
                layer: layer.clone(),
                since: *since,
            }
        }
        Standing::Resident { .. } | Standing::Hibernated { .. } | Standing::Lost => State::Lost,
    }
}

fn standing_of(state: &State) -> Option<Standing> {
    match state {
        State::Hibernated { layer, since } => Some(Standing::Hibernated {
            layer: layer.clone(),
            since: *since,
        }),
        State::Lost => Some(Standing::Lost),
        _ => None,
    }
}

/// What is taken up.
pub(super) fn rental(record: &Record, state: State) -> Rental {
    Rental {
        serial: 0,
        tenant: record.tenant.clone(),
        files_outside: record.files_outside,
        uses: 0,
        last_used: record.last_used,
        expires: record.expires,
        state,
    }
}

/// Writes what is different now. A failure is said and changes nothing: the next start comes to the same.
async fn write(shared: &Arc<Shared>, changed: Vec<(SessionId, Standing)>) {
    let writes = futures::stream::iter(changed).map(|(id, standing)| async move {
        let record = shared.table().record(&id, standing)?;
        let writing = timeout(
            Duration::from_secs(LEDGER_SECONDS_MAX),
            shared.ledger.put(record),
        );
        match writing.await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("not in time".to_owned()),
        }
    });
    let failures: Vec<Option<String>> = writes.buffer_unordered(RECORDS_AT_ONCE).collect().await;
    if let Some(cause) = failures.into_iter().flatten().next() {
        tracing::error!(cause, "what became of the sessions was not written down");
    }
}

/// Removes the layers that are not among these.
async fn clear_strays(shared: &Arc<Shared>, known: &BTreeSet<SandboxId>) {
    let limit = Duration::from_secs(STOP_SECONDS_MAX);
    let Ok(Ok(found)) = timeout(limit, shared.backend.list()).await else {
        tracing::error!("layers without a session could not be looked for");
        return;
    };
    let stray = |found: &Found| !found.running && !known.contains(&found.id);
    for stray in found.into_iter().filter(stray) {
        match timeout(limit, shared.backend.destroy(&stray.id)).await {
            Ok(Ok(())) => tracing::info!(layer = %stray.id, "removed: no session has it"),
            Ok(Err(error)) => tracing::error!(layer = %stray.id, %error, "not removed"),
            Err(_) => {
                // One that hangs would not be the last; the next start tries again.
                tracing::error!(layer = %stray.id, "not removed in time");
                return;
            }
        }
    }
}
