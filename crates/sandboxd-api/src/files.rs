//! Files of a session, by the workspace routes.

use serde::{Deserialize, Serialize};

/// Body of every route that takes a path and nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PathRequest {
    /// For the routes below `/files`: absolute, below the work directory. For the others a relative path starts at the
    /// work directory.
    #[cfg_attr(feature = "openapi", schema(example = "/workspace/report.md"))]
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
    #[cfg_attr(feature = "openapi", schema(example = "report.md"))]
    pub name: String,
    /// Its path, in the form that was asked for.
    #[cfg_attr(feature = "openapi", schema(example = "/workspace/report.md"))]
    pub path: String,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// Bytes; absent for directories and where nobody looked.
    #[cfg_attr(feature = "openapi", schema(example = 1024))]
    pub size: Option<u64>,
    /// When its content last changed (ISO 8601, UTC); only by the archive routes.
    #[cfg_attr(feature = "openapi", schema(format = DateTime, example = "2026-09-21T10:00:00.250000+00:00"))]
    pub modified_at: Option<String>,
}

/// Answer of `POST /sessions/{session_id}/files/realpath`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RealPath {
    /// Absolute and normalised.
    #[cfg_attr(feature = "openapi", schema(example = "/workspace/report.md"))]
    pub path: String,
}
