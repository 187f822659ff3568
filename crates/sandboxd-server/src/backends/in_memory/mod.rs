//! A double of a backend, for tests of everything above it: sandboxes without processes, in the memory of the test.
//!
//! Its guest speaks the real protocol over an in-memory link, so sessions, the link and the HTTP room above it are the
//! real ones. Inside there is a small tree of files and a handful of programs that are functions here: no wall of any
//! kind. It isolates nothing and is not for serving anybody.
//!
//! [`Switches`] make it misbehave: sandboxes that die, start slowly or not at all, guests that fall silent or lie.

mod files;
mod guest;
mod programs;
mod shell;
mod switches;
mod tree;

pub use switches::Switches;

use super::{
    Backend, Capabilities, Ceiling, CreateError, DestroyError, Enforced, Enforcement, Found,
    KeepLayer, Kind, ListError, Meter as _, Network, Pool, PrepareError, PreparedImage, Room,
    Running, SandboxSpec, Start, StopError, Taken, Usage, UsageError,
};
use crate::id::SandboxId;
use crate::runtimes::Runtime;
use crate::runtimes::images::Watcher;
use async_trait::async_trait;
use guest::MemoryGuest;
use sandboxd_protocol::client::Client;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use switches::{Corruptible, SandboxSwitches};
use tokio_util::sync::CancellationToken;
use tree::Tree;

/// Bytes that the link buffers each way.
const LINK_BYTES: usize = 64 * 1024;
/// What an idle sandbox claims to use, in bytes.
const IDLE_BYTES: u64 = 1024 * 1024;

/// The double.
#[derive(Debug, Default)]
pub struct InMemory {
    switches: Arc<Switches>,
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    sandboxes: HashMap<SandboxId, Sandbox>,
    layers: HashMap<SandboxId, Tree>,
    /// What is parked is a promise: it is made when it is taken.
    parked: Vec<(String, SandboxSpec)>,
    made: u64,
    most: usize,
}

#[derive(Debug)]
struct Sandbox {
    guest: Arc<MemoryGuest>,
    spec_memory: Option<u64>,
    keeps: bool,
    flags: Arc<SandboxSwitches>,
    /// Asks it to end.
    end: CancellationToken,
    /// It has.
    gone: CancellationToken,
}

impl Sandbox {
    /// Ends it. When this is over nothing comes from it any more, as from one whose processes are dead.
    async fn end(&self) {
        self.end.cancel();
        self.gone.cancelled().await;
    }
}

impl InMemory {
    /// One without any sandbox yet.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// What makes it misbehave.
    pub fn switches(&self) -> Arc<Switches> {
        self.switches.clone()
    }

    /// How many sandboxes exist.
    pub fn sandbox_count(&self) -> usize {
        self.inside().sandboxes.len()
    }

    /// How many sandboxes were ever made.
    pub fn made_count(&self) -> u64 {
        self.inside().made
    }

    /// The most sandboxes that ever existed at one time.
    pub fn most_at_once(&self) -> usize {
        self.inside().most
    }

    /// Ends every sandbox as if it had died by itself: nothing is told but by the end of the link.
    pub fn kill_all(&self) {
        for sandbox in self.inside().sandboxes.values() {
            sandbox.end.cancel();
        }
    }

    /// How many layers are kept.
    pub fn layer_count(&self) -> usize {
        self.inside().layers.len()
    }

    /// Everything that is parked dies by itself.
    pub fn lose_parked(&self) {
        self.inside().parked.clear();
    }

    /// What is parked, by the names that it is counted under.
    pub fn parked(&self) -> Vec<(String, SandboxSpec)> {
        self.inside().parked.clone()
    }

    /// Somebody removed the kept layers.
    pub fn lose_layers(&self) {
        self.inside().layers.clear();
    }

    /// What a daemon that is killed leaves: no sandbox, and the layers of those whose layer lies on disk.
    pub fn crash(&self) {
        let mut inside = self.inside();
        let sandboxes: Vec<(SandboxId, Sandbox)> = inside.sandboxes.drain().collect();
        for (id, sandbox) in sandboxes {
            sandbox.end.cancel();
            if sandbox.keeps {
                inside.layers.insert(id, sandbox.guest.take_tree());
            }
        }
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A sandbox, whatever the switches say.
    fn begin(
        &self,
        id: &SandboxId,
        spec: &SandboxSpec,
        start: Start,
    ) -> Result<Running, CreateError> {
        let spec = super::engine_names::left_out(spec)?;
        let spec = spec.as_ref();
        if spec.network != Network::None && !spec.allow_unenforced.contains(&Ceiling::Network) {
            return Err(CreateError::Unenforceable {
                ceiling: Ceiling::Network,
                cause: WITHOUT_NETWORK.to_owned(),
            });
        }
        let tree = match start {
            Start::Fresh => Tree::new(&spec.work_dir, &spec.env),
            Start::KeptLayer => self
                .inside()
                .layers
                .remove(id)
                .ok_or(CreateError::LayerMissing)?,
        };
        let (ours, theirs) = tokio::io::duplex(LINK_BYTES);
        let flags = Arc::new(SandboxSwitches::default());
        let guest =
            MemoryGuest::new(spec, tree, flags.clone()).map_err(|cause| CreateError::Step {
                step: "workspace".to_owned(),
                cause: cause.to_string(),
            })?;
        let guest = Arc::new(guest);
        let end = CancellationToken::new();
        self.switches.note(id, flags.clone());
        let serving = sandboxd_protocol::server::serve(
            Corruptible::new(theirs, flags.clone()),
            guest.clone(),
        );
        let over = end.clone();
        let gone = CancellationToken::new();
        let told = gone.clone().drop_guard();
        // Owned by the sandbox: ends with its token or with the link.
        tokio::spawn(async move {
            let _told = told;
            tokio::select! {
                _ = serving => {}
                () = over.cancelled() => {}
            }
        });
        let mut inside = self.inside();
        inside.made += 1;
        inside.sandboxes.insert(
            id.clone(),
            Sandbox {
                guest,
                spec_memory: spec.memory_bytes.map(|asked| asked.value),
                keeps: spec.keep_layer,
                flags: flags.clone(),
                end,
                gone,
            },
        );
        inside.most = inside.most.max(inside.sandboxes.len());
        Ok(Running {
            link: Box::new(ours),
            enforced: pretended(spec),
            meter: flags,
            layer_is_torn: start == Start::KeptLayer && self.switches.layers_are_torn(),
        })
    }

    fn take(&self, id: &SandboxId) -> Option<Sandbox> {
        self.inside().sandboxes.remove(id)
    }
}

/// Why it has none to give.
const WITHOUT_NETWORK: &str = "\"bridge\" is not possible: a double reaches nothing";

/// Every ceiling that the specification asks for, in name only.
fn pretended(spec: &SandboxSpec) -> Enforced {
    let asked = [
        (Ceiling::Memory, spec.memory_bytes.is_some()),
        (Ceiling::Cpus, spec.cpus.is_some()),
        (Ceiling::CpuShares, spec.cpu_shares.is_some()),
        (Ceiling::Pids, spec.pids.is_some()),
        (Ceiling::Disk, spec.disk_bytes.is_some()),
        (Ceiling::Network, true),
    ];
    let named = asked.into_iter().filter(|(_, asked)| *asked);
    let unmet = spec.unmet.iter().cloned();
    named
        .map(|(ceiling, _)| (ceiling, in_name_only()))
        .chain(unmet.map(|(ceiling, why)| (ceiling, Enforcement::Unenforced(why))))
        .collect()
}

fn in_name_only() -> Enforcement {
    Enforcement::Enforced("in name only: this is a double".to_owned())
}

#[async_trait]
impl Backend for InMemory {
    fn name(&self) -> &'static str {
        "in_memory"
    }

    async fn capabilities(&self) -> Capabilities {
        let ceilings: BTreeMap<Ceiling, Enforcement> = Ceiling::ALL
            .iter()
            .map(|ceiling| (*ceiling, in_name_only()))
            .collect();
        Capabilities {
            bridge: Enforcement::Unenforced(WITHOUT_NETWORK.to_owned()),
            ceilings,
            outlives_daemon: false,
            buildkit: false,
        }
    }

    async fn prepare(&self, runtime: &Runtime, _: &Watcher) -> Result<PreparedImage, PrepareError> {
        self.switches.before_prepare().await;
        match self.switches.missing_image(&runtime.alias) {
            Some(how) => Err(PrepareError::Missing {
                image: runtime.label.clone(),
                how,
            }),
            None => Ok(PreparedImage::Empty),
        }
    }

    async fn kept_image(&self, id: &SandboxId) -> Option<PreparedImage> {
        let is_kept = self.inside().layers.contains_key(id);
        is_kept.then_some(PreparedImage::Empty)
    }

    async fn create(
        &self,
        id: &SandboxId,
        spec: &SandboxSpec,
        start: Start,
    ) -> Result<Running, CreateError> {
        self.switches.before_create().await?;
        self.begin(id, spec, start)
    }

    async fn usage(&self, ids: &[SandboxId]) -> Vec<Result<Usage, UsageError>> {
        let inside = self.inside();
        ids.iter()
            .map(|id| {
                let gone = || UsageError("no such sandbox".to_owned());
                let sandbox = inside.sandboxes.get(id).ok_or_else(gone)?;
                let running = sandbox.guest.running();
                Ok(Usage {
                    memory_bytes: Some(IDLE_BYTES),
                    memory_limit_bytes: sandbox.spec_memory,
                    cpu_time: Some(Duration::from_millis(sandbox.guest.started())),
                    pids: Some(running + 1),
                    memory_kills: sandbox.flags.hits().memory_kills,
                    disk_bytes: None,
                    disk_files: None,
                })
            })
            .collect()
    }

    async fn stop(&self, id: &SandboxId, keep: KeepLayer) -> Result<(), StopError> {
        self.switches.before_stop().await;
        if let Some(sandbox) = self.take(id) {
            sandbox.end().await;
            if keep == KeepLayer::Yes && sandbox.keeps {
                let tree = sandbox.guest.take_tree();
                self.inside().layers.insert(id.clone(), tree);
                if self.switches.keep_fails() {
                    return Err(StopError("the double was told to fail".to_owned()));
                }
            }
        }
        Ok(())
    }

    async fn destroy(&self, id: &SandboxId) -> Result<(), DestroyError> {
        self.switches.before_stop().await;
        if let Some(sandbox) = self.take(id) {
            sandbox.end().await;
        }
        self.inside().layers.remove(id);
        self.switches.forget(id);
        Ok(())
    }

    async fn list(&self) -> Result<Vec<Found>, ListError> {
        let inside = self.inside();
        let found = |running: bool| {
            move |id: &SandboxId| Found {
                id: id.clone(),
                running,
            }
        };
        let running = inside.sandboxes.keys().map(found(true));
        Ok(running
            .chain(inside.layers.keys().map(found(false)))
            .collect())
    }

    async fn shutdown(&self) {
        let mut inside = self.inside();
        inside.parked.clear();
        for (_, sandbox) in inside.sandboxes.drain() {
            sandbox.end.cancel();
        }
    }

    fn pool(&self) -> Option<&dyn Pool> {
        Some(self)
    }
}

#[async_trait]
impl Pool for InMemory {
    async fn image(&self, runtime: &Runtime) -> Result<Option<PreparedImage>, PrepareError> {
        let missing = self.switches.missing_image(&runtime.alias).is_some();
        Ok((!missing).then_some(PreparedImage::Empty))
    }

    async fn park(&self, kind: &Kind) -> Result<(), CreateError> {
        self.switches.before_create().await?;
        let parked = (kind.name.clone(), kind.spec.kind());
        self.inside().parked.push(parked);
        Ok(())
    }

    async fn retain(&self, kinds: &[Kind]) {
        let mut left: Vec<usize> = kinds.iter().map(|kind| kind.count).collect();
        self.inside().parked.retain(|(name, spec)| {
            let is_its = |kind: &Kind| kind.name == *name && kind.spec.kind() == *spec;
            let left = kinds
                .iter()
                .position(is_its)
                .and_then(|kind| left.get_mut(kind));
            left.is_some_and(|left| {
                let keeps = *left > 0;
                *left = left.saturating_sub(1);
                keeps
            })
        });
    }

    fn ready(&self) -> BTreeMap<String, usize> {
        let mut ready = BTreeMap::new();
        for (name, _) in &self.inside().parked {
            *ready.entry(name.clone()).or_default() += 1;
        }
        ready
    }

    fn room(&self) -> Room {
        self.switches.room()
    }

    async fn take(&self, id: &SandboxId, spec: &SandboxSpec) -> Option<Taken> {
        {
            let wanted = spec.kind();
            let mut inside = self.inside();
            let first = inside.parked.iter().position(|(_, spec)| *spec == wanted)?;
            inside.parked.remove(first);
        }
        let running = self.begin(id, spec, Start::Fresh).ok()?;
        let (client, _) = Client::connect(running.link).await.ok()?;
        Some(Taken {
            client,
            enforced: running.enforced,
            meter: running.meter,
        })
    }
}
