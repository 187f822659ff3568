//! Keeps sandboxes ready for sessions to come, as many as the operator says for each runtime.
//!
//! One task, which makes one at a time, and rather in a moment in which no session waits for its own. What is kept ready is
//! what the settings in force and the image under its name make of a runtime now; when one of them changes, what was made
//! from the former is replaced. An image that is not on this host is waited for, not fetched. What cannot be made is tried
//! again after a pause that doubles. Where the host's memory grows scarce no more are made, and where it grows short none is
//! kept: what nobody has asked for yields to what sessions need.

use super::spec::sandbox_spec;
use super::table::Shared;
use crate::backends::{Kind, Pool, Room};
use crate::config::Service;
use crate::limits::{
    CREATE_SECONDS_MAX, POOL_BACK_OFF_MILLIS, POOL_BACK_OFF_MILLIS_MAX, POOL_LOOK_MILLIS,
    POOL_PATIENCE_MILLIS, POOL_PAUSE_MILLIS, PREPARE_SECONDS_MAX,
};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// How many sandboxes of a runtime are to be ready.
pub(super) fn size(service: &Service, alias: &str) -> u64 {
    let runtime = service.runtimes.get(alias);
    runtime.map_or(0, |runtime| runtime.pool.unwrap_or(service.pool))
}

/// Fills the pool until the room closes. What is parked then ends with the backend.
pub(super) async fn live(shared: Arc<Shared>) {
    let Some(pool) = shared.backend.pool() else {
        let service = shared.service();
        if service
            .runtimes
            .keys()
            .any(|alias| size(&service, alias) > 0)
        {
            let backend = shared.backend.name();
            tracing::warn!(backend, "a pool was asked for, and this backend has none");
        }
        return;
    };
    tokio::select! {
        () = shared.stopping.cancelled() => {}
        () = fill(&shared, pool) => {}
    }
}

async fn fill(shared: &Shared, pool: &dyn Pool) {
    let mut troubles = BTreeMap::new();
    let mut room_before = Room::Enough;
    loop {
        // Before the look, too: whoever has just been given one has something to do with it.
        wait_for_a_quiet_moment(shared).await;
        if shared.table().stopping {
            return;
        }
        let mut kinds = wanted(shared, pool, &mut troubles).await;
        let room = pool.room();
        if !kinds.is_empty() && room != room_before {
            say(room);
            room_before = room;
        }
        if room == Room::Short {
            kinds.clear();
        }
        pool.retain(&kinds).await;
        let ready = pool.ready();
        let lacks = |kind: &&Kind| {
            let tried = troubles.get(&kind.name);
            ready.get(&kind.name).copied().unwrap_or(0) < kind.count
                && tried.is_none_or(|trouble: &Trouble| trouble.until <= Instant::now())
        };
        let next = kinds.iter().find(lacks);
        let Some(kind) = next.filter(|_| room == Room::Enough) else {
            let look = sleep(Duration::from_millis(POOL_LOOK_MILLIS));
            tokio::select! {
                () = look => {}
                () = shared.pool_asked.notified() => {}
            }
            continue;
        };
        let limit = Duration::from_secs(CREATE_SECONDS_MAX);
        let parked = match timeout(limit, pool.park(kind)).await {
            Ok(parked) => parked.map_err(|error| error.to_string()),
            Err(_) => Err(format!("not made within {CREATE_SECONDS_MAX} s")),
        };
        match parked {
            Ok(()) => drop(troubles.remove(&kind.name)),
            Err(cause) => Trouble::note(&mut troubles, &kind.name, cause),
        }
    }
}

/// How much memory there is, where that has changed.
fn say(room: Room) {
    match room {
        Room::Enough => tracing::info!("there is memory for the pool again"),
        Room::Scarce => tracing::warn!("memory is scarce: the pool is not filled"),
        Room::Short => tracing::warn!("memory is short: nothing is kept ready"),
    }
}

/// What is to be ready now.
async fn wanted(
    shared: &Shared,
    pool: &dyn Pool,
    troubles: &mut BTreeMap<String, Trouble>,
) -> Vec<Kind> {
    let service = shared.service();
    let mut kinds = Vec::new();
    for (alias, runtime) in &service.runtimes {
        let count = usize::try_from(size(&service, alias)).unwrap_or(0);
        if count == 0 {
            continue;
        }
        let limit = Duration::from_secs(PREPARE_SECONDS_MAX);
        let image = match timeout(limit, pool.image(runtime)).await {
            Ok(Ok(Some(image))) => image,
            Ok(Ok(None)) => continue,
            Ok(Err(error)) => {
                Trouble::note(troubles, alias, error.to_string());
                continue;
            }
            Err(_) => continue,
        };
        // A session brings the path.
        let workspace = shared.workspaces.is_on().then(PathBuf::new);
        match sandbox_spec(&service, runtime, image, workspace) {
            Ok(spec) => kinds.push(Kind {
                name: alias.clone(),
                spec,
                count,
            }),
            Err(error) => Trouble::note(troubles, alias, error.to_string()),
        }
    }
    kinds
}

/// Sessions come first: until none waits for its sandbox, or patience is over.
async fn wait_for_a_quiet_moment(shared: &Shared) {
    let end = Instant::now() + Duration::from_millis(POOL_PATIENCE_MILLIS);
    loop {
        sleep(Duration::from_millis(POOL_PAUSE_MILLIS)).await;
        if shared.table().states().starting == 0 || Instant::now() >= end {
            return;
        }
    }
}

/// A runtime of which none could be made.
#[derive(Debug)]
struct Trouble {
    cause: String,
    pause: Duration,
    /// When it is tried again.
    until: Instant,
}

impl Trouble {
    /// Said once for each cause.
    fn note(all: &mut BTreeMap<String, Self>, runtime: &str, cause: String) {
        let former = all.get(runtime);
        if former.is_none_or(|former| former.cause != cause) {
            tracing::warn!(runtime, cause, "no sandbox could be made for the pool");
        }
        let first = Duration::from_millis(POOL_BACK_OFF_MILLIS);
        let longest = Duration::from_millis(POOL_BACK_OFF_MILLIS_MAX);
        let pause = former.map_or(first, |former| (former.pause * 2).min(longest));
        let until = Instant::now() + pause;
        let trouble = Self {
            cause,
            pause,
            until,
        };
        all.insert(runtime.to_owned(), trouble);
    }
}
