//! Programs that are started and listened to, with nothing between: what any way of running something costs at least.

use anyhow::{Context, bail};
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What rows with it are called.
pub(crate) const SPAWN: &str = "posix_spawn";

/// Runs a program of the host to its end, reading both streams; it has to succeed, and to print so many bytes. The
/// standard library takes `posix_spawn` where nothing needs to be done between fork and exec.
pub(crate) fn run(argv: &[&str], output_bytes: usize) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let (program, arguments) = argv.split_first().context("no program")?;
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .output()?;
    let took = began.elapsed();
    if !output.status.success() || output.stdout.len() != output_bytes {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{program} ended with {}: {}", output.status, said.trim());
    }
    Ok(took)
}

/// From the start of `command` to its first output, which has to be `hi`; then waits for its end.
pub(super) fn first_output(command: &mut Command) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut output = child.stdout.take().context("no output")?;
    let mut text = [0; 3];
    let read = output.read_exact(&mut text);
    let took = began.elapsed();
    drop(output);
    let ended = child.wait_with_output()?;
    if read.is_err() || &text != b"hi\n" {
        let said = String::from_utf8_lossy(&ended.stderr);
        let last = said.trim().lines().last().unwrap_or_default().to_owned();
        bail!("it ended with {} and said: {last}", ended.status);
    }
    Ok(took)
}
