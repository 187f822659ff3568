//! Closing sessions. A service that runs does it; where none runs it is done in its place, with its lock held, so that none
//! can begin meanwhile. What is neither is refused: nobody takes away what a service may be using.

use super::found::sandbox_of;
use super::{Place, failed};
use crate::failure::{FAILED, Failure};
use crate::output;
use sandboxd_client::{RequestError, Service};
use sandboxd_server::backends::namespaces::remove_kept_layer;
use sandboxd_server::id::SessionId;
use sandboxd_server::server::token_beside;
use sandboxd_server::sessions::{Record, Standing};
use sandboxd_server::store::{self, Store, StoreError};
use sandboxd_server::workspaces::Workspaces;
use std::process::ExitCode;
use tokio::runtime::Runtime;

/// Closes all of them; what cannot be is said, and the others go.
pub(super) fn rm(
    place: &Place,
    ids: &[String],
    purge: bool,
    url: Option<&str>,
) -> Result<ExitCode, Failure> {
    let ids: Result<Vec<SessionId>, Failure> = ids
        .iter()
        .map(|id| SessionId::parse(id).map_err(|error| failed(format!("{id:?}: {error}"))))
        .collect();
    let ids = ids?;
    let runtime = Runtime::new().map_err(|error| failed(format!("cannot start: {error}")))?;
    let served = url.is_some() || place.is_held()?;
    let outcomes = runtime.block_on(async {
        match served {
            true => by_service(place, &ids, purge, url).await,
            false => in_its_place(place, &ids, purge).await,
        }
    })?;
    let mut code = ExitCode::SUCCESS;
    for (id, outcome) in ids.iter().zip(outcomes) {
        match outcome {
            Ok(()) if purge => output::say(&format!("{id}  removed, with its files")),
            Ok(()) => output::say(&format!("{id}  removed")),
            Err(why) => {
                output::complain(&format!("{id}: {why}"));
                code = ExitCode::from(FAILED);
            }
        }
    }
    Ok(code)
}

/// What became of each, in words where it is still there.
type Outcomes = Vec<Result<(), String>>;

async fn by_service(
    place: &Place,
    ids: &[SessionId],
    purge: bool,
    url: Option<&str>,
) -> Result<Outcomes, Failure> {
    let known = place.served.as_ref().map(|served| served.url.as_str());
    let url = url.or(known).ok_or_else(|| {
        failed(format!(
            "a service uses {}, and has not said where it listens; --url says so",
            place.state_dir().display()
        ))
    })?;
    let token = token_beside(&place.config)
        .map_err(|error| failed(format!("{error}; --token-file names the service's token")))?;
    let service = Service::new(url, &token).map_err(failed)?;
    // Before anything is touched: that it answers, and takes this token.
    service.sessions(false).await.map_err(|error| match error {
        RequestError::Refused(_) => failed(format!("{url}: {error}; nothing was removed")),
        error => failed(format!(
            "the service that uses {} does not answer at {url} ({error}); nothing was removed",
            place.state_dir().display()
        )),
    })?;
    let mut outcomes = Vec::new();
    for id in ids {
        let removed = match purge {
            true => service.purge(id.as_str()).await,
            false => service.close(id.as_str()).await,
        };
        outcomes.push(removed.map_err(|error| {
            match error.status() {
                Some(404) if purge => {
                    "there is no such session, and nothing is stored of it".to_owned()
                }
                Some(404) => {
                    "there is no such session; --purge removes what is stored of a closed one"
                        .to_owned()
                }
                _ => error.to_string(),
            }
        }));
    }
    Ok(outcomes)
}

async fn in_its_place(place: &Place, ids: &[SessionId], purge: bool) -> Result<Outcomes, Failure> {
    // What is not there is not made by looking for it.
    store::records(place.state_dir()).map_err(failed)?;
    let taken = Store::open(place.state_dir()).map_err(|error| match error {
        StoreError::InUse(_) => failed(format!("{error}; nothing was removed: try again")),
        error => failed(error),
    })?;
    let ledger = taken.ledger().map_err(failed)?;
    let records = ledger.all().await.map_err(failed)?;
    let root = place.workspace_root.clone().filter(|root| root.exists());
    let workspaces = Workspaces::open(root.clone(), true).await.map_err(failed)?;
    let mut outcomes = Vec::new();
    for id in ids {
        let found = records.iter().map(|recorded| &recorded.record);
        let record = found.clone().find(|record| record.id == *id);
        let outcome = match record {
            Some(record) if purge && record.files_outside && root.is_none() => {
                Err("where its files are stored is not known; --workspace-root says so".to_owned())
            }
            Some(record) => close(place, &*ledger, &workspaces, record, purge).await,
            None if !purge => Err(
                "there is no such session; --purge removes what is stored of a closed one"
                    .to_owned(),
            ),
            None if !workspaces.clone().exists(id.clone()).await => {
                Err("there is no such session, and nothing is stored of it".to_owned())
            }
            None => purged(&workspaces, id).await,
        };
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

/// In the order in which a service does it: first it is written down that the session is being closed, so that the next
/// service finishes what is cut off here.
async fn close(
    place: &Place,
    ledger: &dyn sandboxd_server::sessions::Ledger,
    workspaces: &Workspaces,
    record: &Record,
    purge: bool,
) -> Result<(), String> {
    let closing = Record {
        standing: Standing::Closing { purge },
        ..record.clone()
    };
    ledger
        .put(closing)
        .await
        .map_err(|error| error.to_string())?;
    if let Some(sandbox) = sandbox_of(record) {
        remove_kept_layer(place.state_dir(), sandbox)
            .map_err(|error| format!("its write layer: {error}"))?;
    }
    if purge {
        purged(workspaces, &record.id).await?;
    }
    ledger
        .remove(&record.id)
        .await
        .map_err(|error| error.to_string())
}

async fn purged(workspaces: &Workspaces, id: &SessionId) -> Result<(), String> {
    let purged = workspaces.clone().purge(id.clone(), None, ()).await;
    purged.map_err(|error| error.to_string())
}
