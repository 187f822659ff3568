//! Programs: starting one and waiting for its end, and stopping one.

use super::App;
use super::answer::{self, Answer};
use super::decode::{Decode, Fields, rules};
use super::request::{Json, OfRun, OfSession};
use crate::budget::Share;
use crate::id::RunId;
use crate::sessions::{Limit, Limited, Ran, RunAsk, RunDone, UseError};
use axum::extract::State;
use sandboxd_api::run as api;
use std::time::Duration;

/// What a shell answers for a program that the kernel will not start.
const NOT_RUNNABLE: u8 = 126;

/// Body of `POST /sessions/{session_id}/run`, checked.
pub(super) struct Run {
    argv: Vec<String>,
    env: Vec<(String, String)>,
    timeout_seconds: Option<f64>,
    id: RunId,
}

impl Decode for Run {
    fn decode(fields: &mut Fields) -> Option<Self> {
        let argv = fields.required("argv", rules::list(usize::MAX, rules::text));
        let env = fields.or("env", Default::default(), rules::texts);
        let timeout_seconds =
            fields.or("timeout_seconds", None, rules::nullable(rules::above_zero));
        let id = fields.required("run_id", rules::id(RunId::parse));
        Some(Self {
            argv: argv?,
            env: env?.into_iter().map(variable).collect(),
            timeout_seconds: timeout_seconds?,
            id: id?,
        })
    }
}

/// A program gets `name=value` as one text, so the first `=` in it ends the name.
fn variable((name, value): (String, String)) -> (String, String) {
    match name.split_once('=') {
        Some((first, rest)) if !first.is_empty() => (first.to_owned(), format!("{rest}={value}")),
        _ => (name, value),
    }
}

/// `POST /sessions/{session_id}/run`
pub(super) async fn run(
    State(app): State<App>,
    OfSession(id): OfSession,
    Json(ask): Json<Run>,
) -> Answer {
    let ask = RunAsk {
        argv: ask.argv,
        env: ask.env,
        // Longer than any clock counts is as long as the service allows.
        timeout: ask
            .timeout_seconds
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
        id: Some(ask.id),
    };
    let ran = match app.sessions.run_told(&id, ask).await {
        Err(UseError::Invalid(why)) => Ran {
            done: RunDone::Finished {
                code: NOT_RUNNABLE,
                stdout: Vec::new(),
                stderr: format!("{why}\n").into_bytes(),
            },
            limited: Limited::default(),
            room: Share::default(),
        },
        other => other?,
    };
    let (response, room) = response(ran);
    Ok(answer::json_of_output(&response, room))
}

/// `POST /sessions/{session_id}/runs/{run_id}/stop`
pub(super) async fn stop(
    State(app): State<App>,
    OfSession(id): OfSession,
    OfRun(run): OfRun,
) -> Answer {
    app.sessions.stop_run(&id, &run).await?;
    Ok(answer::nothing())
}

fn response(ran: Ran) -> (api::RunResponse, Share) {
    let (stdout, stderr, exit_code, timed_out, output_limit) = match ran.done {
        RunDone::Finished {
            code,
            stdout,
            stderr,
        } => (stdout, stderr, Some(code), false, None),
        RunDone::TimedOut { stdout, stderr } => (stdout, stderr, None, true, None),
        RunDone::OutputLimited {
            stdout,
            stderr,
            limit,
        } => (stdout, stderr, None, false, Some(limit)),
    };
    let response = api::RunResponse {
        stdout: text_of(stdout),
        stderr: text_of(stderr),
        exit_code,
        timed_out,
        output_limited: output_limit.is_some(),
        output_limit,
        killed_for: ran.limited.killed_for.map(limit),
        limits_reached: ran.limited.reached.into_iter().map(limit).collect(),
    };
    (response, ran.room)
}

/// A limit in the API's words.
pub(super) fn limit(limit: Limit) -> api::Limit {
    match limit {
        Limit::Memory => api::Limit::Memory,
        Limit::Pids => api::Limit::Pids,
        Limit::Disk => api::Limit::Disk,
        Limit::Time => api::Limit::Time,
        Limit::Output => api::Limit::Output,
    }
}

/// Output as text, without a copy where it is UTF-8 already.
pub(super) fn text_of(output: Vec<u8>) -> String {
    String::from_utf8(output)
        .unwrap_or_else(|bad| String::from_utf8_lossy(bad.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::variable;

    #[test]
    fn the_first_equals_sign_ends_a_variables_name() {
        let table = [
            (("A", "1=2"), ("A", "1=2")),
            (("A=B", "x"), ("A", "B=x")),
            (("A=", ""), ("A", "=")),
            (("=A", "x"), ("=A", "x")),
            (("", "x"), ("", "x")),
        ];
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        for (sent, given) in table {
            assert_eq!(variable(owned(sent)), owned(given), "{sent:?}");
        }
    }
}
