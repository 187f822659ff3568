//! Sandboxes that are parked: made before anybody asks for one, and then for exactly one session.
//!
//! One that is parked is what [`create`] makes, with ids, a layer, cgroups, a network address and a guest of its own, under
//! an id of its own: only its workspace is missing, which the launcher mounts when it is taken. It is held as what is half
//! made is held, so that it is given back whole whatever happens to whoever holds it, and is in no list of sandboxes.

use super::create::{self, Launched, Prepared, Started, Whose, step};
use super::half::{Claim, Half};
use super::network::{self, Join};
use super::{HasLayer, Inner, lock};
use crate::backends::{CreateError, Kind, SandboxSpec, Start, Taken, engine_names};
use crate::id::SandboxId;
use crate::limits::{CONNECT_SECONDS_MAX, CREATE_SECONDS_MAX};
use rustix::fd::OwnedFd;
use sandboxd_protocol::client::Client;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::timeout;

/// All that are parked.
#[derive(Debug, Default)]
pub(super) struct ParkedSandboxes {
    /// Held only to look, to put and to take.
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    parked: Vec<Parked>,
    /// Whether the backend ends.
    closed: bool,
}

/// One of them.
struct Parked {
    /// What it is counted under.
    name: String,
    /// What it is, but for its workspace.
    spec: SandboxSpec,
    half: Half,
    prepared: Prepared,
    join: Join,
    /// Its mount namespace, where a workspace is missing.
    mounts: Option<OwnedFd>,
    client: Client,
}

impl fmt::Debug for Parked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parked")
            .field("name", &self.name)
            .field("id", &self.half.id)
            .finish_non_exhaustive()
    }
}

impl Parked {
    fn lives(&self) -> bool {
        let ended = self.half.child.as_ref().is_none_or(network::has_ended);
        !ended && !self.client.is_closed()
    }

    async fn end(mut self) {
        self.client.close();
        self.half.undo().await;
    }
}

impl ParkedSandboxes {
    /// Makes one and parks it.
    pub(super) async fn park(&self, inner: &Arc<Inner>, kind: &Kind) -> Result<(), CreateError> {
        if lock(&self.held).closed {
            return Err(step("parking", "the backend ends"));
        }
        let making = make(inner, kind);
        let limit = Duration::from_secs(CREATE_SECONDS_MAX);
        let made = timeout(limit, making).await;
        let parked = made.unwrap_or(Err(CreateError::TimedOut(CREATE_SECONDS_MAX)))?;
        let late = {
            let mut held = lock(&self.held);
            if held.closed {
                Some(parked)
            } else {
                held.parked.push(parked);
                None
            }
        };
        match late {
            None => Ok(()),
            Some(parked) => {
                parked.end().await;
                Err(step("parking", "the backend ends"))
            }
        }
    }

    /// Ends what is of none of these kinds, is one too many, or has ended by itself.
    pub(super) async fn retain(&self, kinds: &[Kind]) {
        let mut left: Vec<usize> = kinds.iter().map(|kind| kind.count).collect();
        let over: Vec<Parked> = {
            let mut held = lock(&self.held);
            let is_over = |parked: &mut Parked| {
                let is_its = |kind: &Kind| kind.name == parked.name && kind.spec == parked.spec;
                let kind = kinds.iter().position(is_its);
                match kind.and_then(|kind| left.get_mut(kind)) {
                    Some(left) if *left > 0 && parked.lives() => {
                        *left -= 1;
                        false
                    }
                    _ => true,
                }
            };
            held.parked.extract_if(.., is_over).collect()
        };
        for parked in over {
            tracing::debug!(?parked, "a parked sandbox is ended");
            parked.end().await;
        }
    }

    /// How many there are, by name.
    pub(super) fn ready(&self) -> BTreeMap<String, usize> {
        let held = lock(&self.held);
        let mut ready = BTreeMap::new();
        for parked in held.parked.iter().filter(|parked| parked.lives()) {
            *ready.entry(parked.name.clone()).or_default() += 1;
        }
        ready
    }

    /// One that is just this, for a sandbox of this id.
    pub(super) async fn take(
        &self,
        inner: &Arc<Inner>,
        id: &SandboxId,
        spec: &SandboxSpec,
    ) -> Option<Taken> {
        let wanted = spec.kind();
        let spec = engine_names::left_out(spec).ok()?;
        let mut parked = {
            let mut held = lock(&self.held);
            let fits = |parked: &Parked| parked.lives() && parked.spec == wanted;
            let first = held.parked.iter().position(fits)?;
            held.parked.remove(first)
        };
        let assigned = match Claim::take(inner, id) {
            Some(_claim) => assign(inner, id, &spec, &mut parked).await,
            None => Err("a sandbox of this id runs, or is being removed".to_owned()),
        };
        match assigned {
            Ok(taken) => Some(taken),
            Err(cause) => {
                tracing::warn!(?parked, cause, "a parked sandbox was of no use");
                parked.end().await;
                None
            }
        }
    }

    /// Ends all; whether there were any.
    pub(super) async fn clear(&self) -> bool {
        let all = std::mem::take(&mut lock(&self.held).parked);
        let any = !all.is_empty();
        for parked in all {
            parked.end().await;
        }
        any
    }

    /// Ends all, and parks no more.
    pub(super) async fn close(&self) {
        lock(&self.held).closed = true;
        self.clear().await;
    }
}

async fn make(inner: &Arc<Inner>, kind: &Kind) -> Result<Parked, CreateError> {
    let spec = engine_names::left_out(&kind.spec)?;
    let spec = spec.as_ref();
    if let Some(workspace) = &spec.workspace
        && !(inner.privileged && workspace.managed)
    {
        let cause =
            "only a daemon that runs as root can give a sandbox its workspace after the start";
        return Err(step("parking", cause));
    }
    create::refuse_unenforceable(inner, spec)?;
    let id = SandboxId::generate();
    let claim = Claim::take(inner, &id).ok_or_else(|| step("parking", "the id is taken"))?;
    let (mut half, with) = (Half::new(&claim), spec.clone());
    let prepared = tokio::task::spawn_blocking(move || {
        let prepared = create::prepare(&mut half, &with, Start::Fresh, Whose::Nobodys);
        (half, prepared)
    });
    let (mut half, prepared) = prepared.await.map_err(|error| step("preparing", error))?;
    let prepared = prepared?;
    let parks = spec.workspace.is_some();
    let started = create::launch(inner, spec, &mut half, &prepared, parks).await;
    let Started { link, join, mounts } = started.map_err(|launched| match launched {
        Launched::Failed(error) => error,
        Launched::NoImageMapping(device) => {
            // The next one is not tried.
            lock(&inner.unmapped).insert(device);
            step("parking", "the image's file system has no idmapped mounts")
        }
        Launched::NoMapping(_) => step("parking", "a workspace was mapped before there was one"),
    })?;
    let limit = Duration::from_secs(CONNECT_SECONDS_MAX);
    let connected = timeout(limit, Client::connect(link)).await;
    let connected = connected.map_err(|_| step("greeting the guest", "no answer in time"))?;
    let (client, _) = connected.map_err(|error| step("greeting the guest", error))?;
    Ok(Parked {
        name: kind.name.clone(),
        spec: kind.spec.kind(),
        half,
        prepared,
        join,
        mounts,
        client,
    })
}

/// Gives a parked sandbox what it lacks, and makes it the one of this id.
async fn assign(
    inner: &Arc<Inner>,
    id: &SandboxId,
    spec: &SandboxSpec,
    parked: &mut Parked,
) -> Result<Taken, String> {
    if let Some(joined) = parked.join.joined()
        && !inner.networks.still_reach(joined).await
    {
        return Err("what it was joined to has gone".to_owned());
    }
    let (theirs, host) = (Arc::clone(inner), spec.workspace.clone());
    let (range, user) = (parked.half.range, spec.user);
    let opened = tokio::task::spawn_blocking(move || {
        let files = host.map(|host| create::take_workspace(&theirs, &host, range, user, true));
        files.transpose().map_err(|error| error.to_string())
    });
    parked.prepared.files = opened.await.map_err(|error| error.to_string())??;
    if let (Some(files), Some(mounts)) = (&parked.prepared.files, &parked.mounts) {
        let at = spec.work_dir.trim_start_matches('/');
        let (directory, owners) = (&files.directory, files.owners.clone());
        let assigned = inner.launcher.assign(mounts, directory, at, owners);
        let assigned = timeout(Duration::from_secs(CREATE_SECONDS_MAX), assigned).await;
        assigned
            .map_err(|_| "the launcher did not answer in time".to_owned())?
            .map_err(|error| error.to_string())?;
    }
    if spec.keep_layer && parked.half.layer == HasLayer::Scratch {
        let (theirs, from, to) = (Arc::clone(inner), parked.half.id.clone(), id.clone());
        let moved = tokio::task::spawn_blocking(move || theirs.layers.hand_over(&from, &to));
        let moved = moved.await.map_err(|error| error.to_string())?;
        moved.map_err(|error| format!("its write layer: {error}"))?;
        parked.half.layer = HasLayer::Keepable;
    }
    let Parked {
        half,
        prepared,
        join,
        client,
        ..
    } = parked;
    let settled = create::settle(inner, id, spec, half, prepared, join);
    let (enforced, meter) = settled.map_err(|error| error.to_string())?;
    Ok(Taken {
        client: client.clone(),
        enforced,
        meter,
    })
}
