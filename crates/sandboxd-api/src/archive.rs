//! Stored workspaces, read without a sandbox. Listings, reads and their answers are those of [`crate::files`] and
//! [`crate::shell`].

use crate::files::FileEntry;
use serde::{Deserialize, Serialize};

/// Body of `POST /workspaces/{session_id}/tree`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TreeRequest {
    /// Where to start.
    #[serde(default = "default_path")]
    pub path: String,
    /// How many levels, 1 to 64.
    #[serde(default = "default_depth")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 64))]
    pub max_depth: u64,
    /// How many entries, 1 to 100 000.
    #[serde(default = "default_entries")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 100000))]
    pub max_entries: u64,
}

impl TreeRequest {
    /// Levels where a request does not say, and most of them.
    pub const DEPTH: (u64, u64) = (6, 64);
    /// Entries where a request does not say, and most of them.
    pub const ENTRIES: (u64, u64) = (2000, 100_000);
}

fn default_path() -> String {
    ".".to_owned()
}
const fn default_depth() -> u64 {
    TreeRequest::DEPTH.0
}
const fn default_entries() -> u64 {
    TreeRequest::ENTRIES.0
}

/// Answer of `POST /workspaces/{session_id}/tree`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkspaceTree {
    /// Breadth first; a directory's entries come before its children's.
    pub entries: Vec<FileEntry>,
    /// Whether something was left out.
    pub truncated: bool,
}

/// Body of `POST /workspaces/trees`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TreesRequest {
    /// Whose workspaces: 1 to 100 ids.
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 100, example = json!(["conversation-5f2c9a1e"])))]
    pub sessions: Vec<String>,
    /// As for one tree, for each.
    #[serde(flatten)]
    pub tree: TreeRequest,
}

impl TreesRequest {
    /// Most ids in one request.
    pub const SESSIONS: usize = 100;
}

/// Answer of `POST /workspaces/trees`: one per id asked for, in that order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkspaceTrees {
    /// The trees.
    pub results: Vec<TreeResult>,
}

/// One workspace's tree, or why there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TreeResult {
    /// Whose.
    #[cfg_attr(feature = "openapi", schema(example = "conversation-5f2c9a1e"))]
    pub session_id: String,
    /// The tree.
    pub tree: Option<WorkspaceTree>,
    /// Why there is none.
    #[cfg_attr(feature = "openapi", schema(example = json!(null)))]
    pub error: Option<String>,
    /// The status that a request for this tree alone would have had.
    #[cfg_attr(feature = "openapi", schema(example = json!(null)))]
    pub status_code: Option<u16>,
}
