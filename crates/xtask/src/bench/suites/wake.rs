//! Sleep, and waking.

use crate::bench::figures::{Figure, Findings, Samples, Target};
use crate::bench::peers::floor::{FLOOR, Floor};
use crate::bench::place::Bench;
use crate::bench::requests::{close, hibernate, open, run_in};
use crate::bench::rounds::Race;
use crate::bench::service::Service;
use anyhow::anyhow;

const SECONDS: f64 = 10.0;

pub(super) fn measure(bench: &Bench, findings: &mut Findings) -> anyhow::Result<()> {
    let service = Service::start(&bench.binary)?;
    let mut connection = service.connect()?;
    let session = open(&mut connection)?;
    let floor = Floor::new();
    let mut slept = Samples::default();

    let mut race = Race::default();
    race.ours("sandboxd", || {
        slept.push(hibernate(&mut connection, &session)?);
        std::thread::sleep(crate::bench::place::PAUSE);
        run_in(&mut connection, &session, &["/bin/echo", "hi"], "hi\n")
    });
    race.beside(FLOOR, || match &floor {
        Ok(floor) => floor.round(),
        Err(why) => Err(anyhow!("{why:#}")),
    });
    let results = bench.race(race, SECONDS)?;
    results.notes(findings);
    if let Some(figure) = results.whole("wake to first output") {
        findings.figure(figure.target(Target::TimesOf(2.0, FLOOR.to_owned())));
    }
    findings.figure(Figure::new("POST /sessions/{id}/hibernate", "ms", &slept));
    close(&mut connection, &session)?;
    Ok(())
}
