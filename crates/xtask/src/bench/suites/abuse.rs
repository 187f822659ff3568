//! What one session's worst costs another: its runs while the first attacks, beside its runs while nothing goes on. And how
//! long a run of hundreds of processes takes to end, in each way that there is to end one.

use crate::bench::figures::{Figure, Findings, Samples};
use crate::bench::http::Connection;
use crate::bench::place::{Bench, PAUSE};
use crate::bench::requests::{close, open, run_in};
use crate::bench::service::Service;
use anyhow::Context;
use std::process::Command;
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

/// Processes of a tree that is ended.
const TREE: usize = 500;
/// How often one is.
const TREES: usize = 10;
/// After so many seconds a tree stands, and its deadline comes.
const TREE_SECONDS: u64 = 3;
/// A user that no host has.
const NOBODY: u32 = 54_321;
const TREE_SETTINGS: [(&str, &str); 3] = [
    ("SANDBOXD_PIDS_LIMIT", "1000"),
    ("SANDBOXD_MEM_LIMIT", "2g"),
    ("SANDBOXD_ALLOW_UNENFORCED", "memory,pids,cpus"),
];
/// Each process of it has a session of its own. It says when all are there.
const GROW: &str = "import os, time\nfor i in range(500):\n  if os.fork() == 0:\n    os.setsid(); time.sleep(600)\n\
                    open('stands', 'w').close(); time.sleep(600)";
/// The floor: as many in one process group, killed and waited for by whoever started them. Says how many milliseconds it took.
const FLOOR: &str = "import os, signal, time\npids = []\nos.setpgid(0, 0)\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n\
    for i in range(500):\n  pid = os.fork()\n  if pid == 0:\n    signal.signal(signal.SIGTERM, signal.SIG_DFL); time.sleep(600)\n  pids.append(pid)\n\
    time.sleep(1); began = time.perf_counter(); os.killpg(0, signal.SIGTERM)\n\
    for pid in pids: os.waitpid(pid, 0)\nprint((time.perf_counter() - began) * 1000)";

/// Both.
pub(super) fn measure(bench: &Bench, findings: &mut Findings) -> anyhow::Result<()> {
    endings(bench, findings)?;
    neighbours(bench, findings)
}

/// How long a tree takes to end, from its deadline to the answer.
fn endings(bench: &Bench, findings: &mut Findings) -> anyhow::Result<()> {
    let trees = bench.times(TREES);
    let mut floor = Samples::default();
    for _ in 0..trees {
        let output = Command::new("python3").args(["-c", FLOOR]).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        floor.push_value(text.trim().parse().context("the floor says no number")?);
    }
    let mut ways = vec![Service::start_with(&bench.binary, &TREE_SETTINGS)?];
    if rustix::process::geteuid().is_root() {
        // One without cgroups of its own ends runs by keepers.
        ways.push(Service::start_as(&bench.binary, &TREE_SETTINGS, NOBODY)?);
    }
    for service in &ways {
        let mut connection = service.connect()?;
        let session = open(&mut connection)?;
        let ask = "grep -q run- /proc/self/cgroup && echo its cgroup || echo its keeper";
        let way = answered(&mut connection, &session, &["/bin/sh", "-c", ask], 20)?.1;
        let mut samples = Samples::default();
        for _ in 0..trees {
            let argv = ["python3", "-c", GROW];
            let (took, _) = answered(&mut connection, &session, &argv, TREE_SECONDS)?;
            samples.push(took.saturating_sub(Duration::from_secs(TREE_SECONDS)));
            let there = "test -e stands && rm stands && echo stood";
            let stood = answered(&mut connection, &session, &["/bin/sh", "-c", there], 20)?.1;
            anyhow::ensure!(
                stood == "stood",
                "the tree did not stand in {TREE_SECONDS} s"
            );
        }
        close(&mut connection, &session)?;
        let what = format!("end a run of {TREE} processes by {way}");
        findings.figure(Figure::new(&what, "ms", &samples).beside("killpg and wait", &floor));
    }
    Ok(())
}

/// How long a run took, and what it printed.
fn answered(
    connection: &mut Connection,
    session: &str,
    argv: &[&str],
    seconds: u64,
) -> anyhow::Result<(Duration, String)> {
    let body = serde_json::json!({
        "argv": argv, "run_id": "fedcba9876543210fedcba9876543210", "timeout_seconds": seconds,
    });
    let began = Instant::now();
    let answer = connection.must(
        "POST",
        &format!("/sessions/{session}/run"),
        &body.to_string(),
    )?;
    let took = began.elapsed();
    let answer: serde_json::Value = serde_json::from_slice(&answer)?;
    let said = answer["stdout"].as_str().unwrap_or_default().trim_end();
    Ok((took, said.to_owned()))
}

/// For each attack the other session's runs, beside its quiet ones.
fn neighbours(bench: &Bench, findings: &mut Findings) -> anyhow::Result<()> {
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
