//! What the operator allows, under an alias, and where it comes from.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// One entry of the allowlist.
#[derive(Debug, Clone, PartialEq)]
pub struct Runtime {
    /// The name that clients use.
    pub alias: String,
    /// What it is made from.
    pub source: Source,
    /// Words for people.
    pub description: String,
    /// Its own ceilings; an absent one takes the service's.
    pub ceilings: Ceilings,
    /// Environment on top of the built-in one.
    pub env: BTreeMap<String, String>,
    /// The uid that runs have inside; absent takes the service's.
    pub user: Option<u32>,
}

/// Where a runtime's root filesystem comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The host's own system files, read-only (`image = "host"`).
    Host,
    /// A root filesystem directory (`image = "/path"`).
    Directory(PathBuf),
    /// A root filesystem in a tar file (`image = "/path.tar"`), unpacked once.
    Tar(PathBuf),
    /// A ready-made OCI image by name.
    Image(String),
    /// A build recipe by its name in the catalogue.
    Recipe(String),
}

/// The ceilings that a runtime or the service sets. `None` means nobody set it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ceilings {
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
    /// Bytes of memory and swap together.
    pub memory_swap_bytes: Option<u64>,
    /// CPUs.
    pub cpus: Option<f64>,
    /// CPU weight.
    pub cpu_shares: Option<u64>,
    /// Processes.
    pub pids: Option<u64>,
    /// `none`, `bridge`, …, as configured.
    pub network_mode: Option<String>,
    /// Docker's runtime name.
    pub oci_runtime: Option<String>,
}
