//! What the operator says about registries.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;

/// When an image that a session needs is fetched from a registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pull {
    /// When it is not here.
    #[default]
    Missing,
    /// Never: the session is refused.
    Never,
}

/// How registries are reached.
#[derive(Clone, Default)]
pub struct Settings {
    /// When a session's image is fetched.
    pub pull: Pull,
    /// Per registry, what is asked before it: base URLs.
    pub mirrors: BTreeMap<String, Vec<String>>,
    /// Registries that may be reached without TLS; those on a loopback address always may.
    pub insecure: BTreeSet<String>,
    /// Docker's configuration file, with credentials.
    pub docker_config: Option<PathBuf>,
    /// Certificates (PEM) that are trusted beside the system's.
    pub ca_file: Option<PathBuf>,
    /// Proxy for `http` addresses.
    pub http_proxy: Option<String>,
    /// Proxy for `https` addresses.
    pub https_proxy: Option<String>,
    /// Hosts that are reached without a proxy, as `NO_PROXY` lists them.
    pub no_proxy: Option<String>,
    /// The environment of credential helpers.
    pub helper_env: Vec<(OsString, OsString)>,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Proxies and the environment may hold secrets.
        f.debug_struct("Settings")
            .field("pull", &self.pull)
            .field("mirrors", &self.mirrors)
            .field("insecure", &self.insecure)
            .finish_non_exhaustive()
    }
}
