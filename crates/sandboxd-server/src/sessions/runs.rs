//! Programs of a session: `run` (era B), `exec` (era A), and what the service itself needs inside. Each is a task of its
//! own that ends by its deadline, the stop route or the end of its sandbox, and not when its client hangs up.

use super::events::shell_quoted;
use super::table::{RunSwitch, Shared};
use super::visit::{Reached, Visit};
use super::words::{ExecDone, Happened, RunAsk, RunDone, UseError};
use crate::id::{RunId, SessionId};
use crate::limits::{
    EXEC_OUTPUT_BYTES_MAX, RUN_END_GRACE_MILLIS, RUN_OUTPUT_BYTES_MAX, RUN_PARTIAL_BYTES,
    RUN_WAKE_GRACE_SECONDS, STOP_APPEAR_MILLIS, STOP_GRACE_MILLIS, WORD_MILLIS_MAX,
};
use bytes::Bytes;
use sandboxd_protocol::client::{LinkError, Output};
use sandboxd_protocol::message::{Ended, Exit, NotStarted, OutputLimit, Run};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

/// Exit code of a run that was stopped: TERM, as a shell has it.
const STOPPED_CODE: u8 = 143;
/// Exit code of an `exec` whose deadline came.
const TIMEOUT_CODE: u8 = 124;
/// Exit code of an `exec` whose time makes no sense, as `timeout(1)` has it.
const BAD_TIMEOUT_CODE: u8 = 125;

/// One program, and what is done with its output.
struct Job {
    argv: Vec<String>,
    env: Vec<(String, String)>,
    time: Duration,
    output: OutputLimit,
    switch: Arc<RunSwitch>,
}

/// How a job ended.
enum Ending {
    Exited(Exit),
    NotStarted(NotStarted),
    /// The deadline came before the guest could be asked, or the guest did not keep it.
    Overdue,
    /// The guest sent more than it may.
    Flooded,
    /// Stopped before it began.
    StoppedEarly,
}

/// Takes output as it comes.
trait Sink: Send {
    /// Answers false where it has had enough.
    fn take(&mut self, output: &Bytes, is_stderr: bool) -> bool;
}

/// Two streams, kept apart.
#[derive(Default)]
struct TwoStreams {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Sink for TwoStreams {
    fn take(&mut self, output: &Bytes, is_stderr: bool) -> bool {
        let stream = if is_stderr {
            &mut self.stderr
        } else {
            &mut self.stdout
        };
        stream.extend_from_slice(output);
        // The guest ends the run at the limit; one that does not is cut here.
        let total = self.stdout.len() + self.stderr.len();
        u64::try_from(total).is_ok_and(|total| total <= RUN_OUTPUT_BYTES_MAX)
    }
}

/// One stream in the order of arrival, cut.
#[derive(Default)]
struct OneStream {
    bytes: Vec<u8>,
    cut: bool,
}

impl Sink for OneStream {
    fn take(&mut self, output: &Bytes, _is_stderr: bool) -> bool {
        let most = usize::try_from(EXEC_OUTPUT_BYTES_MAX).unwrap_or(usize::MAX);
        let room = most.saturating_sub(self.bytes.len());
        self.cut |= output.len() > room;
        self.bytes
            .extend_from_slice(&output[..output.len().min(room)]);
        true
    }
}

/// `POST /run`.
pub(super) async fn run(
    shared: &Arc<Shared>,
    id: &SessionId,
    ask: RunAsk,
) -> Result<RunDone, UseError> {
    let target = shell_quoted(&ask.argv);
    run_logged(shared, id, ask, Some(target)).await
}

/// A program of the service's own.
pub(super) async fn search(
    shared: &Arc<Shared>,
    id: &SessionId,
    argv: Vec<String>,
    time: Duration,
) -> Result<RunDone, UseError> {
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
) -> Result<RunDone, UseError> {
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
            Ok(None) if job.switch.stop.is_cancelled() => (Ok(Ending::StoppedEarly), true),
            Ok(None) => (Ok(Ending::Overdue), true),
            Err(error) => (Err(error), false),
        };
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
            };
            log_exec(&visit, command, Some(done.code), Instant::now());
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
        let done = ending.and_then(|ending| exec_done(ending, stream, &job.argv));
        match &done {
            Ok(done) => log_exec(&visit, command, Some(done.code), began),
            Err(UseError::Ceiling(_) | UseError::Gone(_)) => {
                log_exec(&visit, command, None, began);
            }
            Err(_) => {}
        }
        done
    };
    own(shared, id, work).await
}

/// Stops a run; see [`super::Sessions::stop_run`].
pub(super) async fn stop(
    shared: &Arc<Shared>,
    id: &SessionId,
    run: &RunId,
) -> Result<(), UseError> {
    let deadline = Instant::now() + Duration::from_millis(STOP_APPEAR_MILLIS);
    let switches = loop {
        let appeared = {
            let table = shared.table();
            let (_, detail) = table
                .visible(id)
                .ok_or_else(|| UseError::NotFound(id.clone()))?;
            if let Some(switches) = detail.runs.by_id.get(run) {
                break switches.clone();
            }
            // Enabled under the lock, so that a run that appears after it is heard.
            let mut appeared = Box::pin(detail.runs.appeared.clone().notified_owned());
            appeared.as_mut().enable();
            appeared
        };
        if timeout_at(deadline, appeared).await.is_err() {
            return Ok(());
        }
    };
    for switch in &switches {
        switch.stop.cancel();
    }
    // The answer says that it is over, as far as that is known in time.
    let patience = Duration::from_millis(STOP_GRACE_MILLIS + WORD_MILLIS_MAX);
    let _ = timeout(patience, async {
        for switch in &switches {
            switch.over.cancelled().await;
        }
    })
    .await;
    Ok(())
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
            Err(UseError::Gone(id.clone()))
        }
    }
}

fn clamp(shared: &Shared, asked: Option<Duration>) -> Duration {
    let ceiling = Duration::from_secs(shared.service().execute_timeout);
    asked.map_or(ceiling, |asked| asked.min(ceiling))
}

/// A sandbox that runs, a permit, and the time by which the program has to be over.
struct Ready<'a> {
    reached: Reached,
    deadline: Instant,
    _permit: SemaphorePermit<'a>,
}

/// Wakes the session, then waits for a permit. `None` where the time was up, or a stop came, before the program.
async fn before_the_program<'a>(
    visit: &'a Visit,
    job: &Job,
    began: Instant,
) -> Result<Option<Ready<'a>>, UseError> {
    let shared = &visit.shared;
    let stopped = job.switch.stop.cancelled();
    // A sleeping session costs the program no time of its own, within what the client waits for an answer.
    let latest = began + job.time + Duration::from_secs(RUN_WAKE_GRACE_SECONDS);
    let work = async {
        let _place = queue(&shared.queue).ok_or(UseError::Busy(place_count(shared)))?;
        let reached = timeout_at(latest, visit.reach()).await;
        let Ok(reached) = reached else {
            return Ok(None);
        };
        let mut reached = reached?;
        let deadline = (Instant::now() + job.time).min(latest);
        let Ok(permit) = timeout_at(deadline, shared.permits.acquire()).await else {
            return Ok(None);
        };
        let permit = permit.map_err(|_| visit.gone())?;
        // The sandbox may have ended during the wait; then another one is made before anything has begun.
        if reached.client.is_closed() {
            let Ok(again) = timeout_at(latest, visit.reach()).await else {
                return Ok(None);
            };
            reached = again?;
        }
        Ok(Some(Ready {
            reached,
            deadline,
            _permit: permit,
        }))
    };
    tokio::select! {
        biased;
        () = stopped => Ok(None),
        ready = work => ready,
    }
}

fn queue(queue: &Semaphore) -> Option<SemaphorePermit<'_>> {
    queue.try_acquire().ok()
}

fn place_count(shared: &Shared) -> u64 {
    shared.service().max_running_commands
}

/// Starts the program and follows it to its end. The guest keeps the deadline; where it does not, its sandbox ends.
async fn follow(
    visit: &Visit,
    ready: &mut Ready<'_>,
    job: &Job,
    sink: &mut dyn Sink,
) -> Result<Ending, UseError> {
    match speak(ready, job, sink).await {
        Ok(Ending::Overdue) => {
            let silence = LinkError::Silent(RUN_END_GRACE_MILLIS);
            let _ = visit.broken(&ready.reached, &silence);
            Ok(Ending::Overdue)
        }
        Ok(ending) => Ok(ending),
        Err(error) => Err(visit.broken(&ready.reached, &error)),
    }
}

async fn speak(ready: &Ready<'_>, job: &Job, sink: &mut dyn Sink) -> Result<Ending, LinkError> {
    let left = ready.deadline.saturating_duration_since(Instant::now());
    let millis = u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1);
    let run = Run {
        argv: job.argv.iter().map(|a| a.clone().into_bytes()).collect(),
        env: job
            .env
            .iter()
            .map(|(name, value)| (name.clone().into_bytes(), value.clone().into_bytes()))
            .collect(),
        cwd: None,
        stdin: false,
        timeout_millis: Some(millis),
        output: job.output,
    };
    let grace = Duration::from_millis(RUN_END_GRACE_MILLIS);
    let mut end = ready.deadline + grace;
    let Ok(started) = timeout_at(end, ready.reached.client.run(run)).await else {
        return Ok(Ending::Overdue);
    };
    let (mut input, mut events) = started?;
    let mut stopping = false;
    loop {
        tokio::select! {
            // Output without end keeps neither a stop nor the deadline waiting.
            biased;
            () = job.switch.stop.cancelled(), if !stopping => {
                stopping = true;
                // Over already, or stuck: the events and the end tell.
                let _ = timeout(Duration::from_millis(WORD_MILLIS_MAX), input.stop()).await;
                let stopped = Instant::now() + Duration::from_millis(STOP_GRACE_MILLIS) + grace;
                end = end.min(stopped);
            }
            () = sleep_until(end) => return Ok(Ending::Overdue),
            event = events.next() => match event? {
                Some(Output::Started) => {}
                Some(Output::Stdout(bytes)) => {
                    if !sink.take(&bytes, false) {
                        return Ok(Ending::Flooded);
                    }
                }
                Some(Output::Stderr(bytes)) => {
                    if !sink.take(&bytes, true) {
                        return Ok(Ending::Flooded);
                    }
                }
                Some(Output::NotStarted(why)) => return Ok(Ending::NotStarted(why)),
                Some(Output::Exited(exit)) => return Ok(Ending::Exited(exit)),
                None => return Err(LinkError::Protocol("a run without an end".to_owned())),
            },
        }
    }
}

fn partial(mut stream: Vec<u8>) -> Vec<u8> {
    stream.truncate(RUN_PARTIAL_BYTES);
    stream.shrink_to_fit();
    stream
}

fn run_done(ending: Ending, streams: TwoStreams, argv: &[String]) -> Result<RunDone, UseError> {
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

fn exec_done(ending: Ending, stream: OneStream, argv: &[String]) -> Result<ExecDone, UseError> {
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

fn log_run(
    visit: &Visit,
    op: &'static str,
    target: String,
    done: &Result<RunDone, UseError>,
    began: Instant,
) {
    let (ok, detail) = match done {
        Ok(RunDone::Finished { code, .. }) => (*code == 0, format!("exit {code}")),
        Ok(RunDone::TimedOut { .. }) => (false, "timed out".to_owned()),
        Ok(RunDone::OutputLimited { .. }) => (false, "output limit".to_owned()),
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

fn log_exec(visit: &Visit, command: String, code: Option<u8>, began: Instant) {
    let happened = Happened {
        op: "exec",
        target: command,
        ok: code == Some(0),
        detail: code.map(|code| format!("exit {code}")).unwrap_or_default(),
        took: began.elapsed(),
    };
    visit.shared.log(&visit.id, Some(visit.serial), happened);
}

/// A run that can be stopped by its id, for as long as this lives.
struct Registered {
    shared: Arc<Shared>,
    id: SessionId,
    serial: u64,
    run: RunId,
    switch: Arc<RunSwitch>,
}

impl Registered {
    fn enter(visit: &Visit, run: RunId, switch: Arc<RunSwitch>) -> Self {
        let mut table = visit.shared.table();
        if let Some(detail) = table.details.get_mut(&visit.id)
            && detail.serial == visit.serial
        {
            let switches = detail.runs.by_id.entry(run.clone()).or_default();
            switches.push(switch.clone());
            detail.runs.appeared.notify_waiters();
        }
        Self {
            shared: visit.shared.clone(),
            id: visit.id.clone(),
            serial: visit.serial,
            run,
            switch,
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.switch.over.cancel();
        let mut table = self.shared.table();
        let Some(detail) = table.details.get_mut(&self.id) else {
            return;
        };
        if detail.serial != self.serial {
            return;
        }
        if let Some(switches) = detail.runs.by_id.get_mut(&self.run) {
            switches.retain(|switch| !Arc::ptr_eq(switch, &self.switch));
            if switches.is_empty() {
                detail.runs.by_id.remove(&self.run);
            }
        }
    }
}
