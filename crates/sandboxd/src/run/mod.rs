//! `sandboxd run`: a sandbox in this process, for one program, without a server.
//!
//! In the order in which a run walks them:
//!
//! - [`request`]: flags and configuration become what is asked for.
//! - [`mod@attend`]: bytes in, bytes out, signals and deadlines until the program is over.
//! - [`streams`], [`sink`], [`signals`]: our own ends of those.
//! - [`outcome`]: exit code, line, object.

mod attend;
mod outcome;
mod request;
mod signals;
mod sink;
mod streams;

use crate::arguments::RunArguments;
use crate::failure::Failure;
use crate::limits::KILL_GRACE_MILLIS;
use crate::output;
use crate::sandbox::{Sandbox, Workshop, configuration, not_enforced_line};
use attend::attend;
use outcome::{Named, Outcome, Verdict};
use request::Request;
use sandboxd_server::backends::Ceiling;
use sandboxd_server::config::{Config, Flags};
use sandboxd_server::sessions::Limited;
pub(crate) use signals::Signals;
use sink::{Collected, Sink};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use streams::{WriteFailure, Writer};
use tokio::sync::watch;

/// Runs a program in a sandbox of its own.
pub(crate) fn run(arguments: Box<RunArguments>) -> ExitCode {
    let json = arguments.json;
    let told = in_sandbox(*arguments);
    match told {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            if json {
                let object = outcome::failed_object(failure.code, &failure.text);
                output::say(&object.to_string());
            }
            failure.tell()
        }
    }
}

/// The exit code of a run, or why there was none.
fn in_sandbox(arguments: RunArguments) -> Result<u8, Failure> {
    let flags = Flags {
        state_dir: arguments.state_dir.clone(),
        ..Flags::default()
    };
    let config = configuration(flags, arguments.config.clone())?;
    let request = request::request(arguments, &config.service)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::ours(format!("cannot start: {error}")))?;
    let told = runtime.block_on(drive(&request, &config));
    // What still blocks (a read of a terminal) must not hold us.
    runtime.shutdown_background();
    told
}

/// Opens the sandbox, attends the run, and removes every trace, whatever happens in between.
async fn drive(request: &Request, config: &Config) -> Result<u8, Failure> {
    let mut signals =
        Signals::hear().map_err(|error| Failure::ours(format!("cannot hear signals: {error}")))?;
    let workshop = Workshop::start(config).await?;
    let told = tokio::select! {
        made = workshop.make(&request.runtime, request.spec.clone()) => match made {
            Ok(sandbox) => Ok(in_one(&sandbox, request, &mut signals).await),
            Err(failure) => Err(failure),
        },
        asked = signals.next() => Ok(asked.code()),
    };
    // Whoever asks again does not wait for the tidying; it is done then by what outlives us.
    tokio::select! {
        () = workshop.close() => {}
        _ = signals.next() => {}
    }
    told
}

/// Attends the run and tells how it came out.
async fn in_one(sandbox: &Sandbox, request: &Request, signals: &mut Signals) -> u8 {
    let mut accepted = request.spec.allow_unenforced.clone();
    // The directory given with `--workspace` keeps its own owner.
    accepted.push(Ceiling::WorkspaceOwner);
    if let Some(line) = not_enforced_line(&sandbox.enforced, &accepted) {
        output::complain(&line);
    }
    let (mut outcome, kept, took) = run_in(sandbox, request, signals).await;
    let hits = sandbox.meter.hits();
    if outcome.may_be_for_memory() && hits.memory_kills.is_some_and(|kills| kills > 0) {
        outcome = outcome.for_memory();
    }
    let limited = outcome.limited(hits, *sandbox.meter.overfills().borrow() > 0);
    let verdict = told(&outcome, &kept, &limited, &request.named);
    if request.json {
        let nothing = Collected::default();
        let kept = kept.as_ref().unwrap_or(&nothing);
        let object = outcome::object(&outcome, &verdict, &limited, kept, &sandbox.enforced, took);
        output::say(&object.to_string());
    }
    if let Some(line) = &verdict.line {
        output::complain(line);
    }
    verdict.code
}

fn told(
    outcome: &Outcome,
    kept: &Result<Collected, WriteFailure>,
    limited: &Limited,
    named: &Named,
) -> Verdict {
    let written = kept.as_ref().map(|_| ()).map_err(|failure| *failure);
    outcome::verdict(outcome, &written, limited, named)
}

/// Waits until what the sandbox stores is over its limit, and a moment for the end that its backend makes of the run.
async fn overfilled(overfills: &mut watch::Receiver<u64>) {
    if overfills.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
    tokio::time::sleep(Duration::from_millis(KILL_GRACE_MILLIS)).await;
}

/// The run itself: how it came out, what was kept of its output, and how long it took.
async fn run_in(
    sandbox: &Sandbox,
    request: &Request,
    signals: &mut Signals,
) -> (Outcome, Result<Collected, WriteFailure>, Duration) {
    let mut sink = if request.json {
        Sink::Collected(Collected::default())
    } else {
        Sink::Attached(Writer::start())
    };
    let mut run = request.run.clone();
    run.stdin = streams::stdin_can_have_bytes();
    let stdin = run.stdin.then(streams::read_stdin);
    let started = Instant::now();
    let outcome = match sandbox.client.run(run).await {
        Ok(run) => {
            let mut overfills = sandbox.meter.overfills();
            sandbox.meter.stir();
            tokio::select! {
                biased;
                outcome = attend(run, stdin, &mut sink, signals, request.named.timeout) => outcome,
                () = overfilled(&mut overfills) => Outcome::overfilled(),
            }
        }
        Err(error) => Outcome::Link(error),
    };
    let took = started.elapsed();
    // A reader that is slow, not gone, may take its time with the output of a program that ended by itself; a signal
    // ends the wait. Whatever was ended has no claim to it.
    let patience = async {
        if outcome.is_the_programs_own() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(Duration::from_millis(KILL_GRACE_MILLIS)).await;
    };
    let kept = tokio::select! {
        kept = sink.finish() => kept,
        () = patience => Ok(Collected::default()),
        asked = signals.next() => return (Outcome::Asked(asked), Ok(Collected::default()), took),
    };
    (outcome, kept, took)
}
