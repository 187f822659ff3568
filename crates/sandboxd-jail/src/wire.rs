//! What the daemon and the launcher say to each other: one message per packet of a `SOCK_SEQPACKET` pair, descriptors
//! beside it.
//!
//! The launcher believes the daemon. The daemon believes the launcher as far as it must: it holds no more than the
//! daemon does.

use crate::network::{HostRules, Router};
use crate::plan::{Owners, Plan};
use crate::report::Failure;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// Most bytes of one message. A packet of this size fits the default socket buffer.
pub const MESSAGE_BYTES_MAX: usize = 160 * 1024;
/// Most descriptors beside one message.
pub const DESCRIPTORS_MAX: usize = 24;

/// What the daemon asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// What to clean up when the daemon is gone. The descriptor beside it is the instance's lock, which the launcher
    /// keeps open: the instance lives as long as one of the two does. Where the instance has a router, what came with
    /// [`Reply::Routed`] follows, but for the lifeline.
    Instance(Instance),
    /// Make the router of this instance; there is none yet, or its uplink has ended.
    Router(Box<MakeRouter>),
    /// Make a sandbox.
    Create(Box<Create>),
    /// Give a parked sandbox its workspace.
    Assign(Box<Assign>),
    /// Join a container that an engine made to the router.
    Join(Join),
    /// Limit what the files of a project store. Beside it are the lock that daemons share about that, and a directory of the
    /// file system.
    Quota(Box<Quota>),
}

/// What belongs to one instance of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// Cgroup directories that hold its sandboxes' cgroups, and nothing else.
    pub cgroups: Vec<String>,
    /// Its directory for what need not outlive it.
    pub scratch: String,
    /// Its table of rules on the host, where it has one.
    pub host_rules: Option<HostRules>,
    /// The program that loads rules, where it has a router.
    pub router: Option<String>,
}

/// A router to make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MakeRouter {
    /// Comes back in the answer.
    pub number: u64,
    /// What is wanted.
    pub router: Router,
}

/// A sandbox to make. Descriptors beside it, in this order: the guest's end of the link, the guest program, the write
/// end of the report pipe; then where the plan says so the layer directory, the workspace, the cgroup2 directory, and
/// the v1 `tasks` files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Create {
    /// Comes back in the answer.
    pub number: u64,
    /// The walls.
    pub plan: Plan,
    /// Whether its workspace comes later, with an [`Assign`]; the plan has none then.
    pub parks: bool,
}

/// A workspace for a sandbox whose guest has started already. Descriptors beside it: the sandbox's mount namespace, and
/// the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assign {
    /// Comes back in the answer.
    pub number: u64,
    /// Where it is mounted: inside, relative to the root; a directory that is there.
    pub at: String,
    /// Whose files are whose.
    pub owners: Owners,
}

/// A container that has started already, and is to have a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// Comes back in the answer.
    pub number: u64,
    /// Its first process, as this host counts.
    pub pid: i32,
    /// What occurs in the paths of that process's cgroups, and of no other's: the engine's id for the container.
    pub mark: String,
    /// What its address is made from.
    pub address: u16,
}

/// A limit of what the files of one project store on one file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// Comes back in the answer.
    pub number: u64,
    /// Whose.
    pub tie: Tie,
    /// Most bytes; without an end where there is none.
    pub bytes: Option<u64>,
    /// Most files; likewise.
    pub files: Option<u64>,
}

/// Whose a limit is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tie {
    /// A project's that there is.
    To(u32),
    /// One's with a number of this range that no file bears. The directory gets it, and hands it on.
    Fresh(RangeInclusive<u32>),
}

/// What the launcher answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The child was cloned and has all it needs; its pidfd is beside this, and its mount namespace where its workspace comes
    /// later. How it goes on is told by the report pipe.
    Cloned {
        /// The request's number.
        number: u64,
    },
    /// The workspace is in its place.
    Assigned {
        /// The request's number.
        number: u64,
    },
    /// The container is joined.
    Joined {
        /// The request's number.
        number: u64,
    },
    /// The limit is in force.
    Limited {
        /// The request's number.
        number: u64,
    },
    /// There is a router. Beside this are a socket in it and its network namespace; where its uplink is a process also that
    /// one's lifeline (it ends when nobody holds this) and the user namespace of launchers.
    Routed {
        /// The request's number.
        number: u64,
    },
    /// There is no sandbox, no router, no workspace, no network, or no limit. Where a child was already cloned, its pidfd is beside
    /// this; it has been killed.
    Failed {
        /// The request's number.
        number: u64,
        /// Why.
        failure: Failure,
    },
}

/// A message that cannot be sent or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Too long.
    #[error(
        "the plan takes {bytes} bytes, and {MESSAGE_BYTES_MAX} are allowed (environment and image entries count)"
    )]
    TooLong {
        /// Its size.
        bytes: usize,
    },
    /// Not what was expected.
    #[error("malformed message: {0}")]
    Malformed(String),
}

/// A message as bytes.
///
/// # Errors
///
/// Where it is over [`MESSAGE_BYTES_MAX`].
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, WireError> {
    let bytes =
        postcard::to_stdvec(message).map_err(|error| WireError::Malformed(error.to_string()))?;
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(WireError::TooLong { bytes: bytes.len() });
    }
    Ok(bytes)
}

/// Bytes as a message.
///
/// # Errors
///
/// Where they are none.
pub fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, WireError> {
    postcard::from_bytes(bytes).map_err(|error| WireError::Malformed(error.to_string()))
}
