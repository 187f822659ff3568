//! How a failed step is told: step and cause, straight from the child to the daemon over a pipe.
//!
//! The child writes [`executing`] as its last act before it becomes the guest; the pipe's end then means that it did.
//! A pipe that ends without either means that the child died on the way.

use serde::{Deserialize, Serialize};
use std::fmt;

/// With what begins [`executing`].
const EXECUTING: u8 = b'x';
/// Most bytes of a report; a pipe takes as many at once.
pub const REPORT_BYTES_MAX: usize = 4096;

/// What the child writes when every wall stands and only the exec is left: with it, which generation of Landlock holds it,
/// and none where the kernel has none.
pub const fn executing(landlock: u8) -> [u8; 2] {
    [EXECUTING, landlock]
}

/// Reads [`executing`], and what follows it: a failure of the exec.
pub const fn read_executing(told: &[u8]) -> Option<(u8, &[u8])> {
    match told {
        [EXECUTING, landlock, rest @ ..] => Some((*landlock, rest)),
        _ => None,
    }
}

/// A step of the set-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Step {
    /// The launcher reads the plan and its descriptors.
    Receive,
    /// The launcher clones the child.
    Clone,
    /// The launcher writes the user namespace's mapping.
    Users,
    /// The launcher makes a user namespace for an idmapped mount.
    IdNamespace,
    /// The launcher makes the root.
    Root,
    /// An idmapped mount of an image, on a file system that has none.
    ImageMapping,
    /// The launcher or the child makes a view of a host path.
    View,
    /// The launcher or the child mounts the workspace.
    Workspace,
    /// An idmapped mount, on a file system that has none.
    WorkspaceMapping,
    /// The launcher enters a parked sandbox's mounts, and leaves them.
    Assign,
    /// The launcher limits what the files of a project store.
    Quota,
    /// The child takes its descriptors.
    Descriptors,
    /// The child enters its cgroups.
    Cgroup,
    /// The child makes its other namespaces.
    Namespaces,
    /// The child waits for the launcher.
    Handover,
    /// The child takes its uid and gid.
    Identity,
    /// Host name.
    Hostname,
    /// Loopback up.
    Loopback,
    /// The launcher makes the router, or keeps it up to date.
    Router,
    /// The launcher and the child join the sandbox to the router.
    Network,
    /// The child makes the new root its root.
    Pivot,
    /// Directories, links and files in the root.
    Entries,
    /// `/proc`.
    Proc,
    /// `/dev`.
    Devices,
    /// A memory file system.
    MemoryMount,
    /// The cgroup directory for runs.
    Leaves,
    /// No more namespaces inside.
    NestedNamespaces,
    /// Resource limits.
    Resources,
    /// CPU affinity.
    Affinity,
    /// Session keyring.
    Keyring,
    /// Capabilities.
    Capabilities,
    /// No new privileges.
    NoNewPrivileges,
    /// The second wall around mounts, devices, tracing and signals.
    Landlock,
    /// The system call filter.
    Seccomp,
    /// The work directory.
    WorkDir,
    /// The exec of the guest.
    Exec,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Receive => "receiving the plan",
            Self::Clone => "cloning the first process",
            Self::Users => "mapping users",
            Self::IdNamespace => "making a mapping for files",
            Self::Root => "making the root directory",
            Self::ImageMapping => "mapping the image's owners",
            Self::View => "showing a host directory",
            Self::Workspace => "mounting the workspace",
            Self::WorkspaceMapping => "mapping the workspace's owners",
            Self::Assign => "entering a parked sandbox's mounts",
            Self::Quota => "setting a quota",
            Self::Descriptors => "taking descriptors",
            Self::Cgroup => "entering the cgroup",
            Self::Namespaces => "making namespaces",
            Self::Handover => "waiting for the launcher",
            Self::Identity => "taking a user id",
            Self::Hostname => "setting the host name",
            Self::Loopback => "bringing up loopback",
            Self::Router => "making the router",
            Self::Network => "joining the network",
            Self::Pivot => "changing the root directory",
            Self::Entries => "filling the root directory",
            Self::Proc => "mounting /proc",
            Self::Devices => "filling /dev",
            Self::MemoryMount => "mounting memory",
            Self::Leaves => "handing over the cgroup",
            Self::NestedNamespaces => "forbidding nested namespaces",
            Self::Resources => "setting resource limits",
            Self::Affinity => "choosing processors",
            Self::Keyring => "joining a keyring",
            Self::Capabilities => "dropping capabilities",
            Self::NoNewPrivileges => "forbidding new privileges",
            Self::Landlock => "building the second wall",
            Self::Seccomp => "installing the system call filter",
            Self::WorkDir => "entering the work directory",
            Self::Exec => "starting the guest",
        })
    }
}

/// A step that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{step}{}{what}: {cause}", if .what.is_empty() { "" } else { " " }, cause = std::io::Error::from_raw_os_error(*.errno))]
pub struct Failure {
    /// Which.
    pub step: Step,
    /// The kernel's word.
    pub errno: i32,
    /// On what: a path or a name, where there is one.
    pub what: String,
}

impl Failure {
    /// The bytes that go through the pipe.
    pub fn encode(&self) -> Vec<u8> {
        let mut short = self.clone();
        if short.what.len() > REPORT_BYTES_MAX / 2 {
            short.what = short.what.chars().take(REPORT_BYTES_MAX / 8).collect();
        }
        postcard::to_stdvec(&short).unwrap_or_default()
    }

    /// Reads what came through the pipe.
    ///
    /// # Errors
    ///
    /// Where it is no report.
    pub fn decode(bytes: &[u8]) -> Result<Self, postcard::Error> {
        postcard::from_bytes(bytes)
    }
}
