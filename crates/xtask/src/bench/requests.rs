//! The requests that suites make: of the contract, so that ours and the Python service are asked the same.

use super::http::Connection;
use anyhow::{Context, bail};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// An id that no other run of this process has: many run at once in one session.
fn run_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("{:032x}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A session of its own, of the default runtime; its id.
pub(crate) fn open(connection: &mut Connection) -> anyhow::Result<String> {
    open_with(connection, &json!({}))
}

/// A session, asked for in these words; its id.
pub(crate) fn open_with(connection: &mut Connection, body: &Value) -> anyhow::Result<String> {
    let answer = connection.must("POST", "/sessions", &body.to_string())?;
    let answer: Value = serde_json::from_slice(&answer)?;
    let id = answer["session"]["session_id"].as_str();
    Ok(id.context("no session id")?.to_owned())
}

/// Closes a session, with its files.
pub(crate) fn close(connection: &mut Connection, session: &str) -> anyhow::Result<()> {
    connection
        .must("DELETE", &format!("/sessions/{session}?purge=true"), "")
        .map(drop)
}

/// A run that has to end well and print this; how long it took.
pub(crate) fn run_in(
    connection: &mut Connection,
    session: &str,
    argv: &[&str],
    output: &str,
) -> anyhow::Result<Duration> {
    let (took, answer) = run(connection, session, argv)?;
    if answer["exit_code"] != 0 || answer["stdout"] != output {
        bail!("{argv:?} answered {answer}");
    }
    Ok(took)
}

/// A run that has to end well and print so many bytes; how long it took.
pub(crate) fn run_counted(
    connection: &mut Connection,
    session: &str,
    argv: &[&str],
    output_bytes: usize,
) -> anyhow::Result<Duration> {
    let (took, answer) = run(connection, session, argv)?;
    let got = answer["stdout"].as_str().map(str::len);
    if answer["exit_code"] != 0 || got != Some(output_bytes) {
        bail!(
            "{argv:?} ended with {} and {got:?} bytes",
            answer["exit_code"]
        );
    }
    Ok(took)
}

/// Decoding the answer is not in the time.
fn run(connection: &mut Connection, id: &str, argv: &[&str]) -> anyhow::Result<(Duration, Value)> {
    let body = json!({ "argv": argv, "run_id": run_id() }).to_string();
    let began = Instant::now();
    let answer = connection.must("POST", &format!("/sessions/{id}/run"), &body)?;
    let took = began.elapsed();
    Ok((took, serde_json::from_slice(&answer)?))
}

/// A shell command by the older route, which has to end well; how long it took.
pub(crate) fn shell_in(
    connection: &mut Connection,
    session: &str,
    command: &str,
) -> anyhow::Result<Duration> {
    let body = json!({ "command": command, "timeout_seconds": 60 }).to_string();
    let began = Instant::now();
    let answer = connection.must("POST", &format!("/sessions/{session}/exec"), &body)?;
    let took = began.elapsed();
    let answer: Value = serde_json::from_slice(&answer)?;
    if answer["exit_code"] != 0 {
        bail!("{command} answered {answer}");
    }
    Ok(took)
}

/// Puts a session to sleep.
pub(crate) fn hibernate(connection: &mut Connection, session: &str) -> anyhow::Result<Duration> {
    let began = Instant::now();
    connection.must("POST", &format!("/sessions/{session}/hibernate"), "")?;
    Ok(began.elapsed())
}

/// Writes a file below the work directory.
pub(crate) fn write_file(
    connection: &mut Connection,
    session: &str,
    name: &str,
    content: &[u8],
) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let path = format!("/sessions/{session}/files/write?path=/workspace/{name}");
    connection.send("POST", &path, content)?;
    Ok(began.elapsed())
}

/// Reads a file of so many bytes below the work directory.
pub(crate) fn read_file(
    connection: &mut Connection,
    session: &str,
    name: &str,
    length: u64,
) -> anyhow::Result<Duration> {
    let body = json!({ "path": format!("/workspace/{name}") }).to_string();
    let began = Instant::now();
    let path = format!("/sessions/{session}/files/read");
    connection.drain("POST", &path, &body, length)?;
    Ok(began.elapsed())
}

/// Asks one of the other file routes about a path.
pub(crate) fn ask_file(
    connection: &mut Connection,
    session: &str,
    route: &str,
    path: &str,
) -> anyhow::Result<Duration> {
    let body = json!({ "path": path }).to_string();
    let began = Instant::now();
    let route = format!("/sessions/{session}/files/{route}");
    connection.must("POST", &route, &body)?;
    Ok(began.elapsed())
}
