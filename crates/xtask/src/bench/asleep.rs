//! What sleep and waking cost, and what many sessions do.

use super::figures::{Limit, Line, Samples};
use super::floor::Floor;
use super::processes::{Memory, guests};
use super::service::Service;
use super::suites::{PAUSE, WARM_UP_ROUNDS, close, open, run_in};
use anyhow::bail;
use std::path::Path;
use std::time::{Duration, Instant};

const WAKE_ROUNDS: usize = 60;
const RESIDENT: usize = 1_000;
const ASLEEP: usize = 10_000;
/// Sandboxes that there may be beside ten thousand sleepers.
const RESIDENT_BESIDE: usize = 16;
const LIST_ROUNDS: usize = 30;
/// Until what was done last is written, and buffers are given back.
const QUIET: Duration = Duration::from_secs(2);

/// From a run in a sleeping session to its output, beside the same walls made by a bare program.
pub(crate) fn wake(binary: &Path) -> anyhow::Result<Vec<Line>> {
    let service = Service::start(binary)?;
    let mut connection = service.connect()?;
    let floor = Floor::new()?;
    let session = open(&mut connection)?;
    let (mut ours, mut bare, mut slept) =
        (Samples::default(), Samples::default(), Samples::default());
    for round in 0..WARM_UP_ROUNDS + WAKE_ROUNDS {
        let began = Instant::now();
        connection.must("POST", &format!("/sessions/{session}/hibernate"), "")?;
        let slept_took = began.elapsed();
        std::thread::sleep(PAUSE);
        let floor_took = floor.round()?;
        std::thread::sleep(PAUSE);
        let began = Instant::now();
        run_in(&mut connection, &session, &["/bin/echo", "hi"], "hi\n")?;
        let took = began.elapsed();
        if round >= WARM_UP_ROUNDS {
            bare.push(floor_took);
            ours.push(took);
            slept.push(slept_took);
        }
    }
    close(&mut connection, &session)?;
    Ok(vec![
        Line {
            what: "wake to first output",
            unit: "ms",
            ours,
            floor: Some(("bare namespaces, mounts, cgroups, exec", bare)),
            limit: Limit::TimesFloor(3.0),
        },
        line("POST /sessions/{id}/hibernate", "ms", slept, Limit::None),
    ])
}

/// A thousand sandboxes at once, all idle.
pub(crate) fn resident(binary: &Path) -> anyhow::Result<Vec<Line>> {
    let service = Service::start(binary)?;
    let mut connection = service.connect()?;
    let before = Memory::of(service.pid())?;
    let mut opens = Samples::default();
    for _ in 0..RESIDENT {
        let began = Instant::now();
        open(&mut connection)?;
        opens.push(began.elapsed());
    }
    std::thread::sleep(QUIET);
    let guests = guests(service.pid())?;
    if guests.len() != RESIDENT {
        bail!("{RESIDENT} sandboxes have {} guests", guests.len());
    }
    let mut private = Samples::default();
    for pid in &guests {
        private.push_value(Memory::of(*pid)?.private_kib);
    }
    let mut usage = Samples::default();
    for _ in 0..LIST_ROUNDS {
        let began = Instant::now();
        connection.must("GET", "/sessions?usage=true", "")?;
        usage.push(began.elapsed());
    }
    let after = Memory::of(service.pid())?;
    let each = (after.pss_kib - before.pss_kib) / count(RESIDENT);
    Ok(vec![
        line(
            "POST /sessions, up to 1,000 resident",
            "ms",
            opens,
            Limit::None,
        ),
        line(
            "private to each of 1,000 guests",
            "KiB",
            private,
            Limit::AtMost(200.0),
        ),
        line(
            "daemon, for each resident session",
            "KiB",
            Samples::one(each),
            Limit::None,
        ),
        line(
            "GET /sessions?usage=true of 1,000",
            "ms",
            usage,
            Limit::None,
        ),
    ])
}

/// Ten thousand sessions of which hardly any has a sandbox.
pub(crate) fn asleep(binary: &Path) -> anyhow::Result<Vec<Line>> {
    let settings = [
        ("SANDBOXD_MAX_SESSIONS", "16"),
        ("SANDBOXD_EVICT_IDLE_AFTER", "0"),
        ("SANDBOXD_MAX_OPEN_SESSIONS", ""),
    ];
    let mut service = Service::start_with(binary, &settings)?;
    std::thread::sleep(QUIET);
    service.restart()?;
    // Those that stay resident are not what is measured.
    let mut connection = service.connect()?;
    for _ in 0..RESIDENT_BESIDE {
        open(&mut connection)?;
    }
    std::thread::sleep(QUIET);
    let none = Memory::of(service.pid())?;
    let opened: Vec<anyhow::Result<()>> = std::thread::scope(|scope| {
        let opening = |_| {
            let service = &service;
            scope.spawn(move || -> anyhow::Result<()> {
                let mut connection = service.connect()?;
                for _ in 0..ASLEEP / 2 {
                    open(&mut connection)?;
                }
                Ok(())
            })
        };
        let threads: Vec<_> = (0..2).map(opening).collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended
            .map(|ended| ended.unwrap_or_else(|_| bail!("a thread panicked")))
            .collect()
    });
    for opened in opened {
        opened?;
    }
    let mut lines = Vec::new();
    for (what, listing) in [
        (
            "daemon, for each of 10,000 asleep",
            "GET /sessions of 10,000",
        ),
        ("the same after a restart", "the same after a restart"),
    ] {
        std::thread::sleep(QUIET);
        let many = Memory::of(service.pid())?;
        let each = (many.pss_kib - none.pss_kib) / count(ASLEEP);
        lines.push(line(what, "KiB", Samples::one(each), Limit::AtMost(2.0)));
        let mut connection = service.connect()?;
        let mut lists = Samples::default();
        for _ in 0..LIST_ROUNDS {
            let began = Instant::now();
            connection.must("GET", "/sessions", "")?;
            lists.push(began.elapsed());
        }
        lines.push(line(listing, "ms", lists, Limit::AtMost(50.0)));
        let began = Instant::now();
        service.restart()?;
        let took = Samples::one(began.elapsed().as_secs_f64() * 1e3);
        lines.push(line(
            "end and start with 10,000 asleep",
            "ms",
            took,
            Limit::None,
        ));
    }
    Ok(lines)
}

fn line(what: &'static str, unit: &'static str, ours: Samples, limit: Limit) -> Line {
    Line {
        what,
        unit,
        ours,
        floor: None,
        limit,
    }
}

#[expect(clippy::cast_precision_loss, reason = "a small number")]
fn count(of: usize) -> f64 {
    of as f64
}
