//! How the guest gets into containers: by a volume of the engine's, which is filled once per instance and mounted read-only
//! into each.
//!
//! Whatever is copied into a container the engine unpacks with a process of its own, which takes as long as a third of the
//! whole start; a mount takes nothing. The volume is filled by the same call, through a container that is never started, so
//! it is as good for an engine elsewhere. Containers made without it, and those of the Python service, have the guest
//! copied in at each start.
//!
//! A kept container names the volume of the instance that made it, whose guest may be an earlier one: before it is woken
//! the guest of now is copied into that volume, once per instance.

use super::connect::{Engine, EngineError, unless_missing};
use super::container::{
    GUEST, GUEST_DIRECTORY, GUEST_IN_VOLUME, KEEP_NOT, LABEL_INSTANCE, LABEL_KEEP, LABEL_STATE,
    filler,
};
use super::create::step;
use super::{Inner, ending, lock};
use crate::backends::{CreateError, SandboxSpec, Start, inside};
use crate::id::SandboxId;
use crate::limits::{ENGINE_ACT_SECONDS_MAX, ENGINE_ASK_SECONDS_MAX};
use bollard::models::{ContainerInspectResponse, VolumeCreateRequest};
use bollard::query_parameters::{
    CreateContainerOptions, ListVolumesOptions, RemoveVolumeOptions, UploadToContainerOptions,
};
use bytes::Bytes;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::Mutex;
use tokio::sync::Semaphore;

/// What volumes of guests are called, before a name of their own.
const VOLUME: &str = "sandboxd-guest-";

/// The guest, and where it is already.
#[derive(Debug)]
pub(super) struct Guest {
    /// As the engine unpacks it at the root of a container, without its end, so that more can follow.
    for_root: Bytes,
    /// Whole, for a volume.
    for_volume: Bytes,
    volume: Mutex<Volume>,
    /// One fills at a time.
    filling: Semaphore,
    /// Volumes of other instances that have the guest of this one.
    renewed: Mutex<BTreeSet<String>>,
}

/// The volume of this instance.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Volume {
    /// Nobody has needed it.
    None,
    /// By its name.
    Filled(String),
    /// The engine gives none: containers have the guest copied in.
    Refused,
}

impl Guest {
    /// This program.
    ///
    /// # Errors
    /// Where it cannot be packed.
    pub(super) fn new(program: &[u8]) -> io::Result<Self> {
        let name = GUEST_IN_VOLUME.rsplit('/').next().unwrap_or_default();
        let mut for_volume = packed(name, program)?;
        for_volume.finish()?;
        Ok(Self {
            // The builder writes an end when it is finished; here it is only looked into.
            for_root: Bytes::copy_from_slice(
                packed(GUEST.trim_start_matches('/'), program)?.get_ref(),
            ),
            for_volume: for_volume.into_inner()?.into(),
            volume: Mutex::new(Volume::None),
            filling: Semaphore::new(1),
            renewed: Mutex::new(BTreeSet::new()),
        })
    }
}

fn packed(name: &str, program: &[u8]) -> io::Result<tar::Builder<Vec<u8>>> {
    let mut archive = tar::Builder::new(Vec::with_capacity(program.len() + 2048));
    let mut head = tar::Header::new_ustar();
    head.set_size(u64::try_from(program.len()).map_err(io::Error::other)?);
    head.set_mode(0o555);
    head.set_uid(0);
    head.set_gid(0);
    archive.append_data(&mut head, name, program)?;
    Ok(archive)
}

/// The name of the volume to mount into a new container, filled; nothing where the guest is to be copied in. `image` is one
/// that the engine has.
pub(super) async fn volume(inner: &Inner, image: &str) -> Result<Option<String>, EngineError> {
    let guest = &inner.guest;
    if let Some(usable) = usable(inner).await? {
        return Ok(usable);
    }
    // Never closed.
    let _turn = guest.filling.acquire().await.ok();
    if let Some(usable) = usable(inner).await? {
        return Ok(usable);
    }
    let name = format!("{VOLUME}{}", SandboxId::generate());
    match make(inner, &name, image).await {
        Ok(()) => {
            *lock(&guest.volume) = Volume::Filled(name.clone());
            Ok(Some(name))
        }
        // Without the image there is no container either.
        Err(error) if error.is_missing() || !error.is_answer() => Err(error),
        Err(error) => {
            tracing::warn!(%error, "the guest is copied into the container, for the engine gives no volume");
            if error.is_refusal() {
                *lock(&guest.volume) = Volume::Refused;
            }
            Ok(None)
        }
    }
}

/// What is decided already, unless somebody removed the volume: one without our label is what an engine makes in its place.
async fn usable(inner: &Inner) -> Result<Option<Option<String>>, EngineError> {
    let volume = lock(&inner.guest.volume).clone();
    let name = match volume {
        Volume::None => return Ok(None),
        Volume::Refused => return Ok(Some(None)),
        Volume::Filled(name) => name,
    };
    let looking = inner.engine.client().inspect_volume(&name);
    let found = inner
        .engine
        .call(
            "looking for the guest's volume",
            ENGINE_ASK_SECONDS_MAX,
            looking,
        )
        .await;
    let found = unless_missing(found)?;
    let is_ours = found.is_some_and(|found| {
        found.labels.get(LABEL_INSTANCE).map(String::as_str) == Some(inner.instance.name.as_str())
    });
    Ok(is_ours.then_some(Some(name)))
}

fn labels(inner: &Inner) -> HashMap<String, String> {
    [
        (LABEL_STATE, inner.state.as_str()),
        (LABEL_INSTANCE, inner.instance.name.as_str()),
        (LABEL_KEEP, KEEP_NOT),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

async fn make(inner: &Inner, name: &str, image: &str) -> Result<(), EngineError> {
    let engine = &inner.engine;
    let making = engine.client().create_volume(VolumeCreateRequest {
        name: Some(name.to_owned()),
        labels: Some(labels(inner)),
        ..VolumeCreateRequest::default()
    });
    engine
        .call("making the guest's volume", ENGINE_ACT_SECONDS_MAX, making)
        .await?;
    let filled = fill(inner, name, image).await;
    if filled.is_err() {
        remove(engine, name).await;
    }
    filled
}

/// Copies the guest into a volume, through a container that is never started.
async fn fill(inner: &Inner, volume: &str, image: &str) -> Result<(), EngineError> {
    let engine = &inner.engine;
    let body = filler(image, volume, labels(inner));
    let making = engine
        .client()
        .create_container(None::<CreateContainerOptions>, body);
    let doing = "making the container that fills the guest's volume";
    let made = engine.call(doing, ENGINE_ACT_SECONDS_MAX, making).await?;
    let archive = futures::stream::iter([inner.guest.for_volume.clone()]);
    let copying = engine.client().upload_to_container(
        &made.id,
        Some(UploadToContainerOptions {
            path: GUEST_DIRECTORY.to_owned(),
            ..UploadToContainerOptions::default()
        }),
        bollard::body_stream(archive),
    );
    let doing = "copying the guest into its volume";
    let copied = engine.call(doing, ENGINE_ACT_SECONDS_MAX, copying).await;
    // One that stays is removed by the next start.
    let removed = ending::remove_container(engine, &made.id).await;
    copied.and(removed)
}

async fn remove(engine: &Engine, name: &str) {
    let removing = engine
        .client()
        .remove_volume(name, None::<RemoveVolumeOptions>);
    let doing = "removing a guest's volume";
    match unless_missing(engine.call(doing, ENGINE_ACT_SECONDS_MAX, removing).await) {
        // A container that is kept has it.
        Err(error) if error.is_conflict() => {}
        Err(error) => tracing::warn!(name, %error, "a guest's volume was not removed"),
        Ok(_) => {}
    }
}

/// Puts the guest of now where a kept container starts it from.
pub(super) async fn renew(
    inner: &Inner,
    looked: &ContainerInspectResponse,
    container: &str,
    spec: &SandboxSpec,
) -> Result<(), CreateError> {
    let Some(volume) = mounted(looked) else {
        return copy_in(inner, container, spec, Start::KeptLayer).await;
    };
    let guest = &inner.guest;
    let is_new = || {
        let own = Volume::Filled(volume.clone());
        *lock(&guest.volume) == own || lock(&guest.renewed).contains(&volume)
    };
    if is_new() {
        return Ok(());
    }
    let _turn = guest.filling.acquire().await.ok();
    if is_new() {
        return Ok(());
    }
    let image = looked.image.as_deref().unwrap_or_default();
    fill(inner, &volume, image).await?;
    lock(&guest.renewed).insert(volume);
    Ok(())
}

/// The volume that a container has the guest from.
fn mounted(looked: &ContainerInspectResponse) -> Option<String> {
    let mut mounts = looked.mounts.iter().flatten();
    let mount = mounts.find(|mount| mount.destination.as_deref() == Some(GUEST_DIRECTORY))?;
    mount.name.clone()
}

/// Copies the guest into a container itself; into a new one, its work directory too.
pub(super) async fn copy_in(
    inner: &Inner,
    container: &str,
    spec: &SandboxSpec,
    start: Start,
) -> Result<(), CreateError> {
    let rest = rest_of_archive(spec, start).map_err(|error| step("packing the guest", error))?;
    let pieces = futures::stream::iter([inner.guest.for_root.clone(), rest]);
    let copying = inner.engine.client().upload_to_container(
        container,
        Some(UploadToContainerOptions {
            path: "/".to_owned(),
            ..UploadToContainerOptions::default()
        }),
        bollard::body_stream(pieces),
    );
    let copied = inner.engine.call(
        "copying the guest into the container",
        ENGINE_ACT_SECONDS_MAX,
        copying,
    );
    Ok(copied.await?)
}

/// What follows the guest: the work directory where it lies in the container itself, and the archive's end.
fn rest_of_archive(spec: &SandboxSpec, start: Start) -> io::Result<Bytes> {
    let mut archive = tar::Builder::new(Vec::new());
    if spec.workspace.is_none() && start == Start::Fresh {
        let user = spec.user.unwrap_or(0);
        let mut head = tar::Header::new_ustar();
        head.set_entry_type(tar::EntryType::Directory);
        head.set_size(0);
        head.set_mode(0o755);
        head.set_uid(u64::from(user));
        head.set_gid(u64::from(spec.group.unwrap_or(user)));
        let path = inside::work_dir(&spec.work_dir).map_err(io::Error::other)?;
        archive.append_data(&mut head, format!("{path}/"), io::empty())?;
    }
    Ok(archive.into_inner()?.into())
}

/// Removes the volumes of instances that are no more, but those that kept containers have.
pub(super) async fn sweep(inner: &Inner, alive: &BTreeSet<String>) -> Result<(), EngineError> {
    let wanted = vec![format!("{LABEL_STATE}={}", inner.state)];
    let options = ListVolumesOptions {
        filters: Some(HashMap::from([("label".to_owned(), wanted)])),
    };
    let listing = inner.engine.client().list_volumes(Some(options));
    let doing = "listing volumes";
    let found = inner.engine.call(doing, ENGINE_ASK_SECONDS_MAX, listing);
    for volume in found.await?.volumes.into_iter().flatten() {
        let instance = volume.labels.get(LABEL_INSTANCE);
        let is_left = instance.is_some_and(|instance| !alive.contains(instance));
        if is_left && volume.name.starts_with(VOLUME) {
            remove(&inner.engine, &volume.name).await;
        }
    }
    Ok(())
}

/// Removes this instance's volume, unless a kept container has it.
pub(super) async fn end(inner: &Inner) {
    let volume = std::mem::replace(&mut *lock(&inner.guest.volume), Volume::None);
    if let Volume::Filled(name) = volume {
        remove(&inner.engine, &name).await;
    }
}

#[cfg(test)]
mod tests {
    use super::super::container::tests::spec;
    use super::*;
    use bollard::models::MountPoint;
    use std::io::Read as _;

    #[test]
    fn the_archives_hold_the_guest_where_each_place_has_it() {
        let guest = Guest::new(b"#!program").unwrap();
        let only = |archive: &[u8]| {
            let mut archive = tar::Archive::new(archive);
            let mut entries = archive.entries().unwrap();
            let mut entry = entries.next().unwrap().unwrap();
            let path = entry.path().unwrap().to_str().unwrap().to_owned();
            assert_eq!(entry.header().mode().unwrap(), 0o555);
            assert_eq!(entry.header().uid().unwrap(), 0);
            let mut content = String::new();
            entry.read_to_string(&mut content).unwrap();
            assert_eq!(content, "#!program");
            assert!(entries.next().is_none());
            path
        };
        assert_eq!(only(&guest.for_volume), "sandboxd-guest");
        let rest = rest_of_archive(&spec(), Start::Fresh).unwrap();
        let whole = [&guest.for_root[..], &rest].concat();
        assert_eq!(only(&whole), ".sandboxd-guest");
    }

    #[test]
    fn a_work_directory_of_the_containers_own_is_packed_once() {
        let mut own = spec();
        own.workspace = None;
        own.user = Some(7);
        let fresh = rest_of_archive(&own, Start::Fresh).unwrap();
        let mut archive = tar::Archive::new(&fresh[..]);
        let entry = archive.entries().unwrap().next().unwrap().unwrap();
        assert_eq!(entry.path().unwrap().to_str(), Some("workspace/"));
        assert_eq!(entry.header().gid().unwrap(), 7);
        let kept = rest_of_archive(&own, Start::KeptLayer).unwrap();
        let mut archive = tar::Archive::new(&kept[..]);
        assert!(archive.entries().unwrap().next().is_none());
    }

    #[test]
    fn a_container_made_without_the_volume_has_none() {
        let with = |destination: &str| ContainerInspectResponse {
            mounts: Some(vec![MountPoint {
                destination: Some(destination.to_owned()),
                name: Some("v".to_owned()),
                ..MountPoint::default()
            }]),
            ..ContainerInspectResponse::default()
        };
        assert_eq!(mounted(&with(GUEST_DIRECTORY)), Some("v".to_owned()));
        assert_eq!(mounted(&with("/workspace")), None);
        assert_eq!(mounted(&ContainerInspectResponse::default()), None);
    }
}
