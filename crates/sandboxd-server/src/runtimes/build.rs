//! What an operator allows builds of recipes: their network, what they are told, their ceilings.

use crate::backends::{Asked, Ceiling, Network};
use crate::limits::{
    BUILD_DISK_BYTES_DEFAULT, BUILD_MEMORY_BYTES_DEFAULT, BUILD_PIDS_DEFAULT, BUILD_SECONDS_DEFAULT,
};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// The settings of builds.
#[derive(Clone, PartialEq)]
pub struct BuildSettings {
    /// What the sandboxes of a build reach.
    pub network: Network,
    /// Variables of every step, such as where an installer finds its packages. No part of the image. May hold secrets.
    pub env: BTreeMap<String, String>,
    /// Certificates that the programs of a build trust instead of the image's own.
    pub ca_file: Option<PathBuf>,
    /// Bytes of memory.
    pub memory_bytes: Option<Asked<u64>>,
    /// CPUs.
    pub cpus: Option<Asked<f64>>,
    /// Processes.
    pub pids: Option<Asked<u64>>,
    /// Bytes that one step and the package caches store together.
    pub disk_bytes: Option<Asked<u64>>,
    /// Seconds that one build may take.
    pub seconds_max: u64,
    /// Ceilings that may stay unenforced although they were asked for.
    pub allow_unenforced: Vec<Ceiling>,
}

impl Default for BuildSettings {
    fn default() -> Self {
        let by_default = |value| {
            Some(Asked {
                value,
                explicit: false,
            })
        };
        Self {
            network: Network::Bridge,
            env: BTreeMap::new(),
            ca_file: None,
            memory_bytes: by_default(BUILD_MEMORY_BYTES_DEFAULT),
            cpus: None,
            pids: by_default(BUILD_PIDS_DEFAULT),
            disk_bytes: by_default(BUILD_DISK_BYTES_DEFAULT),
            seconds_max: BUILD_SECONDS_DEFAULT,
            allow_unenforced: Vec::new(),
        }
    }
}

impl fmt::Debug for BuildSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BuildSettings")
            .field("network", &self.network)
            .field("env", &self.env.keys())
            .finish_non_exhaustive()
    }
}
