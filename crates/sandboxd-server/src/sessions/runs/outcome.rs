//! What a client is told of how a program ended.

use super::super::words::{ExecDone, RunDone, UseError};
use super::program::{Ending, OneStream, TwoStreams};
use crate::limits::{RUN_OUTPUT_BYTES_MAX, RUN_PARTIAL_BYTES};
use crate::telemetry::metrics::RunOutcome;
use sandboxd_protocol::message::{Ended, NotStarted};

/// How a program came out, for the figures.
pub(super) fn counted(ending: &Result<Ending, UseError>) -> RunOutcome {
    match ending {
        Ok(Ending::Exited(exit)) => match exit.ended {
            Ended::Itself if exit.code == 0 => RunOutcome::Ok,
            Ended::Itself => RunOutcome::Nonzero,
            Ended::Memory => RunOutcome::Oom,
            Ended::Stopped => RunOutcome::Stopped,
            Ended::Timeout => RunOutcome::TimedOut,
            Ended::Output => RunOutcome::OutputLimited,
        },
        Ok(Ending::NotStarted(_)) => RunOutcome::Nonzero,
        Ok(Ending::Overdue) => RunOutcome::TimedOut,
        Ok(Ending::Flooded) => RunOutcome::OutputLimited,
        Ok(Ending::StoppedEarly) => RunOutcome::Stopped,
        Err(_) => RunOutcome::Failed,
    }
}

/// Exit code of a run that was stopped: TERM, as a shell has it.
const STOPPED_CODE: u8 = 143;
/// Exit code of an `exec` whose deadline came.
const TIMEOUT_CODE: u8 = 124;

fn partial(mut stream: Vec<u8>) -> Vec<u8> {
    stream.truncate(RUN_PARTIAL_BYTES);
    stream.shrink_to_fit();
    stream
}

pub(super) fn run_done(
    ending: Ending,
    streams: TwoStreams,
    argv: &[String],
) -> Result<RunDone, UseError> {
    let TwoStreams { stdout, stderr } = streams;
    let finished = |code, stdout, stderr| RunDone::Finished {
        code,
        stdout,
        stderr,
    };
    let limited = |stdout, stderr| RunDone::OutputLimited {
        stdout: partial(stdout),
        stderr: partial(stderr),
        limit: RUN_OUTPUT_BYTES_MAX,
    };
    Ok(match ending {
        Ending::Exited(exit) => match exit.ended {
            Ended::Itself | Ended::Memory => finished(exit.code, stdout, stderr),
            Ended::Stopped => finished(STOPPED_CODE, stdout, stderr),
            Ended::Timeout => RunDone::TimedOut {
                stdout: partial(stdout),
                stderr: partial(stderr),
            },
            Ended::Output => limited(stdout, stderr),
        },
        Ending::NotStarted(why) => {
            let (code, message) = shell_words(&why, argv)?;
            finished(code, Vec::new(), message.into_bytes())
        }
        Ending::Overdue => RunDone::TimedOut {
            stdout: partial(stdout),
            stderr: partial(stderr),
        },
        Ending::Flooded => limited(stdout, stderr),
        Ending::StoppedEarly => finished(STOPPED_CODE, stdout, stderr),
    })
}

pub(super) fn exec_done(
    ending: Ending,
    stream: OneStream,
    argv: &[String],
) -> Result<ExecDone, UseError> {
    let (code, output, discarded) = match ending {
        Ending::Exited(exit) => {
            let code = match exit.ended {
                Ended::Timeout => TIMEOUT_CODE,
                Ended::Itself | Ended::Memory | Ended::Output => exit.code,
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
