//! Settings about builds of recipes: the table `build` of a file.

use super::error::{ConfigError, Origin};
use super::layers::Found;
use super::parse;
use super::settings::{absolute_path, refused};
use crate::backends::{Asked, Network};
use crate::limits::{BUILD_SECONDS_MAX, BUILD_VARIABLES_MAX};
use crate::runtimes::build::BuildSettings;
use crate::runtimes::recipe::check_variable;
use std::collections::BTreeMap;

/// Reads them.
pub(super) fn builds(found: &Found) -> Result<BuildSettings, ConfigError> {
    let default = BuildSettings::default();
    let size = |name: &str, default: Option<Asked<u64>>| match found.raw(name) {
        None => Ok(default),
        Some(_) => found.optional(name, None, parse::size).map(asked),
    };
    Ok(BuildSettings {
        network: found.value("build_network", default.network, network)?,
        env: env(found)?,
        ca_file: found.optional("build_ca_file", None, absolute_path)?,
        memory_bytes: size("build_memory", default.memory_bytes)?,
        cpus: asked(found.optional("build_cpus", None, parse::decimal)?),
        pids: match found.raw("build_pids") {
            None => default.pids,
            Some(_) => asked(found.optional("build_pids", None, parse::positive)?),
        },
        disk_bytes: size("build_disk", default.disk_bytes)?,
        seconds_max: found.value("build_timeout", default.seconds_max, seconds)?,
        allow_unenforced: Vec::new(),
    })
}

fn asked<T>(value: Option<T>) -> Option<Asked<T>> {
    value.map(|value| Asked {
        value,
        explicit: true,
    })
}

fn network(text: &str) -> Result<Network, &'static str> {
    let all = [Network::None, Network::Bridge];
    let found = all.into_iter().find(|one| one.name() == text.trim());
    found.ok_or("expected none or bridge")
}

fn seconds(text: &str) -> Result<u64, &'static str> {
    match parse::positive(text)? {
        seconds if seconds <= BUILD_SECONDS_MAX => Ok(seconds),
        _ => Err("expected a number of seconds, at most 86400"),
    }
}

/// Variables as a JSON object, or as `NAME=VALUE` with commas between. Values may be secrets: a refusal does not repeat them.
fn env(found: &Found) -> Result<BTreeMap<String, String>, ConfigError> {
    let Some(raw) = found.raw("build_env") else {
        return Ok(BTreeMap::new());
    };
    let wrong = |problem: &str| Err(refused(&raw.origin, problem));
    let text = raw.text.trim();
    let all: BTreeMap<String, String> = if text.starts_with('{') {
        match serde_json::from_str(text) {
            Ok(all) => all,
            Err(_) => return wrong("expected a JSON object, variables to texts"),
        }
    } else {
        let pieces = text.split(',').map(str::trim);
        let pieces = pieces.filter(|piece| !piece.is_empty());
        let pairs = pieces.map(|piece| {
            let (name, value) = piece.split_once('=')?;
            Some((name.trim().to_owned(), value.trim().to_owned()))
        });
        match pairs.collect::<Option<_>>() {
            Some(all) => all,
            None => return wrong("expected NAME=VALUE, separated by commas, or a JSON object"),
        }
    };
    if all.len() > BUILD_VARIABLES_MAX {
        return wrong("expected at most 256 variables");
    }
    check(&all, &raw.origin)?;
    Ok(all)
}

fn check(all: &BTreeMap<String, String>, origin: &Origin) -> Result<(), ConfigError> {
    for (name, value) in all {
        if check_variable(name, value).is_err() {
            let problem = format!(
                "the variable {name:?} has a name that is none, or a line break in its value"
            );
            return Err(refused(origin, problem));
        }
    }
    Ok(())
}
