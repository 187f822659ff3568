//! One sandbox: from its specification to its running guest.
//!
//! What is taken on the way (ids, processors, a layer, cgroups, a child) is held by [`Half`], which gives everything back
//! if the sandbox does not come to be, whatever step fails and whoever stops waiting.

use super::half::{Claim, Half};
use super::launch::LaunchError;
use super::layers::Layer;
use super::meter::SandboxMeter;
use super::network::{self, Join, Joined};
use super::plan::{self, Circumstances};
use super::projects::{self, Quotas, Tied};
use super::storage;
use super::tally::Tally;
use super::users::{COUNT, SHARED_FIRST, STORAGE_FIRST};
use super::{HasLayer, Inner, Sandbox, cgroups, image, lock, second_wall, workspace};
use crate::backends::engine_names;
use crate::backends::{
    Asked, Ceiling, CreateError, Enforced, Enforcement, Meter, PreparedImage, Running, SandboxSpec,
    Start,
};
use crate::id::SandboxId;
use crate::limits::CREATE_SECONDS_MAX;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::pipe::PipeFlags;
use sandboxd_jail::plan::{Owners, Plan, Users};
use sandboxd_jail::report::{Failure, REPORT_BYTES_MAX, Step, read_executing};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

/// Makes a sandbox, and starts its guest.
pub(super) async fn create(
    inner: &Arc<Inner>,
    id: &SandboxId,
    spec: &SandboxSpec,
    start: Start,
) -> Result<Running, CreateError> {
    let spec = engine_names::left_out(spec)?;
    let spec = spec.as_ref();
    refuse_unenforceable(inner, spec)?;
    let as_it_was = match start {
        Start::KeptLayer => image::of_kept_layer(inner, id, spec).await?,
        Start::Fresh => None,
    };
    let spec = as_it_was.as_ref().unwrap_or(spec);
    let making = make(inner, id, spec, start);
    tokio::time::timeout(Duration::from_secs(CREATE_SECONDS_MAX), making)
        .await
        .unwrap_or(Err(CreateError::TimedOut(CREATE_SECONDS_MAX)))
}

pub(super) fn step(step: impl Into<String>, cause: impl std::fmt::Display) -> CreateError {
    CreateError::Step {
        step: step.into(),
        cause: cause.to_string(),
    }
}

/// What somebody set and this host cannot enforce is refused, unless they accept that.
pub(super) fn refuse_unenforceable(inner: &Inner, spec: &SandboxSpec) -> Result<(), CreateError> {
    if let Some(user) = spec.user
        && inner.privileged
        && user >= COUNT
    {
        let cause = format!("uid {user} is none of the {COUNT} that a sandbox has");
        return Err(step("choosing the user of runs", cause));
    }
    if let Some(group) = spec.group {
        let cause = match inner.privileged {
            true if group >= COUNT => {
                format!("gid {group} is none of the {COUNT} that a sandbox has")
            }
            false if Some(group) != spec.user => format!(
                "gid {group} is not the uid, and a daemon that does not run as root has one number for both"
            ),
            _ => String::new(),
        };
        if !cause.is_empty() {
            return Err(step("choosing the group of runs", cause));
        }
    }
    let explicit = |asked: Option<Asked<u64>>| asked.is_some_and(|asked| asked.explicit);
    let asked = [
        (
            Ceiling::Memory,
            explicit(spec.memory_bytes) || explicit(spec.memory_swap_bytes),
        ),
        (Ceiling::Cpus, spec.cpus.is_some_and(|asked| asked.explicit)),
        (Ceiling::CpuShares, explicit(spec.cpu_shares)),
        (Ceiling::Pids, explicit(spec.pids)),
    ];
    for (ceiling, asked) in asked {
        if !asked || spec.allow_unenforced.contains(&ceiling) {
            continue;
        }
        if let Some(Enforcement::Unenforced(cause)) = inner.ceilings.get(&ceiling) {
            return Err(CreateError::Unenforceable {
                ceiling,
                cause: cause.clone(),
            });
        }
    }
    // The kernel counts swap on top of a limit of memory, and without one there is nothing to count on.
    if explicit(spec.memory_swap_bytes)
        && spec.memory_bytes.is_none()
        && !spec.allow_unenforced.contains(&Ceiling::Memory)
    {
        return Err(CreateError::Unenforceable {
            ceiling: Ceiling::Memory,
            cause: "memory and swap together need a limit of memory beside them".to_owned(),
        });
    }
    Ok(())
}

/// What was prepared off the async threads.
pub(super) struct Prepared {
    shifted: Option<Vec<PathBuf>>,
    pub(super) layer: Option<Layer>,
    pub(super) files: Option<Files>,
    /// What it stores, before that is limited.
    tied: Tied,
    /// What keeps the limit of what is stored, where not counting does.
    quotas: Quotas,
    place: cgroups::Place,
}

/// A workspace that was opened.
pub(super) struct Files {
    pub(super) directory: OwnedFd,
    pub(super) owners: Owners,
    owner_enforced: Enforcement,
}

async fn make(
    inner: &Arc<Inner>,
    id: &SandboxId,
    spec: &SandboxSpec,
    start: Start,
) -> Result<Running, CreateError> {
    let claim = Claim::take(inner, id)
        .ok_or_else(|| step("creating", "a sandbox of this id runs, or is being removed"))?;
    let mut may = Mappings {
        workspace: true,
        image: true,
    };
    loop {
        let (half, outcome) = attempt(inner, Half::new(&claim), spec, start, may).await;
        let unmade = match outcome {
            Ok(running) => return Ok(running),
            Err(unmade) => unmade,
        };
        // The next attempt, here or by the caller, begins with nothing of this one left.
        if let Some(mut half) = half {
            half.undo().await;
        }
        match unmade {
            // Found out now, remembered for all that follow.
            Launched::NoMapping(device) if may.workspace => {
                lock(&inner.unmapped).insert(device);
                may.workspace = false;
            }
            Launched::NoImageMapping(device) if may.image => {
                lock(&inner.unmapped).insert(device);
                may.image = false;
            }
            Launched::NoMapping(_) => {
                return Err(step(
                    Step::WorkspaceMapping.to_string(),
                    "not possible here",
                ));
            }
            Launched::NoImageMapping(_) => {
                return Err(step(Step::ImageMapping.to_string(), "not possible here"));
            }
            Launched::Failed(error) => return Err(error),
        }
    }
}

/// What may be tried: owners that mounts map.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mappings {
    workspace: bool,
    image: bool,
}

async fn attempt(
    inner: &Arc<Inner>,
    mut half: Half,
    spec: &SandboxSpec,
    start: Start,
    may: Mappings,
) -> (Option<Half>, Result<Running, Launched>) {
    let with = spec.clone();
    let joined = tokio::task::spawn_blocking(move || {
        let prepared = prepare(&mut half, &with, start, Whose::Somebodys(may));
        (half, prepared)
    });
    let (mut half, prepared) = match joined.await {
        Ok(joined) => joined,
        Err(error) => return (None, Err(step("preparing", error).into())),
    };
    let outcome = match prepared {
        Ok(mut prepared) => {
            prepared.tie(inner, spec).await;
            start_in(inner, spec, &mut half, &mut prepared).await
        }
        Err(error) => Err(error.into()),
    };
    (Some(half), outcome)
}

async fn start_in(
    inner: &Arc<Inner>,
    spec: &SandboxSpec,
    half: &mut Half,
    prepared: &mut Prepared,
) -> Result<Running, Launched> {
    let started = launch(inner, spec, half, prepared, false).await;
    // Also where it failed: what a session has stored stays limited.
    prepared.limit(inner, spec).await;
    let started = started?;
    let id = half.id.clone();
    let (enforced, meter) = settle(inner, &id, spec, half, prepared, &started.join)?;
    Ok(Running {
        link: Box::new(started.link),
        enforced,
        meter,
        layer_is_torn: half.layer_is_torn,
    })
}

/// Whose a sandbox is that is being made.
#[derive(Debug, Clone, Copy)]
pub(super) enum Whose {
    /// Nobody's yet: its workspace comes later, and until then its layer is scratch.
    Nobodys,
    /// Somebody's, and what may be tried.
    Somebodys(Mappings),
}

/// All that is taken before a plan is made.
pub(super) fn prepare(
    half: &mut Half,
    spec: &SandboxSpec,
    start: Start,
    whose: Whose,
) -> Result<Prepared, CreateError> {
    let (inner, id) = (Arc::clone(&half.inner), half.id.clone());
    let (may_map_image, keep) = match whose {
        Whose::Nobodys => (true, false),
        Whose::Somebodys(may) => (may.image, spec.keep_layer),
    };
    let shifted = shifted(&inner, spec, may_map_image)?;
    if shifted.is_some() && matches!(whose, Whose::Nobodys) {
        let cause = "sandboxes over a copied image share their user ids, so none is made ahead";
        return Err(step("parking", cause));
    }
    let layer = take_layer(&inner, &id, spec, start, keep, half, shifted.is_some())?;
    let files = match (&spec.workspace, whose) {
        (Some(host), Whose::Somebodys(may)) => {
            let (range, user) = (half.range, spec.user);
            Some(take_workspace(&inner, host, range, user, may.workspace)?)
        }
        _ => None,
    };
    if let Some(cpus) = spec.cpus {
        half.cpus = lock(&inner.placement).take(cpus_seen(cpus.value));
    }
    half.cgroups = true;
    let place = inner
        .cgroups
        .make(id.as_str(), spec, half.range)
        .map_err(|error| step("making the cgroup", error))?;
    Ok(Prepared {
        shifted,
        layer,
        files,
        tied: Tied::default(),
        quotas: Quotas::default(),
        place,
    })
}

impl Prepared {
    /// Gives what it stores to projects, as far as there are quotas of them.
    pub(super) async fn tie(&mut self, inner: &Arc<Inner>, spec: &SandboxSpec) {
        let workspace = self.files.as_ref().map(|files| &files.directory);
        self.tied = projects::tie(inner, spec, self.layer.as_ref(), workspace).await;
    }

    /// Limits them, when nothing is written any more but by programs.
    pub(super) async fn limit(&mut self, inner: &Arc<Inner>, spec: &SandboxSpec) {
        self.quotas = std::mem::take(&mut self.tied).limit(inner, spec).await;
    }
}

/// How many processors a quota rounds up to.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to a small positive range"
)]
fn cpus_seen(cpus: f64) -> usize {
    cpus.ceil().clamp(1.0, 65_535.0) as usize
}

/// The named fallback for images: copies of their layers that belong to the one range that all such sandboxes share.
fn shifted(
    inner: &Inner,
    spec: &SandboxSpec,
    may_map: bool,
) -> Result<Option<Vec<PathBuf>>, CreateError> {
    let (layers, stored) = match &spec.image {
        PreparedImage::Layers { layers, .. } => (layers.as_slice(), true),
        PreparedImage::Rootfs { path, .. } => (std::slice::from_ref(path), false),
        PreparedImage::Host | PreparedImage::Engine { .. } | PreparedImage::Empty => {
            return Ok(None);
        }
    };
    let device = device_of(layers);
    if !inner.privileged || may_map && !lock(&inner.unmapped).contains(&device) {
        return Ok(None);
    }
    let failed = |cause: &dyn std::fmt::Display| step(Step::ImageMapping.to_string(), cause);
    if !stored {
        return Err(failed(
            &"its file system has no idmapped mounts; imported (sandboxd image import) it would be an image that needs none",
        ));
    }
    let first = lock(&inner.ranges).shared();
    let first = first.map_err(|error| failed(&error))?;
    let copies = inner.pulls.images.shifted(layers, first);
    copies.map(Some).map_err(|error| failed(&error))
}

/// The device of an image's files; its layers lie in one store.
pub(super) fn device_of(layers: &[PathBuf]) -> u64 {
    let top = layers.first().map(rustix::fs::stat);
    top.and_then(Result::ok).map_or(0, |status| status.st_dev)
}

fn take_layer(
    inner: &Inner,
    id: &SandboxId,
    spec: &SandboxSpec,
    start: Start,
    keep: bool,
    half: &mut Half,
    shifted: bool,
) -> Result<Option<Layer>, CreateError> {
    let users = |error: super::users::UsersError| step("taking user ids", error);
    let disk = |error: std::io::Error| step("making the write layer", error);
    if start == Start::KeptLayer {
        let kept = inner.layers.open(id).map_err(disk)?;
        let (layer, note) = kept.ok_or(CreateError::LayerMissing)?;
        if inner.privileged != note.range.is_some() {
            return Err(step(
                "opening the kept layer",
                "it was written with other rights than this daemon has",
            ));
        }
        if note.image != image_of(spec) {
            return Err(step(
                "opening the kept layer",
                format!(
                    "it lies over the image {:?}, and would mean something else over {:?}",
                    note.image,
                    image_of(spec)
                ),
            ));
        }
        if shifted && note.range != Some(SHARED_FIRST) {
            return Err(step(
                "opening the kept layer",
                "it was written over an image whose owners the mount mapped, which this file system cannot do",
            ));
        }
        if let Some(first) = note.range {
            lock(&inner.ranges).reserve(first).map_err(users)?;
        }
        half.layer_is_torn = !note.whole;
        half.range = note.range;
        half.layer = HasLayer::Keepable;
        half.layer_is_old = true;
        return Ok(Some(layer));
    }
    if inner.privileged {
        let mut ranges = lock(&inner.ranges);
        let taken = if shifted {
            ranges.shared()
        } else {
            ranges.take()
        };
        half.range = Some(taken.map_err(users)?);
    }
    if plan::root_in_memory(spec) {
        return Ok(None);
    }
    half.layer = if keep {
        HasLayer::Keepable
    } else {
        HasLayer::Scratch
    };
    let layer = inner.layers.make(id, keep, half.range, image_of(spec));
    Ok(Some(layer.map_err(disk)?))
}

/// What names a layer's image.
pub(super) fn image_of(spec: &SandboxSpec) -> &str {
    image_key(&spec.image)
}

/// What names an image.
pub(super) fn image_key(image: &PreparedImage) -> &str {
    match image {
        PreparedImage::Host => "host",
        PreparedImage::Rootfs { key, .. } | PreparedImage::Layers { key, .. } => key,
        PreparedImage::Engine { .. } | PreparedImage::Empty => "empty",
    }
}

pub(super) fn take_workspace(
    inner: &Inner,
    host: &crate::backends::HostWorkspace,
    range: Option<u32>,
    user: Option<u32>,
    may_map: bool,
) -> Result<Files, CreateError> {
    let user = user.unwrap_or(0);
    let fail = |error: workspace::WorkspaceError| step("opening the workspace", error);
    let directory = workspace::open(&host.path).map_err(fail)?;
    let status = rustix::fs::fstat(&directory)
        .map_err(|errno| step("opening the workspace", std::io::Error::from(errno)))?;
    let Some(range) = range else {
        let own = rustix::process::geteuid().as_raw();
        if host.managed && status.st_uid != own {
            let cause = format!(
                "it belongs to uid {}, and a service that runs as uid {own} and not as root can neither give it to uid {user} nor run as anybody else",
                status.st_uid
            );
            return Err(step("opening the workspace", cause));
        }
        let why = "not started as root: files belong to the user who started the daemon";
        return Ok(Files {
            directory,
            owners: Owners::AsOnDisk,
            owner_enforced: Enforcement::Unenforced(why.to_owned()),
        });
    };
    let mapped = may_map && !lock(&inner.unmapped).contains(&status.st_dev);
    let (owners, owner_enforced) = match (mapped, host.managed) {
        (true, true) => {
            workspace::adopt(&host.path, &directory, STORAGE_FIRST, user).map_err(fail)?;
            let how = format!("on disk {STORAGE_FIRST} and on, mapped by the mount");
            (workspace::managed_owners(range), Enforcement::Enforced(how))
        }
        (true, false) => {
            let owners = workspace::own_owners(&directory, range, user)
                .map_err(|error| step("opening the workspace", error))?;
            let how = "files belong to the directory's owner".to_owned();
            (owners, Enforcement::Enforced(how))
        }
        (false, true) => {
            // The named fallback: the tree belongs to this sandbox's own range for as long as it runs.
            workspace::adopt(&host.path, &directory, range, user).map_err(fail)?;
            let why = "this file system has no idmapped mounts: on disk files belong to the sandbox's own range";
            (Owners::AsOnDisk, Enforcement::Unenforced(why.to_owned()))
        }
        (false, false) => {
            return Err(step(
                "mounting the workspace",
                "its file system has no idmapped mounts, so its files cannot stay their owner's",
            ));
        }
    };
    Ok(Files {
        directory,
        owners,
        owner_enforced,
    })
}

/// How far a launch came.
pub(super) enum Launched {
    /// The workspace's file system, by its device, has no idmapped mounts.
    NoMapping(u64),
    /// The image's has none.
    NoImageMapping(u64),
    /// Any other failure.
    Failed(CreateError),
}

impl<E: Into<CreateError>> From<E> for Launched {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// A sandbox whose guest runs.
pub(super) struct Started {
    pub(super) link: UnixStream,
    pub(super) join: Join,
    /// Its mount namespace, where its workspace comes later.
    pub(super) mounts: Option<OwnedFd>,
}

/// From what was prepared to a guest that runs. One that parks gets its workspace later.
pub(super) async fn launch(
    inner: &Arc<Inner>,
    spec: &SandboxSpec,
    half: &mut Half,
    prepared: &Prepared,
    parks: bool,
) -> Result<Started, Launched> {
    let accepted = spec.allow_unenforced.contains(&Ceiling::Network);
    let join = network::join(&inner.networks, &inner.launcher, &spec.network, accepted).await?;
    let joined = join.joined();
    half.network = joined.map(|joined| joined.number);
    let mut plan = plan_of(inner, spec, half, prepared, joined)?;
    if parks {
        plan.assignment.work_dir.workspace = None;
    }
    let (ours, theirs) =
        std::os::unix::net::UnixStream::pair().map_err(|error| step("making the link", error))?;
    ours.set_nonblocking(true)
        .map_err(|error| step("making the link", error))?;
    let (report, their_report) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
        .map_err(|errno| step("making the report pipe", errno))?;
    let outcome = {
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![
            theirs.as_fd(),
            inner.guest.descriptor(),
            their_report.as_fd(),
        ];
        descriptors.extend(prepared.layer.as_ref().map(|layer| layer.directory.as_fd()));
        descriptors.extend(prepared.files.as_ref().map(|files| files.directory.as_fd()));
        descriptors.extend(prepared.place.born_in.as_ref().map(AsFd::as_fd));
        descriptors.extend(prepared.place.tasks.iter().map(AsFd::as_fd));
        inner.launcher.launch(plan, parks, &descriptors).await
    };
    // The child has its own copies; ours would keep the link and the report open after its end.
    drop((theirs, their_report));
    let device = prepared
        .files
        .as_ref()
        .and_then(|files| rustix::fs::fstat(&files.directory).ok())
        .map_or(0, |status| status.st_dev);
    let failed = |failure: Failure| match failure.step {
        Step::WorkspaceMapping => Launched::NoMapping(device),
        Step::ImageMapping => Launched::NoImageMapping(match &spec.image {
            PreparedImage::Layers { layers, .. } => device_of(layers),
            PreparedImage::Rootfs { path, .. } => device_of(std::slice::from_ref(path)),
            PreparedImage::Host | PreparedImage::Engine { .. } | PreparedImage::Empty => 0,
        }),
        _ => Launched::Failed(step(failure.step.to_string(), words(&failure))),
    };
    let mounts = match outcome {
        Ok(child) => {
            half.child = Some(child.pidfd);
            child.mounts
        }
        Err(LaunchError::Failed { failure, child }) => {
            half.child = child;
            return Err(failed(failure));
        }
        Err(error) => return Err(step("asking the launcher", error).into()),
    };
    half.landlock = await_exec(report).await.map_err(|failure| match failure {
        Some(failure) => failed(failure),
        None => step("starting the guest", "the first process died on the way").into(),
    })?;
    let link = UnixStream::from_std(ours).map_err(|error| step("making the link", error))?;
    Ok(Started { link, join, mounts })
}

/// A failure's cause, without its step, which the error names already.
fn words(failure: &Failure) -> String {
    let cause = std::io::Error::from_raw_os_error(failure.errno);
    let namespaces = matches!(failure.step, Step::Clone | Step::Users | Step::Namespaces);
    if namespaces
        && matches!(
            cause.kind(),
            std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::StorageFull
        )
    {
        return format!(
            "{cause}: this host does not allow it to this user; sandboxd doctor says why"
        );
    }
    if failure.what.is_empty() {
        cause.to_string()
    } else {
        format!("{}: {cause}", failure.what)
    }
}

fn plan_of(
    inner: &Inner,
    spec: &SandboxSpec,
    half: &Half,
    prepared: &Prepared,
    joined: Option<&Joined>,
) -> Result<Plan, CreateError> {
    let users = match half.range {
        Some(first) => Users::Range {
            first,
            count: super::users::COUNT,
        },
        None => Users::Single {
            inside: spec.user.unwrap_or(0),
        },
    };
    let cpus = half.cpus.clone();
    let cpus_seen = if cpus.is_empty() {
        lock(&inner.placement).all()
    } else {
        cpus.clone()
    };
    let circumstances = Circumstances {
        host: &inner.host,
        users,
        owners: prepared
            .files
            .as_ref()
            .map_or(Owners::AsOnDisk, |files| files.owners.clone()),
        shifted: prepared.shifted.as_deref(),
        layer: prepared
            .layer
            .as_ref()
            .map(|layer| layer.path.display().to_string()),
        cpus,
        cpus_seen,
        network: match joined {
            Some(joined) => sandboxd_jail::plan::Network::Routed {
                number: joined.number,
            },
            None => sandboxd_jail::plan::Network::Loopback,
        },
        resolvers: joined.map_or(&[], |joined| &joined.resolvers),
        seat: prepared.place.seat.clone(),
        pids_by_resource: inner.pids_by_resource,
    };
    plan::plan(spec, &circumstances).map_err(|error| step("planning", error))
}

/// Waits until the child has become the guest: the generation of Landlock that holds it. A failure if it told one.
async fn await_exec(report: OwnedFd) -> Result<u8, Option<Failure>> {
    let mut receiver = pipe::Receiver::from_owned_fd(report).map_err(|_| None)?;
    let mut told = Vec::new();
    let mut buffer = [0_u8; 512];
    while told.len() < REPORT_BYTES_MAX {
        match receiver.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(read) => told.extend_from_slice(buffer.get(..read).unwrap_or_default()),
        }
    }
    match read_executing(&told) {
        Some((landlock, [])) => Ok(landlock),
        Some((_, report)) => Err(Failure::decode(report).ok()),
        None if told.is_empty() => Err(None),
        None => Err(Failure::decode(&told).ok()),
    }
}

/// It is the sandbox of this id from now on, and nothing that was taken for it is given back before it ends.
pub(super) fn settle(
    inner: &Arc<Inner>,
    id: &SandboxId,
    spec: &SandboxSpec,
    half: &mut Half,
    prepared: &mut Prepared,
    join: &Join,
) -> Result<(Enforced, Arc<dyn Meter>), CreateError> {
    let files = prepared.files.as_ref();
    let mut own = Enforced::new();
    own.extend(files.map(|files| (Ceiling::WorkspaceOwner, files.owner_enforced.clone())));
    own.extend(
        network::enforced(join, || inner.networks.enforcement())
            .map(|enforcement| (Ceiling::Network, enforcement)),
    );
    if half.range == Some(SHARED_FIRST) {
        let why = "the image's file system has no idmapped mounts: it is copied, and every sandbox over such a copy has the same user ids on the host";
        let shared = Enforcement::Unenforced(why.to_owned());
        own.insert(Ceiling::UidRange, shared);
    }
    own.insert(Ceiling::Landlock, second_wall::enforcement(half.landlock));
    if spec.disk_bytes.is_some() || spec.disk_files.is_some() {
        own.insert(Ceiling::Disk, storage::enforcement(spec, &prepared.quotas));
    }
    let directory = files.map(|files| &files.directory);
    let places =
        storage::counted_places(spec, &prepared.quotas, prepared.layer.as_ref(), directory)
            .map_err(|error| step("opening what is to be counted", error))?;
    let counters = Arc::new(inner.cgroups.counters(half.id.as_str()));
    let enforced = enforced(inner, spec, own);
    let tally = Tally::new();
    let counting = storage::counting(inner, spec, &half.id, &counters, &tally, places);
    if let Some(pidfd) = half.child.take() {
        let sandbox = Sandbox {
            place: half.id.clone(),
            pidfd,
            range: half.range,
            cpus: std::mem::take(&mut half.cpus),
            layer: half.layer,
            network: half.network,
            tally: Arc::clone(&tally),
            gauge: prepared.quotas.gauge.take(),
            _counting: counting,
            _image: spec.image.clone(),
        };
        lock(&inner.sandboxes).insert(id.clone(), Arc::new(sandbox));
        half.done = true;
    }
    Ok((enforced, Arc::new(SandboxMeter::new(counters, tally))))
}

/// What is in place for this sandbox: of the ceilings, those that it has; `own` are those that are as they are for it.
fn enforced(inner: &Inner, spec: &SandboxSpec, own: Enforced) -> Enforced {
    let has = |ceiling: &Ceiling| match ceiling {
        Ceiling::Memory => spec.memory_bytes.is_some(),
        Ceiling::Cpus => spec.cpus.is_some(),
        Ceiling::CpuShares => spec.cpu_shares.is_some(),
        Ceiling::Pids => spec.pids.is_some(),
        Ceiling::Disk => spec.disk_bytes.is_some() || spec.disk_files.is_some(),
        Ceiling::Network | Ceiling::UidRange => true,
        Ceiling::WorkspaceOwner | Ceiling::OciRuntime | Ceiling::Landlock => false,
    };
    let mut enforced: Enforced = inner
        .ceilings
        .iter()
        .filter(|(ceiling, _)| has(ceiling))
        .map(|(ceiling, enforcement)| (*ceiling, enforcement.clone()))
        .collect();
    enforced.extend(own);
    let unmet = spec.unmet.iter().cloned();
    enforced.extend(unmet.map(|(ceiling, why)| (ceiling, Enforcement::Unenforced(why))));
    enforced
}
