//! Sandboxes that are made before anybody asks for one: parked, each for exactly one session.
//!
//! A parked sandbox is whole but for the files of the session that will have it: its guest runs, behind every wall, and no
//! program of a client's has been in it. It is taken only by who asks for the very same specification, whatever its
//! workspace, so that a ceiling, an image or a setting that has changed since is never met by one from before.

use super::{
    CreateError, Enforced, HostWorkspace, Meter, PrepareError, PreparedImage, SandboxSpec,
};
use crate::id::SandboxId;
use crate::runtimes::Runtime;
use async_trait::async_trait;
use sandboxd_protocol::client::Client;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// One kind of sandbox that is to be ready.
#[derive(Debug, Clone, PartialEq)]
pub struct Kind {
    /// What it is counted under: its runtime's alias.
    pub name: String,
    /// What it is to be; the path of its workspace means nothing.
    pub spec: SandboxSpec,
    /// How many are to be ready.
    pub count: usize,
}

/// A sandbox that was parked and is somebody's now.
#[derive(Debug)]
pub struct Taken {
    /// Its guest, which has said its first words.
    pub client: Client,
    /// What is really in place.
    pub enforced: Enforced,
    /// What its ceilings have done.
    pub meter: Arc<dyn Meter>,
}

/// Whether the host has memory for sandboxes that nobody has asked for yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// Yes.
    Enough,
    /// For no more of them than there are.
    Scarce,
    /// For none: what is parked has what sessions need.
    Short,
}

/// A backend's parked sandboxes. They are no session's, are in no list of sandboxes, and end with the backend.
#[async_trait]
pub trait Pool: Send + Sync {
    /// The image that a sandbox of this runtime would have now, if it is on this host: nothing is fetched or built.
    async fn image(&self, runtime: &Runtime) -> Result<Option<PreparedImage>, PrepareError>;
    /// Makes one more of a kind, and parks it.
    async fn park(&self, kind: &Kind) -> Result<(), CreateError>;
    /// Ends what is parked and is of none of these kinds, is one too many of its kind, or has ended by itself.
    async fn retain(&self, kinds: &[Kind]);
    /// How many are ready, by the names of their kinds.
    fn ready(&self) -> BTreeMap<String, usize>;
    /// Whether there is memory for more.
    fn room(&self) -> Room;
    /// One that is just what is asked for, if there is one: from now on it is the sandbox of this id, as if it had been
    /// created fresh. One that turns out to be of no use is ended, and nobody hears of it.
    async fn take(&self, id: &SandboxId, spec: &SandboxSpec) -> Option<Taken>;
}

impl SandboxSpec {
    /// All of it but whose files they are: two that are the same so far can have the same parked sandbox.
    #[must_use]
    pub fn kind(&self) -> Self {
        let workspace = self.workspace.as_ref().map(|workspace| HostWorkspace {
            path: PathBuf::new(),
            managed: workspace.managed,
        });
        Self {
            workspace,
            session: None,
            ..self.clone()
        }
    }
}
