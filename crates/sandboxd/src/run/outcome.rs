//! How a run came out, as an exit code, a line for people and an object for programs.

use super::signals::Asked;
use super::sink::Collected;
use super::streams::WriteFailure;
use crate::failure::{NOT_EXECUTABLE, NOT_FOUND, OURS, SIGNAL_BASE, TIMED_OUT};
use crate::values::system_words;
use sandboxd_protocol::client::LinkError;
use sandboxd_protocol::message::{self, Exit, NotStarted};
use sandboxd_server::backends::{Enforced, Enforcement, Hits};
use sandboxd_server::sessions::{Limit, Limited, Meanwhile, RunEnd};
use serde_json::{Map, Value, json};
use std::io;
use std::time::Duration;

/// The signal of a broken pipe.
const PIPE: u8 = 13;
/// The signal of a kill.
const KILL: u8 = 9;

/// The guest's word about the end of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ended {
    /// It ran.
    Exited(Exit),
    /// It did not start.
    NotStarted(NotStarted),
}

/// How a run came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The guest said how.
    Ended(Ended),
    /// The guest did not say in time that it had ended the run.
    Overdue,
    /// It was asked to end, and the guest did not say that it had.
    Asked(Asked),
    /// Its output could not be passed on.
    Unwritable,
    /// The sandbox or its guest failed.
    Link(LinkError),
}

impl Outcome {
    /// Whether it looks as it does when the kernel ends a process, or the guest itself, for want of memory.
    pub(super) fn may_be_for_memory(&self) -> bool {
        match self {
            Self::Ended(Ended::Exited(exit)) => {
                exit.ended == message::Ended::Itself && exit.code == SIGNAL_BASE + KILL
            }
            Self::Link(error) => *error == LinkError::Gone,
            Self::Ended(Ended::NotStarted(_))
            | Self::Overdue
            | Self::Asked(_)
            | Self::Unwritable => false,
        }
    }

    /// Whether the program ran and ended by itself.
    pub(super) fn is_the_programs_own(&self) -> bool {
        matches!(self, Self::Ended(Ended::Exited(exit)) if exit.ended == message::Ended::Itself)
    }

    /// What is known of its limits, where these counters are this run's alone.
    pub(super) fn limited(&self, hits: Hits, overfilled: bool) -> Limited {
        let meanwhile = Meanwhile {
            after: hits,
            overfilled,
            ..Meanwhile::default()
        };
        match self {
            Self::Ended(Ended::Exited(exit)) => Limited::of(RunEnd::Exited(exit), meanwhile),
            Self::Ended(Ended::NotStarted(why)) => Limited::of(RunEnd::NotStarted(why), meanwhile),
            Self::Overdue => Limited::of(RunEnd::Overdue, meanwhile),
            Self::Asked(_) | Self::Unwritable | Self::Link(_) => {
                Limited::of(RunEnd::Stopped, meanwhile)
            }
        }
    }

    /// A run that goes on although it stores too much; its sandbox, and it, end now.
    pub(super) fn overfilled() -> Self {
        Self::Ended(Ended::Exited(Exit {
            code: SIGNAL_BASE + KILL,
            signal: Some(KILL),
            ended: message::Ended::Stopped,
            discarded_bytes: 0,
        }))
    }

    /// The same run, ended for want of memory.
    pub(super) fn for_memory(self) -> Self {
        let discarded_bytes = match self {
            Self::Ended(Ended::Exited(exit)) => exit.discarded_bytes,
            _ => 0,
        };
        Self::Ended(Ended::Exited(Exit {
            code: SIGNAL_BASE + KILL,
            signal: Some(KILL),
            ended: message::Ended::Memory,
            discarded_bytes,
        }))
    }
}

/// What the caller is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Our exit code.
    pub(super) code: u8,
    /// One line for stderr.
    pub(super) line: Option<String>,
}

impl Verdict {
    fn silent(code: u8) -> Self {
        Self { code, line: None }
    }

    fn said(code: u8, line: impl Into<String>) -> Self {
        Self {
            code,
            line: Some(line.into()),
        }
    }
}

/// What was asked for, as far as messages name it.
#[derive(Debug, Clone)]
pub(super) struct Named {
    /// The program.
    pub(super) program: String,
    /// Its deadline.
    pub(super) timeout: Option<Duration>,
}

/// The verdict on an outcome, where all output was passed on (`written`) or could not be.
pub(super) fn verdict(
    outcome: &Outcome,
    written: &Result<(), WriteFailure>,
    limited: &Limited,
    named: &Named,
) -> Verdict {
    if let Err(failure) = written {
        return match failure {
            // As a program that a broken pipe ends, which says nothing either.
            WriteFailure::ReaderGone(_) => Verdict::silent(SIGNAL_BASE + PIPE),
            WriteFailure::Refused(..) => Verdict::said(OURS, failure.to_string()),
        };
    }
    match outcome {
        Outcome::Ended(Ended::Exited(exit)) => exited(exit, limited, named),
        Outcome::Ended(Ended::NotStarted(why)) => not_started(why, named),
        Outcome::Overdue => timed_out(named),
        Outcome::Asked(asked) => Verdict::silent(asked.code()),
        Outcome::Unwritable => Verdict::said(OURS, "output could not be passed on"),
        Outcome::Link(error) => Verdict::said(OURS, error.to_string()),
    }
}

fn exited(exit: &Exit, limited: &Limited, named: &Named) -> Verdict {
    let program = &named.program;
    match exit.ended {
        _ if limited.killed_for == Some(Limit::Disk) && exit.signal == Some(KILL) => Verdict::said(
            exit.code,
            format!("{program} stored more than it may and was ended"),
        ),
        message::Ended::Timeout => timed_out(named),
        message::Ended::Memory => Verdict::said(
            SIGNAL_BASE + KILL,
            format!("{} went over its memory and was ended", named.program),
        ),
        message::Ended::Itself | message::Ended::Disk => match limited.killed_for {
            Some(Limit::Memory) => Verdict::said(
                exit.code,
                format!("{program} failed: something in it went over its memory and was ended"),
            ),
            Some(Limit::Pids) => Verdict::said(
                exit.code,
                format!("{program} failed, and was refused a process over its limit"),
            ),
            Some(Limit::Disk) => Verdict::said(
                exit.code,
                format!("{program} failed, and there is no room left for its files"),
            ),
            Some(Limit::Time | Limit::Output) | None => Verdict::silent(exit.code),
        },
        message::Ended::Output | message::Ended::Stopped => Verdict::silent(exit.code),
    }
}

fn timed_out(named: &Named) -> Verdict {
    let after = named
        .timeout
        .map(|timeout| format!(" after {timeout:?}"))
        .unwrap_or_default();
    Verdict::said(TIMED_OUT, format!("{} timed out{after}", named.program))
}

fn not_started(why: &NotStarted, named: &Named) -> Verdict {
    let program = &named.program;
    let system = |errno: i32| system_words(&io::Error::from_raw_os_error(errno));
    match why {
        NotStarted::NotFound => Verdict::said(NOT_FOUND, format!("{program}: not found")),
        NotStarted::NotExecutable(errno) => Verdict::said(
            NOT_EXECUTABLE,
            format!("{program}: cannot be executed: {}", system(*errno)),
        ),
        NotStarted::Cwd(path, errno) => Verdict::said(
            OURS,
            format!(
                "work directory {}: {}",
                String::from_utf8_lossy(path),
                system(*errno)
            ),
        ),
        NotStarted::TooLarge { bytes, limit } => Verdict::said(
            NOT_EXECUTABLE,
            format!(
                "{program}: arguments and environment are {bytes} bytes, over the kernel's limit of {limit}"
            ),
        ),
        NotStarted::Invalid(what) => Verdict::said(OURS, format!("{program}: {what}")),
        NotStarted::Resources(errno) => Verdict::said(
            OURS,
            format!(
                "{program}: the sandbox is out of resources: {}",
                system(*errno)
            ),
        ),
    }
}

/// The object that `--json` prints.
pub(super) fn object(
    outcome: &Outcome,
    verdict: &Verdict,
    limited: &Limited,
    collected: &Collected,
    enforced: &Enforced,
    duration: Duration,
) -> Value {
    let (signal, ended_by) = match outcome {
        Outcome::Ended(Ended::Exited(exit)) => (
            exit.signal,
            Some(match exit.ended {
                message::Ended::Itself | message::Ended::Disk => "itself",
                message::Ended::Timeout => "timeout",
                message::Ended::Output => "output",
                message::Ended::Stopped => "stopped",
                message::Ended::Memory => "memory",
            }),
        ),
        Outcome::Overdue => (Some(KILL), Some("timeout")),
        Outcome::Asked(asked) => (Some(asked.number()), Some("stopped")),
        Outcome::Ended(Ended::NotStarted(_)) | Outcome::Unwritable | Outcome::Link(_) => {
            (None, None)
        }
    };
    json!({
        "exit_code": verdict.code,
        "signal": signal,
        "timed_out": ended_by == Some("timeout"),
        "ended_by": ended_by,
        "killed_for": limited.killed_for.map(Limit::name),
        "limits_reached": limited.reached.iter().map(|limit| limit.name()).collect::<Vec<_>>(),
        "duration_ms": u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
        "stdout": collected.stdout.text(),
        "stdout_truncated": collected.stdout.truncated,
        "stderr": collected.stderr.text(),
        "stderr_truncated": collected.stderr.truncated,
        "enforced": enforced_object(enforced),
        "error": verdict.line,
    })
}

/// The object where there was no run.
pub(super) fn failed_object(code: u8, line: &str) -> Value {
    json!({
        "exit_code": code,
        "signal": null,
        "timed_out": false,
        "ended_by": null,
        "killed_for": null,
        "limits_reached": [],
        "duration_ms": 0,
        "stdout": "",
        "stdout_truncated": false,
        "stderr": "",
        "stderr_truncated": false,
        "enforced": {},
        "error": line,
    })
}

fn enforced_object(enforced: &Enforced) -> Value {
    let entries = enforced.iter().map(|(ceiling, enforcement)| {
        let value = match enforcement {
            Enforcement::Enforced(by) => json!({"enforced": true, "reason": by}),
            Enforcement::Unenforced(why) => json!({"enforced": false, "reason": why}),
        };
        (ceiling.name().to_owned(), value)
    });
    Value::Object(entries.collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::streams::Stream;
    use sandboxd_server::backends::Ceiling;

    fn named() -> Named {
        Named {
            program: "prog".to_owned(),
            timeout: Some(Duration::from_secs(30)),
        }
    }

    fn none() -> Limited {
        Limited::default()
    }

    fn exit(code: u8, signal: Option<u8>, ended: message::Ended) -> Outcome {
        Outcome::Ended(Ended::Exited(Exit {
            code,
            signal,
            ended,
            discarded_bytes: 0,
        }))
    }

    #[test]
    fn the_programs_own_code_passes_through() {
        for code in [0, 1, 124, 125, 255] {
            let outcome = exit(code, None, message::Ended::Itself);
            assert_eq!(
                verdict(&outcome, &Ok(()), &none(), &named()),
                Verdict::silent(code)
            );
        }
    }

    #[test]
    fn failures_to_start_answer_as_a_shell_does_and_name_what_is_wrong() {
        for (why, code, part) in [
            (NotStarted::NotFound, 127, "prog: not found"),
            (NotStarted::NotExecutable(13), 126, "permission denied"),
            (
                NotStarted::Cwd(b"/gone".to_vec(), 2),
                125,
                "/gone: no such file or directory",
            ),
            (
                NotStarted::TooLarge {
                    bytes: 3_000_000,
                    limit: 2_097_152,
                },
                126,
                "3000000 bytes, over the kernel's limit of 2097152",
            ),
            (
                NotStarted::Invalid("argument 2 has a NUL byte".to_owned()),
                125,
                "NUL",
            ),
            (NotStarted::Resources(11), 125, "out of resources"),
        ] {
            let told = verdict(
                &Outcome::Ended(Ended::NotStarted(why)),
                &Ok(()),
                &none(),
                &named(),
            );
            assert_eq!(told.code, code);
            let line = told.line.expect("says why");
            assert!(line.contains(part), "{line}");
        }
    }

    #[test]
    fn ends_that_others_made_have_codes_of_their_own() {
        let timed_out = exit(137, Some(9), message::Ended::Timeout);
        assert_eq!(
            verdict(&timed_out, &Ok(()), &none(), &named()),
            Verdict::said(124, "prog timed out after 30s")
        );
        assert_eq!(
            verdict(&Outcome::Overdue, &Ok(()), &none(), &named()).code,
            124
        );
        let memory = exit(137, Some(9), message::Ended::Memory);
        assert_eq!(verdict(&memory, &Ok(()), &none(), &named()).code, 137);
        let asked = Outcome::Asked(Asked::Interrupt);
        assert_eq!(
            verdict(&asked, &Ok(()), &none(), &named()),
            Verdict::silent(130)
        );
        let gone = Err(WriteFailure::ReaderGone(Stream::Stdout));
        assert_eq!(
            verdict(&Outcome::Unwritable, &gone, &none(), &named()),
            Verdict::silent(141)
        );
        let lost = Outcome::Link(LinkError::Gone);
        assert_eq!(verdict(&lost, &Ok(()), &none(), &named()).code, 125);
    }

    #[test]
    fn only_a_kill_that_nobody_asked_for_may_be_for_memory() {
        assert!(exit(137, Some(9), message::Ended::Itself).may_be_for_memory());
        assert!(Outcome::Link(LinkError::Gone).may_be_for_memory());
        assert!(!exit(137, Some(9), message::Ended::Timeout).may_be_for_memory());
        assert!(!exit(1, None, message::Ended::Itself).may_be_for_memory());
        let told = exit(137, Some(9), message::Ended::Itself).for_memory();
        let line = verdict(&told, &Ok(()), &none(), &named())
            .line
            .expect("says why");
        assert_eq!(line, "prog went over its memory and was ended");
    }

    #[test]
    fn a_failure_by_a_limit_that_refuses_is_one_line_and_the_programs_own_code() {
        let hits = Hits {
            memory_kills: Some(0),
            process_refusals: Some(3),
        };
        let failed = exit(2, None, message::Ended::Itself);
        let told = verdict(&failed, &Ok(()), &failed.limited(hits, false), &named());
        assert_eq!(told.code, 2);
        assert_eq!(
            told.line.as_deref(),
            Some("prog failed, and was refused a process over its limit")
        );
        let full = exit(1, None, message::Ended::Disk);
        let told = verdict(
            &full,
            &Ok(()),
            &full.limited(Hits::default(), false),
            &named(),
        );
        assert_eq!((told.code, told.line.is_some()), (1, true));
        let well = exit(0, None, message::Ended::Itself);
        let told = verdict(&well, &Ok(()), &well.limited(hits, false), &named());
        assert_eq!(told, Verdict::silent(0));
    }

    #[test]
    fn the_object_says_everything() {
        let mut enforced = Enforced::new();
        enforced.insert(
            Ceiling::Memory,
            Enforcement::Enforced("cgroup v1".to_owned()),
        );
        enforced.insert(
            Ceiling::Cpus,
            Enforcement::Unenforced("no delegation".to_owned()),
        );
        let outcome = exit(143, Some(15), message::Ended::Timeout);
        let told = verdict(&outcome, &Ok(()), &none(), &named());
        let collected = Collected::default();
        let object = object(
            &outcome,
            &told,
            &outcome.limited(Hits::default(), false),
            &collected,
            &enforced,
            Duration::from_millis(12),
        );
        assert_eq!(object["exit_code"], 124);
        assert_eq!(object["signal"], 15);
        assert_eq!(object["timed_out"], true);
        assert_eq!(object["killed_for"], "time");
        assert_eq!(object["limits_reached"], json!(["time"]));
        assert_eq!(object["duration_ms"], 12);
        assert_eq!(object["enforced"]["memory"]["enforced"], true);
        assert_eq!(object["enforced"]["cpus"]["reason"], "no delegation");
        let failed = failed_object(125, "no");
        let keys = |value: &Value| {
            value
                .as_object()
                .map(|map| map.keys().cloned().collect::<Vec<_>>())
        };
        assert_eq!(keys(&failed), keys(&object), "one shape whatever happened");
    }
}
