//! One program: woken for, given a permit, followed to its end.

use super::super::detail::RunSwitch;
use super::super::life;
use super::super::limited::{Limit, Limited, Meanwhile, RunEnd};
use super::super::table::Shared;
use super::super::usage::note_kills;
use super::super::visit::{Reached, Visit};
use super::super::words::{Happened, UseError};
use crate::budget::Share;
use crate::limits::{
    EXEC_OUTPUT_BYTES_MAX, OUTPUT_BYTES_FREE, RUN_END_GRACE_MILLIS, RUN_OUTPUT_BYTES_MAX,
    RUN_WAKE_GRACE_SECONDS, STOP_GRACE_MILLIS, WORD_MILLIS_MAX,
};
use crate::telemetry::metrics::InFlight;
use bytes::Bytes;
use sandboxd_protocol::client::{LinkError, Output as Said, RunEvents, RunInput};
use sandboxd_protocol::message::{Ended, Exit, NotStarted, OutputLimit, Run};

use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

/// One program, and what is done with its output.
pub(super) struct Job {
    pub(super) argv: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) time: Duration,
    pub(super) output: OutputLimit,
    pub(super) switch: Arc<RunSwitch>,
}

/// How a job ended.
pub(super) enum Ending {
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
pub(super) trait Sink: Send {
    /// How many bytes it holds that are counted in what all runs may hold together.
    fn held(&self) -> usize;
    /// Answers false where it has had enough.
    fn take(&mut self, output: &Bytes, is_stderr: bool) -> bool;
}

/// Two streams, kept apart.
#[derive(Default)]
pub(super) struct TwoStreams {
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
}

impl Sink for TwoStreams {
    fn held(&self) -> usize {
        self.stdout.len() + self.stderr.len()
    }

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
pub(super) struct OneStream {
    pub(super) bytes: Vec<u8>,
    pub(super) cut: bool,
}

impl Sink for OneStream {
    fn held(&self) -> usize {
        // It is never more than what each run has for itself.
        0
    }

    fn take(&mut self, output: &Bytes, _is_stderr: bool) -> bool {
        let most = usize::try_from(EXEC_OUTPUT_BYTES_MAX).unwrap_or(usize::MAX);
        let room = most.saturating_sub(self.bytes.len());
        self.cut |= output.len() > room;
        self.bytes
            .extend_from_slice(&output[..output.len().min(room)]);
        true
    }
}

/// A sandbox that runs, a permit, and the time by which the program has to be over.
pub(super) struct Ready<'a> {
    reached: Reached,
    deadline: Instant,
    _permit: SemaphorePermit<'a>,
    _counted: InFlight,
}

/// Wakes the session, then waits for a permit. `None` where the time was up, or a stop came, before the program.
pub(super) async fn before_the_program<'a>(
    visit: &'a Visit,
    job: &Job,
    began: Instant,
) -> Result<Option<Ready<'a>>, UseError> {
    let shared = &visit.shared;
    let stopped = job.switch.stop.cancelled();
    // A sleeping session costs the program no time of its own, within what the client waits for an answer.
    let latest = began + job.time + Duration::from_secs(RUN_WAKE_GRACE_SECONDS);
    let work = async {
        let Some(_place) = queue(&shared.queue) else {
            let most = place_count(shared);
            let why = format!("too many commands are running ({most})");
            life::refuse(shared, &visit.id, visit.serial, "run", why);
            return Err(UseError::Busy(most));
        };
        let reached = timeout_at(latest, visit.reach()).await;
        let Ok(reached) = reached else {
            return Ok(None);
        };
        let mut reached = reached?;
        let deadline = (Instant::now() + job.time).min(latest);
        let waits = Instant::now();
        let permit = timeout_at(deadline, shared.permits.acquire()).await;
        shared.metrics.queued(waits.elapsed());
        let Ok(permit) = permit else {
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
            _counted: shared.metrics.in_flight(),
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

/// A program's end, and what its limits did meanwhile.
pub(super) struct Followed {
    pub(super) ending: Ending,
    pub(super) limited: Limited,
    pub(super) room: Share,
}

impl Followed {
    /// One that never came to its program.
    pub(super) fn without_a_program(ending: Ending) -> Self {
        let limited = Limited::of(end(&ending), Meanwhile::default());
        Self {
            ending,
            limited,
            room: Share::default(),
        }
    }
}

fn end(ending: &Ending) -> RunEnd<'_> {
    match ending {
        Ending::Exited(exit) => RunEnd::Exited(exit),
        Ending::NotStarted(why) => RunEnd::NotStarted(why),
        Ending::Overdue => RunEnd::Overdue,
        Ending::Flooded => RunEnd::Flooded,
        Ending::StoppedEarly => RunEnd::Stopped,
    }
}

/// Starts the program and follows it to its end. The guest keeps the deadline; where it does not, its sandbox ends.
pub(super) async fn follow(
    visit: &Visit,
    ready: &mut Ready<'_>,
    job: &Job,
    sink: &mut dyn Sink,
) -> Result<Followed, UseError> {
    let meter = ready.reached.meter.clone();
    meter.stir();
    let mut meanwhile = Meanwhile {
        before: meter.hits(),
        ..Meanwhile::default()
    };
    let mut line = None;
    let mut output = Output {
        sink,
        room: Share::default(),
        held_back: None,
        dropping: false,
    };
    let more = visit.shared.outputs.clone();
    let more = more.wait_for(RUN_OUTPUT_BYTES_MAX - OUTPUT_BYTES_FREE);
    let spoken = speak(
        ready,
        job,
        &mut output,
        more,
        &mut meanwhile.overfilled,
        &mut line,
    )
    .await;
    let room = output.room;
    meanwhile.after = meter.hits();
    let kills = meanwhile.after.memory_kills;
    note_kills(
        &visit.shared,
        &visit.id,
        &ready.reached.sandbox,
        kills,
        true,
    );
    let ending = match spoken {
        Ok(Ending::Overdue) => {
            let silence = LinkError::Silent(RUN_END_GRACE_MILLIS);
            let _ = visit.broken(&ready.reached, &silence);
            Ending::Overdue
        }
        Ok(ending) => ending,
        Err(error) => {
            if meanwhile.after.moved_since(meanwhile.before).0 {
                say_out_of_memory(visit);
            }
            return Err(visit.broken(&ready.reached, &error));
        }
    };
    let limited = Limited::of(end(&ending), meanwhile);
    if let (Some((input, events)), Ending::Exited(_), Some(_)) =
        (&mut line, &ending, limited.killed_for)
    {
        // Nothing of a run that ended for a limit lives on, and takes of that limit what a later run shall have.
        let last_word = async {
            if limited.killed_for == Some(Limit::Pids) {
                // Nor what earlier runs left behind: it may be what took the places.
                let _ = input.stop().await;
            }
            let _ = input.kill().await;
            events.let_go().await;
        };
        let _ = timeout(Duration::from_millis(RUN_END_GRACE_MILLIS), last_word).await;
    }
    Ok(Followed {
        ending,
        limited,
        room,
    })
}

/// A sandbox that goes while the kernel kills in it for memory: its guest is the last that the kernel chooses.
fn say_out_of_memory(visit: &Visit) {
    tracing::warn!(session = %visit.id, "the sandbox ended while it was out of memory");
    let happened = Happened {
        op: "limit",
        target: Limit::Memory.name().to_owned(),
        ok: false,
        detail: "the sandbox ended while it was out of memory".to_owned(),
        took: Duration::ZERO,
    };
    visit.shared.log(&visit.id, Some(visit.serial), happened);
}

/// The next time that what is stored is found over its ceiling.
async fn overfilled(overfills: &mut watch::Receiver<u64>) {
    if overfills.changed().await.is_err() {
        // Nobody counts, or the sandbox is gone, which its link tells.
        std::future::pending::<()>().await;
    }
}

/// What a run prints, on its way to where it is kept.
struct Output<'a> {
    sink: &'a mut dyn Sink,
    /// What it takes of the memory for all output.
    room: Share,
    /// What waits for that memory; nothing more is read meanwhile, so the program waits too.
    held_back: Option<(Bytes, bool)>,
    /// The run is being ended, and what it still says is not kept.
    dropping: bool,
}

impl Output<'_> {
    /// Takes a piece, or holds it back; false where the run has said more than it may.
    fn take(&mut self, bytes: Bytes, is_stderr: bool) -> bool {
        if self.dropping {
            return true;
        }
        let held = u64::try_from(self.sink.held() + bytes.len()).unwrap_or(u64::MAX);
        if held > OUTPUT_BYTES_FREE && self.sink.held() > 0 && self.room.bytes() == 0 {
            self.held_back = Some((bytes, is_stderr));
            return true;
        }
        self.sink.take(&bytes, is_stderr)
    }

    /// There is room for all that it may still say.
    fn has_room(&mut self, room: Share) -> bool {
        self.room = room;
        match self.held_back.take() {
            Some((bytes, is_stderr)) => self.sink.take(&bytes, is_stderr),
            None => true,
        }
    }

    /// The run is being ended: what waits for room keeps its end from being told.
    fn drop_rest(&mut self) {
        self.dropping |= self.held_back.take().is_some();
    }
}

async fn speak(
    ready: &Ready<'_>,
    job: &Job,
    output: &mut Output<'_>,
    more: impl Future<Output = Share>,
    is_overfilled: &mut bool,
    line: &mut Option<(RunInput, RunEvents)>,
) -> Result<Ending, LinkError> {
    let mut overfills = ready.reached.meter.overfills();
    overfills.mark_unchanged();
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
    let (input, events) = line.insert(started?);
    let mut stopping = false;
    tokio::pin!(more);
    loop {
        tokio::select! {
            // Output without end keeps neither a stop nor the deadline waiting.
            biased;
            () = job.switch.stop.cancelled(), if !stopping => {
                stopping = true;
                output.drop_rest();
                // Over already, or stuck: the events and the end tell.
                let _ = timeout(Duration::from_millis(WORD_MILLIS_MAX), input.stop()).await;
                let stopped = Instant::now() + Duration::from_millis(STOP_GRACE_MILLIS) + grace;
                end = end.min(stopped);
            }
            () = overfilled(&mut overfills), if !*is_overfilled => {
                *is_overfilled = true;
                output.drop_rest();
                let _ = timeout(Duration::from_millis(WORD_MILLIS_MAX), input.kill()).await;
                end = end.min(Instant::now() + grace);
            }
            () = sleep_until(end) => return Ok(Ending::Overdue),
            () = sleep_until(ready.deadline), if output.held_back.is_some() => output.drop_rest(),
            room = &mut more, if output.held_back.is_some() => {
                if !output.has_room(room) {
                    return Ok(Ending::Flooded);
                }
            }
            event = events.next(), if output.held_back.is_none() => match event? {
                Some(Said::Started) => {}
                Some(Said::Stdout(bytes)) => {
                    if !output.take(bytes, false) {
                        return Ok(Ending::Flooded);
                    }
                }
                Some(Said::Stderr(bytes)) => {
                    if !output.take(bytes, true) {
                        return Ok(Ending::Flooded);
                    }
                }
                Some(Said::NotStarted(why)) => return Ok(Ending::NotStarted(why)),
                // Not all of it was kept; only a deadline's answer does not promise that.
                Some(Said::Exited(exit)) if output.dropping && exit.ended != Ended::Timeout => {
                    return Ok(Ending::Flooded);
                }
                Some(Said::Exited(exit)) => return Ok(Ending::Exited(exit)),
                None => return Err(LinkError::Protocol("a run without an end".to_owned())),
            },
        }
    }
}
