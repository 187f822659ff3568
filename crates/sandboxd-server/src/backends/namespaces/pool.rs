//! Sandboxes that are parked: made before anybody asks for one, and then for exactly one session.
//!
//! One that is parked is what [`create`] makes, with ids, a layer, cgroups, a network address and a guest of its own, under
//! an id of its own: only its workspace is missing, which the launcher mounts when it is taken. It is held as what is half
//! made is held, so that it is given back whole whatever happens to whoever holds it, and is in no list of sandboxes.

use super::create::{self, Launched, Prepared, Started, Whose, step};
use super::half::{Claim, Half};
use super::network::{self, Join};
use super::{HasLayer, Inner, lock};
use crate::backends::{CreateError, Kind, Network, SandboxSpec, Start, Taken, engine_names};
use crate::id::SandboxId;
use crate::limits::{
    CONNECT_SECONDS_MAX, CREATE_SECONDS_MAX, POOL_IN_VAIN_MAX, POOL_IN_VAIN_SECONDS,
};
use rustix::fd::OwnedFd;
use sandboxd_protocol::client::Client;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// All that are parked.
#[derive(Debug, Default)]
pub(super) struct ParkedSandboxes {
    /// Held only to look, to put and to take.
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    parked: Vec<Parked>,
    /// What could not be made with nothing parked either, and until when nothing is given up for it.
    hopeless: Vec<(SandboxSpec, Instant)>,
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
        match self.put(parked) {
            None => Ok(()),
            Some(parked) => {
                parked.end().await;
                Err(step("parking", "the backend ends"))
            }
        }
    }

    /// Keeps one, unless the backend ends.
    fn put(&self, parked: Parked) -> Option<Parked> {
        let mut held = lock(&self.held);
        if held.closed {
            return Some(parked);
        }
        held.parked.push(parked);
        None
    }

    /// Ends what is of none of these kinds, is one too many, has ended by itself, or has lost what it was joined to.
    pub(super) async fn retain(&self, inner: &Arc<Inner>, kinds: &[Kind]) {
        let router = inner.networks.router_now().await;
        let mut left: Vec<usize> = kinds.iter().map(|kind| kind.count).collect();
        let over: Vec<Parked> = {
            let mut held = lock(&self.held);
            let is_over = |parked: &mut Parked| {
                let is_its = |kind: &Kind| kind.name == parked.name && kind.spec == parked.spec;
                let kind = kinds.iter().position(is_its);
                match kind.and_then(|kind| left.get_mut(kind)) {
                    Some(left) if *left > 0 && parked.lives() && parked.join.holds(router) => {
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
        // Only who has a network waits where a router is being made.
        let router = match spec.network {
            Network::None => None,
            Network::Bridge | Network::Named(_) => inner.networks.router_now().await,
        };
        let mut parked = {
            let mut held = lock(&self.held);
            let fits = |parked: &Parked| {
                parked.spec == wanted && parked.join.holds(router) && parked.lives()
            };
            let first = held.parked.iter().position(fits)?;
            held.parked.remove(first)
        };
        // Held as the rest is: whoever stops waiting, nobody makes this sandbox before what there is of it has gone.
        parked.half.heir = Claim::take(inner, id);
        let assigned = match parked.half.heir {
            Some(_) => assign(inner, id, &spec, &mut parked).await,
            None => Err(Unfit::Session(
                "a sandbox of this id runs, or is being removed".to_owned(),
            )),
        };
        match assigned {
            Ok(taken) => Some(taken),
            Err(Unfit::Session(cause)) => {
                tracing::debug!(?parked, cause, "a parked sandbox was not taken");
                parked.half.heir = None;
                if let Some(parked) = self.put(parked) {
                    parked.end().await;
                }
                None
            }
            Err(Unfit::Sandbox(cause)) => {
                tracing::warn!(?parked, cause, "a parked sandbox was of no use");
                parked.end().await;
                None
            }
        }
    }

    /// Ends all for the sake of a sandbox that could not be made; whether there were any. Not for one that was none the
    /// better for it a while ago: what is wrong with it is something else.
    pub(super) async fn give_up_for(&self, spec: &SandboxSpec) -> bool {
        let (kind, now) = (spec.kind(), Instant::now());
        let all = {
            let mut held = lock(&self.held);
            held.hopeless.retain(|(_, until)| *until > now);
            if held.hopeless.iter().any(|(hopeless, _)| *hopeless == kind) {
                return false;
            }
            std::mem::take(&mut held.parked)
        };
        let any = !all.is_empty();
        end_all(all).await;
        any
    }

    /// It was in vain.
    pub(super) fn no_help_to(&self, spec: &SandboxSpec) {
        let until = Instant::now() + Duration::from_secs(POOL_IN_VAIN_SECONDS);
        let mut held = lock(&self.held);
        if held.hopeless.len() == POOL_IN_VAIN_MAX {
            held.hopeless.remove(0);
        }
        held.hopeless.push((spec.kind(), until));
    }

    /// Ends all.
    async fn clear(&self) {
        let all = std::mem::take(&mut lock(&self.held).parked);
        end_all(all).await;
    }

    /// Ends all, and parks no more.
    pub(super) async fn close(&self) {
        lock(&self.held).closed = true;
        self.clear().await;
    }
}

async fn end_all(all: Vec<Parked>) {
    for parked in all {
        parked.end().await;
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
    let mut prepared = prepared?;
    prepared.tie(inner, spec).await;
    let parks = spec.workspace.is_some();
    let started = create::launch(inner, spec, &mut half, &prepared, parks).await;
    prepared.limit(inner, spec).await;
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

/// Why a parked sandbox did not become a session's.
enum Unfit {
    /// Something is wrong with it.
    Sandbox(String),
    /// Something is wrong with what the session brought: it is as good as before for another.
    Session(String),
}

/// Gives a parked sandbox what it lacks, and makes it the one of this id.
async fn assign(
    inner: &Arc<Inner>,
    id: &SandboxId,
    spec: &SandboxSpec,
    parked: &mut Parked,
) -> Result<Taken, Unfit> {
    let (theirs, host) = (Arc::clone(inner), spec.workspace.clone());
    let (range, user) = (parked.half.range, spec.user);
    let opened = tokio::task::spawn_blocking(move || {
        let files = host.map(|host| create::take_workspace(&theirs, &host, range, user, true));
        files.transpose().map_err(|error| error.to_string())
    });
    let opened = opened
        .await
        .map_err(|error| Unfit::Sandbox(error.to_string()))?;
    parked.prepared.files = opened.map_err(Unfit::Session)?;
    if let (Some(files), Some(mounts)) = (&parked.prepared.files, &parked.mounts) {
        let at = spec.work_dir.trim_start_matches('/');
        let (directory, owners) = (&files.directory, files.owners.clone());
        let assigned = inner.launcher.assign(mounts, directory, at, owners);
        let assigned = timeout(Duration::from_secs(CREATE_SECONDS_MAX), assigned).await;
        assigned
            .map_err(|_| Unfit::Sandbox("the launcher did not answer in time".to_owned()))?
            .map_err(|error| Unfit::Sandbox(error.to_string()))?;
    }
    parked.prepared.tie(inner, spec).await;
    parked.prepared.limit(inner, spec).await;
    if spec.keep_layer && parked.half.layer == HasLayer::Scratch {
        let (theirs, from, to) = (Arc::clone(inner), parked.half.id.clone(), id.clone());
        let moved = tokio::task::spawn_blocking(move || theirs.layers.hand_over(&from, &to));
        let moved = moved.await.map_err(|error| error.to_string());
        let moved = moved.and_then(|moved| moved.map_err(|error| error.to_string()));
        moved.map_err(|error| Unfit::Sandbox(format!("its write layer: {error}")))?;
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
    let (enforced, meter) = settled.map_err(|error| Unfit::Sandbox(error.to_string()))?;
    Ok(Taken {
        client: client.clone(),
        enforced,
        meter,
    })
}
