//! One line and an exit code: how every command ends that could not do its work.

use crate::output;
use std::fmt::Display;
use std::process::ExitCode;

/// `run` itself failed (as with `docker run`, `env` and `timeout`).
pub(crate) const OURS: u8 = 125;
/// The deadline of `run --timeout` came.
pub(crate) const TIMED_OUT: u8 = 124;
/// The program was found and could not be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// There is no such program.
pub(crate) const NOT_FOUND: u8 = 127;
/// What a shell reports for a program ended by a signal, less the signal's number.
pub(crate) const SIGNAL_BASE: u8 = 128;
/// A command other than `run` was used wrongly.
pub(crate) const USAGE: u8 = 2;
/// A command other than `run` failed.
pub(crate) const FAILED: u8 = 1;

/// Why a command ends without having done its work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub(crate) struct Failure {
    /// The exit code.
    pub(crate) code: u8,
    /// One line, lower case, without full stop.
    pub(crate) text: String,
}

impl Failure {
    /// A failure with a code of its own.
    pub(crate) fn new(code: u8, text: impl Display) -> Self {
        Self {
            code,
            text: text.to_string(),
        }
    }

    /// A failure of `run` itself (125).
    pub(crate) fn ours(text: impl Display) -> Self {
        Self::new(OURS, text)
    }

    /// Says it on stderr, and gives the exit code.
    pub(crate) fn tell(&self) -> ExitCode {
        output::complain(&self.text);
        ExitCode::from(self.code)
    }
}
