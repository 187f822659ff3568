//! How cost grows. A cost that follows n^b has the slope b where both are logarithms; b is fitted by least squares.
//!
//! What is cheap is mostly a price that does not grow, and its b is near 0. So that a steep end is not hidden by a flat
//! beginning, the slope of the last step stands beside it.

mod layers;

use crate::bench::figures::{Curves, EXPONENT, Figure, Findings, Samples, Target, number};
use crate::bench::http::Connection;
use crate::bench::place::Bench;
use crate::bench::requests::{
    ask_file, close, hibernate, open, open_with, read_file, run_counted, run_in, shell_in,
    write_file,
};
use crate::bench::service::Service;
use serde_json::json;
use std::time::{Duration, Instant};

/// Nothing that somebody waits for may grow faster; the tenth is for what cannot be measured better.
const EXPONENT_MAX: f64 = 1.1;
const ROUNDS: usize = 15;
const KIB: usize = 1024;

const SESSIONS: [usize; 4] = [1, 10, 100, 800];
const FILES: [usize; 4] = [10, 100, 1_000, 10_000];
const BYTES: [usize; 5] = [KIB, 16 * KIB, 256 * KIB, 2 * KIB * KIB, 8 * KIB * KIB];
const LAYERS: [usize; 4] = [1, 4, 16, 64];

/// A cost at rising sizes.
struct Cost {
    what: &'static str,
    points: Vec<(f64, f64)>,
}

impl Cost {
    fn of(what: &'static str) -> Self {
        Self {
            what,
            points: Vec::new(),
        }
    }

    /// Measures it at one size: the median of some rounds.
    fn at(
        &mut self,
        bench: &Bench,
        size: usize,
        mut turn: impl FnMut() -> anyhow::Result<Duration>,
    ) -> anyhow::Result<()> {
        turn()?;
        let mut samples = Samples::default();
        for _ in 0..bench.times(ROUNDS).max(3) {
            bench.watch.ruler.measure();
            samples.push(turn()?);
        }
        self.points.push((number(size), samples.median()));
        Ok(())
    }
}

pub(super) fn measure(bench: &Bench, findings: &mut Findings) -> anyhow::Result<()> {
    tell(findings, "sessions that are resident", sessions(bench)?);
    tell(findings, "files in a directory", files(bench)?);
    tell(findings, "bytes", bytes(bench)?);
    match layers::layers(bench, &LAYERS) {
        Ok(costs) => tell(findings, "layers of the image", costs),
        Err(why) => findings.note(format!("layers are left out: {why:#}")),
    }
    Ok(())
}

fn tell(findings: &mut Findings, over: &str, costs: Vec<Cost>) {
    for cost in &costs {
        let (Some(whole), Some(last)) = (exponent(&cost.points), last_step(&cost.points)) else {
            continue;
        };
        let (Some(first), Some(end)) = (cost.points.first(), cost.points.last()) else {
            continue;
        };
        let what = format!(
            "{}, over {over} ({} to {}: {} to {} ms)",
            cost.what,
            first.0,
            end.0,
            crate::bench::figures::shown(first.1),
            crate::bench::figures::shown(end.1)
        );
        findings.figure(
            Figure::new(&what, EXPONENT, &Samples::one(whole))
                .beside("the last step alone", &Samples::one(last))
                .target(Target::AtMost(EXPONENT_MAX)),
        );
    }
    findings.curves.push(Curves {
        title: format!("Cost over {over}"),
        x: (over.to_owned(), true),
        y: ("ms".to_owned(), true),
        lines: costs
            .into_iter()
            .map(|c| (c.what.to_owned(), c.points))
            .collect(),
    });
}

/// The slope of the line through the logarithms.
fn exponent(points: &[(f64, f64)]) -> Option<f64> {
    if points.len() < 2 {
        return None;
    }
    let logs: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
    let count = number(logs.len());
    let mean_x = logs.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = logs.iter().map(|(_, y)| y).sum::<f64>() / count;
    let covariance: f64 = logs.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let variance: f64 = logs.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    Some(covariance / variance)
}

fn last_step(points: &[(f64, f64)]) -> Option<f64> {
    exponent(points.get(points.len().checked_sub(2)?..)?)
}

fn sessions(bench: &Bench) -> anyhow::Result<Vec<Cost>> {
    let service = Service::start(&bench.binary)?;
    let mut connection = service.connect()?;
    let (mut opening, mut running) = (Cost::of("POST /sessions"), Cost::of("a run of /bin/true"));
    let (mut listing, mut reading) = (Cost::of("GET /sessions"), Cost::of("read of 1 KiB"));
    let session = open(&mut connection)?;
    write_file(&mut connection, &session, "small", &[b'x'; KIB])?;
    let mut opened = 1;
    for count in SESSIONS {
        while opened < count {
            open(&mut connection)?;
            opened += 1;
        }
        opening.at(bench, count, || {
            let began = Instant::now();
            let one_more = open(&mut connection)?;
            let took = began.elapsed();
            close(&mut connection, &one_more)?;
            Ok(took)
        })?;
        running.at(bench, count, || {
            run_in(&mut connection, &session, &["/bin/true"], "")
        })?;
        reading.at(bench, count, || {
            read_file(&mut connection, &session, "small", 1024)
        })?;
        listing.at(bench, count, || {
            let began = Instant::now();
            connection.must("GET", "/sessions", "")?;
            Ok(began.elapsed())
        })?;
    }
    Ok(vec![opening, running, reading, listing])
}

fn files(bench: &Bench) -> anyhow::Result<Vec<Cost>> {
    let service = Service::start(&bench.binary)?;
    let mut connection = service.connect()?;
    let mut live = Cost::of("listing, live");
    let mut stored = Cost::of("listing, stored");
    let mut tree = Cost::of("POST /workspaces/{id}/tree");
    let mut sleeping = Cost::of("hibernating");
    let mut waking = Cost::of("waking");
    for count in FILES {
        let session = open(&mut connection)?;
        let make = format!("mkdir d && cd d && seq {count} | sed s/^/f/ | xargs -n 5000 touch");
        shell_in(&mut connection, &session, &make)?;
        let list =
            |connection: &mut Connection| ask_file(connection, &session, "list", "/workspace/d");
        live.at(bench, count, || list(&mut connection))?;
        sleeping.at(bench, count, || {
            run_in(&mut connection, &session, &["/bin/true"], "")?;
            hibernate(&mut connection, &session)
        })?;
        waking.at(bench, count, || {
            hibernate(&mut connection, &session)?;
            run_in(&mut connection, &session, &["/bin/true"], "")
        })?;
        hibernate(&mut connection, &session)?;
        stored.at(bench, count, || list(&mut connection))?;
        let body = json!({ "max_entries": 100_000 }).to_string();
        tree.at(bench, count, || {
            let began = Instant::now();
            connection.must("POST", &format!("/workspaces/{session}/tree"), &body)?;
            Ok(began.elapsed())
        })?;
        close(&mut connection, &session)?;
    }
    Ok(vec![live, stored, tree, sleeping, waking])
}

fn bytes(bench: &Bench) -> anyhow::Result<Vec<Cost>> {
    let settings = [("SANDBOXD_MAX_READ_BYTES", "16777216")];
    let service = Service::start_with(&bench.binary, &settings)?;
    let mut connection = service.connect()?;
    let session = open(&mut connection)?;
    let (mut output, mut reading) = (Cost::of("output of a run"), Cost::of("read of a file"));
    let mut writing = Cost::of("write of a file");
    for count in BYTES {
        let print = format!("head -c {count} /dev/zero | tr '\\0' x");
        output.at(bench, count, || {
            run_counted(&mut connection, &session, &["sh", "-c", &print], count)
        })?;
        let content = vec![b'x'; count];
        writing.at(bench, count, || {
            write_file(&mut connection, &session, "f", &content)
        })?;
        let length = u64::try_from(count)?;
        reading.at(bench, count, || {
            read_file(&mut connection, &session, "f", length)
        })?;
    }
    close(&mut connection, &session)?;
    Ok(vec![output, reading, writing])
}

/// Opening a session of a runtime, again and again.
fn opening(
    bench: &Bench,
    connection: &mut Connection,
    cost: &mut Cost,
    size: usize,
    runtime: &str,
) -> anyhow::Result<()> {
    let body = json!({ "runtime": runtime });
    cost.at(bench, size, || {
        let began = Instant::now();
        let session = open_with(connection, &body)?;
        let took = began.elapsed();
        close(connection, &session)?;
        Ok(took)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(cost: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        [1.0, 10.0, 100.0, 1_000.0].map(|n| (n, cost(n))).to_vec()
    }

    #[test]
    fn the_exponent_of_a_power_is_found() {
        for power in [0.0, 1.0, 2.0] {
            let fitted = exponent(&points(|n| 3.0 * n.powf(power))).expect("points enough");
            assert!((fitted - power).abs() < 1e-9, "{fitted}");
        }
        assert_eq!(exponent(&[(1.0, 1.0)]), None);
    }

    #[test]
    fn a_steep_end_is_seen_behind_a_flat_beginning() {
        let points = points(|n| 5.0 + n * n / 10_000.0);
        let (whole, last) = (exponent(&points), last_step(&points));
        assert!(last > whole && last > Some(1.1), "{whole:?} {last:?}");
    }
}
