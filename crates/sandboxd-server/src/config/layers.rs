//! Where a setting's text comes from, and that it comes from the first layer that has it.

use super::error::{ConfigError, Origin};
use super::registries::Surroundings;
use super::settings::{self, SETTINGS};
use super::{Config, allowlist};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The prefix of every variable that is read here.
pub(super) const PREFIX: &str = "SANDBOXD_";
/// Variables of other programs with our prefix: neither read nor warned about.
const FOREIGN: &[&str] = &["SANDBOXD_GRPC_ADDR", "SANDBOXD_REST_ADDR"];
/// Variables that clients read, which may well be set beside the daemon.
const OF_CLIENTS: &[&str] = &["SANDBOXD_URL"];
/// Most bytes of a configuration file.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// What was given on the command line.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    /// `--listen`.
    pub listen: Option<SocketAddr>,
    /// `--state-dir`.
    pub state_dir: Option<PathBuf>,
    /// `--workspace-root`.
    pub workspace_root: Option<PathBuf>,
    /// `--backend`.
    pub backend: Option<String>,
    /// `--token-file`.
    pub token_file: Option<PathBuf>,
    /// Any other setting, by its name; the flag has dashes instead of underscores.
    pub settings: Vec<(String, String)>,
}

/// Everything a configuration is read from.
#[derive(Clone)]
pub struct Layers {
    /// The command line.
    pub flags: Flags,
    /// The environment.
    pub env: Vec<(OsString, OsString)>,
    /// The configuration file; without one, `SANDBOXD_CONFIG` may name it.
    pub file: Option<PathBuf>,
    /// Whether the daemon runs as root (decides where state is kept by default).
    pub root: bool,
}

impl fmt::Debug for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The environment may hold the token.
        f.debug_struct("Layers")
            .field("file", &self.file)
            .field("root", &self.root)
            .finish_non_exhaustive()
    }
}

/// Something odd that does not stop the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning(pub String);

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Layers {
    /// The layers of this process: its environment and user, with these flags and this file.
    pub fn of_process(flags: Flags, file: Option<PathBuf>) -> Self {
        Self {
            flags,
            env: std::env::vars_os().collect(),
            file,
            root: rustix::process::geteuid().is_root(),
        }
    }

    /// Reads and checks everything.
    pub fn read(self) -> Result<(Config, Vec<Warning>), ConfigError> {
        let mut warnings = Vec::new();
        let flags = flag_layer(&self.flags)?;
        let (env, other) = env_layer(self.env, &mut warnings)?;
        let file = match self.file {
            Some(file) => Some(file),
            None => other.config_file.clone(),
        };
        let (texts, tables) = match &file {
            Some(file) => file_layer(file)?,
            None => (Layer::new(), Tables::default()),
        };
        let found = Found {
            layers: [flags, env, texts],
            tables,
            xdg_state_home: other.xdg_state_home,
            home: other.home,
            surroundings: other.surroundings,
            root: self.root,
        };
        let config = settings::build(&found, &mut warnings)?;
        Ok((config, warnings))
    }
}

/// A setting's text and where it was found.
#[derive(Debug, Clone)]
pub(super) struct Raw {
    pub(super) text: String,
    pub(super) origin: Origin,
}

type Layer = BTreeMap<String, Raw>;

/// The parts of a file that are not plain values.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) runtimes: Option<(Origin, Vec<(String, serde_json::Value)>)>,
    pub(super) images: Option<(Origin, Vec<(String, serde_json::Value)>)>,
}

/// All layers, ready to be asked.
#[derive(Debug)]
pub(super) struct Found {
    layers: [Layer; 3],
    pub(super) tables: Tables,
    pub(super) xdg_state_home: Option<PathBuf>,
    pub(super) home: Option<PathBuf>,
    pub(super) surroundings: Surroundings,
    pub(super) root: bool,
}

impl Found {
    /// The setting's text from the first layer that has it.
    pub(super) fn raw(&self, name: &str) -> Option<&Raw> {
        self.layers.iter().find_map(|layer| layer.get(name))
    }

    /// The first of several settings that the earliest layer has; two of them in one layer contradict each other.
    pub(super) fn either(&self, names: &[&str]) -> Result<Option<(usize, &Raw)>, ConfigError> {
        for layer in &self.layers {
            let mut hits = names
                .iter()
                .enumerate()
                .filter_map(|(index, name)| Some((index, layer.get(*name)?)));
            if let Some(first) = hits.next() {
                return match hits.next() {
                    None => Ok(Some(first)),
                    Some((_, second)) => Err(ConfigError::Refused {
                        origin: second.origin.clone(),
                        problem: format!("says the same as {}; give only one", first.1.origin),
                    }),
                };
            }
        }
        Ok(None)
    }

    /// Whether a flag or a variable has the setting, so that the file's table of the same name does not count.
    pub(super) fn over_file(&self, name: &str) -> Option<&Raw> {
        self.layers[..2].iter().find_map(|layer| layer.get(name))
    }
}

fn flag_layer(flags: &Flags) -> Result<Layer, ConfigError> {
    let mut layer = Layer::new();
    let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
    let own = [
        ("listen", flags.listen.map(|listen| listen.to_string())),
        ("state_dir", path(&flags.state_dir)),
        ("workspace_root", path(&flags.workspace_root)),
        ("backend", flags.backend.clone()),
        ("token_file", path(&flags.token_file)),
    ];
    for (name, text) in own {
        let origin = Origin::Flag(name.replace('_', "-"));
        if let Some(text) = text {
            layer.insert(name.to_owned(), Raw { text, origin });
        }
    }
    for (name, text) in &flags.settings {
        let origin = Origin::Flag(name.replace('_', "-"));
        if !SETTINGS.iter().any(|setting| setting.name == name) {
            let problem = "there is no such setting".to_owned();
            return Err(ConfigError::Refused { origin, problem });
        }
        let text = text.clone();
        layer.insert(name.clone(), Raw { text, origin });
    }
    Ok(layer)
}

/// What the environment says beside settings.
struct Other {
    xdg_state_home: Option<PathBuf>,
    home: Option<PathBuf>,
    config_file: Option<PathBuf>,
    surroundings: Surroundings,
}

fn env_layer(
    env: Vec<(OsString, OsString)>,
    warnings: &mut Vec<Warning>,
) -> Result<(Layer, Other), ConfigError> {
    let mut layer = Layer::new();
    let mut other = Other {
        xdg_state_home: None,
        home: None,
        config_file: None,
        surroundings: Surroundings::default(),
    };
    let absolute = |value: OsString| Some(PathBuf::from(value)).filter(|path| path.is_absolute());
    for (name, value) in env {
        let Some(name) = name.to_str() else { continue };
        other.surroundings.take(name, &value);
        match name {
            "XDG_STATE_HOME" => other.xdg_state_home = absolute(value),
            "HOME" => other.home = absolute(value),
            "SANDBOXD_CONFIG" if !value.is_empty() => {
                other.config_file = Some(PathBuf::from(value));
            }
            _ => {
                if let Some(setting) = name.strip_prefix(PREFIX) {
                    variable(
                        name,
                        &setting.to_ascii_lowercase(),
                        value,
                        &mut layer,
                        warnings,
                    )?;
                }
            }
        }
    }
    Ok((layer, other))
}

fn variable(
    name: &str,
    setting: &str,
    value: OsString,
    layer: &mut Layer,
    warnings: &mut Vec<Warning>,
) -> Result<(), ConfigError> {
    if FOREIGN.contains(&name) || OF_CLIENTS.contains(&name) || name == "SANDBOXD_CONFIG" {
        return Ok(());
    }
    // `SANDBOXD_Max_Sessions` is not the variable that somebody looks for.
    let known = SETTINGS.iter().any(|known| known.name == setting);
    if !known || name.bytes().any(|byte| byte.is_ascii_lowercase()) {
        warnings.push(Warning(format!(
            "{name} is not a setting; it has no effect"
        )));
        return Ok(());
    }
    let origin = Origin::Variable(name.to_owned());
    match value.into_string() {
        Ok(text) => {
            layer.insert(setting.to_owned(), Raw { text, origin });
            Ok(())
        }
        Err(_) => Err(ConfigError::Refused {
            origin,
            problem: "not valid UTF-8".to_owned(),
        }),
    }
}

fn file_layer(file: &Path) -> Result<(Layer, Tables), ConfigError> {
    let refuse = |cause: String| ConfigError::File {
        file: file.to_owned(),
        cause,
    };
    let size = std::fs::metadata(file).map_err(|error| refuse(error.to_string()))?;
    if size.len() > FILE_BYTES_MAX {
        return Err(refuse(format!("larger than {FILE_BYTES_MAX} bytes")));
    }
    let text = std::fs::read_to_string(file).map_err(|error| refuse(error.to_string()))?;
    let document: toml::Table = toml::from_str(&text).map_err(|error| {
        let line = error
            .span()
            .map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        let place = line
            .map(|line| format!("line {line}: "))
            .unwrap_or_default();
        refuse(format!("{place}{}", error.message().replace('\n', " ")))
    })?;
    let mut layer = Layer::new();
    let mut tables = Tables::default();
    for (key, value) in by_their_names(document) {
        let origin = Origin::Key {
            file: file.to_owned(),
            key: key.clone(),
        };
        if !SETTINGS.iter().any(|setting| setting.name == key) {
            let file = file.to_owned();
            return Err(ConfigError::UnknownKey { file, key });
        }
        match (key.as_str(), value) {
            ("runtimes", toml::Value::Table(table)) => {
                tables.runtimes = Some((origin.clone(), allowlist::rows_of_toml(table, &origin)?));
            }
            ("images", toml::Value::Table(table)) => {
                tables.images = Some((origin.clone(), allowlist::rows_of_toml(table, &origin)?));
            }
            (_, value) => {
                let text = plain_text(value).ok_or_else(|| ConfigError::Refused {
                    origin: origin.clone(),
                    problem: "expected a plain value".to_owned(),
                })?;
                layer.insert(key, Raw { text, origin });
            }
        }
    }
    Ok((layer, tables))
}

/// The settings of a file by their names: those of the table `build` have it before theirs.
fn by_their_names(mut document: toml::Table) -> Vec<(String, toml::Value)> {
    let build = match document.remove("build") {
        Some(toml::Value::Table(table)) => table,
        // Refused by its name, as any other that is no setting.
        Some(other) => toml::Table::from_iter([(String::new(), other)]),
        None => toml::Table::new(),
    };
    let build = build.into_iter().map(|(key, value)| {
        // Variables are a table, which elsewhere is spelled as an object.
        let text = match &value {
            toml::Value::Table(table) => serde_json::to_string(table).ok(),
            _ => None,
        };
        let value = text.map_or(value, toml::Value::String);
        (format!("build_{key}"), value)
    });
    document
        .into_iter()
        .chain(build.collect::<Vec<_>>())
        .collect()
}

/// A plain TOML value as the environment would spell it; a list of strings is spelled with commas.
fn plain_text(value: toml::Value) -> Option<String> {
    Some(match value {
        toml::Value::String(text) => text,
        toml::Value::Integer(number) => number.to_string(),
        toml::Value::Float(number) => number.to_string(),
        toml::Value::Boolean(flag) => flag.to_string(),
        toml::Value::Array(items) => items
            .into_iter()
            .map(|item| match item {
                toml::Value::String(text) if !text.contains(',') => Some(text),
                _ => None,
            })
            .collect::<Option<Vec<_>>>()?
            .join(","),
        toml::Value::Datetime(_) | toml::Value::Table(_) => return None,
    })
}
