//! Many callers at once.
//!
//! A rate is fixed, and each request has its time. Latency counts from that time, and not from when a client was free to
//! send it: a service that stalls is charged for all who would have come in the meantime.

use crate::bench::figures::{Curves, Figure, Findings, Samples, Target, number};
use crate::bench::http::Connection;
use crate::bench::place::Bench;
use crate::bench::processes::{below, processor_seconds};
use crate::bench::requests::{ask_file, open, read_file, run_in, write_file};
use crate::bench::service::Service;
use anyhow::bail;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Sessions that the work falls on.
const SESSIONS: usize = 16;
/// Clients that send at a fixed rate: as many as may wait at once.
const SENDERS: usize = 128;
/// Requests a second, rising.
const RATES: [usize; 9] = [50, 100, 200, 400, 600, 800, 1_200, 1_600, 2_400];
/// Clients that ask again as soon as they are answered, rising.
const CLIENTS: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
/// How long each step takes.
const STEP: Duration = Duration::from_millis(2_500);
/// A rate is borne while so many hundredths are answered within this.
const BORNE_MS: f64 = 50.0;
const BORNE_SHARE: usize = 99;
/// Past this there is nothing more to learn.
const HOPELESS_MS: f64 = 500.0;

/// What came of a step.
struct Step {
    latency: Samples,
    per_second: f64,
    busy: Busy,
}

/// Parts of all processors' time.
struct Busy {
    daemon: f64,
    client: f64,
    all: f64,
}

pub(super) fn measure(bench: &Bench, findings: &mut Findings) -> anyhow::Result<()> {
    let service = Service::start(&bench.binary)?;
    let mut connection = service.connect()?;
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        let session = open(&mut connection)?;
        write_file(&mut connection, &session, "small", &[b'x'; 1024])?;
        sessions.push(session);
    }
    fixed_rates(&service, &sessions, findings)?;
    rising_clients(&service, &sessions, findings)?;
    Ok(())
}

/// The work of one request: seven runs, two reads and a write in ten.
fn request(connection: &mut Connection, sessions: &[String], number: usize) -> anyhow::Result<()> {
    let session = &sessions[number % sessions.len()];
    match number / sessions.len() % 10 {
        0 => write_file(connection, session, "small", &[b'x'; 1024])?,
        1 => read_file(connection, session, "small", 1024)?,
        2 => ask_file(connection, session, "stat", "/workspace/small")?,
        _ => run_in(connection, session, &["/bin/true"], "")?,
    };
    Ok(())
}

fn fixed_rates(
    service: &Service,
    sessions: &[String],
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let (mut medians, mut tails) = (Vec::new(), Vec::new());
    let mut borne = 0.0;
    for rate in RATES {
        let step = at_rate(service, sessions, rate)?;
        let what = format!("latency at {rate} requests a second");
        findings.figure(Figure::new(&what, "ms", &step.latency));
        medians.push((number(rate), step.latency.median()));
        tails.push((number(rate), step.latency.percentile(BORNE_SHARE)));
        if step.latency.percentile(BORNE_SHARE) <= BORNE_MS {
            borne = number(rate);
        }
        if step.latency.median() > HOPELESS_MS {
            break;
        }
    }
    let what = format!("highest rate of which {BORNE_SHARE} % are answered within {BORNE_MS} ms");
    findings.figure(
        Figure::new(&what, "requests/s", &Samples::one(borne)).target(Target::AtLeast(200.0)),
    );
    findings.curves.push(Curves {
        title: "Latency at a fixed rate".to_owned(),
        x: ("requests a second".to_owned(), true),
        y: ("ms".to_owned(), true),
        lines: vec![("median".to_owned(), medians), ("99 %".to_owned(), tails)],
    });
    Ok(())
}

fn rising_clients(
    service: &Service,
    sessions: &[String],
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let (mut rates, mut medians) = (Vec::new(), Vec::new());
    let mut best: Option<(usize, Step)> = None;
    for clients in CLIENTS {
        let step = with_clients(service, sessions, clients)?;
        rates.push((number(clients), step.per_second));
        medians.push((number(clients), step.latency.median()));
        let what = format!("requests with {clients} clients");
        findings.figure(Figure::new(
            &what,
            "requests/s",
            &Samples::one(step.per_second),
        ));
        let first = best
            .as_ref()
            .is_none_or(|(_, best)| step.per_second > 1.05 * best.per_second);
        if first {
            best = Some((clients, step));
        }
    }
    if let Some((clients, step)) = best {
        let Busy {
            daemon,
            client,
            all,
        } = step.busy;
        let rest = (all - daemon - client).max(0.0);
        findings.note(format!(
            "It scales up to {clients} clients ({:.0} requests a second). There the processors are {:.0} % busy: {:.0} % \
             are the daemon and its launcher, {:.0} % the clients of this measurement, {:.0} % guests, the programs they \
             run, and the kernel's work for them.",
            step.per_second,
            all * 100.0,
            daemon * 100.0,
            client * 100.0,
            rest * 100.0
        ));
    }
    findings.curves.push(Curves {
        title: "Answers a second with rising clients".to_owned(),
        x: ("clients".to_owned(), true),
        y: ("requests a second".to_owned(), false),
        lines: vec![("requests a second".to_owned(), rates)],
    });
    findings.curves.push(Curves {
        title: "Latency with rising clients".to_owned(),
        x: ("clients".to_owned(), true),
        y: ("ms, median".to_owned(), true),
        lines: vec![("median".to_owned(), medians)],
    });
    Ok(())
}

fn at_rate(service: &Service, sessions: &[String], rate: usize) -> anyhow::Result<Step> {
    let next = AtomicUsize::new(0);
    let interval = 1.0 / number(rate);
    let began = Instant::now();
    step(service, SENDERS, |connection, latency| {
        loop {
            let number_of = next.fetch_add(1, Ordering::Relaxed);
            let due = began + Duration::from_secs_f64(number(number_of) * interval);
            if due > began + STEP {
                return Ok(());
            }
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            request(connection, sessions, number_of)?;
            latency.push(due.elapsed());
        }
    })
}

fn with_clients(service: &Service, sessions: &[String], clients: usize) -> anyhow::Result<Step> {
    let next = AtomicUsize::new(0);
    let began = Instant::now();
    step(service, clients, |connection, latency| {
        while began.elapsed() < STEP {
            let sent = Instant::now();
            request(connection, sessions, next.fetch_add(1, Ordering::Relaxed))?;
            latency.push(sent.elapsed());
        }
        Ok(())
    })
}

/// Lets so many clients work at once, and watches who uses the processors.
fn step(
    service: &Service,
    clients: usize,
    work: impl Fn(&mut Connection, &mut Samples) -> anyhow::Result<()> + Sync,
) -> anyhow::Result<Step> {
    let daemon = || -> anyhow::Result<f64> {
        // The daemon and its launcher; what is below is guests and programs.
        let own = below(service.pid())?;
        own.iter().take(2).map(|pid| processor_seconds(*pid)).sum()
    };
    let me = std::process::id();
    let before = (
        daemon()?,
        processor_seconds(me)?,
        crate::bench::machine::busy_seconds(),
    );
    let began = Instant::now();
    let ended: Vec<anyhow::Result<Samples>> = std::thread::scope(|scope| {
        let client = |_| {
            scope.spawn(|| -> anyhow::Result<Samples> {
                let mut connection = service.connect()?;
                let mut latency = Samples::default();
                work(&mut connection, &mut latency)?;
                Ok(latency)
            })
        };
        let clients: Vec<_> = (0..clients).map(client).collect();
        let ended = clients.into_iter().map(|client| client.join());
        ended
            .map(|ended| ended.unwrap_or_else(|_| bail!("a client panicked")))
            .collect()
    });
    let took = began.elapsed().as_secs_f64();
    let after = (
        daemon()?,
        processor_seconds(me)?,
        crate::bench::machine::busy_seconds(),
    );
    let mut latency = Samples::default();
    for samples in ended {
        latency.extend(samples?);
    }
    let processors = number(std::thread::available_parallelism().map_or(1, usize::from));
    let share = |before: f64, after: f64| (after - before) / took / processors;
    Ok(Step {
        per_second: number(latency.count()) / took,
        latency,
        busy: Busy {
            daemon: share(before.0, after.0),
            client: share(before.1, after.1),
            all: share(before.2, after.2),
        },
    })
}
