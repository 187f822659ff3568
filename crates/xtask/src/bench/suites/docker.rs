//! Our Docker backend, beside the Python service and bare Docker, on the same engine with the same image.

use crate::bench::figures::{Figure, Findings, Samples, Target};
use crate::bench::http::Connection;
use crate::bench::peers::docker::{DOCKER_EXEC, DOCKER_RUN, DOCKER_START, IMAGE};
use crate::bench::peers::python::{PYTHON, PythonService};
use crate::bench::place::{Bench, PAUSE};
use crate::bench::processes::Memory;
use crate::bench::requests::{close, hibernate, open, read_file, run_in, write_file};
use crate::bench::rounds::{Race, Results};
use crate::bench::service::Service;
use std::time::{Duration, Instant};

const OURS: &str = "sandboxd on Docker";
const SECONDS: f64 = 15.0;
/// Opens take a quarter of a second each, and two of the contestants are close.
const OPEN_SECONDS: f64 = 90.0;
const KIB: usize = 1024;
/// Sessions that memory is measured with.
const SESSIONS: usize = 20;
/// Until what was done last is over.
const OVER: Duration = Duration::from_secs(2);
/// Until our daemon has given back what only work takes.
const REST: Duration = Duration::from_secs(12);

pub(super) fn measure(bench: &Bench, findings: &mut Findings) -> anyhow::Result<()> {
    let docker = match bench.docker() {
        Ok(docker) => docker,
        Err(why) => {
            findings.note(format!("There is no engine to measure on: {why:#}"));
            return Ok(());
        }
    };
    let runtimes = format!("bench={IMAGE}");
    let settings = [
        ("SANDBOXD_BACKEND", "docker"),
        ("SANDBOXD_DOCKER_HOST", docker.host.as_str()),
        ("SANDBOXD_RUNTIMES", &runtimes),
        ("SANDBOXD_MAX_SESSIONS", "100"),
        ("SANDBOXD_PERSIST_CONTAINERS", "true"),
    ];
    let service = Service::start_with(&bench.binary, &settings)?;
    let python = bench.python();
    if let Err(why) = &python {
        findings.note(format!("{PYTHON} is left out: {why:#}"));
    }
    let python = python.ok();
    let container = docker.container()?;

    let (mut ours, mut theirs) = (service.connect()?, connected(python.as_ref())?);
    let mut race = Race::default();
    race.ours(OURS, || first_output(&mut ours));
    race.beside(DOCKER_RUN, || docker.run());
    if let Some(theirs) = &mut theirs {
        race.beside(PYTHON, || first_output(theirs));
    }
    let results = bench.race(race, OPEN_SECONDS)?;
    let target = Target::TimesOf(1.0, DOCKER_RUN.to_owned());
    tell(findings, &results, "open, to first output", Some(target));

    let session = open(&mut ours)?;
    let their_session = theirs.as_mut().map(open).transpose()?;
    let peer = theirs.as_mut().zip(their_session.as_deref());
    of_a_session(bench, findings, (&mut ours, &session), peer, &container)?;

    let mut race = Race::default();
    race.ours(OURS, || {
        hibernate(&mut ours, &session)?;
        std::thread::sleep(PAUSE);
        run_in(&mut ours, &session, &["/bin/echo", "hi"], "hi\n")
    });
    race.beside(DOCKER_START, || container.restarted());
    let results = bench.race(race, SECONDS)?;
    tell(
        findings,
        &results,
        "wake of a stopped container, to first output",
        None,
    );
    let measured = memory(findings, &service, python.as_ref());
    // Stopped containers outlive the service, which is not wanted here.
    close_all(&mut ours)?;
    measured
}

fn close_all(connection: &mut Connection) -> anyhow::Result<()> {
    let sessions = connection.must("GET", "/sessions", "")?;
    let sessions: serde_json::Value = serde_json::from_slice(&sessions)?;
    for session in sessions.as_array().into_iter().flatten() {
        if let Some(id) = session["session_id"].as_str() {
            close(connection, id)?;
        }
    }
    Ok(())
}

/// Runs and files, in sessions that are open.
fn of_a_session(
    bench: &Bench,
    findings: &mut Findings,
    (ours, session): (&mut Connection, &str),
    mut peer: Option<(&mut Connection, &str)>,
    container: &crate::bench::peers::docker::Container,
) -> anyhow::Result<()> {
    let mut race = Race::default();
    race.ours(OURS, || run_in(ours, session, &["/bin/true"], ""));
    race.beside(DOCKER_EXEC, || container.exec(&["/bin/true"], 0));
    if let Some((theirs, their_session)) = &mut peer {
        race.beside(PYTHON, || run_in(theirs, their_session, &["/bin/true"], ""));
    }
    let results = bench.race(race, SECONDS)?;
    let target = Target::SmallerBy(20.0, PYTHON.to_owned());
    tell(findings, &results, "run of /bin/true", Some(target));
    for (size, words) in [(KIB, "1 KiB"), (KIB * KIB, "1 MiB")] {
        let content = vec![b'x'; size];
        let length = u64::try_from(size)?;
        let mut race = Race::default();
        race.ours(OURS, || write_file(ours, session, "f", &content));
        if let Some((theirs, their_session)) = &mut peer {
            race.beside(PYTHON, || write_file(theirs, their_session, "f", &content));
        }
        let results = bench.race(race, SECONDS / 3.0)?;
        tell(findings, &results, &format!("write of {words}"), None);
        let mut race = Race::default();
        race.ours(OURS, || read_file(ours, session, "f", length));
        if let Some((theirs, their_session)) = &mut peer {
            race.beside(PYTHON, || read_file(theirs, their_session, "f", length));
        }
        let results = bench.race(race, SECONDS / 3.0)?;
        tell(findings, &results, &format!("read of {words}"), None);
    }
    Ok(())
}

/// The two daemons with twenty sessions each.
fn memory(
    findings: &mut Findings,
    service: &Service,
    python: Option<&PythonService>,
) -> anyhow::Result<()> {
    let pss_mib = |pid: u32| anyhow::Ok(Samples::one(Memory::of(pid)?.pss_kib / 1024.0));
    let just_after = |connection: &mut Connection, pid: u32| {
        twenty(connection)?;
        std::thread::sleep(OVER);
        pss_mib(pid)
    };
    let named = |when: &str| format!("daemon with {SESSIONS} sessions, {when}, PSS");
    let ours = just_after(&mut service.connect()?, service.pid())?;
    let mut figure = Figure::new(&named("just after their first runs"), "MiB", &ours);
    if let Some(python) = python {
        figure = figure.beside(PYTHON, &just_after(&mut python.connect()?, python.pid())?);
    }
    findings.figure(figure);
    findings.note(
        "At rest is twelve seconds after the last request; our daemon has given back by then what only work takes.",
    );
    std::thread::sleep(REST);
    let mut figure = Figure::new(&named("at rest"), "MiB", &pss_mib(service.pid())?)
        .target(Target::SmallerBy(5.0, PYTHON.to_owned()));
    if let Some(python) = python {
        figure = figure.beside(PYTHON, &pss_mib(python.pid())?);
    }
    findings.figure(figure);
    Ok(())
}

/// Opens what is missing of twenty, each with a run.
fn twenty(connection: &mut Connection) -> anyhow::Result<()> {
    for _ in 1..SESSIONS {
        let session = open(connection)?;
        run_in(connection, &session, &["/bin/true"], "")?;
    }
    Ok(())
}

fn connected(python: Option<&PythonService>) -> anyhow::Result<Option<Connection>> {
    python.map(PythonService::connect).transpose()
}

/// Opens, runs, closes; how long it took to the output.
fn first_output(connection: &mut Connection) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let session = open(connection)?;
    run_in(connection, &session, &["/bin/echo", "hi"], "hi\n")?;
    let took = began.elapsed();
    close(connection, &session)?;
    Ok(took)
}

fn tell(findings: &mut Findings, results: &Results, what: &str, target: Option<Target>) {
    results.notes(findings);
    if let Some(figure) = results.whole(what) {
        findings.figure(match target {
            Some(target) => figure.target(target),
            None => figure,
        });
    }
}
