//! Durations, sizes and names as people write them on a command line. Each parser answers in words that say what it wanted.

use crate::limits::{DISK_BYTES_MIN, MEMORY_BYTES_MIN, TIMEOUT_SECONDS_MAX};
use sandboxd_server::backends::Ceiling;
use sandboxd_server::config::bytes_of_size;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::time::Duration;

/// A name and a value for a program's environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Variable {
    /// The name: no `=`, not empty.
    pub(crate) name: Vec<u8>,
    /// The value, as bytes.
    pub(crate) value: Vec<u8>,
}

/// What a value had to look like.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidValue {
    /// Not a duration.
    #[error("a duration is a number and a unit, such as 500ms, 30s, 2m or 1h")]
    Duration,
    /// Zero, or more than the longest.
    #[error("a duration is more than nothing and at most 30 days")]
    DurationRange,
    /// Not a size.
    #[error("a size is a number and a unit, such as 512m or 2g")]
    Size,
    /// Too little to start anything.
    #[error("at least 6m is needed to start a program")]
    SizeSmall,
    /// Too few bytes to store.
    #[error("smaller than 1m")]
    DiskSmall,
    /// Not a number of CPUs.
    #[error("a number of CPUs is more than zero, such as 0.5 or 2")]
    Cpus,
    /// Not a number of processes.
    #[error("a number of processes is a whole number from 2 on")]
    Pids,
    /// Not NAME=VALUE.
    #[error("a variable is written NAME=VALUE")]
    Variable,
    /// Not NAME=VALUE.
    #[error("a setting is written NAME=VALUE")]
    Setting,
    /// Not a ceiling.
    #[error(
        "not one of memory, cpus, cpu_shares, pids, disk, network, oci_runtime, uid_range, workspace_owner, landlock"
    )]
    Ceiling,
}

/// A number and what stands behind it.
fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    number.parse().ok().map(|number: f64| (number, unit))
}

/// `500ms`, `30s`, `2m`, `1h`, `1.5s`; a bare number is seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, InvalidValue> {
    let (number, unit) = number_and_unit(text).ok_or(InvalidValue::Duration)?;
    let seconds = match unit {
        "ms" => number / 1_000.0,
        "s" | "" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3_600.0,
        _ => return Err(InvalidValue::Duration),
    };
    let duration = Duration::try_from_secs_f64(seconds).map_err(|_| InvalidValue::DurationRange)?;
    // The guest counts in milliseconds.
    if duration < Duration::from_millis(1) || duration > Duration::from_secs(TIMEOUT_SECONDS_MAX) {
        return Err(InvalidValue::DurationRange);
    }
    Ok(duration)
}

/// `512m`, `2g`, `1.5g`: Docker's syntax, in powers of 1024; a bare number is bytes.
pub(crate) fn memory(text: &str) -> Result<u64, InvalidValue> {
    match bytes_of_size(text) {
        Some(bytes) if bytes < MEMORY_BYTES_MIN => Err(InvalidValue::SizeSmall),
        Some(bytes) => Ok(bytes),
        None => Err(InvalidValue::Size),
    }
}

/// As a size of memory, of at least a mebibyte.
pub(crate) fn disk(text: &str) -> Result<u64, InvalidValue> {
    match bytes_of_size(text) {
        Some(bytes) if bytes < DISK_BYTES_MIN => Err(InvalidValue::DiskSmall),
        Some(bytes) => Ok(bytes),
        None => Err(InvalidValue::Size),
    }
}

/// `1`, `0.5`.
pub(crate) fn cpus(text: &str) -> Result<f64, InvalidValue> {
    match text.parse::<f64>() {
        Ok(cpus) if (0.01..=8_192.0).contains(&cpus) => Ok(cpus),
        _ => Err(InvalidValue::Cpus),
    }
}

/// `256`. One process is the guest itself, so a program needs a second.
pub(crate) fn pids(text: &str) -> Result<u64, InvalidValue> {
    match text.parse::<u64>() {
        Ok(pids) if (2..=4_194_304).contains(&pids) => Ok(pids),
        _ => Err(InvalidValue::Pids),
    }
}

/// `NAME=VALUE`, in any bytes.
pub(crate) fn variable(text: &OsStr) -> Result<Variable, InvalidValue> {
    let bytes = text.as_bytes();
    let end = bytes
        .iter()
        .position(|byte| *byte == b'=')
        .ok_or(InvalidValue::Variable)?;
    let (name, value) = bytes.split_at(end);
    if name.is_empty() {
        return Err(InvalidValue::Variable);
    }
    Ok(Variable {
        name: name.to_vec(),
        value: value.get(1..).unwrap_or_default().to_vec(),
    })
}

/// `NAME=VALUE` for a setting.
pub(crate) fn setting(text: &str) -> Result<(String, String), InvalidValue> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(InvalidValue::Setting),
    }
}

/// The name of a ceiling.
pub(crate) fn ceiling(text: &str) -> Result<Ceiling, InvalidValue> {
    Ceiling::ALL
        .iter()
        .copied()
        .find(|ceiling| ceiling.name() == text)
        .ok_or(InvalidValue::Ceiling)
}

/// The system's words for an error, without its number.
pub(crate) fn system_words(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
}

/// The bytes of an argument.
pub(crate) fn bytes(text: OsString) -> Vec<u8> {
    text.into_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units_and_bounds() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("30"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1_500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("1h"), Ok(Duration::from_secs(3_600)));
        for bad in ["", "s", "-1s", "1d", "5 s", "1e3s", "..s", "inf", "nan"] {
            assert_eq!(duration(bad), Err(InvalidValue::Duration), "{bad}");
        }
        for bad in ["0s", "0.1ms", "721h", "99999999999999999999999h"] {
            assert_eq!(duration(bad), Err(InvalidValue::DurationRange), "{bad}");
        }
    }

    #[test]
    fn sizes_are_powers_of_1024() {
        assert_eq!(memory("512m"), Ok(512 << 20));
        assert_eq!(memory("2G"), Ok(2 << 30));
        assert_eq!(memory("1.5gb"), Ok(3 << 29));
        assert_eq!(memory("8388608"), Ok(8 << 20));
        assert_eq!(memory("1k"), Err(InvalidValue::SizeSmall));
        for bad in ["", "m", "-5m", "5x", "999999999999999t"] {
            assert_eq!(memory(bad), Err(InvalidValue::Size), "{bad}");
        }
    }

    #[test]
    fn counts_are_positive() {
        assert_eq!(cpus("0.5"), Ok(0.5));
        for bad in ["0", "-1", "nan", "inf", "two", ""] {
            assert_eq!(cpus(bad), Err(InvalidValue::Cpus), "{bad}");
        }
        assert_eq!(pids("256"), Ok(256));
        for bad in ["0", "1", "-3", "1.5", ""] {
            assert_eq!(pids(bad), Err(InvalidValue::Pids), "{bad}");
        }
    }

    #[test]
    fn variables_keep_every_byte_of_their_value() {
        let made = variable(OsStr::from_bytes(b"A=b=c\xff")).expect("has a name");
        assert_eq!(made.name, b"A");
        assert_eq!(made.value, b"b=c\xff");
        assert_eq!(
            variable(OsStr::new("A=")).expect("empty is fine").value,
            b""
        );
        for bad in ["", "A", "=b"] {
            assert_eq!(
                variable(OsStr::new(bad)),
                Err(InvalidValue::Variable),
                "{bad}"
            );
        }
    }

    #[test]
    fn ceilings_are_known_by_the_names_of_the_configuration() {
        assert_eq!(ceiling("cpu_shares"), Ok(Ceiling::CpuShares));
        assert_eq!(ceiling("everything"), Err(InvalidValue::Ceiling));
    }
}
