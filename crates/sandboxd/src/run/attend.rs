//! Stays with a run from its start to its end: bytes in, bytes out, signals, deadlines.

use super::outcome::{Ended, Outcome};
use super::signals::{Asked, Control, Ending, Signals};
use super::sink::Sink;
use super::streams::Stream;
use crate::limits::{CONTROLS_QUEUED_MAX, END_GRACE_MILLIS};
use bytes::Bytes;
use sandboxd_protocol::client::{LinkError, Output, RunEvents, RunInput};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// How the flow of output ended.
enum Flowed {
    /// The guest said how the run ended.
    Ended(Ended),
    /// Output could not be passed on.
    Unwritable,
    /// The link failed.
    Link(LinkError),
}

/// Attends a run. `timeout` is what the guest was told; it is held to it.
pub(super) async fn attend(
    (input, events): (RunInput, RunEvents),
    stdin: Option<mpsc::Receiver<Bytes>>,
    sink: &mut Sink,
    signals: &mut Signals,
    timeout: Option<Duration>,
) -> Outcome {
    let (control, controls) = mpsc::channel(CONTROLS_QUEUED_MAX);
    let feeding = feed(input, stdin, controls);
    let flowing = flow(events, sink);
    tokio::pin!(feeding, flowing);

    let grace = Duration::from_millis(END_GRACE_MILLIS);
    let overdue = timeout.map(|timeout| Instant::now() + timeout + grace);
    let mut ending = Ending::default();
    let mut first: Option<Asked> = None;
    let mut wait_until: Option<Instant> = None;
    let mut fed = false;
    loop {
        let step = tokio::select! {
            biased;
            flowed = &mut flowing => return match flowed {
                Flowed::Ended(ended) => Outcome::Ended(ended),
                Flowed::Unwritable => Outcome::Unwritable,
                Flowed::Link(error) => first.map_or(Outcome::Link(error), Outcome::Asked),
            },
            asked = signals.next() => {
                first.get_or_insert(asked);
                Some(ending.asked(asked))
            }
            () = until(wait_until) => ending.waited(),
            () = until(overdue) => return Outcome::Overdue,
            () = &mut feeding, if !fed => {
                fed = true;
                continue;
            }
        };
        match (step, first) {
            (Some((word, grace)), _) => {
                wait_until = Some(Instant::now() + grace);
                // A full queue is a guest that does not listen; the wait deals with it.
                let _ = control.try_send(word);
            }
            (None, Some(asked)) => return Outcome::Asked(asked),
            (None, None) => wait_until = None,
        }
    }
}

/// Sleeps until then, or for ever.
async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

/// Output and the end of it.
async fn flow(mut events: RunEvents, sink: &mut Sink) -> Flowed {
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            // The rest is not read then: the run is given up, which ends its tree.
            () = sink.failed() => return Flowed::Unwritable,
        };
        let written = match event {
            Ok(Some(Output::Started)) => true,
            Ok(Some(Output::Stdout(bytes))) => sink.take(Stream::Stdout, bytes).await,
            Ok(Some(Output::Stderr(bytes))) => sink.take(Stream::Stderr, bytes).await,
            Ok(Some(Output::NotStarted(why))) => return Flowed::Ended(Ended::NotStarted(why)),
            Ok(Some(Output::Exited(exit))) => return Flowed::Ended(Ended::Exited(exit)),
            Ok(None) => {
                return Flowed::Link(LinkError::Protocol("a run without an end".to_owned()));
            }
            Err(error) => return Flowed::Link(error),
        };
        if !written {
            return Flowed::Unwritable;
        }
    }
}

/// Input and words of control. A failure here is the end of the run or of the link, of which [`flow`] learns more.
async fn feed(
    mut input: RunInput,
    mut stdin: Option<mpsc::Receiver<Bytes>>,
    mut controls: mpsc::Receiver<Control>,
) {
    loop {
        let control = match &mut stdin {
            None => controls.recv().await,
            Some(chunks) => tokio::select! {
                biased;
                control = controls.recv() => control,
                fed = feed_next(&mut input, chunks) => match fed {
                    Fed::More => continue,
                    Fed::End => {
                        stdin = None;
                        continue;
                    }
                },
            },
        };
        let said = match control {
            Some(Control::Interrupt) => input.signal(2).await,
            Some(Control::Stop) => input.stop().await,
            Some(Control::Kill) => input.kill().await,
            None => return,
        };
        if said.is_err() {
            return;
        }
        // Whoever asked for the end does not type any more.
        stdin = None;
    }
}

/// Whether more input may come.
enum Fed {
    More,
    End,
}

async fn feed_next(input: &mut RunInput, chunks: &mut mpsc::Receiver<Bytes>) -> Fed {
    match chunks.recv().await {
        Some(chunk) => match input.stdin(&chunk).await {
            Ok(()) => Fed::More,
            Err(_) => Fed::End,
        },
        None => {
            let _ = input.end_stdin().await;
            Fed::End
        }
    }
}
