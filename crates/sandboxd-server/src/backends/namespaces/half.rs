//! What has been taken for a sandbox on the way to being one, and how it is given back if it does not get there.

use super::{HasLayer, Inner, ending, lock};
use crate::id::SandboxId;
use rustix::fd::OwnedFd;
use std::sync::Arc;

/// The right to make a sandbox of an id, held until it is there or everything of it is gone: nobody may make what is still
/// being removed.
#[derive(Debug)]
pub(super) struct Claim {
    inner: Arc<Inner>,
    id: SandboxId,
}

impl Claim {
    /// Takes it, unless somebody has it or the sandbox runs.
    pub(super) fn take(inner: &Arc<Inner>, id: &SandboxId) -> Option<Arc<Self>> {
        let free = lock(&inner.claimed).insert(id.clone());
        let claim = free.then(|| Self {
            inner: Arc::clone(inner),
            id: id.clone(),
        })?;
        let runs = lock(&inner.sandboxes).contains_key(id);
        (!runs).then(|| Arc::new(claim))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        lock(&self.inner.claimed).remove(&self.id);
    }
}

/// What has been taken for a sandbox that is not there yet.
pub(super) struct Half {
    /// The right to make it.
    claim: Arc<Claim>,
    /// Where it was parked: the right to be its session's sandbox, under whose id its layer may lie already.
    pub(super) heir: Option<Arc<Claim>>,
    /// The backend.
    pub(super) inner: Arc<Inner>,
    /// Whose it is.
    pub(super) id: SandboxId,
    /// Host ids.
    pub(super) range: Option<u32>,
    /// Processors.
    pub(super) cpus: Vec<u16>,
    /// A layer on disk.
    pub(super) layer: HasLayer,
    /// A layer that was there before is not thrown away because a wake failed.
    pub(super) layer_is_old: bool,
    /// The host went down while that layer was in use.
    pub(super) layer_is_torn: bool,
    /// The generation of Landlock that holds it, as its first process told; none is 0.
    pub(super) landlock: u8,
    /// Its address.
    pub(super) network: Option<u16>,
    /// Whether cgroup directories may have been made.
    pub(super) cgroups: bool,
    /// The first process.
    pub(super) child: Option<OwnedFd>,
    /// Nothing is to be given back any more.
    pub(super) done: bool,
}

impl Drop for Half {
    fn drop(&mut self) {
        if !self.done {
            // Its own task, since a drop cannot wait. Each of its waits has a deadline, and the backend's end waits for it.
            let undo = self.undo();
            lock(&self.inner.errands).spawn(undo);
        }
    }
}

impl Half {
    /// Nothing is taken yet.
    pub(super) fn new(claim: &Arc<Claim>) -> Self {
        let (inner, id) = (&claim.inner, &claim.id);
        Self {
            claim: Arc::clone(claim),
            heir: None,
            inner: Arc::clone(inner),
            id: id.clone(),
            range: None,
            cpus: Vec::new(),
            layer: HasLayer::No,
            layer_is_old: false,
            layer_is_torn: false,
            landlock: 0,
            network: None,
            cgroups: false,
            child: None,
            done: false,
        }
    }

    /// Gives everything back.
    pub(super) fn undo(&mut self) -> impl Future<Output = ()> + Send + 'static {
        self.done = true;
        let (inner, id) = (Arc::clone(&self.inner), self.id.clone());
        let claims = (Arc::clone(&self.claim), self.heir.take());
        let heir = claims.1.as_ref().map(|heir| heir.id.clone());
        let (child, cpus) = (self.child.take(), std::mem::take(&mut self.cpus));
        let (cgroups, network) = (self.cgroups, self.network.take());
        let layer = self.layer != HasLayer::No && !self.layer_is_old;
        // A kept layer keeps its ids.
        let range = self.range.take().filter(|_| !self.layer_is_old);
        async move {
            if let Some(pidfd) = child
                && let Err(error) = ending::kill_and_reap(&pidfd).await
            {
                tracing::warn!(%id, error, "a process of a sandbox that did not come to be");
            }
            let theirs = Arc::clone(&inner);
            let removed =
                tokio::task::spawn_blocking(move || remove(&theirs, &id, cgroups, layer, heir))
                    .await;
            match removed {
                // Only when nothing of it is left may somebody else have its ids.
                Ok(Ok(())) => {
                    ending::give_back(&inner, range, &cpus);
                    inner.networks.give_back(network);
                }
                Ok(Err(error)) => tracing::warn!(error, "a sandbox that did not come to be"),
                Err(error) => tracing::warn!(%error, "a sandbox that did not come to be"),
            }
            drop(claims);
        }
    }
}

fn remove(
    inner: &Inner,
    id: &SandboxId,
    cgroups: bool,
    layer: bool,
    heir: Option<SandboxId>,
) -> Result<(), String> {
    if cgroups {
        // A child may have been born just when its creator stopped waiting.
        inner.cgroups.kill(id.as_str());
        inner
            .cgroups
            .remove(id.as_str())
            .map_err(|error| error.to_string())?;
    }
    if layer {
        // In this order: a layer that is being handed over at this moment is found in one of the two places.
        for id in std::iter::once(id).chain(heir.as_ref()) {
            inner.layers.remove(id).map_err(|error| error.to_string())?;
        }
        inner.layers.empty_trash();
    }
    Ok(())
}
