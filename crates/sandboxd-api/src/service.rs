//! Health and index.

use serde::{Deserialize, Serialize};

/// Answer of `GET /healthz`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ServiceHealth {
    /// `ok`.
    pub status: String,
    /// Sessions with a sandbox.
    pub sessions: u64,
    /// Most of them.
    pub limit: Option<u64>,
    /// Open sessions.
    pub open_sessions: u64,
    /// Most of them.
    pub open_limit: Option<u64>,
    /// Aliases that can be opened, sorted.
    pub runtimes: Vec<String>,
}

/// Answer of `GET /`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ServiceIndex {
    /// `sandboxd`.
    pub service: String,
    /// As `GET /healthz`.
    pub health: ServiceHealth,
    /// Where the documentation is.
    pub docs_url: String,
    /// Where the API's description is.
    pub openapi_url: String,
    /// Where the pages for people are, if they are served.
    pub ui_url: Option<String>,
    /// Every route's path, sorted.
    pub endpoints: Vec<String>,
}
