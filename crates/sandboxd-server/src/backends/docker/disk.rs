//! What a sandbox stores: counted in its workspace and in its container's own layer, where the engine keeps that as a
//! directory of this host which the daemon may read. What cannot be counted is not limited, and said to be so.

use super::connect::Engine;
use super::kernel::Counters;
use super::{Inner, Sandbox, ending};
use crate::backends::tally::{self, Counted, Most, Tally};
use crate::backends::{Asked, Ceiling, CreateError, Enforcement, SandboxSpec};
use crate::id::SandboxId;
use bollard::models::ContainerInspectResponse;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::task::AbortOnDropHandle;

/// Where an engine that keeps layers as directories says which one a container writes to.
const UPPER: &str = "UpperDir";
/// How long a run may take to end that has filled its sandbox.
const OVERFILL_GRACE: Duration = Duration::from_secs(2);
/// How long it is then looked whether something works on, and how much CPU time that uses.
const OVERFILL_LOOK: Duration = Duration::from_secs(1);
const OVERFILL_CPU: Duration = Duration::from_millis(20);

/// Whether what is stored can be limited by this engine at all.
pub(super) fn enforcement(engine: &Engine) -> Enforcement {
    if engine.is_local() {
        Enforcement::Enforced(
            "by counting, where the engine keeps containers as directories of this host".to_owned(),
        )
    } else {
        Enforcement::Unenforced(
            "the engine is not on this host: what its containers store cannot be counted"
                .to_owned(),
        )
    }
}

/// The places of one sandbox that can be counted.
#[derive(Debug)]
pub(super) struct Places {
    workspace: Option<OwnedFd>,
    layer: Result<OwnedFd, String>,
}

impl Places {
    /// Those of a container, with its workspace.
    pub(super) async fn of(
        engine: &Engine,
        looked: &ContainerInspectResponse,
        workspace: Option<OwnedFd>,
    ) -> Self {
        Self {
            workspace,
            layer: layer(engine, looked).await,
        }
    }

    /// Whether what the sandbox stores is limited.
    fn enforcement(&self, spec: &SandboxSpec) -> Enforcement {
        match &self.layer {
            Ok(_) if is_counted(spec) => Enforcement::Enforced(
                "by counting, in the workspace and in the container's own layer".to_owned(),
            ),
            Ok(_) => Enforcement::Enforced("by counting, in the container's own layer".to_owned()),
            Err(why) if is_counted(spec) => Enforcement::Unenforced(format!(
                "the workspace is counted, and not the container's own layer: {why}"
            )),
            Err(why) => Enforcement::Unenforced(why.clone()),
        }
    }

    /// What is in place, if something was asked for; a ceiling that somebody set and that is not in place is refused,
    /// unless they accept that.
    pub(super) fn enforced(&self, spec: &SandboxSpec) -> Result<Option<Enforcement>, CreateError> {
        if spec.disk_bytes.is_none() && spec.disk_files.is_none() {
            return Ok(None);
        }
        match self.enforcement(spec) {
            Enforcement::Unenforced(cause)
                if is_explicit(spec) && !spec.allow_unenforced.contains(&Ceiling::Disk) =>
            {
                Err(CreateError::Unenforceable {
                    ceiling: Ceiling::Disk,
                    cause,
                })
            }
            found => Ok(Some(found)),
        }
    }

    /// Starts to count, where something limits it.
    pub(super) fn count(
        self,
        inner: &Arc<Inner>,
        id: &SandboxId,
        spec: &SandboxSpec,
        counters: Option<&Arc<Counters>>,
        tally: &Arc<Tally>,
    ) -> Option<AbortOnDropHandle<()>> {
        let workspace = self.workspace.filter(|_| is_counted(spec));
        let places: Vec<OwnedFd> = workspace.into_iter().chain(self.layer).collect();
        let limited = spec.disk_bytes.is_some() || spec.disk_files.is_some();
        if !limited || places.is_empty() {
            return None;
        }
        let value = |asked: Option<Asked<u64>>| asked.map_or(u64::MAX, |asked| asked.value);
        let counters = counters.cloned();
        let counted = Counted {
            places,
            most: Most {
                bytes: value(spec.disk_bytes),
                files: value(spec.disk_files),
            },
            cpu_time: Box::new(move || counters.as_ref()?.cpu_time()),
            tally: Arc::clone(tally),
            turn: Arc::clone(&inner.counting),
        };
        let (theirs, id) = (Arc::downgrade(inner), id.clone());
        let overfilled = move || {
            if let Some(inner) = theirs.upgrade() {
                let (of, id) = (Arc::clone(&inner), id.clone());
                inner.errand(async move {
                    if let Some(sandbox) = of.sandbox(&id)
                        && goes_on(&sandbox).await
                        && let Err(error) = ending::kill(&of.engine, &sandbox.container).await
                    {
                        tracing::warn!(%id, %error, "a sandbox that stores too much was not ended");
                    }
                });
            }
        };
        let keeping = tokio::spawn(tally::keep(counted, overfilled));
        Some(AbortOnDropHandle::new(keeping))
    }
}

/// Whether somebody set a ceiling of what is stored.
pub(super) fn is_explicit(spec: &SandboxSpec) -> bool {
    let asked = [spec.disk_bytes, spec.disk_files];
    asked.into_iter().flatten().any(|asked| asked.explicit)
}

/// Whether the workspace counts: a user's own directory may hold much already, and does only where somebody asked for it.
fn is_counted(spec: &SandboxSpec) -> bool {
    let workspace = spec.workspace.as_ref();
    workspace.is_some_and(|host| host.managed || is_explicit(spec))
}

/// The directory that a container writes to, or why it is not at hand.
async fn layer(engine: &Engine, looked: &ContainerInspectResponse) -> Result<OwnedFd, String> {
    if !engine.is_local() {
        return Err("the engine is not on this host".to_owned());
    }
    let driver = looked.graph_driver.as_ref();
    let upper = driver.and_then(|driver| driver.data.get(UPPER).cloned());
    let upper = upper.ok_or("the engine does not keep it as a directory")?;
    let opened = tokio::task::spawn_blocking(move || {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::open(&upper, flags, Mode::empty())
            .map_err(|errno| format!("{upper:?}: {}", std::io::Error::from(errno)))
    });
    opened.await.map_err(|error| error.to_string())?
}

/// Whether something in a sandbox works on although its run, which hears of it at once, has had time to end: then it is in
/// the background, where nobody but the engine reaches it.
async fn goes_on(sandbox: &Sandbox) -> bool {
    tokio::time::sleep(OVERFILL_GRACE).await;
    let used = || sandbox.counters.as_ref()?.cpu_time();
    let before = used();
    tokio::time::sleep(OVERFILL_LOOK).await;
    match (before, used()) {
        (Some(before), Some(after)) => after.saturating_sub(before) > OVERFILL_CPU,
        _ => true,
    }
}
