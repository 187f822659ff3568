//! One sandbox's walls, as data.
//!
//! A plan has two halves. The [`Template`] is what many sandboxes share (image, users, mounts, capabilities, system
//! calls); the [`Assignment`] is what makes one of them a session's own (workspace, environment, limits, cgroup, layer).
//! Descriptors travel beside the plan (see [`crate::wire::Create`]); paths in it are the host's unless said otherwise.

use serde::{Deserialize, Serialize};

/// Everything the launcher and its child need to know to make one sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// What many sandboxes share.
    pub template: Template,
    /// What is this one's own.
    pub assignment: Assignment,
}

/// The half of a plan that many sandboxes share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Template {
    /// Who is who: the mapping of the sandbox's user namespace.
    pub users: Users,
    /// What the root directory is made of.
    pub root: Root,
    /// Directories, links and files that are made in the root, in this order.
    pub entries: Vec<Entry>,
    /// Host paths that are shown inside, read-only.
    pub views: Vec<View>,
    /// Device files that are shown in `/dev`, by their name there.
    pub devices: Vec<String>,
    /// Memory file systems of the sandbox's own, in mount order.
    pub memory_mounts: Vec<MemoryMount>,
    /// What of `/proc` is hidden or made read-only.
    pub proc: ProcRules,
    /// Capabilities that stay, by their number in `linux/capability.h`: the bounding set, and what the guest starts with.
    pub capabilities: Vec<u8>,
    /// Whether no file may be made set-uid or set-gid: what is made belongs to a user of the host, where such a file would
    /// lend that user's rights to every other.
    pub plain_modes: bool,
}

/// The mapping of the sandbox's user namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Users {
    /// Inside 0.. is the host's `first`..; needs privilege on the host.
    Range {
        /// First uid and gid on the host.
        first: u32,
        /// How many.
        count: u32,
    },
    /// One id: the launcher's own, seen as `inside`.
    Single {
        /// The uid and gid inside.
        inside: u32,
    },
}

impl Users {
    /// Whether host-side idmapped mounts are possible (they need privilege).
    pub const fn is_range(self) -> bool {
        matches!(self, Self::Range { .. })
    }
}

/// What the root directory is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Root {
    /// A memory file system.
    Memory {
        /// Its size in bytes.
        bytes: u64,
        /// Most files and directories.
        inodes: u64,
    },
    /// The layer's `upper` directory itself: like `Memory`, but it outlives the sandbox.
    Layer,
    /// The layer over an image.
    Overlay {
        /// The root directories of the image's layers, the topmost first; at least one.
        lowers: Vec<String>,
        /// Whether owners on disk count from 0, and are mapped to the sandbox's own by the mount; else they are its own.
        mapped: bool,
    },
}

/// Something made in the root directory. Paths are relative to it, without a leading slash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entry {
    /// A directory; one that exists stays as it is.
    Directory {
        /// Where.
        path: String,
        /// Permission bits.
        mode: u32,
        /// The uid and gid that it gets if it is made.
        owner: u32,
    },
    /// A symbolic link; anything that exists stays.
    Link {
        /// Where.
        path: String,
        /// What it says.
        target: String,
    },
    /// A regular file.
    File {
        /// Where.
        path: String,
        /// What is in it.
        content: Vec<u8>,
        /// Permission bits.
        mode: u32,
        /// Whether it takes the place of one that exists (a link is replaced, never followed).
        replace: bool,
    },
}

/// A host path that is shown inside, read-only, without devices and setuid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// On the host, absolute.
    pub from: String,
    /// Inside, relative to the root.
    pub to: String,
    /// Whether it is a directory (then shown with what is mounted below it).
    pub directory: bool,
}

/// A memory file system of the sandbox's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryMount {
    /// Inside, relative to the root.
    pub at: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// Most files and directories.
    pub inodes: u64,
    /// Permission bits of its root.
    pub mode: u32,
    /// Whether programs in it may be executed.
    pub executable: bool,
    /// What is made in it, with paths relative to it.
    pub entries: Vec<Entry>,
    /// Whether it is read-only once filled.
    pub read_only: bool,
}

/// What of `/proc` is hidden or made read-only; paths relative to `/proc`. What a kernel does not have is left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcRules {
    /// Files that read as empty, and directories that are empty.
    pub masked: Vec<String>,
    /// An empty directory that hides directories, relative to the root: in one of the read-only memory mounts.
    pub empty: String,
    /// Trees that cannot be written.
    pub read_only: Vec<String>,
}

/// The half of a plan that makes a sandbox a session's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// Host name inside.
    pub hostname: String,
    /// The guest's arguments, its name first.
    pub argv: Vec<String>,
    /// The guest's environment, `NAME=value`.
    pub env: Vec<String>,
    /// Where the guest starts, and what is mounted there.
    pub work_dir: WorkDir,
    /// The host path of the layer directory (with `upper` and `work` in it), where its descriptor travels with the plan.
    pub layer: Option<String>,
    /// What it is joined to.
    pub network: Network,
    /// Limits that processes carry themselves.
    pub limits: Limits,
    /// Its place in the cgroup trees.
    pub cgroup: Seat,
}

/// What a sandbox's network namespace is joined to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Network {
    /// Nothing: there is its own loopback.
    Loopback,
    /// The instance's router.
    Routed {
        /// What its address is made from ([`crate::network::address_of`]); nobody else of the instance has it.
        number: u16,
    },
}

/// The work directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkDir {
    /// Inside, relative to the root.
    pub path: String,
    /// The uid and gid that it gets if it is made.
    pub owner: u32,
    /// The host directory that is mounted there; without one it is a directory of the root itself.
    pub workspace: Option<Workspace>,
}

/// A host directory that is the work directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workspace {
    /// On the host, absolute; must be the directory whose descriptor travels with the plan.
    pub path: String,
    /// Whose files are whose.
    pub owners: Owners,
}

/// How owners on disk become owners inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Owners {
    /// As they are on disk.
    AsOnDisk,
    /// Through an idmapped mount.
    Mapped {
        /// For uids.
        uids: Vec<Extent>,
        /// For gids.
        gids: Vec<Extent>,
    },
}

/// A run of ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// First id on disk.
    pub on_disk: u32,
    /// First id as the host's kernel then sees it.
    pub seen: u32,
    /// How many.
    pub count: u32,
}

/// Limits that processes carry themselves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Resource limits.
    pub resources: Vec<ResourceLimit>,
    /// The CPUs that it runs on; empty means all.
    pub cpus: Vec<u16>,
}

/// One resource limit, soft and hard alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimit {
    /// Which.
    pub resource: Resource,
    /// In the resource's own unit.
    pub value: u64,
}

/// Resource limits that plans use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Resource {
    /// Open descriptors per process.
    OpenFiles,
    /// Bytes of a core file.
    Core,
    /// Processes and threads of one user in the sandbox's user namespace.
    Processes,
    /// Bytes of locked memory.
    LockedMemory,
    /// Bytes in message queues of one user.
    MessageQueues,
    /// Bytes of one file.
    FileSize,
}

/// A place in the cgroup trees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seat {
    /// How many descriptors of v1 `tasks` files travel with the plan. The child enters by them itself: a single thread
    /// that moves itself spares the kernel the wait that a `cgroup.procs` write costs.
    pub v1_tasks: u8,
    /// Whether a cgroup2 directory travels with the plan, in which the child is born.
    pub born_inside: bool,
    /// The host path of that directory, where the guest may make leaves in it for its runs.
    pub leaves: Option<String>,
}
