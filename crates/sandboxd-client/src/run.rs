//! Programs, and how they end.

use crate::error::RequestError;
use crate::opening::OpenError;
use sandboxd_api::run::{Limit, RunResponse};
use std::collections::BTreeMap;
use std::time::Duration;

/// A program to run.
#[derive(Debug, Clone, PartialEq, Default)]
#[must_use]
pub struct Command {
    pub(crate) argv: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) run_id: Option<RunId>,
}

impl Command {
    /// A program and its arguments, literally.
    pub fn new<I: IntoIterator<Item = S>, S: Into<String>>(argv: I) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }

    /// A command line for the sandbox's shell.
    pub fn shell(line: &str) -> Self {
        Self::new(["/bin/sh", "-c", line])
    }

    /// One more argument.
    pub fn arg(mut self, argument: &str) -> Self {
        self.argv.push(argument.to_owned());
        self
    }

    /// A variable, on top of the sandbox's own.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    /// How long it may take; the service's ceiling where nothing or more is asked for.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Its id, by which [`crate::Sandbox::stop_run`] stops it; a fresh one is made where none is given.
    pub fn run_id(mut self, run_id: RunId) -> Self {
        self.run_id = Some(run_id);
        self
    }

    pub(crate) fn check(&self) -> Result<(), RunError> {
        if self.argv.is_empty() {
            return Err(RunError::EmptyCommand);
        }
        if self.timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(RunError::NoTime);
        }
        Ok(())
    }
}

/// The id of a run: 32 hexadecimal digits, never used twice.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RunId(String);

impl RunId {
    /// A fresh one.
    ///
    /// # Panics
    /// Where the operating system gives no random bytes.
    #[must_use]
    pub fn fresh() -> Self {
        let mut random = [0_u8; 16];
        getrandom::fill(&mut random).expect("the operating system gives random bytes");
        Self(random.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The id with this text; `None` where it is not 32 hexadecimal digits in lower case.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        (digits && text.len() == 32).then(|| Self(text.to_owned()))
    }
}

impl std::fmt::Display for RunId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a program left behind that ended by itself. Bytes that are no UTF-8 come as U+FFFD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Its exit code, or 128 and its signal.
    pub exit_code: u8,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// The limit that killed it, or by which it failed.
    pub killed_for: Option<Limit>,
    /// Every limit that the session's sandbox ran into meanwhile.
    pub limits_reached: Vec<Limit>,
}

/// Why a program has no exit code.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// Nothing to run.
    #[error("a command needs at least the name of a program")]
    EmptyCommand,
    /// A timeout of zero.
    #[error("a timeout must be above zero")]
    NoTime,
    /// The session did not open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The sandbox or its session is gone.
    #[error("the sandbox is gone: {said}")]
    Gone {
        /// The service's words.
        said: String,
    },
    /// Ended by its deadline.
    #[error("the command did not end within {} s ({})", .limit.as_secs_f64(), if *.asked_for { "its timeout" } else { "the sandbox's limit" })]
    TimedOut {
        /// The deadline.
        limit: Duration,
        /// Whether the caller asked for it; else it is the service's ceiling.
        asked_for: bool,
        /// Standard output until then, at most 65 536 bytes.
        stdout: String,
        /// Standard error until then, at most 65 536 bytes.
        stderr: String,
    },
    /// Ended for its output.
    #[error("the command printed more than {limit} bytes")]
    OutputLimit {
        /// The limit, in bytes of both streams.
        limit: u64,
        /// Standard output, its first 65 536 bytes.
        stdout: String,
        /// Standard error, its first 65 536 bytes.
        stderr: String,
    },
    /// The service neither gives an exit code nor says why there is none.
    #[error("the service says neither how the command ended nor why that is unknown")]
    Unclear,
    /// The work directory cannot be told.
    #[error("the sandbox does not tell its work directory (exit code {}): {}", .0.exit_code, .0.stderr.trim())]
    NoWorkingDirectory(Output),
    /// The request failed.
    #[error(transparent)]
    Request(RequestError),
}

impl From<RequestError> for RunError {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Refused(refusal) if matches!(refusal.status, 404 | 410) => Self::Gone {
                said: refusal.text(),
            },
            error => Self::Request(error),
        }
    }
}

/// The deadlines that a run had.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ending {
    pub(crate) asked: Option<Duration>,
    pub(crate) ceiling: Duration,
}

impl Ending {
    /// What an answer means.
    pub(crate) fn of(self, answer: Result<RunResponse, RequestError>) -> Result<Output, RunError> {
        let RunResponse {
            stdout,
            stderr,
            exit_code,
            timed_out,
            output_limited,
            output_limit,
            killed_for,
            limits_reached,
        } = answer?;
        if timed_out {
            let asked = self.asked.filter(|asked| *asked <= self.ceiling);
            return Err(RunError::TimedOut {
                limit: asked.unwrap_or(self.ceiling),
                asked_for: asked.is_some(),
                stdout,
                stderr,
            });
        }
        if output_limited {
            return Err(RunError::OutputLimit {
                limit: output_limit.unwrap_or_default(),
                stdout,
                stderr,
            });
        }
        let exit_code = exit_code.ok_or(RunError::Unclear)?;
        Ok(Output {
            exit_code,
            stdout,
            stderr,
            killed_for,
            limits_reached,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(exit_code: Option<u8>) -> RunResponse {
        RunResponse {
            stdout: "out".to_owned(),
            stderr: "err".to_owned(),
            exit_code,
            timed_out: false,
            output_limited: false,
            output_limit: None,
            killed_for: None,
            limits_reached: Vec::new(),
        }
    }

    const ENDING: Ending = Ending {
        asked: Some(Duration::from_secs(5)),
        ceiling: Duration::from_secs(300),
    };

    #[test]
    fn an_exit_code_is_a_result_and_124_too() {
        let output = ENDING.of(Ok(answer(Some(124)))).expect("an output");
        assert_eq!((output.exit_code, output.stdout.as_str()), (124, "out"));
        assert!(matches!(
            ENDING.of(Ok(answer(None))),
            Err(RunError::Unclear)
        ));
    }

    #[test]
    fn a_deadline_is_named_by_whoever_set_it() {
        let late = RunResponse {
            timed_out: true,
            ..answer(None)
        };
        let error = ENDING.of(Ok(late.clone())).expect_err("late");
        assert_eq!(
            error.to_string(),
            "the command did not end within 5 s (its timeout)"
        );
        let greedy = Ending {
            asked: Some(Duration::from_secs(900)),
            ..ENDING
        };
        let error = greedy.of(Ok(late)).expect_err("late");
        assert_eq!(
            error.to_string(),
            "the command did not end within 300 s (the sandbox's limit)"
        );
        assert!(matches!(error, RunError::TimedOut { stdout, .. } if stdout == "out"));
    }

    #[test]
    fn what_makes_no_sense_is_refused_before_anything_is_sent() {
        let empty = Command::new(Vec::<String>::new()).check();
        assert!(matches!(empty, Err(RunError::EmptyCommand)));
        let hasty = Command::shell("true").timeout(Duration::ZERO).check();
        assert!(matches!(hasty, Err(RunError::NoTime)));
    }

    #[test]
    fn ids_of_runs_are_hexadecimal_and_differ() {
        let (one, other) = (RunId::fresh(), RunId::fresh());
        assert_ne!(one, other);
        assert_eq!(RunId::parse(&one.to_string()), Some(one));
        for text in [
            "",
            "0",
            "0123456789ABCDEF0123456789ABCDEF",
            "0123456789abcdef0123456789abcdeg",
        ] {
            assert_eq!(RunId::parse(text), None);
        }
    }
}
