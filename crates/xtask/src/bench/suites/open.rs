//! Opening: walls, guest, and the first run.

use crate::bench::figures::{Findings, Samples, Target};
use crate::bench::http::Connection;
use crate::bench::peers::bwrap::{BWRAP, Bwrap};
use crate::bench::peers::crun::{CRUN, Crun};
use crate::bench::peers::docker::DOCKER_RUN;
use crate::bench::peers::floor::{FLOOR, Floor};
use crate::bench::peers::python::PYTHON;
use crate::bench::place::{Bench, import};
use crate::bench::requests::{close, open_with, run_in};
use crate::bench::rounds::Race;
use crate::bench::service::Service;
use anyhow::anyhow;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const SECONDS: f64 = 40.0;
const HOST: &str = "sandboxd, host runtime";
const IMAGE: &str = "sandboxd, imported image";
const POOLED: &str = "sandboxd, host runtime, from a pool";
/// Sandboxes that the pool keeps ready, and how long it may take to be full again between two rounds.
const POOL: &str = "4";
const POOL_WAIT: Duration = Duration::from_secs(10);
const IMAGE_NAME: &str = "bench:1";
/// What ours and the Python service are asked to open.
const OF_HOST: &str = "host";
const OF_IMAGE: &str = "image";

pub(super) fn measure(bench: &Bench, findings: &mut Findings) -> anyhow::Result<()> {
    let root = bench.root();
    let mut runtimes = format!("{OF_HOST}=host");
    match &root {
        Ok(_) => runtimes.push_str(&format!(",{OF_IMAGE}={IMAGE_NAME}")),
        Err(why) => findings.note(format!("no image is measured: {why:#}")),
    }
    let settings = [
        ("SANDBOXD_MAX_SESSIONS", "100"),
        ("SANDBOXD_RUNTIMES", &runtimes),
    ];
    let service = Service::start_prepared(&bench.binary, &settings, |state| match &root {
        Ok(root) => import(&bench.binary, state, root, IMAGE_NAME),
        Err(_) => Ok(()),
    })?;
    let mut of_host = service.connect()?;
    let mut of_image = service.connect()?;
    let ready = [
        ("SANDBOXD_MAX_SESSIONS", "100"),
        ("SANDBOXD_RUNTIMES", "host=host"),
        ("SANDBOXD_POOL", POOL),
    ];
    let ready = Service::start_with(&bench.binary, &ready)?;
    let mut of_pool = ready.connect()?;
    until_full(&mut of_pool)?;
    let (floor, bwrap) = (Floor::new(), Bwrap::new());
    let mut crun = root.and_then(Crun::new);
    let docker = bench.docker();
    let python = bench.python();
    let mut to_python = python.as_ref().map_err(|error| anyhow!("{error:#}"));
    let mut to_python = to_python
        .as_mut()
        .map_or_else(|error| Err(anyhow!("{error:#}")), |python| python.connect());
    let mut opens = Samples::default();

    let mut race = Race::default();
    race.ours(HOST, || {
        let (opened, took) = round(&mut of_host, &json!({ "runtime": OF_HOST }))?;
        opens.push(opened);
        Ok(took)
    });
    race.ours(POOLED, || {
        let (_, took) = round(&mut of_pool, &json!({ "runtime": OF_HOST }))?;
        // What takes its place is made outside the measured time of anybody.
        until_full(&mut of_pool)?;
        Ok(took)
    });
    if runtimes.contains(IMAGE_NAME) {
        let body = json!({ "runtime": OF_IMAGE });
        race.ours(IMAGE, move || Ok(round(&mut of_image, &body)?.1));
    }
    race.beside(FLOOR, || available(&floor)?.round());
    race.beside(BWRAP, || available(&bwrap)?.round());
    race.beside(CRUN, || match &mut crun {
        Ok(crun) => crun.round(),
        Err(why) => Err(anyhow!("{why:#}")),
    });
    race.beside(DOCKER_RUN, || available(&docker)?.run());
    race.beside(PYTHON, || match &mut to_python {
        Ok(connection) => Ok(round(connection, &json!({}))?.1),
        Err(why) => Err(anyhow!("{why:#}")),
    });
    let results = bench.race(race, SECONDS)?;
    results.notes(findings);

    if let Some(figure) = results.figure("open, host runtime", HOST, &[FLOOR, BWRAP]) {
        findings.figure(
            figure
                .target(Target::TimesOf(2.0, FLOOR.to_owned()))
                .target(Target::SmallerBy(2.0, BWRAP.to_owned())),
        );
    }
    if let Some(figure) = results.figure("open, from a pool", POOLED, &[FLOOR, BWRAP]) {
        findings.figure(figure.target(Target::TimesOf(1.0, FLOOR.to_owned())));
    }
    let beside = [FLOOR, CRUN, DOCKER_RUN, PYTHON];
    if let Some(figure) = results.figure("open, imported image", IMAGE, &beside) {
        findings.figure(
            figure
                .target(Target::TimesOf(2.0, FLOOR.to_owned()))
                .target(Target::SmallerBy(3.0, CRUN.to_owned()))
                .target(Target::SmallerBy(100.0, PYTHON.to_owned())),
        );
    }
    findings.figure(crate::bench::figures::Figure::new(
        "of which the answer to POST /sessions, host runtime",
        "ms",
        &opens,
    ));
    findings.note(
        "The floor makes the namespaces, mounts and cgroups of a sandbox over the host's /usr, without guest, filter for \
         system calls, or HTTP. bwrap has the same walls, and cgroups with the same limits made for it.",
    );
    Ok(())
}

/// Opens, runs, closes: how long until the session was there, and until its output.
fn round(connection: &mut Connection, body: &Value) -> anyhow::Result<(Duration, Duration)> {
    let began = Instant::now();
    let session = open_with(connection, body)?;
    let opened = began.elapsed();
    run_in(connection, &session, &["/bin/echo", "hi"], "hi\n")?;
    let took = began.elapsed();
    close(connection, &session)?;
    Ok((opened, took))
}

/// Waits until the pool has all that it keeps ready.
fn until_full(connection: &mut Connection) -> anyhow::Result<()> {
    let full = format!("sandboxd_pool_ready{{runtime=\"{OF_HOST}\"}} {POOL}");
    let deadline = Instant::now() + POOL_WAIT;
    loop {
        let metrics = connection.must("GET", "/metrics", "")?;
        if String::from_utf8_lossy(&metrics).contains(&full) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(anyhow!("the pool was not full within its time"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A peer, or why there is none.
fn available<T>(peer: &anyhow::Result<T>) -> anyhow::Result<&T> {
    peer.as_ref().map_err(|why| anyhow!("{why:#}"))
}
