//! What sandboxes store, limited by the file system itself where it has project quotas.
//!
//! A session has a project on each file system that it stores on: its workspace and the two parts of its write layer bear
//! one number, and hand it on. The number is kept nowhere else, so what was there before this daemon is found by itself,
//! and one that no file bears any more is free. The file system keeps the limit also while the session sleeps, and for what
//! the service writes. Where any of it cannot be had, what is stored is counted (see [`super::storage`]), and that is what
//! is reported.
//!
//! The launcher takes numbers and sets limits, which needs power that this process has given up; it gives numbers to files
//! that were there before itself.

use super::account::{Then, walk};
use super::launch::LaunchError;
use super::layers::Layer;
use super::{Inner, lock, plan};
use crate::backends::{Asked, ProjectIds, SandboxSpec};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use sandboxd_jail::projects::{self, Kept, Most, Project};
use sandboxd_jail::wire::Tie;
use std::collections::BTreeSet;
use std::ffi::CStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Ends the name of the file that says to which project everything of a place has been given.
const MARKER: &str = "project";
/// The lock that all daemons of a host hold while one takes a number.
const LOCK: &str = "/run/sandboxd/projects";

/// Whether, and with which numbers, quotas are used.
#[derive(Debug)]
pub(super) struct Projects {
    with: Option<With>,
    /// Devices whose file systems have none, and those of which it has been said that they fail.
    without: Mutex<BTreeSet<u64>>,
}

#[derive(Debug)]
struct With {
    ids: ProjectIds,
    lock: OwnedFd,
}

impl Projects {
    /// None where the operator wants none, or the launcher could not set any.
    pub(super) fn new(ids: Option<ProjectIds>, privileged: bool) -> Self {
        let with = ids.filter(|_| privileged).and_then(|ids| {
            let path = Path::new(LOCK);
            let opened = super::instance::private(path.parent().unwrap_or(path)).and_then(|()| {
                let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                Ok(rustix::fs::open(path, flags, Mode::from_raw_mode(0o600))?)
            });
            match opened {
                Ok(lock) => Some(With { ids, lock }),
                Err(error) => {
                    tracing::warn!(%error, path = LOCK, "no project quotas without this lock");
                    None
                }
            }
        });
        Self {
            with,
            without: Mutex::default(),
        }
    }
}

/// What a sandbox has of them.
#[derive(Debug, Default)]
pub(super) struct Quotas {
    /// Whether its write layer is under one.
    pub(super) layer: bool,
    /// Whether its workspace is.
    pub(super) workspace: bool,
    /// Where one keeps all that is limited: what it says is stored.
    pub(super) gauge: Option<Gauge>,
}

/// Tells what the files of a project store.
#[derive(Debug)]
pub(super) struct Gauge {
    directory: OwnedFd,
    most: Most,
}

impl Gauge {
    /// What is stored; nothing for what has no limit, or one that the file system is too small for. Over the limit it says
    /// the limit; on a file system that is fuller than the project it says too much.
    pub(super) fn stored(&self) -> (Option<u64>, Option<u64>) {
        let Ok(status) = rustix::fs::fstatvfs(&self.directory) else {
            return (None, None);
        };
        let unit = status.f_frsize;
        let is_limit = |limit: u64, all: u64| limit.saturating_sub(all) < 1024 && all <= limit;
        let bytes = self.most.bytes.and_then(|limit| {
            let all = status.f_blocks.saturating_mul(unit);
            let within = all <= limit && limit.saturating_sub(all) < unit.max(1024);
            within.then(|| {
                status
                    .f_blocks
                    .saturating_sub(status.f_bfree)
                    .saturating_mul(unit)
            })
        });
        let files = self.most.files.and_then(|limit| {
            is_limit(limit, status.f_files).then(|| status.f_files.saturating_sub(status.f_ffree))
        });
        (bytes, files)
    }
}

/// Why a place is under no quota.
#[derive(Debug, thiserror::Error)]
enum Unheld {
    /// Its file system keeps none; nothing to be told of.
    #[error("the file system keeps no limits of projects")]
    None,
    /// Its files are somebody else's project.
    #[error("its files are in project {0}, which is none of the service's")]
    Foreign(u32),
    /// Not everything could be given to the project.
    #[error("not every file could be given to the project")]
    Partly,
    /// The kernel.
    #[error("{0}")]
    Kernel(#[from] Errno),
    /// A marker.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The launcher.
    #[error("{0}")]
    Launcher(#[from] LaunchError),
    /// A task that was ended.
    #[error("{0}")]
    Task(#[from] tokio::task::JoinError),
}

/// Where a sandbox stores something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Workspace,
    Layer,
}

/// The directories of one part, on one file system.
#[derive(Debug)]
struct Place {
    part: Part,
    device: u64,
    trees: Vec<OwnedFd>,
    marker: PathBuf,
}

impl Place {
    fn new(part: Part, trees: Vec<OwnedFd>, marker: PathBuf) -> io::Result<Self> {
        let device = match trees.first() {
            Some(tree) => rustix::fs::fstat(tree)?.st_dev,
            None => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(Self {
            part,
            device,
            trees,
            marker,
        })
    }

    /// The project of its first tree.
    fn project(&self) -> Result<Project, Errno> {
        self.trees
            .first()
            .map_or(Err(Errno::NOENT), projects::project)
    }

    /// Says that everything in it is a project's: another directory of the same name is another place.
    fn mark(&self, id: u32) -> Result<String, Errno> {
        let mut mark = id.to_string();
        for tree in &self.trees {
            mark += &format!(" {}", rustix::fs::fstat(tree)?.st_ino);
        }
        Ok(mark)
    }

    /// Whether everything in it is this project's.
    fn is_whole(&self, id: u32) -> Result<bool, Errno> {
        for tree in &self.trees {
            let project = projects::project(tree)?;
            if project.id != id || !project.handed_on {
                return Ok(false);
            }
        }
        let mark = self.mark(id)?;
        Ok(fs::read_to_string(&self.marker).is_ok_and(|text| text == mark))
    }

    /// Gives everything in it to a project.
    fn give(&self, id: u32) -> Result<(), Unheld> {
        // First the trees themselves, so that what is made in them meanwhile is the project's.
        for tree in &self.trees {
            let handed_on = true;
            projects::set_project(tree, Project { id, handed_on })?;
        }
        for tree in &self.trees {
            let mut failed = None;
            let whole = walk(tree.as_fd(), &mut |at, name, status| {
                let kind = FileType::from_raw_mode(status.st_mode);
                // Links, queues and sockets cannot be given away, and store nothing.
                if !kind.is_dir() && !kind.is_file() {
                    return Then::Go;
                }
                match give(at, name, id) {
                    // It may be gone, or another thing, by now.
                    Ok(()) | Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => Then::Go,
                    Err(errno) => {
                        failed = Some(errno);
                        Then::End
                    }
                }
            });
            if let Some(errno) = failed {
                return Err(errno.into());
            }
            if !whole {
                return Err(Unheld::Partly);
            }
        }
        fs::write(&self.marker, self.mark(id)?)?;
        Ok(())
    }
}

/// Gives one file or directory to a project.
fn give(at: BorrowedFd<'_>, name: &CStr, id: u32) -> Result<(), Errno> {
    let file = rustix::fs::openat2(
        at,
        name,
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV,
    )?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
    if !kind.is_dir() && !kind.is_file() {
        return Err(Errno::LOOP);
    }
    let wanted = Project {
        id,
        handed_on: kind.is_dir(),
    };
    if projects::project(&file)? == wanted {
        return Ok(());
    }
    projects::set_project(&file, wanted)
}

/// Whether the file system of a directory limits what projects store.
///
/// # Errors
///
/// Why it does not, in words.
pub fn project_quotas(directory: &Path) -> Result<(), String> {
    let opened = fs::File::open(directory).map_err(|error| error.to_string())?;
    match projects::kept(&opened) {
        Ok(Kept::Limits) => Ok(()),
        Ok(Kept::CountsOnly) => {
            Err("the file system counts projects, and is mounted without prjquota".to_owned())
        }
        Ok(Kept::Nothing) | Err(Errno::SRCH | Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOTTY) => {
            Err("the file system keeps no quotas of projects".to_owned())
        }
        Err(errno) => Err(io::Error::from(errno).to_string()),
    }
}

/// What a sandbox stores has been given to projects, which have no limit: what makes it writes a little, also where there
/// is no room.
#[derive(Debug, Default)]
pub(super) struct Tied {
    projects: Vec<TiedHere>,
    /// Whether there is no other place.
    all: bool,
}

/// The same, on one file system.
#[derive(Debug)]
struct TiedHere {
    parts: Vec<Part>,
    directory: OwnedFd,
    id: u32,
}

const COUNTED: &str = "there is a quota of projects, but what a sandbox stores is counted";

/// Gives what a sandbox stores to projects, as far as its file systems have quotas of them. What has none is no failure.
pub(super) async fn tie(
    inner: &Arc<Inner>,
    spec: &SandboxSpec,
    layer: Option<&Layer>,
    workspace: Option<&OwnedFd>,
) -> Tied {
    let mut tied = Tied::default();
    let Some(with) = &inner.projects.with else {
        return tied;
    };
    let mut places = match places(spec, layer, workspace) {
        Ok(places) => places,
        Err(error) => {
            tracing::warn!(%error, "what a sandbox stores is counted, for it could not be looked at");
            return tied;
        }
    };
    places.retain(|place| !lock(&inner.projects.without).contains(&place.device));
    let mut devices: Vec<u64> = places.iter().map(|place| place.device).collect();
    devices.dedup();
    for device in devices {
        let here: Vec<Place> = places
            .extract_if(.., |place| place.device == device)
            .collect();
        let parts: Vec<Part> = here.iter().map(|place| place.part).collect();
        match tie_here(inner, with, here, most(spec)).await {
            Ok(None) => {}
            Ok(Some((id, directory))) => tied.projects.push(TiedHere {
                parts,
                directory,
                id,
            }),
            Err(Unheld::None) => {
                lock(&inner.projects.without).insert(device);
            }
            Err(error) => tracing::warn!(?parts, %error, "{COUNTED}"),
        }
    }
    let has = |part| tied.projects.iter().any(|one| one.parts.contains(&part));
    let all = has(Part::Layer) || layer.is_none();
    tied.all = all && (has(Part::Workspace) || !plan::workspace_is_counted(spec));
    tied
}

impl Tied {
    /// Limits the projects, now that the sandbox is made, or that it failed.
    pub(super) async fn limit(self, inner: &Inner, spec: &SandboxSpec) -> Quotas {
        let mut quotas = Quotas::default();
        let Some(with) = &inner.projects.with else {
            return quotas;
        };
        // Two of them are two limits: what is stored in all is no file system's to say.
        let is_one = self.all && self.projects.len() == 1;
        let most = most(spec);
        for one in self.projects {
            let tie = Tie::To(one.id);
            let limited = inner.launcher.limit(&with.lock, &one.directory, tie, most);
            if let Err(error) = limited.await {
                tracing::warn!(parts = ?one.parts, %error, "{COUNTED}");
                continue;
            }
            quotas.layer |= one.parts.contains(&Part::Layer);
            quotas.workspace |= one.parts.contains(&Part::Workspace);
            quotas.gauge = is_one.then_some(Gauge {
                directory: one.directory,
                most,
            });
        }
        quotas
    }
}

fn most(spec: &SandboxSpec) -> Most {
    let value = |asked: Option<Asked<u64>>| asked.map(|asked| asked.value);
    Most {
        bytes: value(spec.disk_bytes),
        files: value(spec.disk_files),
    }
}

/// What of a sandbox may be a project's. A user's own directory is never.
fn places(
    spec: &SandboxSpec,
    layer: Option<&Layer>,
    workspace: Option<&OwnedFd>,
) -> io::Result<Vec<Place>> {
    let mut places = Vec::new();
    if let (Some(host), Some(directory)) = (&spec.workspace, workspace)
        && host.managed
    {
        let parent = host.path.parent().unwrap_or(&host.path);
        let name = host.path.file_name().unwrap_or_default().to_string_lossy();
        let marker = parent.join(format!(".{name}.{MARKER}"));
        let trees = vec![directory.try_clone()?];
        places.push(Place::new(Part::Workspace, trees, marker)?);
    }
    if let Some(layer) = layer {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // Not the layer itself: its note is the service's, and is written also when there is no room.
        let part = |name| rustix::fs::openat(&layer.directory, name, flags, Mode::empty());
        let trees = vec![part("upper")?, part("work")?];
        places.push(Place::new(Part::Layer, trees, layer.path.join(MARKER))?);
    }
    Ok(places)
}

/// Gives places of one file system to one project: which, and a directory of it. None where nothing is to be limited.
async fn tie_here(
    inner: &Arc<Inner>,
    with: &With,
    places: Vec<Place>,
    most: Most,
) -> Result<Option<(u32, OwnedFd)>, Unheld> {
    let ids = with.ids;
    let looked = tokio::task::spawn_blocking(move || {
        let looked = look(&places, ids);
        (places, looked)
    });
    let (places, looked) = looked.await?;
    let (known, whole) = looked?;
    let Some(directory) = places.first().and_then(|place| place.trees.first()) else {
        return Err(Unheld::None);
    };
    let directory = directory.try_clone()?;
    let unlimited = most == Most::default();
    let tie = match known {
        // Nobody limits it, and nobody has.
        None if unlimited => return Ok(None),
        None => Tie::Fresh(ids.range()),
        Some(id) => Tie::To(id),
    };
    let limited = inner
        .launcher
        .limit(&with.lock, &directory, tie, Most::default());
    limited.await?;
    if unlimited {
        return Ok(None);
    }
    let id = match known {
        Some(id) => id,
        None => projects::project(&directory)?.id,
    };
    if !whole {
        let given = tokio::task::spawn_blocking(move || {
            places.iter().try_for_each(|place| {
                if place.is_whole(id)? {
                    return Ok(());
                }
                place.give(id)
            })
        });
        given.await??;
    }
    Ok(Some((id, directory)))
}

/// The project that some of the places have already, and whether all of them are wholly its.
fn look(places: &[Place], ids: ProjectIds) -> Result<(Option<u32>, bool), Unheld> {
    let tree = places.first().and_then(|place| place.trees.first());
    let tree = tree.ok_or(Unheld::None)?;
    if !matches!(projects::kept(tree), Ok(Kept::Limits)) {
        return Err(Unheld::None);
    }
    let mut known = None;
    for place in places {
        let project = place.project()?;
        if ids.has(project.id) {
            known = known.or(Some(project.id));
        } else if project.id != 0 {
            return Err(Unheld::Foreign(project.id));
        }
    }
    let Some(id) = known else {
        return Ok((None, false));
    };
    for place in places {
        if !place.is_whole(id)? {
            return Ok((known, false));
        }
    }
    Ok((known, true))
}
