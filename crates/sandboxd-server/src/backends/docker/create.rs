//! One sandbox: from its specification to its running guest.
//!
//! The container is made with the guest in it, the link attached, and only then is it started, so nothing that the guest
//! says is missed. All of it is an errand of the backend's: whoever asked may stop waiting, and what was made is
//! then removed.

use super::connect::{Engine, EngineError};
use super::container::{
    Circumstances, ContainerError, KEEP_NOT, KEPT, LABEL_INSTANCE, LABEL_KEEP, LABEL_SANDBOX,
    LABEL_STATE, container, limits, missing,
};
use super::disk::{self, Places};
use super::kernel::Counters;
use super::link::AttachedLink;
use super::meter::ContainerMeter;
use super::{Inner, Sandbox, adopt, ceilings, ending, guest, lock};
use crate::backends::namespaces::network::{self, Join};
use crate::backends::namespaces::workspace;
use crate::backends::tally::Tally;
use crate::backends::{
    Ceiling, CreateError, Enforced, Enforcement, Network, PreparedImage, Running, SandboxSpec,
    Start, Usage, UsageError,
};
use crate::id::SandboxId;
use crate::limits::{CREATE_SECONDS_MAX, ENGINE_ACT_SECONDS_MAX, ENGINE_ASK_SECONDS_MAX};
use bollard::models::{ContainerInspectResponse, ContainerStateStatusEnum};
use bollard::query_parameters::{
    AttachContainerOptions, CreateContainerOptions, InspectContainerOptions, StartContainerOptions,
    StatsOptions,
};
use futures::StreamExt as _;
use rustix::fd::OwnedFd;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Makes a sandbox, and starts its guest.
pub(super) async fn create(
    inner: &Arc<Inner>,
    id: &SandboxId,
    spec: &SandboxSpec,
    start: Start,
) -> Result<Running, CreateError> {
    refuse_unenforceable(&inner.engine, spec)?;
    if start == Start::KeptLayer {
        // It was stopped, as far as the engine could be asked; what it may still run is ended below.
        lock(&inner.sandboxes).remove(id);
    }
    if inner.sandbox(id).is_some() || !lock(&inner.claimed).insert(id.clone()) {
        return Err(step(
            "creating",
            "a sandbox of this id runs, or is being made",
        ));
    }
    let (tell, told) = oneshot::channel();
    let (theirs, id, spec) = (Arc::clone(inner), id.clone(), spec.clone());
    inner.errand(async move {
        let making = make(&theirs, &id, &spec, start);
        let made = tokio::time::timeout(Duration::from_secs(CREATE_SECONDS_MAX), making)
            .await
            .unwrap_or(Err(CreateError::TimedOut(CREATE_SECONDS_MAX)));
        let failed = made.is_err();
        // Also where nobody waits any more.
        if tell.send(made).is_err() || failed {
            undo(&theirs, &id, start).await;
        }
        lock(&theirs.claimed).remove(&id);
    });
    told.await
        .unwrap_or_else(|_| Err(step("creating", "the daemon ends")))
}

/// Takes back what there is of a sandbox that nobody has.
async fn undo(inner: &Arc<Inner>, id: &SandboxId, start: Start) {
    let undone = match start {
        Start::Fresh => match inner.records.read(id).await {
            // What another service made stays.
            Ok(Some(_)) => ending::let_go(inner, id).await,
            _ => ending::remove(inner, id).await,
        },
        Start::KeptLayer => ending::end_kept(inner, id).await.map(drop),
    };
    if let Err(error) = undone {
        tracing::warn!(%id, %error, "what was made of a sandbox could not be taken back");
    }
}

pub(super) fn step(step: impl Into<String>, cause: impl std::fmt::Display) -> CreateError {
    CreateError::Step {
        step: step.into(),
        cause: cause.to_string(),
    }
}

impl From<EngineError> for CreateError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Failed { doing, cause, .. } => step(doing, cause),
            EngineError::TimedOut { doing, seconds } => step(
                doing,
                format!("the container engine did not answer within {seconds} s"),
            ),
        }
    }
}

/// What somebody set and this engine cannot enforce is refused, unless they accept that.
fn refuse_unenforceable(engine: &Engine, spec: &SandboxSpec) -> Result<(), CreateError> {
    let accepts = |ceiling| spec.allow_unenforced.contains(&ceiling);
    let refuse = |ceiling, cause: String| Err(CreateError::Unenforceable { ceiling, cause });
    for (ceiling, why, explicit) in missing(spec, engine.abilities()) {
        if explicit && !accepts(ceiling) {
            return refuse(ceiling, why.to_owned());
        }
    }
    if disk::is_explicit(spec)
        && !accepts(Ceiling::Disk)
        && let Enforcement::Unenforced(why) = disk::enforcement(engine)
    {
        return refuse(Ceiling::Disk, why);
    }
    if let Some(name) = &spec.oci_runtime
        && !engine.abilities().runtimes.contains_key(name)
    {
        let known: Vec<&str> = engine
            .abilities()
            .runtimes
            .keys()
            .map(String::as_str)
            .collect();
        let cause = format!(
            "the engine has no container runtime {name:?}; it has {}",
            known.join(", ")
        );
        return Err(step("choosing the container runtime", cause));
    }
    Ok(())
}

async fn make(
    inner: &Arc<Inner>,
    id: &SandboxId,
    spec: &SandboxSpec,
    start: Start,
) -> Result<Running, CreateError> {
    let workspace = open_workspace(spec).await?;
    let engine = &inner.engine;
    let join = inner.bridge.join(spec, engine.abilities()).await?;
    let address = inner.bridge.hold(&join);
    // And whether it is one that another service made.
    let container: (String, bool) = match start {
        Start::Fresh => fresh(inner, id, spec, &join).await?,
        Start::KeptLayer => kept(inner, id, spec).await?,
    };
    let (container, is_adopted) = container;
    let attached = if is_adopted {
        adopt::note_use(inner, id, &container).await?;
        None
    } else {
        Some(attach(engine, id, &container).await?)
    };
    start_container(engine, &container).await?;
    // Once for all that is to be known of it.
    let looked = if engine.is_local() || join.joined().is_some() {
        inspect(engine, &container).await?.unwrap_or_default()
    } else {
        ContainerInspectResponse::default()
    };
    let first = first_process(&looked);
    let places = Places::of(engine, &looked, workspace).await;
    let disk = places.enforced(spec)?;
    reach_out(inner, &join, &container, first).await?;
    let link = match attached {
        Some(link) => link,
        None => adopt::start_guest(engine, id, spec, &container).await?,
    };
    let counters = counters(engine, &container, first);
    let tally = Tally::new();
    let counting = places.count(inner, id, spec, counters.as_ref(), &tally);
    let sandbox = Sandbox {
        container,
        keepable: spec.keep_layer,
        counters: counters.clone(),
        tally: Arc::clone(&tally),
        _address: address,
        _counting: counting,
    };
    lock(&inner.sandboxes).insert(id.clone(), Arc::new(sandbox));
    let mut enforced = enforced(inner, spec, disk, &join);
    if is_adopted {
        let why = "the container is the Python service's: it has the engine's own capabilities and filter of system calls, and what runs as root in it can end its guest";
        enforced.insert(Ceiling::UidRange, Enforcement::Unenforced(why.to_owned()));
    }
    Ok(Running {
        link: Box::new(link),
        enforced,
        meter: Arc::new(ContainerMeter::new(counters, tally)),
        layer_is_torn: false,
    })
}

async fn attach(
    engine: &Engine,
    id: &SandboxId,
    container: &str,
) -> Result<AttachedLink, CreateError> {
    let options = AttachContainerOptions {
        stream: true,
        stdin: true,
        stdout: true,
        stderr: true,
        ..AttachContainerOptions::default()
    };
    let attaching = engine.client().attach_container(container, Some(options));
    let attached = engine
        .call(
            "attaching to the container",
            ENGINE_ACT_SECONDS_MAX,
            attaching,
        )
        .await?;
    Ok(AttachedLink::new(
        id.clone(),
        attached.output,
        attached.input,
    ))
}

/// Joins a container to its network, where it has one.
async fn reach_out(
    inner: &Inner,
    join: &Join,
    container: &str,
    first: Option<i64>,
) -> Result<(), CreateError> {
    let Some(joined) = join.joined() else {
        return Ok(());
    };
    let attached = inner.bridge.attach(joined, container, first).await;
    attached.map_err(|cause| step("joining the container to its network", cause))
}

/// The number of the container's first process on its engine's host; nothing where it has ended.
fn first_process(looked: &ContainerInspectResponse) -> Option<i64> {
    let state = looked.state.as_ref()?;
    state.pid.filter(|pid| *pid > 0)
}

async fn start_container(engine: &Engine, container: &str) -> Result<(), CreateError> {
    let starting = engine
        .client()
        .start_container(container, None::<StartContainerOptions>);
    let started = engine.call("starting the container", ENGINE_ACT_SECONDS_MAX, starting);
    match started.await {
        Err(error) if !error.is_so_already() => Err(error.into()),
        _ => Ok(()),
    }
}

/// Opens the workspace, and puts its owners in order: on disk its files belong to the ids that they have inside.
async fn open_workspace(spec: &SandboxSpec) -> Result<Option<OwnedFd>, CreateError> {
    let Some(host) = spec.workspace.clone() else {
        return Ok(None);
    };
    let user = spec.user.unwrap_or(0);
    let opened = tokio::task::spawn_blocking(move || {
        let directory = workspace::open(&host.path).map_err(|error| error.to_string())?;
        if host.managed {
            workspace::give_back(&host.path, &directory, user)
                .map_err(|error| error.to_string())?;
            return Ok(directory);
        }
        let owner = rustix::fs::fstat(&directory).map_err(|errno| errno.to_string())?;
        if owner.st_uid == user {
            Ok(directory)
        } else {
            Err(format!(
                "{} belongs to uid {}, and programs here run as uid {user}: an engine's mounts cannot show one as the other",
                host.path.display(),
                owner.st_uid
            ))
        }
    });
    let opened = opened
        .await
        .map_err(|error| step("opening the workspace", error))?;
    opened
        .map(Some)
        .map_err(|cause| step("opening the workspace", cause))
}

/// The workspace's path as the engine sees it.
fn workspace_source(inner: &Inner, spec: &SandboxSpec) -> Result<Option<String>, CreateError> {
    let Some(workspace) = &spec.workspace else {
        return Ok(None);
    };
    let source = inner.places.source(&workspace.path);
    let source = source.map_err(|cause| step("mounting the workspace", cause))?;
    let path = source.to_str();
    path.map(|path| Some(path.to_owned()))
        .ok_or_else(|| step("mounting the workspace", "its path is not UTF-8"))
}

async fn fresh(
    inner: &Arc<Inner>,
    id: &SandboxId,
    spec: &SandboxSpec,
    join: &Join,
) -> Result<(String, bool), CreateError> {
    let engine = &inner.engine;
    let session = spec.session.as_ref().filter(|_| spec.keep_layer);
    if let Some(session) = session
        && let Some(old) = adopt::find(inner, id, spec, session).await?
    {
        let id = old.id.clone().unwrap_or_default();
        make_ready(engine, spec, &id, &old).await?;
        guest::copy_in(inner, &id, spec, Start::Fresh).await?;
        return Ok((id, true));
    }
    let image = match &spec.image {
        PreparedImage::Engine { id, .. } => id,
        _ => return Err(step("planning the container", ContainerError::Image)),
    };
    let volume = guest::volume(inner, image).await?;
    let network = network(engine, spec).await?;
    let source = workspace_source(inner, spec)?;
    let resolvers: Vec<String> = join
        .joined()
        .iter()
        .flat_map(|joined| &joined.resolvers)
        .map(ToString::to_string)
        .collect();
    let here = Circumstances {
        abilities: engine.abilities(),
        filters: &inner.filters,
        workspace: source.as_deref(),
        guest: volume.as_deref(),
        network: &network,
        resolvers: match spec.network {
            Network::Named(_) => None,
            Network::None | Network::Bridge => Some(&resolvers),
        },
        labels: labels(inner, id, spec),
    };
    let body = container(spec, &here).map_err(|error| step("planning the container", error))?;
    let options = CreateContainerOptions {
        name: session.map(adopt::name),
        ..CreateContainerOptions::default()
    };
    let make = || {
        let making = engine
            .client()
            .create_container(Some(options.clone()), body.clone());
        engine.call("making the container", ENGINE_ACT_SECONDS_MAX, making)
    };
    let made = match (make().await, session) {
        // What a daemon that was killed had asked for has come to be since it was looked for.
        (Err(error), Some(session)) if error.is_conflict() => {
            match adopt::find(inner, id, spec, session).await? {
                Some(_) => return Err(error.into()),
                None => make().await?,
            }
        }
        (made, _) => made?,
    };
    for warning in &made.warnings {
        let warning = super::connect::printable(warning);
        tracing::warn!(sandbox = %id, warning, "the engine warns");
    }
    if volume.is_none() {
        guest::copy_in(inner, &made.id, spec, Start::Fresh).await?;
    }
    Ok((made.id, false))
}

fn labels(inner: &Inner, id: &SandboxId, spec: &SandboxSpec) -> HashMap<String, String> {
    let keep = if spec.keep_layer { KEPT } else { KEEP_NOT };
    [
        (LABEL_STATE, inner.state.as_str()),
        (LABEL_INSTANCE, inner.instance.name.as_str()),
        (LABEL_SANDBOX, id.as_str()),
        (LABEL_KEEP, keep),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

/// The engine's name for the network that is asked for. One that an operator names has to be there, and has to be a network
/// of containers: not the host's own, not another container's, not the one that every container shares.
async fn network(engine: &Engine, spec: &SandboxSpec) -> Result<String, CreateError> {
    let Network::Named(name) = &spec.network else {
        return Ok("none".to_owned());
    };
    let looked = engine.client().inspect_network(
        name,
        None::<bollard::query_parameters::InspectNetworkOptions>,
    );
    let found = engine
        .call("looking for the network", ENGINE_ASK_SECONDS_MAX, looked)
        .await
        .map_err(|error| step(format!("looking for the network {name:?}"), error))?;
    let refuse = |why: &str| Err(step(format!("joining the network {name:?}"), why));
    let is_shared =
        found.options.iter().flatten().any(|(key, value)| {
            key == "com.docker.network.bridge.default_bridge" && value == "true"
        });
    match (found.driver.as_deref(), found.id) {
        (Some("host"), _) => refuse("the host's own network is never given to a sandbox"),
        _ if is_shared => refuse(
            "the engine's own bridge lets sandboxes reach each other and the host; \"bridge\" means another one here",
        ),
        (Some("null"), _) => Ok("none".to_owned()),
        // By its id: a name may mean something else to the engine, such as a container's.
        (_, Some(id)) => Ok(id),
        (_, None) => refuse("the engine does not say its id"),
    }
}

/// The container of a kept layer, stopped and with the ceilings that are in force now; and whether another service made it.
async fn kept(
    inner: &Arc<Inner>,
    id: &SandboxId,
    spec: &SandboxSpec,
) -> Result<(String, bool), CreateError> {
    let engine = &inner.engine;
    let container = ending::container_of(inner, id)
        .await?
        .ok_or(CreateError::LayerMissing)?;
    let looked = inspect(engine, &container).await?;
    let looked = looked.ok_or(CreateError::LayerMissing)?;
    same_place(inner, spec, &looked)?;
    make_ready(engine, spec, &container, &looked).await?;
    guest::renew(inner, &looked, &container, spec).await?;
    Ok((container, adopt::is_adopted(&looked)))
}

/// Ends what may run in a container, for that knows another daemon, and gives it the ceilings that are in force now.
async fn make_ready(
    engine: &Engine,
    spec: &SandboxSpec,
    container: &str,
    looked: &ContainerInspectResponse,
) -> Result<(), CreateError> {
    let status = looked.state.as_ref().and_then(|state| state.status);
    if !is_at_rest(status) {
        ending::kill(engine, container).await?;
    }
    let limits = limits(spec, engine.abilities());
    let limits = limits.map_err(|error| step("planning the container", error))?;
    let has = looked.host_config.clone().unwrap_or_default();
    let Some(other) = limits.other_than(&has) else {
        return Ok(());
    };
    if engine.abilities().is_podman {
        // Not every Podman changes the ceilings of a container that is there.
        return Err(step(
            "changing the container's ceilings",
            format!("{other}, and this engine cannot change that of a container that it has"),
        ));
    }
    let updating = engine.client().update_container(container, limits.update());
    engine
        .call(
            "changing the container's ceilings",
            ENGINE_ACT_SECONDS_MAX,
            updating,
        )
        .await?;
    Ok(())
}

/// Whether nothing runs in a container of this status, nor is about to.
const fn is_at_rest(status: Option<ContainerStateStatusEnum>) -> bool {
    matches!(
        status,
        Some(ContainerStateStatusEnum::CREATED | ContainerStateStatusEnum::EXITED)
    )
}

/// Whether something runs in a container of this status.
pub(super) const fn is_alive(status: Option<ContainerStateStatusEnum>) -> bool {
    matches!(
        status,
        Some(
            ContainerStateStatusEnum::RUNNING
                | ContainerStateStatusEnum::PAUSED
                | ContainerStateStatusEnum::RESTARTING
        )
    )
}

/// What cannot be changed of a container has to be as it is asked for now.
pub(super) fn same_place(
    inner: &Inner,
    spec: &SandboxSpec,
    looked: &ContainerInspectResponse,
) -> Result<(), CreateError> {
    let refuse = |what: String| Err(step("opening the kept container", what));
    if let PreparedImage::Engine { id, .. } = &spec.image
        && looked.image.as_ref().is_some_and(|image| image != id)
    {
        return refuse(format!(
            "it was made from the image {}, and would mean something else over {id}",
            looked.image.as_deref().unwrap_or("?")
        ));
    }
    let source = workspace_source(inner, spec)?;
    let mounts = looked.mounts.iter().flatten();
    let mut mounts = mounts.filter(|mount| mount.destination.as_deref() == Some(&*spec.work_dir));
    let mounted = mounts.next().and_then(|mount| mount.source.clone());
    if mounted != source {
        return refuse(format!(
            "its work directory is {}, and should be {}",
            mounted.as_deref().unwrap_or("its own"),
            source.as_deref().unwrap_or("its own"),
        ));
    }
    Ok(())
}

pub(super) async fn inspect(
    engine: &Engine,
    container: &str,
) -> Result<Option<ContainerInspectResponse>, EngineError> {
    let looked = engine
        .client()
        .inspect_container(container, None::<InspectContainerOptions>);
    let looked = engine
        .call("looking at the container", ENGINE_ASK_SECONDS_MAX, looked)
        .await;
    super::connect::unless_missing(looked)
}

/// What the kernel counts of a container, where it can be read.
fn counters(engine: &Engine, container: &str, first: Option<i64>) -> Option<Arc<Counters>> {
    if !engine.is_local() {
        return None;
    }
    Counters::find(container, first?).map(Arc::new)
}

/// What is in place for this sandbox: of the ceilings, those that it has.
fn enforced(inner: &Inner, spec: &SandboxSpec, disk: Option<Enforcement>, join: &Join) -> Enforced {
    let has = |ceiling: &Ceiling| match ceiling {
        Ceiling::Memory => spec.memory_bytes.is_some(),
        Ceiling::Cpus => spec.cpus.is_some(),
        Ceiling::CpuShares => spec.cpu_shares.is_some(),
        Ceiling::Pids => spec.pids.is_some(),
        Ceiling::Disk => false,
        Ceiling::Network | Ceiling::UidRange => true,
        Ceiling::OciRuntime => spec.oci_runtime.is_some(),
        Ceiling::WorkspaceOwner => spec.workspace.is_some(),
        Ceiling::Landlock => true,
    };
    let mut enforced = ceilings(inner.engine.abilities());
    enforced.retain(|ceiling, _| has(ceiling));
    if let Some(disk) = disk {
        enforced.insert(Ceiling::Disk, disk);
    }
    if let Network::Named(name) = &spec.network {
        let how = format!("the engine's network {name:?}, as its operator made it");
        enforced.insert(Ceiling::Network, Enforcement::Enforced(how));
    }
    let network = network::enforced(join, || inner.bridge.enforcement());
    enforced.extend(network.map(|network| (Ceiling::Network, network)));
    enforced
}

/// What a sandbox uses: by the kernel's files where they can be read, else by the engine's statistics.
pub(super) async fn usage(inner: &Inner, id: &SandboxId) -> Result<Usage, UsageError> {
    let gone = || UsageError("the sandbox does not run".to_owned());
    let sandbox = inner.sandbox(id).ok_or_else(gone)?;
    let counters = sandbox.counters.as_ref();
    let usage = match counters.filter(|counters| counters.is_complete()) {
        Some(counters) => counters.usage(),
        None => statistics(&inner.engine, &sandbox.container).await?,
    };
    let stored = sandbox.tally.stored();
    Ok(Usage {
        disk_bytes: stored.map(|stored| stored.bytes),
        disk_files: stored.map(|stored| stored.files),
        ..usage
    })
}

async fn statistics(engine: &Engine, container: &str) -> Result<Usage, UsageError> {
    let options = StatsOptions {
        stream: false,
        // Without the engine's wait for a second sample, of which nothing is needed.
        one_shot: true,
    };
    let mut all = engine.client().stats(container, Some(options));
    let first = async {
        match all.next().await {
            Some(sample) => sample,
            None => Err(bollard::errors::Error::RequestTimeoutError),
        }
    };
    let sample = engine
        .call("sampling the container", ENGINE_ASK_SECONDS_MAX, first)
        .await
        .map_err(|error| UsageError(error.to_string()))?;
    let memory = sample.memory_stats.unwrap_or_default();
    let cpu = sample.cpu_stats.and_then(|cpu| cpu.cpu_usage);
    Ok(Usage {
        memory_bytes: memory.usage,
        memory_limit_bytes: memory.limit,
        cpu_time: cpu
            .and_then(|cpu| cpu.total_usage)
            .map(Duration::from_nanos),
        pids: sample.pids_stats.and_then(|pids| pids.current),
        memory_kills: None,
        disk_bytes: None,
        disk_files: None,
    })
}
