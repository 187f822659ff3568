//! What a client is told of how a program ended.

use super::super::limited::Limit;
use super::super::words::{ExecDone, Ran, RunDone, UseError};
use super::program::{Ending, Followed, OneStream, TwoStreams};
use crate::limits::{RUN_OUTPUT_BYTES_MAX, RUN_PARTIAL_BYTES};
use crate::telemetry::metrics::RunOutcome;
use sandboxd_protocol::message::{Ended, NotStarted};

/// How a program came out, for the figures.
pub(super) fn counted(followed: &Result<Followed, UseError>) -> RunOutcome {
    let Ok(followed) = followed else {
        return RunOutcome::Failed;
    };
    match followed.limited.killed_for {
        Some(Limit::Memory) => return RunOutcome::Oom,
        Some(Limit::Pids) => return RunOutcome::Pids,
        Some(Limit::Disk) => return RunOutcome::Disk,
        Some(Limit::Time) => return RunOutcome::TimedOut,
        Some(Limit::Output) => return RunOutcome::OutputLimited,
        None => {}
    }
    match &followed.ending {
        Ending::Exited(exit) if exit.ended == Ended::Stopped => RunOutcome::Stopped,
        Ending::Exited(exit) if exit.code == 0 => RunOutcome::Ok,
        Ending::Exited(_) | Ending::NotStarted(_) => RunOutcome::Nonzero,
        Ending::Overdue => RunOutcome::TimedOut,
        Ending::Flooded => RunOutcome::OutputLimited,
        Ending::StoppedEarly => RunOutcome::Stopped,
    }
}

/// Exit code of a run that was stopped: TERM, as a shell has it.
const STOPPED_CODE: u8 = 143;
/// Exit code of a run that was ended by force: KILL, as a shell has it.
const KILLED_CODE: u8 = 137;
/// Exit code of an `exec` whose deadline came.
const TIMEOUT_CODE: u8 = 124;

fn partial(mut stream: Vec<u8>) -> Vec<u8> {
    stream.truncate(RUN_PARTIAL_BYTES);
    stream.shrink_to_fit();
    stream
}

pub(super) fn run_done(
    followed: Followed,
    streams: TwoStreams,
    argv: &[String],
) -> Result<Ran, UseError> {
    let Followed {
        ending,
        limited,
        room,
    } = followed;
    let overfilled = limited.killed_for == Some(Limit::Disk);
    let TwoStreams { stdout, stderr } = streams;
    let finished = |code, stdout, stderr| RunDone::Finished {
        code,
        stdout,
        stderr,
    };
    let over_output = |stdout, stderr| RunDone::OutputLimited {
        stdout: partial(stdout),
        stderr: partial(stderr),
        limit: RUN_OUTPUT_BYTES_MAX,
    };
    let done = match ending {
        Ending::Exited(exit) => match exit.ended {
            Ended::Itself | Ended::Memory | Ended::Disk => finished(exit.code, stdout, stderr),
            Ended::Stopped if overfilled => finished(KILLED_CODE, stdout, stderr),
            Ended::Stopped => finished(STOPPED_CODE, stdout, stderr),
            Ended::Timeout => RunDone::TimedOut {
                stdout: partial(stdout),
                stderr: partial(stderr),
            },
            Ended::Output => over_output(stdout, stderr),
        },
        Ending::NotStarted(why) => {
            let (code, message) = shell_words(&why, argv)?;
            finished(code, Vec::new(), message.into_bytes())
        }
        Ending::Overdue => RunDone::TimedOut {
            stdout: partial(stdout),
            stderr: partial(stderr),
        },
        Ending::Flooded => over_output(stdout, stderr),
        Ending::StoppedEarly => finished(STOPPED_CODE, stdout, stderr),
    };
    Ok(Ran {
        done,
        limited,
        room,
    })
}

pub(super) fn exec_done(
    followed: Followed,
    stream: OneStream,
    argv: &[String],
) -> Result<ExecDone, UseError> {
    let Followed {
        ending, limited, ..
    } = followed;
    let overfilled = limited.killed_for == Some(Limit::Disk);
    let (code, output, discarded) = match ending {
        Ending::Exited(exit) => {
            let code = match exit.ended {
                Ended::Timeout => TIMEOUT_CODE,
                Ended::Itself | Ended::Memory | Ended::Disk | Ended::Output => exit.code,
                Ended::Stopped if overfilled => KILLED_CODE,
                Ended::Stopped => STOPPED_CODE,
            };
            (code, stream.bytes, exit.discarded_bytes > 0)
        }
        Ending::NotStarted(why) => {
            let (code, message) = shell_words(&why, argv)?;
            (code, message.into_bytes(), false)
        }
        Ending::Overdue | Ending::Flooded => (TIMEOUT_CODE, stream.bytes, false),
        Ending::StoppedEarly => (STOPPED_CODE, stream.bytes, false),
    };
    Ok(ExecDone {
        output,
        code,
        truncated: stream.cut || discarded,
        limited,
    })
}

/// Characters of a program's name in what a shell would say of it.
const PROGRAM_CHARS_SHOWN: usize = 200;

/// What a shell would say and answer.
fn shell_words(why: &NotStarted, argv: &[String]) -> Result<(u8, String), UseError> {
    let program = argv.first().map(String::as_str).unwrap_or_default();
    let program: String = program.chars().take(PROGRAM_CHARS_SHOWN).collect();
    Ok(match why {
        NotStarted::NotFound => (127, format!("{program}: command not found\n")),
        NotStarted::NotExecutable(errno) => {
            (126, format!("{program}: cannot execute: {}\n", os(*errno)))
        }
        NotStarted::Cwd(path, errno) => {
            let path = String::from_utf8_lossy(path);
            (126, format!("cannot change to {path}: {}\n", os(*errno)))
        }
        NotStarted::Resources(errno) => (126, format!("cannot start: {}\n", os(*errno))),
        NotStarted::TooLarge { bytes, limit } => {
            return Err(UseError::Invalid(format!(
                "arguments and environment take {bytes} bytes; the limit is {limit}"
            )));
        }
        NotStarted::Invalid(what) => {
            // The guest's word: shown, and bounded.
            let what: String = what.chars().take(200).collect();
            return Err(UseError::Invalid(what));
        }
    })
}

fn os(errno: i32) -> String {
    std::io::Error::from_raw_os_error(errno).to_string()
}
