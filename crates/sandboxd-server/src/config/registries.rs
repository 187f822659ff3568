//! Settings about where images come from.

use super::error::ConfigError;
use super::layers::Found;
use super::settings::absolute_path;
use crate::runtimes::images::{Pull, Settings};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;

/// What of the environment concerns registries, beside settings: the variables that every tool knows.
#[derive(Default, Clone)]
pub(super) struct Surroundings {
    pub(super) http_proxy: Option<String>,
    pub(super) https_proxy: Option<String>,
    pub(super) no_proxy: Option<String>,
    /// Docker's own directory for its configuration.
    pub(super) docker_config: Option<PathBuf>,
    /// The whole environment but for our own settings, for credential helpers.
    pub(super) helper_env: Vec<(OsString, OsString)>,
}

impl std::fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Surroundings")
    }
}

impl Surroundings {
    /// A variable that is none of our settings.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        let mut all = self.helper_env.iter();
        let found = all.find(|(known, _)| known == name);
        found.and_then(|(_, value)| value.to_str().map(str::to_owned))
    }

    /// Takes a variable. Lower case wins where both are set, as elsewhere.
    pub(super) fn take(&mut self, name: &str, value: &OsString) {
        let text = || {
            value
                .to_str()
                .map(str::to_owned)
                .filter(|text| !text.is_empty())
        };
        match name {
            "http_proxy" => self.http_proxy = text(),
            "https_proxy" => self.https_proxy = text(),
            "no_proxy" => self.no_proxy = text(),
            "HTTP_PROXY" => self.http_proxy = self.http_proxy.take().or_else(text),
            "HTTPS_PROXY" => self.https_proxy = self.https_proxy.take().or_else(text),
            "NO_PROXY" => self.no_proxy = self.no_proxy.take().or_else(text),
            "DOCKER_CONFIG" => {
                let path = PathBuf::from(value);
                self.docker_config = path.is_absolute().then_some(path);
            }
            _ => {}
        }
        if !name.starts_with(super::layers::PREFIX) {
            self.helper_env.push((name.into(), value.clone()));
        }
    }
}

/// Reads them.
pub(super) fn registries(found: &Found) -> Result<Settings, ConfigError> {
    let around = &found.surroundings;
    let home = found.home.as_ref().map(|home| home.join(".docker"));
    let docker = around.docker_config.clone().or(home);
    let docker = docker.map(|directory| directory.join("config.json"));
    Ok(Settings {
        pull: found.value("image_pull", Pull::Missing, pull)?,
        mirrors: found.value("registry_mirrors", BTreeMap::new(), mirrors)?,
        insecure: found.value("insecure_registries", BTreeSet::new(), hosts)?,
        docker_config: found.optional("docker_config", docker, absolute_path)?,
        ca_file: found.optional("registry_ca_file", None, absolute_path)?,
        http_proxy: around.http_proxy.clone(),
        https_proxy: around.https_proxy.clone(),
        no_proxy: around.no_proxy.clone(),
        helper_env: around.helper_env.clone(),
    })
}

/// As [`pull`] reads it.
pub(super) const fn pull_name(pull: Pull) -> &'static str {
    match pull {
        Pull::Missing => "missing",
        Pull::Never => "never",
    }
}

fn pull(text: &str) -> Result<Pull, &'static str> {
    let all = [Pull::Missing, Pull::Never];
    let found = all.into_iter().find(|pull| pull_name(*pull) == text.trim());
    found.ok_or("expected missing or never")
}

fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
}

fn mirrors(text: &str) -> Result<BTreeMap<String, Vec<String>>, &'static str> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for part in parts(text) {
        let (registry, mirror) = part
            .split_once('=')
            .ok_or("expected registry=address, such as docker.io=https://mirror.example")?;
        let (registry, mirror) = (registry.trim(), mirror.trim());
        let host = mirror
            .strip_prefix("https://")
            .or_else(|| mirror.strip_prefix("http://"));
        if host.is_none_or(|host| host.is_empty() || host.contains(['@', '?', '#', ' '])) {
            return Err(
                "a mirror is an address with https:// or http://, without a name and a password",
            );
        }
        if !is_host(registry) {
            return Err("before the = stands a registry's host, such as docker.io");
        }
        let known = all.entry(registry.to_owned()).or_default();
        known.push(mirror.trim_end_matches('/').to_owned());
    }
    Ok(all)
}

fn hosts(text: &str) -> Result<BTreeSet<String>, &'static str> {
    let all: BTreeSet<String> = parts(text).map(str::to_owned).collect();
    match all.iter().all(|host| is_host(host)) {
        true => Ok(all),
        false => Err("expected hosts of registries, with their ports where they have one"),
    }
}

fn is_host(text: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b':');
    !text.is_empty() && text.bytes().all(good)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_are_listed_per_registry_in_their_order() {
        let read = mirrors(
            " docker.io=https://a.example/ ,ghcr.io=http://b:5,docker.io=https://c.example",
        )
        .unwrap();
        assert_eq!(
            read["docker.io"],
            ["https://a.example", "https://c.example"]
        );
        assert_eq!(read["ghcr.io"], ["http://b:5"]);
        for text in [
            "docker.io",
            "docker.io=a.example",
            "docker.io=https://u:p@a.example",
            "a/b=https://c",
            "=https://c",
        ] {
            assert!(mirrors(text).is_err(), "{text}");
        }
        assert!(hosts("a.example:5000, b").unwrap().contains("b"));
        assert!(hosts("http://a").is_err());
    }

    #[test]
    fn the_usual_variables_are_taken_and_ours_are_not_handed_on() {
        let mut around = Surroundings::default();
        for (name, value) in [
            ("HTTPS_PROXY", "http://capitals"),
            ("https_proxy", "http://small"),
            ("HTTP_PROXY", "http://capitals"),
            ("NO_PROXY", ""),
            ("DOCKER_CONFIG", "relative"),
            ("SANDBOXD_TOKEN", "secret"),
            ("PATH", "/bin"),
        ] {
            around.take(name, &value.into());
        }
        assert_eq!(around.https_proxy.as_deref(), Some("http://small"));
        assert_eq!(around.http_proxy.as_deref(), Some("http://capitals"));
        assert_eq!((around.no_proxy, around.docker_config), (None, None));
        let names: Vec<_> = around.helper_env.iter().map(|(name, _)| name).collect();
        assert!(!names.iter().any(|name| *name == "SANDBOXD_TOKEN"));
        assert!(names.iter().any(|name| *name == "PATH"));
    }
}
