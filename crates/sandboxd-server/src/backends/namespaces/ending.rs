//! How a sandbox goes: its first process is killed, with which the kernel ends every other one; then everything that it
//! was given is given back.

use super::{END_WAIT, HasLayer, Inner, Sandbox, lock, sys};
use crate::backends::{DestroyError, KeepLayer, StopError};
use crate::id::SandboxId;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Signal, WaitId, WaitIdOptions};
use std::sync::Arc;
use tokio::io::Interest;

/// Ends a sandbox; keeps its layer if asked and if it has one that may be kept.
pub(super) async fn stop(
    inner: &Arc<Inner>,
    id: &SandboxId,
    keep: KeepLayer,
) -> Result<(), StopError> {
    let Some(sandbox) = inner.sandbox(id) else {
        return Ok(());
    };
    end(inner, &sandbox).await.map_err(StopError)?;
    if lock(&inner.sandboxes).remove(id).is_some() {
        inner.networks.give_back(sandbox.network);
    }
    let kept = keep == KeepLayer::Yes && sandbox.layer == HasLayer::Keepable;
    let layer = sandbox.layer;
    // A scratch layer is where its sandbox was made; one that may be kept is where its session finds it again.
    let at = match layer {
        HasLayer::Scratch => sandbox.place.clone(),
        HasLayer::No | HasLayer::Keepable => id.clone(),
    };
    let theirs = Arc::clone(inner);
    let done = tokio::task::spawn_blocking(move || match (layer, kept) {
        (HasLayer::No, _) => Ok(()),
        (_, true) => theirs.layers.keep(&at),
        (_, false) => theirs.layers.remove(&at),
    })
    .await;
    done.map_err(|error| StopError(error.to_string()))?
        .map_err(|error| StopError(error.to_string()))?;
    if kept {
        // The layer's files are still the range's: it stays taken until the layer goes.
        give_back(inner, None, &sandbox.cpus);
    } else {
        give_back(inner, sandbox.range, &sandbox.cpus);
        take_out_trash(inner);
    }
    if keep == KeepLayer::Yes && !kept {
        return Err(StopError(
            "this sandbox was made without a layer that can be kept".to_owned(),
        ));
    }
    Ok(())
}

/// Ends every process of a sandbox, and leaves what it wrote where it is until the sandbox is destroyed.
pub(super) async fn halt(inner: &Arc<Inner>, id: &SandboxId) -> Result<(), String> {
    match inner.sandbox(id) {
        Some(sandbox) => end(inner, &sandbox).await,
        None => Err("its sandbox has ended".to_owned()),
    }
}

/// Destroys a sandbox when nobody can wait for it; the end of the backend does.
pub(super) fn destroy_later(inner: &Arc<Inner>, id: SandboxId) {
    let theirs = Arc::clone(inner);
    let mut errands = lock(&inner.errands);
    while errands.try_join_next().is_some() {}
    errands.spawn(async move {
        if let Err(error) = destroy(&theirs, &id).await {
            tracing::warn!(%id, %error, "a sandbox of a build");
        }
        theirs.builds.forget(&id);
    });
}

/// Removes every trace.
pub(super) async fn destroy(inner: &Arc<Inner>, id: &SandboxId) -> Result<(), DestroyError> {
    stop(inner, id, KeepLayer::No)
        .await
        .map_err(|error| DestroyError(error.0))?;
    let (theirs, at) = (Arc::clone(inner), id.clone());
    let removed = tokio::task::spawn_blocking(move || {
        let range = theirs.layers.range(&at);
        theirs.layers.remove(&at)?;
        Ok::<_, std::io::Error>(range)
    })
    .await
    .map_err(|error| DestroyError(error.to_string()))?
    .map_err(|error| DestroyError(error.to_string()))?;
    if removed.is_some() {
        give_back(inner, removed, &[]);
        take_out_trash(inner);
    }
    Ok(())
}

/// Deletes what was thrown away, where nobody waits for it but the end.
fn take_out_trash(inner: &Arc<Inner>) {
    let theirs = Arc::clone(inner);
    let mut errands = lock(&inner.errands);
    while errands.try_join_next().is_some() {}
    errands.spawn_blocking(move || theirs.layers.empty_trash());
}

/// Kills, reaps, and removes the cgroups.
async fn end(inner: &Arc<Inner>, sandbox: &Sandbox) -> Result<(), String> {
    kill_and_reap(&sandbox.pidfd).await?;
    let (theirs, at) = (Arc::clone(inner), sandbox.place.clone());
    let removed = tokio::task::spawn_blocking(move || {
        // Nothing can be left of a PID namespace whose first process has gone; the kernel is asked all the same.
        theirs.cgroups.kill(at.as_str());
        theirs.cgroups.remove(at.as_str())
    });
    removed
        .await
        .map_err(|error| error.to_string())?
        .map_err(|error| format!("removing its cgroup: {error}"))
}

/// Kills the first process of a sandbox, with which the kernel ends all others, and waits until it is gone.
pub(super) async fn kill_and_reap(pidfd: &OwnedFd) -> Result<(), String> {
    match rustix::process::pidfd_send_signal(pidfd, Signal::KILL) {
        Ok(()) | Err(Errno::SRCH) => {}
        Err(errno) => return Err(format!("killing its first process: {errno}")),
    }
    let watched = pidfd.try_clone().map_err(|error| error.to_string())?;
    let watched = sys::watch(watched, Interest::READABLE).map_err(|error| error.to_string())?;
    let ended = tokio::time::timeout(END_WAIT, watched.readable()).await;
    ended
        .map_err(|_| {
            format!(
                "its first process did not end within {} s",
                END_WAIT.as_secs()
            )
        })?
        .map_err(|error| error.to_string())?
        .retain_ready();
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    match rustix::process::waitid(WaitId::PidFd(pidfd.as_fd()), options) {
        // Somebody else asked first.
        Ok(_) | Err(Errno::CHILD) => Ok(()),
        Err(errno) => Err(format!("reaping its first process: {errno}")),
    }
}

/// Gives ids and processors back.
pub(super) fn give_back(inner: &Inner, range: Option<u32>, cpus: &[u16]) {
    if let Some(first) = range {
        lock(&inner.ranges).give_back(first);
    }
    lock(&inner.placement).give_back(cpus);
}

/// Ends everything, and lets the launcher remove the rest.
pub(super) async fn shutdown(inner: &Arc<Inner>) {
    // Before the sandboxes: what builds makes some.
    inner.pulls.end().await;
    let all: Vec<SandboxId> = lock(&inner.sandboxes).keys().cloned().collect();
    let stops = all.iter().map(|id| async move {
        let keepable = inner
            .sandbox(id)
            .is_some_and(|sandbox| sandbox.layer == HasLayer::Keepable);
        // Whoever wants a layer gone has asked for that; what is left may be woken after the restart.
        let keep = if keepable {
            KeepLayer::Yes
        } else {
            KeepLayer::No
        };
        if let Err(error) = stop(inner, id, keep).await {
            tracing::warn!(%id, %error, "a sandbox did not end cleanly");
        }
    });
    futures::future::join_all(stops).await;
    let mut errands = std::mem::take(&mut *lock(&inner.errands));
    while errands.join_next().await.is_some() {}
    inner.launcher.end().await;
    lock(&inner.ranges).let_go();
}
