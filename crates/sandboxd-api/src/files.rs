//! Files of a session, by the workspace routes.

use serde::{Deserialize, Serialize};

/// Body of `POST /sessions/{session_id}/files/{read,stat,list,realpath,mkdir,remove}`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PathRequest {
    /// Absolute, below the work directory.
    pub path: String,
}

/// Query of `POST /sessions/{session_id}/files/write`; the body is the content.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WriteQuery {
    /// Absolute, below the work directory.
    pub path: String,
}

/// What is known of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FileEntry {
    /// Its last component.
    pub name: String,
    /// Its path, in the form that was asked for.
    pub path: String,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// Bytes; absent for directories and where nobody looked.
    pub size: Option<u64>,
    /// When its content last changed (ISO 8601, UTC); only by the archive routes.
    pub modified_at: Option<String>,
}

/// Answer of `POST /sessions/{session_id}/files/realpath`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RealPath {
    /// Absolute and normalised.
    pub path: String,
}
