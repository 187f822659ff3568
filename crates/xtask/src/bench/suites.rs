//! What is measured.

use super::figures::{Limit, Line, Samples};
use super::floor::Floor;
use super::http::Connection;
use super::processes::{Memory, guests};
use super::service::Service;
use anyhow::{Context, bail};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Rounds that do not count.
pub(crate) const WARM_UP_ROUNDS: usize = 5;
const CREATE_ROUNDS: usize = 60;
const RUN_ROUNDS: usize = 200;
const READ_ROUNDS: usize = 400;
const IDLE_SANDBOXES: usize = 100;
/// Between rounds, so that one round's clean-up does not fall into the next.
pub(crate) const PAUSE: Duration = Duration::from_millis(5);

/// The floors alone, which need no service.
pub(crate) fn floor(_binary: &Path) -> anyhow::Result<Vec<Line>> {
    let floor = Floor::new()?;
    let (mut walls, mut spawned) = (Samples::default(), Samples::default());
    for round in 0..WARM_UP_ROUNDS + CREATE_ROUNDS {
        let walls_took = floor.round()?;
        std::thread::sleep(PAUSE);
        let began = Instant::now();
        spawn()?;
        if round >= WARM_UP_ROUNDS {
            walls.push(walls_took);
            spawned.push(began.elapsed());
        }
    }
    let line = |what, ours| Line {
        what,
        unit: "ms",
        ours,
        floor: None,
        limit: Limit::None,
    };
    Ok(vec![
        line("bare namespaces, mounts, cgroups, exec", walls),
        line("posix_spawn", spawned),
    ])
}

/// From `POST /sessions` to the output of the session's first run, beside the same walls made by a bare program.
pub(crate) fn create(binary: &Path) -> anyhow::Result<Vec<Line>> {
    let service = Service::start(binary)?;
    let mut connection = service.connect()?;
    let floor = Floor::new()?;
    let (mut ours, mut bare, mut opens) =
        (Samples::default(), Samples::default(), Samples::default());
    for round in 0..WARM_UP_ROUNDS + CREATE_ROUNDS {
        let floor_took = floor.round()?;
        std::thread::sleep(PAUSE);
        let began = Instant::now();
        let session = open(&mut connection)?;
        let opened = began.elapsed();
        run_in(&mut connection, &session, &["/bin/echo", "hi"], "hi\n")?;
        let took = began.elapsed();
        close(&mut connection, &session)?;
        std::thread::sleep(PAUSE);
        if round >= WARM_UP_ROUNDS {
            bare.push(floor_took);
            ours.push(took);
            opens.push(opened);
        }
    }
    let what = "bare namespaces, mounts, cgroups, exec";
    Ok(vec![
        Line {
            what: "POST /sessions to first output",
            unit: "ms",
            ours,
            floor: Some((what, bare.clone())),
            limit: Limit::TimesFloor(3.0),
        },
        Line {
            what: "of which POST /sessions",
            unit: "ms",
            ours: opens,
            floor: Some((what, bare)),
            limit: Limit::None,
        },
    ])
}

/// A run of `/bin/true` in an open session, beside `posix_spawn` of the same.
pub(crate) fn run(binary: &Path) -> anyhow::Result<Vec<Line>> {
    let service = Service::start(binary)?;
    let mut connection = service.connect()?;
    let session = open(&mut connection)?;
    let (mut ours, mut bare) = (Samples::default(), Samples::default());
    for round in 0..WARM_UP_ROUNDS + RUN_ROUNDS {
        let began = Instant::now();
        spawn()?;
        let floor_took = began.elapsed();
        let began = Instant::now();
        run_in(&mut connection, &session, &["/bin/true"], "")?;
        let took = began.elapsed();
        if round >= WARM_UP_ROUNDS {
            bare.push(floor_took);
            ours.push(took);
        }
    }
    close(&mut connection, &session)?;
    Ok(vec![Line {
        what: "run of /bin/true",
        unit: "ms",
        ours,
        floor: Some(("posix_spawn", bare)),
        limit: Limit::TimesFloor(3.0),
    }])
}

/// `posix_spawn` of `/bin/true` with both streams read, as a run does. The standard library takes `posix_spawn` where
/// nothing needs to be done between fork and exec.
fn spawn() -> anyhow::Result<()> {
    let mut command = Command::new("/bin/true");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let output = command.output()?;
    if !output.status.success() {
        bail!("/bin/true failed");
    }
    Ok(())
}

/// Reading a file of 1 KiB, beside an answer that does nothing and a plain read.
pub(crate) fn read(binary: &Path) -> anyhow::Result<Vec<Line>> {
    let service = Service::start(binary)?;
    let mut connection = service.connect()?;
    let session = open(&mut connection)?;
    let script = "head -c 1024 /dev/zero | tr '\\0' x > small.txt";
    run_in(&mut connection, &session, &["sh", "-c", script], "")?;
    let path = format!("/sessions/{session}/files/read");
    let body = r#"{"path":"/workspace/small.txt"}"#;
    let (mut ours, mut nothing) = (Samples::default(), Samples::default());
    for round in 0..WARM_UP_ROUNDS + READ_ROUNDS {
        let began = Instant::now();
        connection.must("GET", "/healthz", "")?;
        let floor_took = began.elapsed();
        let began = Instant::now();
        let content = connection.must("POST", &path, body)?;
        let took = began.elapsed();
        if content != [b'x'; 1024] {
            bail!("{} bytes came back", content.len());
        }
        if round >= WARM_UP_ROUNDS {
            nothing.push(floor_took);
            ours.push(took);
        }
    }
    close(&mut connection, &session)?;
    Ok(vec![Line {
        what: "read of 1 KiB",
        unit: "ms",
        ours,
        floor: Some(("GET /healthz", nothing)),
        limit: Limit::AtMost(0.5),
    }])
}

/// What the idle daemon and idle sandboxes hold.
pub(crate) fn memory(binary: &Path) -> anyhow::Result<Vec<Line>> {
    let service = Service::start(binary)?;
    let mut connection = service.connect()?;
    let warm = open(&mut connection)?;
    run_in(&mut connection, &warm, &["/bin/true"], "")?;
    close(&mut connection, &warm)?;
    std::thread::sleep(Duration::from_secs(1));
    let idle = Memory::of(service.pid())?;
    for _ in 0..IDLE_SANDBOXES {
        open(&mut connection)?;
    }
    std::thread::sleep(Duration::from_secs(2));
    let guests = guests(service.pid())?;
    if guests.len() != IDLE_SANDBOXES {
        bail!("{IDLE_SANDBOXES} sandboxes have {} guests", guests.len());
    }
    let (mut shared, mut private) = (Samples::default(), Samples::default());
    for pid in &guests {
        let memory = Memory::of(*pid)?;
        shared.push_value(memory.pss_kib);
        private.push_value(memory.private_kib);
    }
    let busy = Memory::of(service.pid())?;
    let line = |what, unit, ours, limit| Line {
        what,
        unit,
        ours,
        floor: None,
        limit,
    };
    Ok(vec![
        line(
            "idle sandbox, PSS of its guest",
            "KiB",
            shared,
            Limit::AtMost(200.0),
        ),
        line(
            "idle sandbox, private to its guest",
            "KiB",
            private,
            Limit::None,
        ),
        line(
            "idle daemon, PSS",
            "MiB",
            Samples::one(idle.pss_kib / 1024.0),
            Limit::AtMost(30.0),
        ),
        line(
            "idle daemon, RSS",
            "MiB",
            Samples::one(idle.rss_kib / 1024.0),
            Limit::AtMost(30.0),
        ),
        line(
            "daemon with 100 sandboxes, PSS",
            "MiB",
            Samples::one(busy.pss_kib / 1024.0),
            Limit::None,
        ),
    ])
}

/// A session of its own; its id.
pub(crate) fn open(connection: &mut Connection) -> anyhow::Result<String> {
    let answer = connection.must("POST", "/sessions", "{}")?;
    let answer: serde_json::Value = serde_json::from_slice(&answer)?;
    let id = answer["session"]["session_id"]
        .as_str()
        .context("no session id")?;
    Ok(id.to_owned())
}

/// With its files.
pub(crate) fn close(connection: &mut Connection, session: &str) -> anyhow::Result<()> {
    connection
        .must("DELETE", &format!("/sessions/{session}?purge=true"), "")
        .map(drop)
}

/// A run that has to end well and print this.
pub(crate) fn run_in(
    connection: &mut Connection,
    session: &str,
    argv: &[&str],
    output: &str,
) -> anyhow::Result<()> {
    let body = serde_json::json!({ "argv": argv, "run_id": "0123456789abcdef0123456789abcdef" });
    let path = format!("/sessions/{session}/run");
    let answer = connection.must("POST", &path, &body.to_string())?;
    let answer: serde_json::Value = serde_json::from_slice(&answer)?;
    if answer["exit_code"] != 0 || answer["stdout"] != output {
        bail!("{argv:?} answered {answer}");
    }
    Ok(())
}
