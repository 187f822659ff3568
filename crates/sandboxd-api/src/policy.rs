//! What the service allows.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Answer of `GET /policy` and `PUT /policy`. Sizes are as configured; a missing ceiling is `null`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "every field is the setting of the same name")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ServicePolicy {
    /// The allowlist, by alias.
    pub runtimes: Vec<RuntimePolicy>,
    pub default_runtime: String,
    pub max_sessions: Option<u64>,
    pub max_open_sessions: Option<u64>,
    pub max_sessions_per_tenant: Option<u64>,
    pub evict_idle_after: Option<u64>,
    pub mem_limit: Option<String>,
    pub memswap_limit: Option<String>,
    pub cpus: Option<f64>,
    pub cpu_shares: Option<u64>,
    pub pids_limit: Option<u64>,
    pub network_mode: Option<String>,
    pub oci_runtime: Option<String>,
    pub work_dir: String,
    pub idle_timeout: u64,
    /// Seconds that a run may take; clients size their own waiting by it.
    pub execute_timeout: u64,
    pub max_read_bytes: u64,
    pub persist_containers: bool,
    pub sandbox_uid: Option<u32>,
    pub workspace_ttl: Option<u64>,
    pub container_ttl: Option<u64>,
    pub tmpfs_size: Option<String>,
    pub prewarm: bool,
    /// Whether images are built with BuildKit.
    pub buildkit: bool,
    /// Whether the native file routes read.
    #[serde(default)]
    pub native_files: bool,
    /// Whether they write.
    #[serde(default)]
    pub native_writes: bool,
    /// Whether they resolve paths.
    #[serde(default)]
    pub native_realpath: bool,
}

/// One runtime with the ceilings in force for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "every field is the setting of the same name")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RuntimePolicy {
    pub alias: String,
    /// The image, or what a recipe amounts to.
    pub image: String,
    pub description: String,
    /// Whether its image has to be built.
    pub builds: bool,
    pub mem_limit: Option<String>,
    pub memswap_limit: Option<String>,
    pub cpus: Option<f64>,
    pub cpu_shares: Option<u64>,
    pub pids_limit: Option<u64>,
    pub network_mode: Option<String>,
    pub oci_runtime: Option<String>,
}

/// Body of `PUT /policy`. An absent field is left alone, `null` clears it (`Some(None)` here); any other field is
/// refused, and then nothing is changed.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "every field is the setting of the same name")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PolicyUpdate {
    #[serde(with = "twice", skip_serializing_if = "Option::is_none")]
    pub default_runtime: Option<Option<String>>,
    #[serde(with = "twice", skip_serializing_if = "Option::is_none")]
    pub max_sessions: Option<Option<u64>>,
    #[serde(with = "twice", skip_serializing_if = "Option::is_none")]
    pub max_open_sessions: Option<Option<u64>>,
    #[serde(with = "twice", skip_serializing_if = "Option::is_none")]
    pub max_sessions_per_tenant: Option<Option<u64>>,
    #[serde(with = "twice", skip_serializing_if = "Option::is_none")]
    pub evict_idle_after: Option<Option<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<u64>,
    #[serde(with = "twice", skip_serializing_if = "Option::is_none")]
    pub workspace_ttl: Option<Option<u64>>,
    #[serde(with = "twice", skip_serializing_if = "Option::is_none")]
    pub container_ttl: Option<Option<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execute_timeout: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_read_bytes: Option<u64>,
    #[serde(with = "twice", skip_serializing_if = "Option::is_none")]
    pub mem_limit: Option<Option<String>>,
    #[serde(with = "twice", skip_serializing_if = "Option::is_none")]
    pub memswap_limit: Option<Option<String>>,
    #[serde(with = "twice", skip_serializing_if = "Option::is_none")]
    pub tmpfs_size: Option<Option<String>>,
    #[serde(with = "twice", skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Option<f64>>,
    #[serde(with = "twice", skip_serializing_if = "Option::is_none")]
    pub cpu_shares: Option<Option<u64>>,
    #[serde(with = "twice", skip_serializing_if = "Option::is_none")]
    pub pids_limit: Option<Option<u64>>,
    /// Ceilings of single runtimes, by alias.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub runtimes: BTreeMap<String, RuntimeUpdate>,
}

/// Ceilings of one runtime in a [`PolicyUpdate`]; `null` goes back to the service's.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "every field is the setting of the same name")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RuntimeUpdate {
    #[serde(with = "twice", skip_serializing_if = "Option::is_none")]
    pub mem_limit: Option<Option<String>>,
    #[serde(with = "twice", skip_serializing_if = "Option::is_none")]
    pub memswap_limit: Option<Option<String>>,
    #[serde(with = "twice", skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Option<f64>>,
    #[serde(with = "twice", skip_serializing_if = "Option::is_none")]
    pub cpu_shares: Option<Option<u64>>,
    #[serde(with = "twice", skip_serializing_if = "Option::is_none")]
    pub pids_limit: Option<Option<u64>>,
}

/// Keeps apart a field that is absent and one that is `null`.
mod twice {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<T: Serialize, S: Serializer>(
        value: &Option<Option<T>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value
            .as_ref()
            .and_then(Option::as_ref)
            .serialize(serializer)
    }

    pub(super) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Option<T>>, D::Error> {
        Option::deserialize(deserializer).map(Some)
    }
}
