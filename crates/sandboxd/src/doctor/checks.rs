//! The list of checks, in the order in which they are printed.

use super::cgroups;
use super::host;
use super::probe::{self, Probe};
use super::quotas;
use super::sockets::{self, Daemon};
use super::trial::Trial;
use crate::sys;
use crate::values::system_words;
use sandboxd_server::backends::{Ceiling, Enforcement};
use sandboxd_server::config::{Outlook, Survives};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Whether this host has something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// It has.
    Yes,
    /// Some of it.
    Partly,
    /// It has not.
    No,
}

impl State {
    /// The word at the start of a line.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::Partly => "part",
            Self::No => "no",
        }
    }
}

/// One thing that a host may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Check {
    /// Its name.
    pub(super) name: &'static str,
    /// Whether it is there.
    pub(super) state: State,
    /// What was found.
    pub(super) found: String,
    /// What a missing one costs.
    pub(super) costs: String,
    /// How to get it.
    pub(super) get: String,
}

impl Check {
    pub(super) fn yes(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            name,
            state: State::Yes,
            found: found.into(),
            costs: String::new(),
            get: String::new(),
        }
    }

    pub(super) fn missing(
        name: &'static str,
        state: State,
        found: impl Into<String>,
        costs: &str,
        get: &str,
    ) -> Self {
        Self {
            name,
            state,
            found: found.into(),
            costs: costs.to_owned(),
            get: get.to_owned(),
        }
    }
}

/// Looks at everything. `state_dir` is the directory whose file system counts.
pub(super) fn all(state_dir: Option<&Path>, trial: &Trial) -> Vec<Check> {
    let root = rustix::process::geteuid().is_root();
    let dir = nearest_existing(
        state_dir
            .or(trial.state_dir())
            .unwrap_or(Path::new("/var/lib")),
    );
    let mut checks = vec![
        user_namespaces(),
        other_namespaces(),
        seccomp(),
        cgroups::check(root),
    ];
    checks.extend(ceilings(trial));
    checks.extend(bridge(trial, root));
    checks.push(overlay(root));
    checks.push(layer_marks(&dir));
    checks.push(mapped_owners(root, &dir));
    let workspaces = trial
        .service()
        .and_then(|service| service.workspace_root.as_deref());
    checks.push(quotas::check(
        root,
        trial.project_ids(),
        &dir,
        workspaces.map(nearest_existing).as_deref(),
    ));
    checks.push(landlock());
    checks.push(kvm());
    checks.push(docker());
    checks.extend(outlook(trial));
    checks.push(a_sandbox(trial));
    checks
}

fn user_namespaces() -> Check {
    const NAME: &str = "user namespaces";
    let refusal = host::userns_refusal(|switch| host::read(switch));
    match (Probe::UserNamespace.run(None), refusal) {
        (Ok(()), None) => {
            let most = host::read("/proc/sys/user/max_user_namespaces");
            Check::yes(
                NAME,
                format!("with mounts in them, at most {most} per user"),
            )
        }
        // Root may where others may not.
        (Ok(()), Some((why, get))) => Check::missing(
            NAME,
            State::Partly,
            format!("root may; others may not: {why}"),
            "ordinary users cannot run sandboxes",
            get,
        ),
        (Err(why), refusal) => {
            let (because, get) = refusal.unwrap_or((
                "",
                "inside a container: start it with --privileged, or allow unshare and mount in its seccomp and AppArmor profiles",
            ));
            let because = if because.is_empty() {
                String::new()
            } else {
                format!(" ({because})")
            };
            Check::missing(
                NAME,
                State::No,
                format!("{why}{because}"),
                "no sandbox can be made",
                get,
            )
        }
    }
}

fn other_namespaces() -> Check {
    const NAME: &str = "other namespaces";
    match Probe::OtherNamespaces.run(None) {
        Ok(()) => Check::yes(NAME, "mount, PID, network, IPC, UTS, cgroup"),
        Err(why) => Check::missing(
            NAME,
            State::No,
            why,
            "no sandbox can be made",
            "a kernel with CONFIG_NAMESPACES and all its kinds; inside a container, --privileged",
        ),
    }
}

fn seccomp() -> Check {
    const NAME: &str = "seccomp";
    match sys::seccomp_can_refuse() {
        Ok(()) => Check::yes(NAME, "filters can be installed"),
        Err(error) => Check::missing(
            NAME,
            State::No,
            system_words(&error),
            "no sandbox can be made: its system calls could not be limited",
            "a kernel with CONFIG_SECCOMP_FILTER",
        ),
    }
}

/// What the backend itself says of the ceilings, where it started.
fn ceilings(trial: &Trial) -> Vec<Check> {
    let Some(capabilities) = trial.capabilities() else {
        return Vec::new();
    };
    capabilities
        .ceilings
        .iter()
        .map(|(ceiling, enforcement)| {
            let (name, costs, get) = about(*ceiling);
            match enforcement {
                Enforcement::Enforced(by) => Check::yes(name, by.clone()),
                Enforcement::Unenforced(why) => {
                    Check::missing(name, State::No, why.clone(), costs, get)
                }
            }
        })
        .collect()
}

/// Whether sandboxes can reach the network: tried by one that does.
fn bridge(trial: &Trial, root: bool) -> Option<Check> {
    const NAME: &str = "network: bridge";
    let get = if root {
        "install nftables"
    } else {
        "install nftables, and passt or slirp4netns; open /dev/net/tun to this user"
    };
    Some(match trial.bridge()? {
        Ok((took, how)) => Check::yes(
            NAME,
            format!("{how} (set up in {:.1} ms)", took.as_secs_f64() * 1_000.0),
        ),
        Err(why) => Check::missing(
            NAME,
            State::No,
            why,
            "sessions of runtimes with network_mode = \"bridge\" are refused",
            get,
        ),
    })
}

const LANDLOCK_COSTS: &str =
    "no second wall around mounts, devices, tracing and signals; the first ones stand without it";

/// A ceiling's name here, what it costs to go without, and how to get it.
const fn about(ceiling: Ceiling) -> (&'static str, &'static str, &'static str) {
    const BY_CGROUPS: &str = "usable cgroups: see the line about them";
    match ceiling {
        Ceiling::Memory => (
            "ceiling: memory",
            "a program can use all memory of this host",
            BY_CGROUPS,
        ),
        Ceiling::Cpus => (
            "ceiling: cpus",
            "a program can keep every CPU busy",
            BY_CGROUPS,
        ),
        Ceiling::CpuShares => (
            "ceiling: cpu_shares",
            "busy programs share the CPUs evenly, whatever their weight",
            BY_CGROUPS,
        ),
        Ceiling::Pids => (
            "ceiling: pids",
            "a program can start as many processes as this user may",
            BY_CGROUPS,
        ),
        Ceiling::Disk => (
            "ceiling: disk",
            "a program can fill the file system that its workspace or layer lies on",
            "keep workspaces and the state directory on a file system of their own",
        ),
        Ceiling::Network => (
            "ceiling: network",
            "a program reaches the network",
            "network namespaces: see the line about other namespaces",
        ),
        Ceiling::OciRuntime => (
            "ceiling: oci_runtime",
            "sandboxes are made by this backend itself, not by a container runtime",
            "a backend that starts containers",
        ),
        Ceiling::UidRange => (
            "ceiling: uid_range",
            "all sandboxes are the same user to this host",
            "run sandboxd as root",
        ),
        Ceiling::WorkspaceOwner => (
            "ceiling: workspace_owner",
            "stored files belong to the user who runs sandboxd",
            "run sandboxd as root, with idmapped mounts where the files are",
        ),
        Ceiling::Landlock => (
            "ceiling: landlock",
            LANDLOCK_COSTS,
            "a kernel that has it: see the line about Landlock",
        ),
    }
}

fn overlay(root: bool) -> Check {
    const NAME: &str = "overlay";
    let inside = Probe::OverlayInUserNamespace.run(None);
    let outside = if root {
        Probe::Overlay.run(None)
    } else {
        Err("not root".to_owned())
    };
    match (outside, inside) {
        (Ok(()), Ok(())) => Check::yes(NAME, "as root, and inside user namespaces"),
        (Err(_), Ok(())) if !root => Check::yes(NAME, "inside user namespaces"),
        (Ok(()), Err(why)) => Check::missing(
            NAME,
            State::Partly,
            format!("as root; inside user namespaces: {why}"),
            "ordinary users can use the host's own files as an image, and no other image",
            "Linux 5.11 or newer, and user namespaces",
        ),
        (Err(outside), Err(inside)) => Check::missing(
            NAME,
            State::No,
            if root { outside } else { inside },
            "the host's own files can be an image, and no other image can",
            "modprobe overlay; a kernel with CONFIG_OVERLAY_FS, 5.11 or newer for ordinary users",
        ),
        (Err(why), Ok(())) => Check::missing(
            NAME,
            State::Partly,
            format!("inside user namespaces; as root: {why}"),
            "image layers cannot be shared between sandboxes",
            "modprobe overlay",
        ),
    }
}

/// Which file system a directory is on, and where it is.
fn place_of(dir: &Path) -> String {
    let kind = rustix::fs::statfs(dir).map_or_else(
        |errno| system_words(&errno.into()),
        |found| host::file_system_name(found.f_type),
    );
    format!("on {kind}, at {}", dir.display())
}

/// Whether layers of images can be kept: what one hides of those below it is said by attributes of its directories.
fn layer_marks(dir: &Path) -> Check {
    const NAME: &str = "layer marks";
    let place = place_of(dir);
    match probe::can_mark_directory_in(dir) {
        Ok(()) => Check::yes(NAME, format!("user.* attributes {place}")),
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
            ) =>
        {
            Check::missing(
                NAME,
                State::Partly,
                format!("not tried: {} {place}", system_words(&error)),
                "nothing, where sandboxd runs as somebody who may write there",
                "run doctor as that user, or with the --state-dir that will be used",
            )
        }
        Err(error) => Check::missing(
            NAME,
            State::No,
            format!("user.* attributes: {} {place}", system_words(&error)),
            "the host's own files can be an image; layers of other images cannot be kept there",
            "a state directory on ext4, xfs or btrfs, or on tmpfs with Linux 6.6 or newer",
        ),
    }
}

fn mapped_owners(root: bool, dir: &Path) -> Check {
    const NAME: &str = "idmapped mounts";
    const COSTS: &str = "stored files and image layers belong to the user who runs sandboxd, not to a range of their own";
    let place = place_of(dir);
    if !root {
        return Check::missing(
            NAME,
            State::No,
            format!("only root can make them; not tried {place}"),
            COSTS,
            "run sandboxd as root, or do without",
        );
    }
    match Probe::MappedOwners.run(Some(dir)) {
        Ok(()) => Check::yes(NAME, place),
        Err(why) => Check::missing(
            NAME,
            State::No,
            format!("{why}, {place}"),
            COSTS,
            "real root, a state directory on ext4, xfs, btrfs or tmpfs, and Linux 5.12 or newer",
        ),
    }
}

fn landlock() -> Check {
    const NAME: &str = "Landlock";
    match sys::landlock_generation() {
        Ok(generation) => Check::yes(NAME, format!("ABI {generation}")),
        Err(error) => Check::missing(
            NAME,
            State::No,
            system_words(&error),
            LANDLOCK_COSTS,
            "a kernel with CONFIG_SECURITY_LANDLOCK, and landlock in its lsm= list",
        ),
    }
}

fn kvm() -> Check {
    const NAME: &str = "KVM";
    const COSTS: &str = "none today: no backend uses virtual machines yet";
    match probe::open_device("/dev/kvm").and_then(sys::kvm_version) {
        Ok(version) => Check::yes(NAME, format!("/dev/kvm, interface version {version}")),
        Err(error) => Check::missing(
            NAME,
            State::No,
            format!("/dev/kvm: {}", system_words(&error)),
            COSTS,
            "virtualisation switched on in the firmware (nested, inside a virtual machine); membership of the group kvm",
        ),
    }
}

fn docker() -> Check {
    const NAME: &str = "Docker";
    const COSTS: &str =
        "no backend = \"docker\" here; the namespaces backend needs no container engine";
    match sockets::docker() {
        Daemon::Answers(path, name) => Check::yes(NAME, format!("{name} at {}", path.display())),
        Daemon::Denied(path) => Check::missing(
            NAME,
            State::No,
            format!("{}: permission denied", path.display()),
            COSTS,
            "membership of the group docker (which is as good as root)",
        ),
        Daemon::Silent(path, why) => Check::missing(
            NAME,
            State::No,
            format!("{}: {why}", path.display()),
            COSTS,
            "start the Docker daemon",
        ),
        Daemon::Absent => Check::missing(
            NAME,
            State::No,
            "no daemon's socket",
            COSTS,
            "install Docker or Podman",
        ),
    }
}

/// What the configuration comes to, where it could be read.
fn outlook(trial: &Trial) -> Vec<Check> {
    let Some(service) = trial.service() else {
        return Vec::new();
    };
    let outlook = Outlook::of(service);
    let line = outlook.survives.line(service);
    let sleep = match outlook.survives {
        Survives::Nothing => Check::missing(
            "what survives",
            State::No,
            line,
            "what a session made goes with its sandbox, and no session can make room for another one",
            "set workspace_root, for installed packages keep_layer too",
        ),
        Survives::Files | Survives::Layer | Survives::FilesAndLayer => {
            Check::yes("what survives", line)
        }
    };
    let memory = match outlook.memory_line(host::host_memory()) {
        (line, true) => Check::yes("worst case", line),
        (line, false) => Check::missing(
            "worst case",
            State::Partly,
            line,
            "this host runs out of memory, and its kernel chooses what ends, when all sandboxes take what they may",
            "a lower max_sessions or mem_limit, or more memory",
        ),
    };
    vec![sleep, memory]
}

fn a_sandbox(trial: &Trial) -> Check {
    const NAME: &str = "a sandbox";
    match trial.result() {
        Ok(took) => Check::yes(
            NAME,
            format!(
                "made, ran a program and ended, in {:.1} ms",
                took.as_secs_f64() * 1_000.0
            ),
        ),
        Err(why) => Check::missing(
            NAME,
            State::No,
            why,
            "everything: this is what sandboxd is for",
            "see the lines marked `no` above",
        ),
    }
}

/// The directory itself, or the nearest one above it that exists.
fn nearest_existing(dir: &Path) -> PathBuf {
    dir.ancestors()
        .find(|dir| dir.is_dir())
        .unwrap_or(Path::new("/"))
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_tried_where_something_can_be_made_and_leave_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let check = layer_marks(dir.path());
        // Memory before Linux 6.6 has none; there it is said what that costs.
        assert_eq!(
            check.state != State::Yes,
            !check.costs.is_empty(),
            "{check:?}"
        );
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let nowhere = layer_marks(Path::new("/proc"));
        assert_ne!(nowhere.state, State::Yes, "{nowhere:?}");
    }

    #[test]
    fn a_directory_that_is_not_there_yet_is_judged_by_its_parent() {
        assert_eq!(
            nearest_existing(Path::new("/proc/nothing/here")),
            Path::new("/proc")
        );
    }
}
