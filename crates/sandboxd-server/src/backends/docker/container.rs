//! From a specification to a container, as the engine is told. Pure: no I/O, so that golden files show every wall.

use super::connect::Abilities;
use super::seccomp::Filters;
use crate::backends::inside::{self, InsideError};
use crate::backends::{Asked, Ceiling, PreparedImage, SandboxSpec};
use bollard::models::{
    ContainerCreateBody, ContainerUpdateBody, HealthConfig, HostConfig, HostConfigCgroupnsModeEnum,
    HostConfigLogConfig, Mount, MountBindOptions, MountType, MountVolumeOptions, ResourcesUlimits,
    RestartPolicy, RestartPolicyNameEnum,
};
use std::collections::HashMap;

/// Where the guest lies in a container that it is copied into.
pub(super) const GUEST: &str = "/.sandboxd-guest";
/// Where the guest's volume is mounted, and where the guest lies in it.
pub(super) const GUEST_DIRECTORY: &str = "/.sandboxd";
/// See [`GUEST_DIRECTORY`].
pub(super) const GUEST_IN_VOLUME: &str = "/.sandboxd/sandboxd-guest";
/// Labels: of which state directory a container is, which instance of the daemon made it, which sandbox it is, whether it
/// stays when it is stopped.
pub(super) const LABEL_STATE: &str = "sandboxd.state";
/// See [`LABEL_STATE`].
pub(super) const LABEL_INSTANCE: &str = "sandboxd.instance";
/// See [`LABEL_STATE`].
pub(super) const LABEL_SANDBOX: &str = "sandboxd.sandbox";
/// See [`LABEL_STATE`].
pub(super) const LABEL_KEEP: &str = "sandboxd.keep";
/// What [`LABEL_KEEP`] says of one that stays.
pub(super) const KEPT: &str = "yes";
/// And of what goes.
pub(super) const KEEP_NOT: &str = "no";

/// What the guest needs to end everything, and a run as root what package managers need. All others are dropped, and no
/// program gets one that the guest does not have. A run under a uid of its own has none.
const CAPABILITIES: &[(&str, &str)] = &[
    ("CHOWN", "package managers give files to system users"),
    ("DAC_OVERRIDE", "root writes into directories of others"),
    ("FOWNER", "root changes modes of files of others"),
    ("FSETID", "setgid directories keep their bit"),
    ("KILL", "the guest ends runs of any user"),
    ("SETGID", "the guest gives runs their group"),
    ("SETUID", "the guest gives runs their user"),
    ("SETPCAP", "giving capabilities up"),
    ("NET_BIND_SERVICE", "ports below 1024 on its own loopback"),
    (
        "SYS_CHROOT",
        "package managers run scripts in a root of their own",
    ),
    (SETFCAP, "packages set file capabilities"),
];
/// The capability that gives files capabilities; a file in a user's own directory would have them on the host.
const SETFCAP: &str = "SETFCAP";

/// What speaks of the whole machine reads as empty.
const MASKED: &[&str] = &[
    "/proc/acpi",
    "/proc/asound",
    "/proc/cmdline",
    "/proc/config.gz",
    "/proc/interrupts",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/key-users",
    "/proc/keys",
    "/proc/kmsg",
    "/proc/latency_stats",
    "/proc/modules",
    "/proc/pressure",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/block",
    "/sys/bus",
    "/sys/class",
    "/sys/dev",
    "/sys/devices/pci0000:00",
    "/sys/devices/platform",
    "/sys/devices/virtual",
    "/sys/firmware",
    "/sys/hypervisor",
    "/sys/kernel",
    "/sys/module",
    "/sys/power",
];
/// What changes the machine cannot be written.
const READ_ONLY: &[&str] = &[
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];
/// Bytes of `/dev/shm`.
const SHM_BYTES: i64 = 64 * 1024 * 1024;
/// Open descriptors per process.
const OPEN_FILES: i64 = 16_384;
/// Bytes of locked memory per process.
const LOCKED_BYTES: i64 = 8 * 1024 * 1024;
/// Bytes in message queues.
const QUEUE_BYTES: i64 = 819_200;
/// The engine counts CPUs in billionths, and takes no fewer than a hundredth.
const NANO: f64 = 1e9;
const CPUS_LEAST: f64 = 0.01;
/// The least and the greatest weight that the kernel has; what is beyond is refused by runtimes.
const SHARES: (u64, u64) = (2, 262_144);

/// What the backend knows beside the specification.
#[derive(Debug)]
pub(super) struct Circumstances<'a> {
    /// What the engine's host can do.
    pub(super) abilities: &'a Abilities,
    /// How the engine is told which system calls there are.
    pub(super) filters: &'a Filters,
    /// The workspace's path as the engine sees it.
    pub(super) workspace: Option<&'a str>,
    /// The volume that has the guest; absent where it is copied in.
    pub(super) guest: Option<&'a str>,
    /// The engine's name for the network.
    pub(super) network: &'a str,
    /// The name servers that it can reach; absent where the engine knows better.
    pub(super) resolvers: Option<&'a [String]>,
    /// Labels.
    pub(super) labels: HashMap<String, String>,
}

/// A specification that no container can be made for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ContainerError {
    /// What is to be inside.
    #[error(transparent)]
    Inside(#[from] InsideError),
    /// An image that no engine has.
    #[error("this image is not the engine's")]
    Image,
    /// A number that the engine cannot take.
    #[error("{0} is more than the engine can be told")]
    TooMuch(u64),
}

fn number(value: u64) -> Result<i64, ContainerError> {
    i64::try_from(value).map_err(|_| ContainerError::TooMuch(value))
}

/// Whether what is written into the workspace belongs to a user of the host.
pub(super) fn host_owned(spec: &SandboxSpec) -> bool {
    spec.workspace
        .as_ref()
        .is_some_and(|workspace| !workspace.managed)
}

/// The container of a sandbox.
pub(super) fn container(
    spec: &SandboxSpec,
    here: &Circumstances<'_>,
) -> Result<ContainerCreateBody, ContainerError> {
    let PreparedImage::Engine { id, .. } = &spec.image else {
        return Err(ContainerError::Image);
    };
    inside::work_dir(&spec.work_dir)?;
    Ok(ContainerCreateBody {
        hostname: Some(spec.hostname.clone()),
        // Always root: the guest, which becomes another user for each run.
        user: Some("0:0".to_owned()),
        image: Some(id.clone()),
        entrypoint: Some(vec![entrypoint(here).to_owned()]),
        cmd: Some(first_arguments(spec, here)),
        env: Some(environment(spec)?),
        working_dir: Some("/".to_owned()),
        labels: Some(here.labels.clone()),
        // The link.
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        open_stdin: Some(true),
        stdin_once: Some(true),
        tty: Some(false),
        // An image's own would be run in the sandbox, past the guest.
        healthcheck: Some(HealthConfig {
            test: Some(vec!["NONE".to_owned()]),
            ..HealthConfig::default()
        }),
        host_config: Some(host_config(spec, here)?),
        ..ContainerCreateBody::default()
    })
}

fn host_config(spec: &SandboxSpec, here: &Circumstances<'_>) -> Result<HostConfig, ContainerError> {
    let limits = limits(spec, here.abilities)?;
    let text = |words: &[&str]| -> Vec<String> { words.iter().map(|&w| w.to_owned()).collect() };
    let mut security = vec!["no-new-privileges:true".to_owned()];
    if here.abilities.seccomp {
        let filter = here.filters.told(host_owned(spec));
        security.extend(filter.map(|filter| format!("seccomp={filter}")));
    }
    let capabilities = CAPABILITIES
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| *name != SETFCAP || !host_owned(spec));
    Ok(HostConfig {
        memory: limits.memory,
        memory_swap: limits.memory_swap,
        nano_cpus: limits.nano_cpus,
        cpu_shares: limits.cpu_shares,
        pids_limit: limits.pids_limit,
        ulimits: Some(resources(spec)?),
        cap_drop: Some(text(&["ALL"])),
        cap_add: Some(capabilities.map(str::to_owned).collect()),
        security_opt: Some(security),
        masked_paths: Some(text(MASKED)),
        readonly_paths: Some(text(READ_ONLY)),
        cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
        ipc_mode: Some("private".to_owned()),
        privileged: Some(false),
        // The guest is the first process, and reaps.
        init: Some(false),
        // It would record the link.
        log_config: Some(HostConfigLogConfig {
            typ: Some("none".to_owned()),
            config: None,
        }),
        network_mode: Some(here.network.to_owned()),
        // Also where there is none to ask: otherwise the engine writes down whom its host asks.
        dns: here.resolvers.map(|resolvers| match resolvers {
            [] => vec!["127.0.0.1".to_owned()],
            some => some.to_vec(),
        }),
        dns_search: here.resolvers.map(|_| vec![".".to_owned()]),
        restart_policy: Some(RestartPolicy {
            name: Some(RestartPolicyNameEnum::NO),
            maximum_retry_count: None,
        }),
        // What is not kept goes with its last process, also when nobody is there to remove it.
        auto_remove: Some(!spec.keep_layer),
        mounts: Some(
            here.workspace
                .map(|path| bind(path, &spec.work_dir))
                .into_iter()
                .chain(here.guest.map(|volume| of_guest(volume, true)))
                .collect(),
        ),
        tmpfs: spec.tmpfs_bytes.map(|bytes| {
            HashMap::from([(
                "/tmp".to_owned(),
                format!("rw,exec,nosuid,nodev,mode=1777,size={bytes}"),
            )])
        }),
        shm_size: Some(SHM_BYTES),
        runtime: spec.oci_runtime.clone(),
        ..HostConfig::default()
    })
}

/// What a container is limited to, at its birth and later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Limits {
    memory: Option<i64>,
    memory_swap: Option<i64>,
    nano_cpus: Option<i64>,
    cpu_shares: Option<i64>,
    pids_limit: Option<i64>,
}

/// The ceilings that are asked for and that the engine's host has.
pub(super) fn limits(spec: &SandboxSpec, abilities: &Abilities) -> Result<Limits, ContainerError> {
    let value = |asked: Option<Asked<u64>>, can: bool| -> Result<Option<i64>, ContainerError> {
        asked
            .filter(|_| can)
            .map(|asked| number(asked.value))
            .transpose()
    };
    let memory = value(spec.memory_bytes, abilities.memory)?;
    let swap = spec.memory_swap_bytes.or(spec.memory_bytes);
    let processors = u32::try_from(abilities.processors).unwrap_or(u32::MAX);
    Ok(Limits {
        memory,
        // Without a limit of memory there is nothing to count swap on top of.
        memory_swap: value(swap, abilities.swap && memory.is_some())?,
        nano_cpus: spec
            .cpus
            .filter(|_| abilities.cpu_quota)
            .map(|cpus| nano_cpus(cpus.value, processors)),
        cpu_shares: value(
            spec.cpu_shares.map(|asked| Asked {
                value: asked.value.clamp(SHARES.0, SHARES.1),
                ..asked
            }),
            abilities.cpu_shares,
        )?,
        pids_limit: value(spec.pids, abilities.pids)?,
    })
}

/// The engine refuses more CPUs than its host has, which would be no limit anyway.
#[expect(
    clippy::cast_possible_truncation,
    reason = "clamped to what the engine's host has"
)]
fn nano_cpus(cpus: f64, processors: u32) -> i64 {
    (cpus.clamp(CPUS_LEAST, f64::from(processors)) * NANO).round() as i64
}

impl Limits {
    /// The first that is asked for and is another in a container; nothing where all are the same.
    pub(super) fn other_than(&self, has: &HostConfig) -> Option<String> {
        let both = [
            ("memory", self.memory, has.memory),
            ("memory and swap", self.memory_swap, has.memory_swap),
            ("CPUs", self.nano_cpus, has.nano_cpus),
            ("CPU shares", self.cpu_shares, has.cpu_shares),
            ("processes", self.pids_limit, has.pids_limit),
        ];
        both.into_iter().find_map(|(name, wanted, has)| {
            let wanted = wanted?;
            let has = has.unwrap_or(0);
            (has != wanted).then(|| format!("its limit of {name} is {has}, and should be {wanted}"))
        })
    }

    /// As a change of a container that is there. A limit that is not asked for any more stays as it is.
    pub(super) fn update(self) -> ContainerUpdateBody {
        ContainerUpdateBody {
            memory: self.memory,
            memory_swap: self.memory_swap,
            nano_cpus: self.nano_cpus,
            cpu_shares: self.cpu_shares,
            pids_limit: self.pids_limit,
            ..ContainerUpdateBody::default()
        }
    }
}

fn resources(spec: &SandboxSpec) -> Result<Vec<ResourcesUlimits>, ContainerError> {
    let limit = |name: &str, value: i64| ResourcesUlimits {
        name: Some(name.to_owned()),
        soft: Some(value),
        hard: Some(value),
    };
    let mut all = vec![
        limit("nofile", OPEN_FILES),
        // One byte, and not none: a limit of none does not keep the kernel from starting the host's core helper.
        limit("core", 1),
        limit("memlock", LOCKED_BYTES),
        limit("msgqueue", QUEUE_BYTES),
    ];
    if let Some(bytes) = spec.disk_bytes {
        // What is only counted now and then is at least not outrun by one file.
        all.push(limit("fsize", number(bytes.value)?));
    }
    Ok(all)
}

fn bind(source: &str, target: &str) -> Mount {
    Mount {
        target: Some(target.to_owned()),
        source: Some(source.to_owned()),
        typ: Some(MountType::BIND),
        read_only: Some(false),
        bind_options: Some(MountBindOptions {
            // A missing one is an error, never an empty directory.
            create_mountpoint: Some(false),
            // Engines make such a mount private where nothing is said; but below Docker's own directory, where volumes lie,
            // it refuses who says that, and takes what is mounted on its side later along. Never the other way round.
            propagation: None,
            ..MountBindOptions::default()
        }),
        ..Mount::default()
    }
}

/// The guest's volume, in its place.
fn of_guest(volume: &str, read_only: bool) -> Mount {
    Mount {
        target: Some(GUEST_DIRECTORY.to_owned()),
        source: Some(volume.to_owned()),
        typ: Some(MountType::VOLUME),
        read_only: Some(read_only),
        volume_options: Some(MountVolumeOptions {
            no_copy: Some(true),
            ..MountVolumeOptions::default()
        }),
        ..Mount::default()
    }
}

/// A container through which a volume is filled. It is never started.
pub(super) fn filler(
    image: &str,
    volume: &str,
    labels: HashMap<String, String>,
) -> ContainerCreateBody {
    ContainerCreateBody {
        image: Some(image.to_owned()),
        entrypoint: Some(vec![GUEST_IN_VOLUME.to_owned()]),
        labels: Some(labels),
        host_config: Some(HostConfig {
            network_mode: Some("none".to_owned()),
            mounts: Some(vec![of_guest(volume, false)]),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    }
}

const fn entrypoint(here: &Circumstances<'_>) -> &'static str {
    match here.guest {
        Some(_) => GUEST_IN_VOLUME,
        None => GUEST,
    }
}

/// The command line of a guest that is the container's first process.
fn first_arguments(spec: &SandboxSpec, here: &Circumstances<'_>) -> Vec<String> {
    let mut arguments = arguments(spec);
    if here.guest.is_some() && spec.workspace.is_none() {
        // Otherwise it comes with the guest's own archive.
        arguments.push("--make-work-dir=yes".to_owned());
    }
    arguments
}

/// The guest's command line.
pub(super) fn arguments(spec: &SandboxSpec) -> Vec<String> {
    let mut arguments = vec![
        "--link=stdio".to_owned(),
        format!("--work-dir={}", spec.work_dir),
    ];
    if let Some(user) = spec.user {
        arguments.push(match spec.group {
            Some(group) if group != user => format!("--user={user}:{group}"),
            _ => format!("--user={user}"),
        });
    }
    if host_owned(spec) {
        arguments.push("--plain-modes=yes".to_owned());
    }
    arguments
}

/// The specification's variables, and those without which hardly a program works. Those of the image are among them, and
/// the engine puts them underneath once more.
pub(super) fn environment(spec: &SandboxSpec) -> Result<Vec<String>, InsideError> {
    inside::environment(spec, &spec.work_dir)
}

/// The ceilings that somebody set and that the engine's host does not have, with why not.
pub(super) fn missing(
    spec: &SandboxSpec,
    abilities: &Abilities,
) -> Vec<(Ceiling, &'static str, bool)> {
    let explicit = |asked: Option<Asked<u64>>| asked.is_some_and(|asked| asked.explicit);
    let mut missing = Vec::new();
    let mut look = |can: bool, ceiling, why, asked: bool, is_explicit| {
        if asked && !can {
            missing.push((ceiling, why, is_explicit));
        }
    };
    look(
        abilities.memory,
        Ceiling::Memory,
        "the engine's host limits no memory",
        spec.memory_bytes.is_some(),
        explicit(spec.memory_bytes) || explicit(spec.memory_swap_bytes),
    );
    look(
        abilities.swap,
        Ceiling::Memory,
        "the engine's host does not count swap",
        explicit(spec.memory_swap_bytes),
        true,
    );
    look(
        spec.memory_bytes.is_some(),
        Ceiling::Memory,
        "memory and swap together need a limit of memory beside them",
        explicit(spec.memory_swap_bytes),
        true,
    );
    look(
        abilities.cpu_quota,
        Ceiling::Cpus,
        "the engine's host has no quota of CPU time",
        spec.cpus.is_some(),
        spec.cpus.is_some_and(|cpus| cpus.explicit),
    );
    look(
        abilities.cpu_shares,
        Ceiling::CpuShares,
        "the engine's host does not weigh CPU time",
        spec.cpu_shares.is_some(),
        explicit(spec.cpu_shares),
    );
    look(
        abilities.pids,
        Ceiling::Pids,
        "the engine's host does not count processes",
        spec.pids.is_some(),
        explicit(spec.pids),
    );
    missing
}

#[cfg(test)]
pub(super) mod tests;
