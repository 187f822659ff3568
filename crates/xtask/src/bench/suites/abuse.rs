//! What one session's worst costs another: its runs while the first attacks, beside its runs while nothing goes on.

use crate::bench::figures::{Figure, Findings, Samples};
use crate::bench::http::Connection;
use crate::bench::place::{Bench, PAUSE};
use crate::bench::requests::{close, open, run_in};
use crate::bench::service::Service;
use anyhow::Context;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const ROUNDS: usize = 150;
/// Rounds that do not count.
const WARM_UP_ROUNDS: usize = 5;
/// From an attack's beginning until it does its worst.
const UNDER_WAY: Duration = Duration::from_secs(1);
/// Longest that one run of an attack takes.
const ATTACK_SECONDS: u64 = 20;
/// Small ceilings, so that an attack reaches them at once.
const SETTINGS: [(&str, &str); 6] = [
    ("SANDBOXD_MEM_LIMIT", "256m"),
    ("SANDBOXD_PIDS_LIMIT", "256"),
    ("SANDBOXD_CPUS", "1"),
    ("SANDBOXD_DISK_LIMIT", "64m"),
    ("SANDBOXD_INODES_LIMIT", "20000"),
    ("SANDBOXD_MAX_SESSIONS", "10"),
];

/// Name, and what runs again and again.
const ATTACKS: [(&str, &str); 6] = [
    (
        "fork bomb",
        "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass",
    ),
    (
        "memory bomb",
        "x=[]\nwhile True: x.append(bytearray(1<<20))",
    ),
    (
        "disk fill",
        "i=0\nwhile True:\n  open('f%d'%i,'wb').write(bytes(1<<20)); i+=1",
    ),
    (
        "inode fill",
        "i=0\nwhile True:\n  open('g%d'%i,'w').close(); i+=1",
    ),
    (
        "log flood",
        "import sys\nwhile True: sys.stdout.write('x'*65536)",
    ),
    ("busy loop", "while True: pass"),
];

/// For each attack the other session's runs, beside its quiet ones.
pub(super) fn measure(bench: &Bench, findings: &mut Findings) -> anyhow::Result<()> {
    let rounds = bench.times(ROUNDS);
    for (name, program) in ATTACKS {
        let service = Service::start_with(&bench.binary, &SETTINGS)?;
        let mut good = service.connect()?;
        let session = open(&mut good)?;
        let quiet = runs(&mut good, &session, rounds)?;
        let mut bad = service.connect()?;
        let attacker = open(&mut bad)?;
        let over = AtomicBool::new(false);
        let busy = thread::scope(|scope| {
            let attack = scope.spawn(|| attack(&mut bad, &attacker, program, &over));
            thread::sleep(UNDER_WAY);
            let busy = runs(&mut good, &session, rounds);
            over.store(true, Ordering::Relaxed);
            let attacked = attack.join();
            attacked.map_err(|_| anyhow::anyhow!("the attack panicked"))??;
            busy
        })?;
        close(&mut good, &session)?;
        let what = format!("run beside a {name}");
        findings.figure(Figure::new(&what, "ms", &busy).beside("quiet", &quiet));
        let what = format!("the same, 99th hundredth, {name}");
        let p99 = |samples: &Samples| Samples::one(samples.percentile(99));
        findings.figure(Figure::new(&what, "ms", &p99(&busy)).beside("quiet", &p99(&quiet)));
    }
    Ok(())
}

fn runs(connection: &mut Connection, session: &str, rounds: usize) -> anyhow::Result<Samples> {
    let mut samples = Samples::default();
    for round in 0..WARM_UP_ROUNDS + rounds {
        let began = Instant::now();
        run_in(connection, session, &["/bin/echo", "hi"], "hi\n")?;
        if round >= WARM_UP_ROUNDS {
            samples.push(began.elapsed());
        }
        thread::sleep(PAUSE);
    }
    Ok(samples)
}

/// Attacks again each time that an attack has been ended.
fn attack(
    connection: &mut Connection,
    session: &str,
    program: &str,
    over: &AtomicBool,
) -> anyhow::Result<()> {
    let path = format!("/sessions/{session}/run");
    while !over.load(Ordering::Relaxed) {
        for (argv, seconds) in [
            (vec!["python3", "-c", program], ATTACK_SECONDS),
            // What was filled is filled anew.
            (vec!["/bin/sh", "-c", "rm -rf /workspace/*"], ATTACK_SECONDS),
        ] {
            let body = serde_json::json!({
                "argv": argv, "run_id": "fedcba9876543210fedcba9876543210", "timeout_seconds": seconds,
            });
            connection
                .ask("POST", &path, &body.to_string())
                .context("an attack")?;
        }
    }
    Ok(())
}
