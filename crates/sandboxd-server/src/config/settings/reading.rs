//! A setting's text to its value, by its kind: a value, one that may be switched off, a size.

use crate::config::error::{ConfigError, Origin};
use crate::config::layers::{Found, Raw};
use crate::config::parse;

/// What reads the text of a setting of one kind.
pub(in crate::config) type Parse<T> = fn(&str) -> Result<T, &'static str>;

impl Found {
    /// A value: absent means the default, empty is an error.
    pub(in crate::config) fn value<T>(
        &self,
        name: &str,
        default: T,
        parse: Parse<T>,
    ) -> Result<T, ConfigError> {
        self.raw(name).map_or(Ok(default), |raw| parsed(raw, parse))
    }

    /// An optional value: absent means the default, empty means none.
    pub(in crate::config) fn optional<T>(
        &self,
        name: &str,
        default: Option<T>,
        parse: Parse<T>,
    ) -> Result<Option<T>, ConfigError> {
        match self.raw(name) {
            None => Ok(default),
            Some(raw) if is_off(raw) => Ok(None),
            Some(raw) => parsed(raw, parse).map(Some),
        }
    }

    /// An optional size: its text and its bytes.
    pub(super) fn size(
        &self,
        name: &str,
        default: Option<&str>,
    ) -> Result<(Option<String>, Option<u64>), ConfigError> {
        match self.raw(name) {
            None => Ok((
                default.map(str::to_owned),
                default.and_then(crate::config::bytes_of_size),
            )),
            Some(raw) if is_off(raw) => Ok((None, None)),
            Some(raw) => Ok((
                Some(raw.text.trim().to_owned()),
                Some(parsed(raw, parse::size)?),
            )),
        }
    }

    /// Whether somebody set it to something.
    pub(super) fn explicit(&self, name: &str) -> bool {
        self.raw(name).is_some_and(|raw| !is_off(raw))
    }
}

fn is_off(raw: &Raw) -> bool {
    let text = raw.text.trim();
    text.is_empty() || (matches!(raw.origin, Origin::Key { .. }) && text == "off")
}

pub(super) fn parsed<T>(raw: &Raw, parse: Parse<T>) -> Result<T, ConfigError> {
    parse(&raw.text).map_err(|problem| ConfigError::Value {
        origin: raw.origin.clone(),
        raw: raw.text.clone(),
        problem: problem.to_owned(),
    })
}

pub(in crate::config) fn refused(origin: &Origin, problem: impl Into<String>) -> ConfigError {
    ConfigError::Refused {
        origin: origin.clone(),
        problem: problem.into(),
    }
}
