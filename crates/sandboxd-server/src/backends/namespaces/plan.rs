//! From a specification to a plan of walls. Pure: no I/O, so that golden files show every wall of every kind of sandbox.

use super::cpus::cpu_list;
use super::host::{HostFiles, file};
use crate::backends::inside::{self, InsideError};
use crate::backends::{Asked, PreparedImage, SandboxSpec};
use sandboxd_jail::plan::{
    Assignment, Entry, Limits, MemoryMount, Network, Owners, Plan, ProcRules, Resource,
    ResourceLimit, Root, Seat, Template, Users, WorkDir, Workspace,
};
use std::net::Ipv4Addr;
use std::path::PathBuf;

/// Capabilities of a root run, by number and with what needs them; all of them only over what the sandbox's own user
/// namespace owns. A run under a uid of its own has none.
pub(super) const CAPABILITIES: &[(u8, &str)] = &[
    (0, "chown: package managers give files to system users"),
    (1, "dac_override: root writes into directories of others"),
    (3, "fowner: root changes modes of files of others"),
    (4, "fsetid: setgid directories keep their bit"),
    (5, "kill: root ends processes of others"),
    (6, "setgid: dropping to a system user"),
    (7, "setuid: dropping to a system user"),
    (8, "setpcap: giving capabilities up"),
    (10, "net_bind_service: ports below 1024 on its own loopback"),
    (
        18,
        "sys_chroot: package managers run scripts in a root of their own",
    ),
    (SETFCAP, "setfcap: packages set file capabilities"),
];

/// The capability that gives files capabilities; by a file of a host user these would be that user's.
const SETFCAP: u8 = 31;

/// Of `/proc`: what speaks of the whole machine reads as empty. The kernel's command line may hold what a boot loader was
/// told in confidence; its symbols and its configuration help only whoever attacks it; a file of `pressure` that is opened
/// for writing makes the kernel work for its reader.
const MASKED: &[&str] = &[
    "acpi",
    "asound",
    "cmdline",
    "config.gz",
    "interrupts",
    "kallsyms",
    "kcore",
    "key-users",
    "keys",
    "kmsg",
    "latency_stats",
    "modules",
    "pressure",
    "sched_debug",
    "scsi",
    "timer_list",
    "timer_stats",
];
/// Of `/proc`: what changes the machine cannot be written.
const READ_ONLY: &[&str] = &["bus", "fs", "irq", "sys", "sysrq-trigger"];
/// Where the little of `/sys` is that programs read.
const SYS: &str = "sys";
/// A directory of it with nothing in it, as sandboxes elsewhere have it too; it hides directories of `/proc`.
const EMPTY: &str = "firmware";
/// The harmless device files.
const DEVICES: &[&str] = &["null", "zero", "full", "random", "urandom", "tty"];

/// Bytes of `/dev/shm`.
const SHM_BYTES: u64 = 64 * 1024 * 1024;
/// Bytes of a root in memory where no memory ceiling bounds it.
const ROOT_BYTES: u64 = 1024 * 1024 * 1024;
/// Files and directories of one memory file system: each costs kernel memory that its size does not bound.
const INODES_MAX: u64 = 262_144;
const INODES_MIN: u64 = 1024;
/// Open descriptors per process.
const OPEN_FILES: u64 = 16_384;
/// Bytes of locked memory per process.
const LOCKED_BYTES: u64 = 8 * 1024 * 1024;
/// Bytes in message queues.
const QUEUE_BYTES: u64 = 819_200;

/// What the backend knows beside the specification.
#[derive(Debug)]
pub(super) struct Circumstances<'a> {
    /// The host's files.
    pub(super) host: &'a HostFiles,
    /// The mapping.
    pub(super) users: Users,
    /// How the workspace's owners are mapped.
    pub(super) owners: Owners,
    /// Copies of the image's layers whose owners on disk are the sandbox's own, where the mount cannot map them.
    pub(super) shifted: Option<&'a [PathBuf]>,
    /// The layer directory.
    pub(super) layer: Option<String>,
    /// The CPUs that it shall run on; empty for all.
    pub(super) cpus: Vec<u16>,
    /// How many CPUs it sees.
    pub(super) cpus_seen: Vec<u16>,
    /// What it is joined to.
    pub(super) network: Network,
    /// The name servers that it can reach.
    pub(super) resolvers: &'a [Ipv4Addr],
    /// Its place in the cgroup trees.
    pub(super) seat: Seat,
    /// Whether the process ceiling has to be a resource limit, for want of a cgroup.
    pub(super) pids_by_resource: bool,
}

/// A specification that no plan can be made for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum PlanError {
    /// What is to be inside.
    #[error(transparent)]
    Inside(#[from] InsideError),
    /// The host name.
    #[error("the host name {0:?} has to be 1 to 63 letters, digits, dots and hyphens")]
    Hostname(String),
    /// The workspace's path.
    #[error("the workspace's path is not UTF-8")]
    WorkspacePath,
    /// An image that this backend cannot use.
    #[error("this image holds nothing that a process could run from")]
    Image,
}

/// Whether the root of this sandbox is a memory file system.
pub(super) fn root_in_memory(spec: &SandboxSpec) -> bool {
    matches!(spec.image, PreparedImage::Host) && !spec.keep_layer
}

/// The smaller of a bound of our own and a ceiling.
fn least(own: u64, ceiling: Option<Asked<u64>>) -> u64 {
    ceiling.map_or(own, |asked| asked.value.min(own))
}

/// Whether what the sandbox stores in its workspace is counted: in the service's, always; in a user's own, which may hold
/// much already, only where somebody asked for it.
pub(super) fn workspace_is_counted(spec: &SandboxSpec) -> bool {
    let asked = [spec.disk_bytes, spec.disk_files];
    let explicit = asked.into_iter().flatten().any(|asked| asked.explicit);
    spec.workspace
        .as_ref()
        .is_some_and(|workspace| workspace.managed || explicit)
}

/// Whether anything of the sandbox is stored where only counting limits it.
pub(super) fn is_counted(spec: &SandboxSpec) -> bool {
    let limited = spec.disk_bytes.is_some() || spec.disk_files.is_some();
    limited && (workspace_is_counted(spec) || !root_in_memory(spec))
}

fn overlay(layers: &[PathBuf], here: &Circumstances<'_>) -> Result<Root, PlanError> {
    let layers = here.shifted.unwrap_or(layers);
    let text = |path: &PathBuf| Some(path.to_str()?.to_owned());
    let lowers: Option<Vec<String>> = layers.iter().map(text).collect();
    let lowers = lowers.filter(|lowers| !lowers.is_empty());
    Ok(Root::Overlay {
        lowers: lowers.ok_or(PlanError::Image)?,
        mapped: here.users.is_range() && here.shifted.is_none(),
    })
}

/// Whether what is written into the workspace belongs to a user of the host.
fn host_owned(spec: &SandboxSpec) -> bool {
    spec.workspace
        .as_ref()
        .is_some_and(|workspace| !workspace.managed)
}

/// The walls of one sandbox.
pub(super) fn plan(spec: &SandboxSpec, here: &Circumstances<'_>) -> Result<Plan, PlanError> {
    let work_dir = inside::work_dir(&spec.work_dir)?.to_owned();
    // Who owns the work directory and the home of runs.
    let owner = spec.user.unwrap_or(0);
    let host_image = matches!(spec.image, PreparedImage::Host);
    let home = if host_image {
        "/home/agent"
    } else {
        &spec.work_dir
    };
    let root = match &spec.image {
        PreparedImage::Host if spec.keep_layer => Root::Layer,
        PreparedImage::Host => Root::Memory {
            bytes: least(
                spec.memory_bytes.map_or(ROOT_BYTES, |asked| asked.value),
                spec.disk_bytes,
            ),
            inodes: least(INODES_MAX, spec.disk_files),
        },
        PreparedImage::Rootfs { path, .. } => overlay(std::slice::from_ref(path), here)?,
        PreparedImage::Layers { layers, .. } => overlay(layers, here)?,
        PreparedImage::Engine { .. } | PreparedImage::Empty => return Err(PlanError::Image),
    };
    let mut entries = if host_image {
        host_entries(here.host, owner)
    } else {
        Vec::new()
    };
    entries.extend(names(&spec.hostname, host_image, resolver(here))?);
    if spec.tmpfs_bytes.is_none() {
        entries.push(directory("tmp", 0o1777));
    }
    Ok(Plan {
        template: Template {
            users: here.users,
            root,
            entries,
            views: if host_image {
                here.host.views.clone()
            } else {
                Vec::new()
            },
            devices: owned(DEVICES),
            memory_mounts: memory_mounts(spec, &here.cpus_seen),
            proc: ProcRules {
                masked: owned(MASKED),
                empty: format!("{SYS}/{EMPTY}"),
                read_only: owned(READ_ONLY),
            },
            capabilities: CAPABILITIES
                .iter()
                .map(|(number, _)| *number)
                .filter(|number| *number != SETFCAP || !host_owned(spec))
                .collect(),
            plain_modes: host_owned(spec),
        },
        assignment: Assignment {
            hostname: spec.hostname.clone(),
            argv: arguments(spec, here.users),
            env: inside::environment(spec, home)?,
            work_dir: WorkDir {
                path: work_dir,
                owner,
                workspace: workspace(spec, here)?,
            },
            layer: here.layer.clone(),
            network: here.network,
            limits: limits(spec, here),
            cgroup: here.seat.clone(),
        },
    })
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn directory(path: &str, mode: u32) -> Entry {
    Entry::Directory {
        path: path.to_owned(),
        mode,
        owner: 0,
    }
}

/// The made-up part of the host image's root: empty directories, and an `/etc` with the users that a run may be.
fn host_entries(host: &HostFiles, owner: u32) -> Vec<Entry> {
    let mut entries = vec![
        directory("etc", 0o755),
        directory("home", 0o755),
        directory("mnt", 0o755),
        directory("root", 0o700),
        directory("run", 0o755),
        directory("var", 0o755),
        directory("var/cache", 0o755),
        directory("var/lib", 0o755),
        directory("var/log", 0o755),
        directory("var/tmp", 0o1777),
    ];
    entries.push(Entry::Link {
        path: "var/run".to_owned(),
        target: "/run".to_owned(),
    });
    let shell = &host.shell;
    let mut passwd = format!("root:x:0:0:root:/root:{shell}\n");
    let mut group = "root:x:0:\ntty:x:5:\n".to_owned();
    if owner != 0 {
        passwd.push_str(&format!("agent:x:{owner}:{owner}::/home/agent:{shell}\n"));
        group.push_str(&format!("agent:x:{owner}:\n"));
        entries.push(Entry::Directory {
            path: "home/agent".to_owned(),
            mode: 0o755,
            owner,
        });
    }
    passwd.push_str("nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n");
    group.push_str("nogroup:x:65534:\n");
    entries.push(file("etc/passwd", passwd));
    entries.push(file("etc/group", group));
    entries.push(file(
        "etc/nsswitch.conf",
        "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\n",
    ));
    entries.push(file("etc/host.conf", "multi on\n"));
    entries.push(file("etc/shells", "/bin/sh\n/bin/bash\n"));
    entries.extend(host.entries.iter().cloned());
    entries
}

/// Files that hold the sandbox's own name and the servers that it can ask for others'.
fn names(hostname: &str, host_image: bool, resolver: String) -> Result<Vec<Entry>, PlanError> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    if hostname.is_empty() || hostname.len() > 63 || !hostname.bytes().all(good) {
        return Err(PlanError::Hostname(hostname.to_owned()));
    }
    let hosts = format!(
        "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 {hostname}\n"
    );
    let mut files = vec![
        file("etc/hostname", format!("{hostname}\n")),
        file("etc/hosts", hosts),
        file("etc/resolv.conf", resolver),
    ];
    for entry in &mut files {
        if let Entry::File { path, replace, .. } = entry {
            // An image brings its own, often a link to somewhere else; and whom a kept layer asked may not be there any more.
            *replace = !host_image || path == "etc/resolv.conf";
        }
    }
    Ok(files)
}

/// Whom a sandbox asks for names. Without a network there is nobody to ask.
fn resolver(here: &Circumstances<'_>) -> String {
    match here.network {
        Network::Loopback => "# this sandbox has no network\n".to_owned(),
        Network::Routed { .. } if here.resolvers.is_empty() => {
            "# this sandbox has no name server\n".to_owned()
        }
        Network::Routed { .. } => {
            let servers = here.resolvers.iter();
            let lines = servers.map(|server| format!("nameserver {server}\n"));
            lines.collect::<String>() + "options timeout:2 attempts:2\n"
        }
    }
}

fn memory_mounts(spec: &SandboxSpec, cpus: &[u16]) -> Vec<MemoryMount> {
    let mut mounts = vec![
        MemoryMount {
            at: "dev/shm".to_owned(),
            bytes: SHM_BYTES,
            inodes: INODES_MIN * 16,
            mode: 0o1777,
            executable: false,
            entries: Vec::new(),
            read_only: false,
        },
        processors(cpus),
    ];
    if let Some(bytes) = spec.tmpfs_bytes {
        mounts.push(MemoryMount {
            at: "tmp".to_owned(),
            bytes,
            inodes: (bytes / 4096).clamp(INODES_MIN, INODES_MAX),
            mode: 0o1777,
            executable: true,
            entries: Vec::new(),
            read_only: false,
        });
    }
    mounts
}

/// The little of `/sys` that programs ask how many processors there are.
fn processors(cpus: &[u16]) -> MemoryMount {
    let base = "devices/system/cpu";
    let mut entries = vec![Entry::File {
        path: format!("{base}/online"),
        content: format!("{}\n", cpu_list(cpus)).into_bytes(),
        mode: 0o444,
        replace: false,
    }];
    // The same, without a page of memory for each.
    entries.extend(["possible", "present"].map(|name| Entry::Link {
        path: format!("{base}/{name}"),
        target: "online".to_owned(),
    }));
    entries.extend(
        cpus.iter()
            .map(|cpu| directory(&format!("{base}/cpu{cpu}"), 0o555)),
    );
    entries.push(directory(EMPTY, 0o555));
    MemoryMount {
        at: SYS.to_owned(),
        bytes: 256 * 1024,
        inodes: INODES_MIN + 2 * cpus.len() as u64,
        mode: 0o555,
        executable: false,
        entries,
        read_only: true,
    }
}

fn arguments(spec: &SandboxSpec, users: Users) -> Vec<String> {
    let mut argv = vec![
        "sandboxd-guest".to_owned(),
        format!("--work-dir={}", spec.work_dir),
    ];
    if let (Some(user), Users::Range { .. }) = (spec.user, users) {
        argv.push(match spec.group {
            Some(group) if group != user => format!("--user={user}:{group}"),
            _ => format!("--user={user}"),
        });
    }
    if host_owned(spec) {
        argv.push("--plain-modes=yes".to_owned());
    }
    argv
}

fn workspace(spec: &SandboxSpec, here: &Circumstances<'_>) -> Result<Option<Workspace>, PlanError> {
    let Some(workspace) = &spec.workspace else {
        return Ok(None);
    };
    let path = workspace.path.to_str().ok_or(PlanError::WorkspacePath)?;
    Ok(Some(Workspace {
        path: path.to_owned(),
        owners: here.owners.clone(),
    }))
}

fn limits(spec: &SandboxSpec, here: &Circumstances<'_>) -> Limits {
    let limit = |resource, value| ResourceLimit { resource, value };
    let mut resources = vec![
        limit(Resource::OpenFiles, OPEN_FILES),
        // One byte, and not none: a limit of none does not keep the kernel from starting the host's core helper.
        limit(Resource::Core, 1),
        limit(Resource::LockedMemory, LOCKED_BYTES),
        limit(Resource::MessageQueues, QUEUE_BYTES),
    ];
    if let (true, Some(bytes)) = (is_counted(spec), spec.disk_bytes) {
        // What is only counted now and then is at least not outrun by one file.
        resources.push(limit(Resource::FileSize, bytes.value));
    }
    if let (true, Some(pids)) = (here.pids_by_resource, spec.pids) {
        resources.push(limit(Resource::Processes, pids.value));
    }
    Limits {
        resources,
        cpus: here.cpus.clone(),
    }
}

#[cfg(test)]
mod tests;
