//! Why the daemon does not start: always one line, which names the setting.

use std::fmt;
use std::path::PathBuf;

/// Where a setting's text was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// On the command line.
    Flag(String),
    /// In the environment.
    Variable(String),
    /// In the configuration file.
    Key {
        /// Which file.
        file: PathBuf,
        /// Its key, dotted.
        key: String,
    },
    /// Nowhere: a default, or a relation between settings.
    Setting(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) => write!(f, "--{name}"),
            Self::Variable(name) => f.write_str(name),
            Self::Key { file, key } => write!(f, "{key} in {}", file.display()),
            Self::Setting(name) => f.write_str(name),
        }
    }
}

/// A configuration that cannot be used. Its text is one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A value that does not parse; `raw` is as found.
    #[error("{origin}: {problem}, not {raw:?}")]
    Value {
        /// Where it was found.
        origin: Origin,
        /// As found.
        raw: String,
        /// What was expected.
        problem: String,
    },
    /// A value that is not shown (secrets), or that is wrong only beside others.
    #[error("{origin}: {problem}")]
    Refused {
        /// Where it was found.
        origin: Origin,
        /// Why.
        problem: String,
    },
    /// A key that no setting has.
    #[error("unknown key {key:?} in {}", .file.display())]
    UnknownKey {
        /// Which file.
        file: PathBuf,
        /// Which key, dotted.
        key: String,
    },
    /// The file cannot be read, or is not TOML.
    #[error("cannot use the configuration file {}: {cause}", .file.display())]
    File {
        /// Which file.
        file: PathBuf,
        /// Why.
        cause: String,
    },
}
