//! Health and index.

use serde::{Deserialize, Serialize};

/// Answer of `GET /healthz`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ServiceHealth {
    /// `ok`.
    #[cfg_attr(feature = "openapi", schema(example = "ok"))]
    pub status: String,
    /// Sessions with a sandbox.
    #[cfg_attr(feature = "openapi", schema(example = 3))]
    pub sessions: u64,
    /// Most of them.
    #[cfg_attr(feature = "openapi", schema(example = 20))]
    pub limit: Option<u64>,
    /// Open sessions.
    #[cfg_attr(feature = "openapi", schema(example = 12))]
    pub open_sessions: u64,
    /// Most of them.
    #[cfg_attr(feature = "openapi", schema(example = 200))]
    pub open_limit: Option<u64>,
    /// Aliases that can be opened, sorted.
    #[cfg_attr(feature = "openapi", schema(example = json!(["node", "python"])))]
    pub runtimes: Vec<String>,
}

/// Answer of `GET /readyz`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ServiceReadiness {
    /// `ready`.
    #[cfg_attr(feature = "openapi", schema(example = "ready"))]
    pub status: String,
    /// The parts that were asked.
    #[cfg_attr(feature = "openapi", schema(example = json!(["service", "store", "backend", "workspaces"])))]
    pub parts: Vec<String>,
}

/// Answer of `GET /`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ServiceIndex {
    /// `sandboxd`.
    #[cfg_attr(feature = "openapi", schema(example = "sandboxd"))]
    pub service: String,
    /// As `GET /healthz`.
    pub health: ServiceHealth,
    /// Where the documentation is.
    #[cfg_attr(feature = "openapi", schema(example = "/docs"))]
    pub docs_url: String,
    /// Where the API's description is.
    #[cfg_attr(feature = "openapi", schema(example = "/openapi.json"))]
    pub openapi_url: String,
    /// Where the pages for people are, if they are served.
    #[cfg_attr(feature = "openapi", schema(example = json!(null)))]
    pub ui_url: Option<String>,
    /// Every route's path, sorted.
    #[cfg_attr(feature = "openapi", schema(example = json!(["/healthz", "/sessions"])))]
    pub endpoints: Vec<String>,
}
