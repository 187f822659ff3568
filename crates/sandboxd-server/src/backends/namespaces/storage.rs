//! The limit of what a sandbox stores: by what each place of it keeps that limit, and what has to be counted for it.

use super::Inner;
use super::cgroups::counters::Counters;
use super::layers::Layer;
use super::plan;
use super::projects::Quotas;
use super::tally::{self, Counted, Most, Tally};
use crate::backends::{Asked, Enforcement, SandboxSpec};
use crate::id::SandboxId;
use rustix::fd::OwnedFd;
use std::io;
use std::sync::Arc;
use tokio_util::task::AbortOnDropHandle;

/// By what the limit of what is stored is kept, for each part of a sandbox.
pub(super) fn enforcement(spec: &SandboxSpec, quotas: &Quotas) -> Enforcement {
    let mut how = Vec::new();
    if plan::root_in_memory(spec) {
        how.push("the root by the size of its memory file system");
    } else if quotas.layer {
        how.push("the write layer by project quota");
    } else {
        how.push("the write layer by counting");
    }
    match &spec.workspace {
        Some(_) if quotas.workspace => how.push("the workspace by project quota"),
        Some(_) if plan::workspace_is_counted(spec) => how.push("the workspace by counting"),
        Some(_) => how.push("the workspace, which is a user's own, not at all"),
        None => {}
    }
    if quotas.layer && quotas.workspace && quotas.gauge.is_none() {
        how.push("both together, since they are on two file systems, by counting");
    }
    Enforcement::Enforced(how.join(", "))
}

/// The directories whose content is counted: none where one quota keeps all of it.
pub(super) fn counted_places(
    spec: &SandboxSpec,
    quotas: &Quotas,
    layer: Option<&Layer>,
    workspace: Option<&OwnedFd>,
) -> io::Result<Vec<OwnedFd>> {
    let mut places = Vec::new();
    if !plan::is_counted(spec) || quotas.gauge.is_some() {
        return Ok(places);
    }
    if let Some(layer) = layer {
        places.push(layer.directory.try_clone()?);
    }
    if let (Some(workspace), true) = (workspace, plan::workspace_is_counted(spec)) {
        places.push(workspace.try_clone()?);
    }
    Ok(places)
}

/// Starts to count what a sandbox stores, where nothing else limits it. `id` is what its cgroups are called by.
pub(super) fn counting(
    inner: &Arc<Inner>,
    spec: &SandboxSpec,
    id: &SandboxId,
    counters: &Arc<Counters>,
    tally: &Arc<Tally>,
    places: Vec<OwnedFd>,
) -> Option<AbortOnDropHandle<()>> {
    if places.is_empty() {
        return None;
    }
    let value = |asked: Option<Asked<u64>>| asked.map_or(u64::MAX, |asked| asked.value);
    let counted = Counted {
        places,
        most: Most {
            bytes: value(spec.disk_bytes),
            files: value(spec.disk_files),
        },
        cpu_time: {
            let counters = Arc::clone(counters);
            Box::new(move || counters.cpu_time())
        },
        tally: Arc::clone(tally),
        turn: Arc::clone(&inner.counting),
    };
    let (theirs, id) = (Arc::downgrade(inner), id.clone());
    let overfilled = move || {
        if let Some(inner) = theirs.upgrade() {
            inner.cgroups.kill_runs(id.as_str());
        }
    };
    let keeping = tokio::spawn(tally::keep(counted, overfilled));
    Some(AbortOnDropHandle::new(keeping))
}
