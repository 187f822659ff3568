//! Programs of a session: `run` (era B), `exec` (era A), and what the service itself needs inside. Each is a task of its
//! own that ends by its deadline, the stop route or the end of its sandbox, and not when its client hangs up.

mod outcome;
mod program;
mod stopping;

pub(super) use stopping::stop;

use super::detail::RunSwitch;
use super::events::shell_quoted;
use super::limited::Limited;
use super::table::Shared;
use super::visit::Visit;
use super::words::{ExecDone, Happened, Ran, RunAsk, RunDone, UseError};
use crate::id::SessionId;
use crate::limits::{EXEC_OUTPUT_BYTES_MAX, RUN_OUTPUT_BYTES_MAX};
use outcome::{counted, exec_done, run_done};
use program::{Ending, Followed, Job, OneStream, TwoStreams, before_the_program, follow};
use sandboxd_protocol::message::OutputLimit;
use std::sync::Arc;
use std::time::Duration;
use stopping::Registered;
use tokio::time::Instant;

/// Exit code of an `exec` whose time makes no sense, as `timeout(1)` has it.
const BAD_TIMEOUT_CODE: u8 = 125;

/// `POST /run`.
pub(super) async fn run(
    shared: &Arc<Shared>,
    id: &SessionId,
    ask: RunAsk,
) -> Result<Ran, UseError> {
    let target = shell_quoted(&ask.argv);
    run_logged(shared, id, ask, Some(target)).await
}

/// A program of the service's own.
pub(super) async fn search(
    shared: &Arc<Shared>,
    id: &SessionId,
    argv: Vec<String>,
    time: Duration,
) -> Result<Ran, UseError> {
    let ask = RunAsk {
        argv,
        env: Vec::new(),
        timeout: Some(time),
        id: None,
    };
    run_logged(shared, id, ask, None).await
}

async fn run_logged(
    shared: &Arc<Shared>,
    id: &SessionId,
    ask: RunAsk,
    target: Option<String>,
) -> Result<Ran, UseError> {
    let visit = Visit::begin(shared, id)?;
    let switch = Arc::new(RunSwitch::default());
    let registered = ask
        .id
        .clone()
        .map(|run| Registered::enter(&visit, run, switch.clone()));
    let job = Job {
        argv: ask.argv,
        env: ask.env,
        time: clamp(shared, ask.timeout),
        output: OutputLimit::Stop(RUN_OUTPUT_BYTES_MAX),
        switch,
    };
    let work = async move {
        let _registered = registered;
        let began = Instant::now();
        let mut streams = TwoStreams::default();
        let reached = before_the_program(&visit, &job, began).await;
        let (ending, began_inside) = match reached {
            Ok(Some(mut ready)) => (follow(&visit, &mut ready, &job, &mut streams).await, true),
            Ok(None) => {
                let ending = if job.switch.stop.is_cancelled() {
                    Ending::StoppedEarly
                } else {
                    Ending::Overdue
                };
                (Ok(Followed::without_a_program(ending)), true)
            }
            Err(error) => (Err(error), false),
        };
        if target.is_some() {
            count(&visit, &ending, began);
        }
        let done = ending.and_then(|ending| run_done(ending, streams, &job.argv));
        if let (Some(target), true) = (target, began_inside) {
            log_run(&visit, "run", target, &done, began);
        }
        done
    };
    own(shared, id, work).await
}

/// `POST /exec`. `seconds` as the client sent them.
pub(super) async fn exec(
    shared: &Arc<Shared>,
    id: &SessionId,
    command: String,
    seconds: Option<i64>,
) -> Result<ExecDone, UseError> {
    let visit = Visit::begin(shared, id)?;
    let time = match seconds {
        Some(negative) if negative < 0 => {
            let done = ExecDone {
                output: format!("timeout: invalid time interval '{negative}'\n").into_bytes(),
                code: BAD_TIMEOUT_CODE,
                truncated: false,
                limited: Limited::default(),
            };
            log_exec(&visit, command, Ok(&done), Instant::now());
            return Ok(done);
        }
        None | Some(0) => None,
        Some(seconds) => Some(Duration::from_secs(seconds.unsigned_abs())),
    };
    let job = Job {
        argv: vec!["/bin/sh".into(), "-c".into(), command.clone()],
        env: Vec::new(),
        time: clamp(shared, time),
        output: OutputLimit::Discard(EXEC_OUTPUT_BYTES_MAX),
        switch: Arc::default(),
    };
    let ceiling = shared.service().execute_timeout;
    let work = async move {
        let began = Instant::now();
        let mut stream = OneStream::default();
        let ending = match before_the_program(&visit, &job, began).await {
            Ok(Some(mut ready)) => follow(&visit, &mut ready, &job, &mut stream).await,
            // It never came to the program: the whole operation ran into the ceiling.
            Ok(None) => Err(UseError::Ceiling(ceiling)),
            Err(error) => Err(error),
        };
        count(&visit, &ending, began);
        let done = ending.and_then(|ending| exec_done(ending, stream, &job.argv));
        match &done {
            Ok(done) => log_exec(&visit, command, Ok(done), began),
            Err(error @ (UseError::Ceiling(_) | UseError::Gone(_))) => {
                log_exec(&visit, command, Err(error), began);
            }
            Err(_) => {}
        }
        done
    };
    own(shared, id, work).await
}

/// Runs work in a task that outlives its caller, and waits for it.
pub(super) async fn own<T: Send + 'static>(
    shared: &Arc<Shared>,
    id: &SessionId,
    work: impl Future<Output = Result<T, UseError>> + Send + 'static,
) -> Result<T, UseError> {
    match shared.tasks.spawn(work).await {
        Ok(done) => done,
        Err(error) => {
            tracing::error!(session = %id, %error, "an operation ended in a panic");
            shared.metrics.panicked();
            Err(UseError::Gone(id.clone()))
        }
    }
}

fn clamp(shared: &Shared, asked: Option<Duration>) -> Duration {
    let ceiling = Duration::from_secs(shared.service().execute_timeout);
    asked.map_or(ceiling, |asked| asked.min(ceiling))
}

fn count(visit: &Visit, ending: &Result<Followed, UseError>, began: Instant) {
    let metrics = &visit.shared.metrics;
    metrics.ran(counted(ending), began.elapsed());
}

fn log_run(
    visit: &Visit,
    op: &'static str,
    target: String,
    ran: &Result<Ran, UseError>,
    began: Instant,
) {
    let (ok, detail) = match ran {
        Ok(ran) => match &ran.done {
            RunDone::Finished { code, .. } => (*code == 0, exit_words(*code, &ran.limited)),
            RunDone::TimedOut { .. } => (false, "timed out".to_owned()),
            RunDone::OutputLimited { .. } => (false, "output limit".to_owned()),
        },
        Err(UseError::Gone(_)) => (false, "sandbox gone".to_owned()),
        Err(UseError::Invalid(_)) => (false, "not started".to_owned()),
        Err(_) => return,
    };
    let happened = Happened {
        op,
        target,
        ok,
        detail,
        took: began.elapsed(),
    };
    visit.shared.log(&visit.id, Some(visit.serial), happened);
}

/// How a program ended, and the limit that it ended for.
fn exit_words(code: u8, limited: &Limited) -> String {
    match limited.words() {
        Some(words) => format!("exit {code}, {words}"),
        None => format!("exit {code}"),
    }
}

fn log_exec(visit: &Visit, command: String, done: Result<&ExecDone, &UseError>, began: Instant) {
    let happened = Happened {
        op: "exec",
        target: command,
        ok: done.is_ok_and(|done| done.code == 0),
        detail: done
            .map(|done| exit_words(done.code, &done.limited))
            .unwrap_or_default(),
        took: began.elapsed(),
    };
    visit.shared.log(&visit.id, Some(visit.serial), happened);
}
