//! What the service allows.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Answer of `GET /policy` and `PUT /policy`. Sizes are as configured; a missing ceiling is `null`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ServicePolicy {
    /// The allowlist, by alias.
    pub runtimes: Vec<RuntimePolicy>,
    /// Alias of the runtime that an open gets which names none.
    #[cfg_attr(feature = "openapi", schema(example = "python"))]
    pub default_runtime: String,
    /// Most sessions with a sandbox at once.
    #[cfg_attr(feature = "openapi", schema(example = 20))]
    pub max_sessions: Option<u64>,
    /// Most open sessions, sleeping ones included.
    #[cfg_attr(feature = "openapi", schema(example = 200))]
    pub max_open_sessions: Option<u64>,
    /// Most open sessions under one tenant label.
    #[cfg_attr(feature = "openapi", schema(example = 5))]
    pub max_sessions_per_tenant: Option<u64>,
    /// Seconds of idleness after which a session may be put to sleep to make room for another; `null` never does.
    #[cfg_attr(feature = "openapi", schema(example = 60))]
    pub evict_idle_after: Option<u64>,
    /// Memory of a sandbox, as configured (`512m`).
    #[cfg_attr(feature = "openapi", schema(example = "512m"))]
    pub mem_limit: Option<String>,
    /// Memory and swap of a sandbox together.
    #[cfg_attr(feature = "openapi", schema(example = "1g"))]
    pub memswap_limit: Option<String>,
    /// CPUs of a sandbox; parts of one are fine.
    #[cfg_attr(feature = "openapi", schema(example = 1.5))]
    pub cpus: Option<f64>,
    /// Weight of a sandbox where CPUs are short.
    #[cfg_attr(feature = "openapi", schema(example = 512))]
    pub cpu_shares: Option<u64>,
    /// Most processes and threads of a sandbox.
    #[cfg_attr(feature = "openapi", schema(example = 256))]
    pub pids_limit: Option<u64>,
    /// The network of a sandbox; `none` by default.
    #[cfg_attr(feature = "openapi", schema(example = "none"))]
    pub network_mode: Option<String>,
    /// The OCI runtime that containers are started with, where there are containers.
    pub oci_runtime: Option<String>,
    /// Where runs start, as a sandbox sees it.
    #[cfg_attr(feature = "openapi", schema(example = "/workspace"))]
    pub work_dir: String,
    /// Seconds of idleness after which a session is closed.
    #[cfg_attr(feature = "openapi", schema(example = 3600))]
    pub idle_timeout: u64,
    /// Seconds that a run may take; clients size their own waiting by it.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, example = 300))]
    pub execute_timeout: u64,
    /// The largest file that is read or written whole, in bytes.
    #[cfg_attr(feature = "openapi", schema(example = 10485760))]
    pub max_read_bytes: u64,
    /// Whether what was installed outside the work directory outlives a sandbox.
    pub persist_containers: bool,
    /// The user that programs run as; `null` means the image's.
    pub sandbox_uid: Option<u32>,
    /// Seconds after which a stored workspace is deleted that no open session uses.
    #[cfg_attr(feature = "openapi", schema(example = 604800))]
    pub workspace_ttl: Option<u64>,
    /// Seconds after which what was kept of a stopped sandbox is deleted.
    #[cfg_attr(feature = "openapi", schema(example = 86400))]
    pub container_ttl: Option<u64>,
    /// Size of `/tmp`, in memory; `null` means that it is on disk.
    #[cfg_attr(feature = "openapi", schema(example = "64m"))]
    pub tmpfs_size: Option<String>,
    /// Whether images are made ready before they are asked for.
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
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RuntimePolicy {
    /// Its name.
    #[cfg_attr(feature = "openapi", schema(example = "python"))]
    pub alias: String,
    /// The image, or what a recipe amounts to.
    #[cfg_attr(feature = "openapi", schema(example = "python:3.12-slim"))]
    pub image: String,
    /// What it is for.
    #[cfg_attr(feature = "openapi", schema(example = "Python and nothing else"))]
    pub description: String,
    /// Whether its image has to be built.
    pub builds: bool,
    /// Memory of a sandbox, as configured (`512m`).
    #[cfg_attr(feature = "openapi", schema(example = "512m"))]
    pub mem_limit: Option<String>,
    /// Memory and swap of a sandbox together.
    #[cfg_attr(feature = "openapi", schema(example = "1g"))]
    pub memswap_limit: Option<String>,
    /// CPUs of a sandbox; parts of one are fine.
    #[cfg_attr(feature = "openapi", schema(example = 1.5))]
    pub cpus: Option<f64>,
    /// Weight of a sandbox where CPUs are short.
    #[cfg_attr(feature = "openapi", schema(example = 512))]
    pub cpu_shares: Option<u64>,
    /// Most processes and threads of a sandbox.
    #[cfg_attr(feature = "openapi", schema(example = 256))]
    pub pids_limit: Option<u64>,
    /// The network of a sandbox; `none` by default.
    #[cfg_attr(feature = "openapi", schema(example = "none"))]
    pub network_mode: Option<String>,
    /// The OCI runtime that containers are started with, where there are containers.
    pub oci_runtime: Option<String>,
}

/// Body of `PUT /policy`. A field that is left out stays, `null` clears it; any other field is refused, and then nothing
/// is changed.
// In Rust `null` is `Some(None)`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PolicyUpdate {
    /// Alias of the runtime that an open gets which names none.
    #[serde(with = "twice", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, example = "python"))]
    pub default_runtime: Option<Option<String>>,
    /// Most sessions with a sandbox at once.
    #[serde(with = "twice", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, example = 20))]
    pub max_sessions: Option<Option<u64>>,
    /// Most open sessions, sleeping ones included.
    #[serde(with = "twice", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, example = 200))]
    pub max_open_sessions: Option<Option<u64>>,
    /// Most open sessions under one tenant label.
    #[serde(with = "twice", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, example = 5))]
    pub max_sessions_per_tenant: Option<Option<u64>>,
    /// Seconds of idleness after which a session may be put to sleep to make room for another; `null` never does.
    #[serde(with = "twice", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, example = 60))]
    pub evict_idle_after: Option<Option<u64>>,
    /// Seconds of idleness after which a session is closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64, example = 3600))]
    pub idle_timeout: Option<u64>,
    /// Seconds after which a stored workspace is deleted that no open session uses.
    #[serde(with = "twice", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, example = 604800))]
    pub workspace_ttl: Option<Option<u64>>,
    /// Seconds after which what was kept of a stopped sandbox is deleted.
    #[serde(with = "twice", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, example = 86400))]
    pub container_ttl: Option<Option<u64>>,
    /// Seconds that a run may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64, minimum = 1, example = 300))]
    pub execute_timeout: Option<u64>,
    /// The largest file that is read or written whole, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64, minimum = 1, example = 10485760))]
    pub max_read_bytes: Option<u64>,
    /// Memory of a sandbox, as configured (`512m`).
    #[serde(with = "twice", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, example = "512m"))]
    pub mem_limit: Option<Option<String>>,
    /// Memory and swap of a sandbox together.
    #[serde(with = "twice", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, example = "1g"))]
    pub memswap_limit: Option<Option<String>>,
    /// Size of `/tmp`, in memory; `null` means that it is on disk.
    #[serde(with = "twice", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, example = "64m"))]
    pub tmpfs_size: Option<Option<String>>,
    /// CPUs of a sandbox; parts of one are fine.
    #[serde(with = "twice", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<f64>, exclusive_minimum = 0, example = 1.5))]
    pub cpus: Option<Option<f64>>,
    /// Weight of a sandbox where CPUs are short.
    #[serde(with = "twice", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, minimum = 1, example = 512))]
    pub cpu_shares: Option<Option<u64>>,
    /// Most processes and threads of a sandbox.
    #[serde(with = "twice", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, minimum = 1, example = 256))]
    pub pids_limit: Option<Option<u64>>,
    /// Ceilings of single runtimes, by alias.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub runtimes: BTreeMap<String, RuntimeUpdate>,
}

/// Ceilings of one runtime in a change of the policy; `null` goes back to the service's.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RuntimeUpdate {
    /// Memory of a sandbox, as configured (`512m`).
    #[serde(with = "twice", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, example = "512m"))]
    pub mem_limit: Option<Option<String>>,
    /// Memory and swap of a sandbox together.
    #[serde(with = "twice", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, example = "1g"))]
    pub memswap_limit: Option<Option<String>>,
    /// CPUs of a sandbox; parts of one are fine.
    #[serde(with = "twice", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<f64>, exclusive_minimum = 0, example = 1.5))]
    pub cpus: Option<Option<f64>>,
    /// Weight of a sandbox where CPUs are short.
    #[serde(with = "twice", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, minimum = 1, example = 512))]
    pub cpu_shares: Option<Option<u64>>,
    /// Most processes and threads of a sandbox.
    #[serde(with = "twice", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, minimum = 1, example = 256))]
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
