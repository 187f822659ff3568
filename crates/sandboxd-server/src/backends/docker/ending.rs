//! How a sandbox goes, and what an earlier daemon left: containers are found by the labels that they were made with.
//!
//! The end of the link ends the guest, and the container with it; here that is made sure of, and waited for. What is not
//! kept the engine removes by itself then, so a removal that is under way already is as good as ours.

use super::connect::{Engine, EngineError, unless_missing};
use super::container::{KEPT, LABEL_INSTANCE, LABEL_KEEP, LABEL_SANDBOX, LABEL_STATE};
use super::create::{inspect, is_alive};
use super::{Inner, adopt, guest, lock};
use crate::backends::{DestroyError, Found, KeepLayer, ListError, StopError};
use crate::id::SandboxId;
use crate::limits::{ENGINE_ACT_SECONDS_MAX, ENGINE_ASK_SECONDS_MAX, ENGINE_ENDS_AT_ONCE};
use bollard::models::{ContainerStateStatusEnum, ContainerSummary, ContainerSummaryStateEnum};
use bollard::query_parameters::{
    KillContainerOptions, ListContainersOptions, RemoveContainerOptions,
};
use futures::StreamExt as _;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long it is waited between two looks whether a container has gone.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// Ends a sandbox; keeps its container if asked and if it may be kept.
pub(super) async fn stop(
    inner: &Arc<Inner>,
    id: &SandboxId,
    keep: KeepLayer,
) -> Result<(), StopError> {
    let failed = |error: EngineError| StopError(error.to_string());
    let keepable = inner.sandbox(id).map(|sandbox| sandbox.keepable);
    if keep == KeepLayer::No {
        return remove(inner, id).await.map_err(failed);
    }
    let is_there = end_kept(inner, id).await.map_err(failed)?;
    if keepable.is_some() && !is_there {
        return Err(StopError(
            "its container is gone, with what was in it".to_owned(),
        ));
    }
    if keepable == Some(false) {
        return Err(StopError(
            "this sandbox was made without a layer that can be kept".to_owned(),
        ));
    }
    Ok(())
}

/// Removes every trace.
pub(super) async fn destroy(inner: &Arc<Inner>, id: &SandboxId) -> Result<(), DestroyError> {
    remove(inner, id)
        .await
        .map_err(|error| DestroyError(error.to_string()))
}

/// Removes a sandbox's container, whatever state it is in.
pub(super) async fn remove(inner: &Arc<Inner>, id: &SandboxId) -> Result<(), EngineError> {
    if let Some(container) = container_of(inner, id).await? {
        remove_container(&inner.engine, &container).await?;
        forget(inner, id).await;
    }
    lock(&inner.sandboxes).remove(id);
    Ok(())
}

/// Ends what runs in a sandbox's container, and leaves the container. Whether there is one.
pub(super) async fn end_kept(inner: &Arc<Inner>, id: &SandboxId) -> Result<bool, EngineError> {
    let is_there = match container_of(inner, id).await? {
        Some(container) => kill(&inner.engine, &container).await?,
        None => false,
    };
    lock(&inner.sandboxes).remove(id);
    Ok(is_there)
}

/// As [`end_kept`] for a container that was to be taken over: it is nobody's again.
pub(super) async fn let_go(inner: &Arc<Inner>, id: &SandboxId) -> Result<(), EngineError> {
    end_kept(inner, id).await?;
    forget(inner, id).await;
    Ok(())
}

async fn forget(inner: &Inner, id: &SandboxId) {
    if let Err(error) = inner.records.remove(id).await {
        tracing::warn!(%id, %error, "a container that is gone was not forgotten");
    }
}

/// The engine's id for a sandbox's container.
pub(super) async fn container_of(
    inner: &Inner,
    id: &SandboxId,
) -> Result<Option<String>, EngineError> {
    if let Some(sandbox) = inner.sandbox(id) {
        return Ok(Some(sandbox.container.clone()));
    }
    let found = containers(inner, &[(LABEL_SANDBOX, id.as_str())]).await?;
    if let Some(container) = found.into_iter().find_map(|found| found.id) {
        return Ok(Some(container));
    }
    match inner.records.read(id).await {
        Ok(record) => Ok(record.map(|record| record.container)),
        Err(error) => Err(EngineError::Failed {
            doing: "reading which containers were taken over",
            status: None,
            cause: error.to_string(),
        }),
    }
}

/// The containers of this state directory that have these labels too.
async fn containers(
    inner: &Inner,
    labels: &[(&str, &str)],
) -> Result<Vec<ContainerSummary>, EngineError> {
    let own = [(LABEL_STATE, inner.state.as_str())];
    let all = own.iter().chain(labels);
    let wanted = all.map(|(name, value)| format!("{name}={value}")).collect();
    let options = ListContainersOptions {
        all: true,
        filters: Some(HashMap::from([("label".to_owned(), wanted)])),
        ..ListContainersOptions::default()
    };
    let listing = inner.engine.client().list_containers(Some(options));
    inner
        .engine
        .call("listing containers", ENGINE_ASK_SECONDS_MAX, listing)
        .await
}

/// Removes a container with what runs in it, and waits until it is gone.
pub(super) async fn remove_container(engine: &Engine, container: &str) -> Result<(), EngineError> {
    let options = RemoveContainerOptions {
        force: true,
        // Volumes that its image asks for have no name, and nobody would find them again.
        v: true,
        ..RemoveContainerOptions::default()
    };
    let removing = engine.client().remove_container(container, Some(options));
    let removed = engine
        .call("removing the container", ENGINE_ACT_SECONDS_MAX, removing)
        .await;
    match unless_missing(removed) {
        Ok(None) => return Ok(()),
        Ok(Some(())) => {}
        // The engine removes it already.
        Err(error) if error.is_conflict() => {}
        Err(error) => return Err(error),
    }
    let until = Instant::now() + Duration::from_secs(ENGINE_ACT_SECONDS_MAX);
    while inspect(engine, container).await?.is_some() {
        if Instant::now() >= until {
            return Err(EngineError::TimedOut {
                doing: "waiting for the container's removal",
                seconds: ENGINE_ACT_SECONDS_MAX,
            });
        }
        tokio::time::sleep(LOOK_PAUSE).await;
    }
    Ok(())
}

/// Kills what runs in a container, and waits until nothing does. Whether the container is there.
pub(super) async fn kill(engine: &Engine, container: &str) -> Result<bool, EngineError> {
    let options = KillContainerOptions {
        signal: "KILL".to_owned(),
    };
    let killing = engine.client().kill_container(container, Some(options));
    let killed = engine
        .call("killing the container", ENGINE_ACT_SECONDS_MAX, killing)
        .await;
    let refused = match unless_missing(killed) {
        Ok(None) => return Ok(false),
        Ok(Some(())) => None,
        // Most often because it does not run. Engines differ in how they say that, so it is looked at.
        Err(error) => Some(error),
    };
    let until = Instant::now() + Duration::from_secs(ENGINE_ACT_SECONDS_MAX);
    loop {
        let status = match inspect(engine, container).await? {
            None => return Ok(false),
            Some(looked) => looked.state.and_then(|state| state.status),
        };
        // One that somebody removes is as good as gone, and that is waited for.
        let is_going = matches!(
            status,
            Some(ContainerStateStatusEnum::REMOVING | ContainerStateStatusEnum::DEAD)
        );
        if !is_alive(status) && !is_going {
            return Ok(true);
        }
        if let Some(error) = refused.as_ref().filter(|error| !error.is_conflict()) {
            return Err(error.clone());
        }
        if Instant::now() >= until {
            return Err(EngineError::TimedOut {
                doing: "waiting for the container's end",
                seconds: ENGINE_ACT_SECONDS_MAX,
            });
        }
        tokio::time::sleep(LOOK_PAUSE).await;
    }
}

/// Everything that runs for this instance, and every kept layer of this state directory.
pub(super) async fn list(inner: &Inner) -> Result<Vec<Found>, ListError> {
    let all = containers(inner, &[])
        .await
        .map_err(|error| ListError(error.to_string()))?;
    let labelled = all
        .iter()
        .filter_map(|container| found(container, &inner.instance.name));
    let mut found: Vec<Found> = labelled.collect();
    let records = inner.records.all().await;
    for (id, record) in records.map_err(|error| ListError(error.to_string()))? {
        let looked = inspect(&inner.engine, &record.container).await;
        let looked = looked.map_err(|error| ListError(error.to_string()))?;
        if let Some(looked) = looked {
            let running = is_alive(looked.state.and_then(|state| state.status));
            found.push(Found { id, running });
        }
    }
    Ok(found)
}

/// What a container is to this instance; nothing if it is another one's, or as good as gone.
fn found(container: &ContainerSummary, instance: &str) -> Option<Found> {
    let labels = container.labels.as_ref()?;
    let id = SandboxId::parse(labels.get(LABEL_SANDBOX)?).ok()?;
    let is_own = labels.get(LABEL_INSTANCE).is_some_and(|of| of == instance);
    let is_kept = labels.get(LABEL_KEEP).is_some_and(|keep| keep == KEPT);
    let running = runs(container);
    let is_going = matches!(
        container.state,
        Some(ContainerSummaryStateEnum::REMOVING | ContainerSummaryStateEnum::DEAD)
    );
    let counts = if running { is_own } else { is_kept || is_own };
    (counts && !is_going).then_some(Found { id, running })
}

fn runs(container: &ContainerSummary) -> bool {
    matches!(
        container.state,
        Some(
            ContainerSummaryStateEnum::RUNNING
                | ContainerSummaryStateEnum::PAUSED
                | ContainerSummaryStateEnum::RESTARTING
        )
    )
}

/// Ends what instances that are no more have left running, and removes what is not kept. Answers how many there were.
pub(super) async fn sweep(inner: &Inner, alive: &BTreeSet<String>) -> Result<usize, EngineError> {
    let all = containers(inner, &[]).await?;
    let left = all.iter().filter(|container| {
        let labels = container.labels.as_ref();
        let instance = labels.and_then(|labels| labels.get(LABEL_INSTANCE));
        instance.is_none_or(|instance| !alive.contains(instance))
    });
    let ends = left.filter_map(|container| {
        let id = container.id.clone()?;
        let labels = container.labels.as_ref()?;
        let is_kept = labels.get(LABEL_KEEP).is_some_and(|keep| keep == KEPT);
        if is_kept && !runs(container) {
            return None;
        }
        Some(async move {
            let ended = if is_kept {
                kill(&inner.engine, &id).await.map(drop)
            } else {
                remove_container(&inner.engine, &id).await
            };
            if let Err(error) = ended {
                tracing::error!(container = id, %error, "what a former instance left was not ended");
            }
        })
    });
    let ends: Vec<_> = ends.collect();
    let count = ends.len();
    futures::stream::iter(ends)
        .buffer_unordered(ENGINE_ENDS_AT_ONCE)
        .collect::<Vec<()>>()
        .await;
    let adopted = adopt::sweep(inner, alive).await?;
    // After the containers that have them.
    guest::sweep(inner, alive).await?;
    Ok(count + adopted)
}

/// Ends everything.
pub(super) async fn shutdown(inner: &Arc<Inner>) {
    // What is being made is made first, so that nothing comes after the end.
    let mut errands = std::mem::take(&mut *lock(&inner.errands));
    while errands.join_next().await.is_some() {}
    let all: Vec<(SandboxId, bool)> = lock(&inner.sandboxes)
        .iter()
        .map(|(id, sandbox)| (id.clone(), sandbox.keepable))
        .collect();
    let ends = all.into_iter().map(|(id, keepable)| async move {
        // Whoever wants a layer gone has asked for that; what is left may be woken after the restart.
        let keep = if keepable {
            KeepLayer::Yes
        } else {
            KeepLayer::No
        };
        if let Err(error) = stop(inner, &id, keep).await {
            tracing::warn!(%id, %error, "a sandbox did not end cleanly");
        }
    });
    futures::stream::iter(ends)
        .buffer_unordered(ENGINE_ENDS_AT_ONCE)
        .collect::<Vec<()>>()
        .await;
    guest::end(inner).await;
    // Its launcher, where there was one, removes the directory too.
    inner.bridge.end().await;
    let directory = inner.instance.directory.clone();
    let removed = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(&directory)).await;
    if let Ok(Err(error)) = removed
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(%error, "the instance's directory could not be removed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(state: ContainerSummaryStateEnum, instance: &str, keep: &str) -> ContainerSummary {
        let labels = [
            (LABEL_SANDBOX, "0123456789abcdef"),
            (LABEL_INSTANCE, instance),
            (LABEL_KEEP, keep),
        ];
        ContainerSummary {
            id: Some("c".to_owned()),
            labels: Some(
                labels
                    .map(|(name, value)| (name.to_owned(), value.to_owned()))
                    .into(),
            ),
            state: Some(state),
            ..ContainerSummary::default()
        }
    }

    #[test]
    fn what_runs_is_its_own_instances_and_what_is_kept_is_everybodys() {
        use ContainerSummaryStateEnum::{EXITED, PAUSED, REMOVING, RUNNING};
        let running = |container: &ContainerSummary| found(container, "me").map(|f| f.running);
        assert_eq!(running(&container(RUNNING, "me", "no")), Some(true));
        assert_eq!(running(&container(PAUSED, "me", "no")), Some(true));
        assert_eq!(running(&container(RUNNING, "other", KEPT)), None);
        assert_eq!(running(&container(EXITED, "other", KEPT)), Some(false));
        assert_eq!(running(&container(EXITED, "other", "no")), None);
        assert_eq!(running(&container(EXITED, "me", "no")), Some(false));
        assert_eq!(running(&container(REMOVING, "me", "no")), None);
    }

    #[test]
    fn a_container_that_claims_an_id_that_is_none_is_nobodys() {
        let mut strange = container(ContainerSummaryStateEnum::RUNNING, "me", "no");
        let labels = strange.labels.as_mut().unwrap();
        labels.insert(LABEL_SANDBOX.to_owned(), "../x".to_owned());
        assert_eq!(found(&strange, "me"), None);
    }
}
