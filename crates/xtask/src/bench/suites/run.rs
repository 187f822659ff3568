//! Runs in a session that is open.

use crate::bench::figures::{Figure, Findings, Samples, Target, number};
use crate::bench::http::Connection;
use crate::bench::peers::docker::{Container, DOCKER_EXEC};
use crate::bench::peers::python::{PYTHON, PythonService};
use crate::bench::peers::spawn::{self, SPAWN};
use crate::bench::place::Bench;
use crate::bench::requests::{close, open, run_counted, run_in, shell_in};
use crate::bench::rounds::Race;
use crate::bench::service::Service;
use anyhow::anyhow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const SECONDS: f64 = 20.0;
const ARGV: &str = "sandboxd, argv";
const SHELL: &str = "sandboxd, shell";
const MIB: usize = 1024 * 1024;
/// Text, so that it stays as long as it is in JSON.
const PRINT_MIB: [&str; 3] = ["sh", "-c", "head -c 1048576 /dev/zero | tr '\\0' x"];
const CLIENTS: usize = 64;
/// How long the clients are let loose each time.
const WINDOW: Duration = Duration::from_secs(2);
const WINDOWS: usize = 3;

/// A session of the Python service, with its connection.
struct Peer {
    connection: Connection,
    session: String,
}

impl Peer {
    fn of(service: &anyhow::Result<PythonService>) -> anyhow::Result<Self> {
        let service = service.as_ref().map_err(|why| anyhow!("{why:#}"))?;
        let mut connection = service.connect()?;
        let session = open(&mut connection)?;
        Ok(Self {
            connection,
            session,
        })
    }
}

fn with<T, R>(
    peer: &mut anyhow::Result<T>,
    act: impl FnOnce(&mut T) -> anyhow::Result<R>,
) -> anyhow::Result<R> {
    match peer {
        Ok(peer) => act(peer),
        Err(why) => Err(anyhow!("{why:#}")),
    }
}

pub(super) fn measure(bench: &Bench, findings: &mut Findings) -> anyhow::Result<()> {
    let service = Service::start(&bench.binary)?;
    let mut connection = service.connect()?;
    let session = open(&mut connection)?;
    let mut second = service.connect()?;
    let mut container = bench
        .docker()
        .and_then(super::super::peers::docker::Docker::container);
    let python = bench.python();
    let mut peer = Peer::of(&python);

    let mut race = Race::default();
    race.ours(ARGV, || {
        run_in(&mut connection, &session, &["/bin/true"], "")
    });
    race.ours(SHELL, || shell_in(&mut second, &session, "true"));
    race.beside(SPAWN, || spawn::run(&["/bin/true"], 0));
    race.beside(DOCKER_EXEC, || {
        with(&mut container, |container| {
            container.exec(&["/bin/true"], 0)
        })
    });
    race.beside(PYTHON, || {
        with(&mut peer, |peer| {
            run_in(&mut peer.connection, &peer.session, &["/bin/true"], "")
        })
    });
    let results = bench.race(race, SECONDS)?;
    results.notes(findings);
    let what = "run of /bin/true";
    if let Some(figure) = results.figure(what, ARGV, &[SHELL, SPAWN, DOCKER_EXEC, PYTHON]) {
        findings.figure(
            figure
                .target(Target::TimesOf(2.0, SPAWN.to_owned()))
                .target(Target::SmallerBy(20.0, PYTHON.to_owned())),
        );
    }

    let mut race = Race::default();
    race.ours("sandboxd", || {
        run_counted(&mut connection, &session, &PRINT_MIB, MIB)
    });
    race.beside(SPAWN, || spawn::run(&PRINT_MIB, MIB));
    race.beside(DOCKER_EXEC, || {
        with(&mut container, |container| container.exec(&PRINT_MIB, MIB))
    });
    race.beside(PYTHON, || {
        with(&mut peer, |peer| {
            run_counted(&mut peer.connection, &peer.session, &PRINT_MIB, MIB)
        })
    });
    let results = bench.race(race, SECONDS)?;
    results.notes(findings);
    if let Some(figure) = results.whole("run that prints 1 MiB") {
        findings.figure(figure.target(Target::TimesOf(3.0, SPAWN.to_owned())));
    }
    clients(
        bench, findings, &service, &session, &container, &peer, &python,
    )?;
    close(&mut connection, &session)?;
    Ok(())
}

/// Runs a second with many clients at once, in windows one after the other. What a peer refuses or fails at is not counted
/// as done, and said.
fn clients(
    bench: &Bench,
    findings: &mut Findings,
    service: &Service,
    session: &str,
    container: &anyhow::Result<Container>,
    peer: &anyhow::Result<Peer>,
    python: &anyhow::Result<PythonService>,
) -> anyhow::Result<()> {
    let (mut ours, mut bare) = (Samples::default(), Samples::default());
    let (mut exec, mut theirs) = (Samples::default(), Samples::default());
    let mut failures: Vec<(&str, anyhow::Error)> = Vec::new();
    let mut counted = |who, done: Done, samples: &mut Samples| {
        samples.push_value(done.rate);
        failures.extend(done.failures.into_iter().map(|failure| (who, failure)));
    };
    let true_in = |connection: &mut Connection, session: &str| {
        run_in(connection, session, &["/bin/true"], "").map(drop)
    };
    for _ in 0..bench.times(WINDOWS) {
        let connect = || service.connect();
        let done = at_once(connect, |c| true_in(c, session));
        if let Some(failure) = done.failures.into_iter().next() {
            return Err(failure);
        }
        ours.push_value(done.rate);
        let spawn = |(): &mut ()| spawn::run(&["/bin/true"], 0).map(drop);
        counted(SPAWN, at_once(|| Ok(()), spawn), &mut bare);
        if let Ok(container) = container {
            let exec_one = |(): &mut ()| container.exec(&["/bin/true"], 0).map(drop);
            counted(DOCKER_EXEC, at_once(|| Ok(()), exec_one), &mut exec);
        }
        if let (Ok(python), Ok(peer)) = (python, peer) {
            let connect = || python.connect();
            let done = at_once(connect, |c| true_in(c, &peer.session));
            counted(PYTHON, done, &mut theirs);
        }
    }
    for who in [SPAWN, DOCKER_EXEC, PYTHON] {
        let mut of_one = failures.iter().filter(|(failed, _)| *failed == who);
        let count = of_one.clone().count();
        if let Some((_, first)) = of_one.next() {
            findings.note(format!(
                "{who} failed at {count} of the runs of {CLIENTS} clients: {first:#}"
            ));
        }
    }
    let what = format!("runs of /bin/true with {CLIENTS} clients");
    let mut figure = Figure::new(&what, "runs/s", &ours).beside(SPAWN, &bare);
    if container.is_ok() {
        figure = figure.beside(DOCKER_EXEC, &exec);
    }
    if peer.is_ok() {
        figure = figure
            .beside(PYTHON, &theirs)
            .target(Target::LargerBy(20.0, PYTHON.to_owned()));
    }
    findings.figure(figure);
    Ok(())
}

/// What many clients came to.
struct Done {
    /// How often it was done, a second.
    rate: f64,
    /// Why it was not.
    failures: Vec<anyhow::Error>,
}

/// Lets clients do the same again and again. One that fails begins anew.
fn at_once<C>(
    connect: impl Fn() -> anyhow::Result<C> + Sync,
    act: impl Fn(&mut C) -> anyhow::Result<()> + Sync,
) -> Done {
    let done = AtomicUsize::new(0);
    let began = Instant::now();
    let until_it_fails = || -> anyhow::Result<()> {
        let mut connection = connect()?;
        while began.elapsed() < WINDOW {
            act(&mut connection)?;
            done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    let failures = std::thread::scope(|scope| {
        let client = |_| {
            scope.spawn(|| {
                let mut failures = Vec::new();
                while began.elapsed() < WINDOW {
                    failures.extend(until_it_fails().err());
                }
                failures
            })
        };
        let clients: Vec<_> = (0..CLIENTS).map(client).collect();
        let ended = clients.into_iter().map(|client| client.join());
        ended
            .flat_map(|ended| ended.unwrap_or_else(|_| vec![anyhow!("a client panicked")]))
            .collect()
    });
    let took = began.elapsed();
    Done {
        rate: number(done.into_inner()) / took.as_secs_f64(),
        failures,
    }
}
