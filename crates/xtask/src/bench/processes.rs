//! What the kernel says of the daemon's process and of those below it.

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::process::Child;
use std::time::{Duration, Instant};

/// What one process holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    /// Resident.
    pub(crate) rss_kib: f64,
    /// Resident, what is shared divided by those who share it.
    pub(crate) pss_kib: f64,
    /// Its own memory. Pages of its program are not, also where nobody else has mapped them yet.
    pub(crate) private_kib: f64,
}

impl Memory {
    /// As the kernel says it.
    pub(crate) fn of(pid: u32) -> anyhow::Result<Self> {
        let path = format!("/proc/{pid}/smaps_rollup");
        let text = fs::read_to_string(&path).with_context(|| path.clone())?;
        let field = |name: &str| -> anyhow::Result<f64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let value = line.and_then(|line| line.split_whitespace().next());
            Ok(value
                .with_context(|| format!("{path} has no {name}"))?
                .parse()?)
        };
        Ok(Self {
            rss_kib: field("Rss:")?,
            pss_kib: field("Pss:")?,
            private_kib: field("Anonymous:")?,
        })
    }
}

struct Process {
    pid: u32,
    parent: u32,
    /// Whether it is number 1 in a pid namespace of its own.
    first: bool,
}

fn parents() -> anyhow::Result<Vec<Process>> {
    let mut processes = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Ok(pid) = entry?.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let parent = field("PPid:").and_then(|text| text.trim().parse::<u32>().ok());
        let numbers: Vec<&str> = field("NSpid:")
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        let first = numbers.len() > 1 && numbers.last() == Some(&"1");
        processes.extend(parent.map(|parent| Process { pid, parent, first }));
    }
    Ok(processes)
}

/// The processes below `pid` that are number 1 in a pid namespace of their own.
pub(crate) fn guests(pid: u32) -> anyhow::Result<Vec<u32>> {
    let processes = parents()?;
    let (mut below, mut guests) = (vec![pid], Vec::new());
    while let Some(above) = below.pop() {
        for process in processes.iter().filter(|process| process.parent == above) {
            below.push(process.pid);
            if process.first {
                guests.push(process.pid);
            }
        }
    }
    Ok(guests)
}

/// Processor seconds that a process has used, without its children.
pub(crate) fn processor_seconds(pid: u32) -> anyhow::Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name, in brackets, may hold anything.
    let after = text.rsplit_once(')').context("no name")?.1;
    let ticks = after.split_whitespace().skip(11).take(2);
    let ticks = ticks.map(str::parse::<f64>).sum::<Result<f64, _>>()?;
    #[expect(clippy::cast_precision_loss, reason = "about a hundred")]
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    Ok(ticks / per_second)
}

/// All processes below `pid`, itself included.
pub(crate) fn below(pid: u32) -> anyhow::Result<Vec<u32>> {
    let parents = parents()?;
    let mut found = vec![pid];
    let mut at = 0;
    while let Some(above) = found.get(at).copied() {
        found.extend(parents.iter().filter(|p| p.parent == above).map(|p| p.pid));
        at += 1;
    }
    Ok(found)
}

/// Asks a process to end, and ends it after the deadline.
pub(crate) fn end(process: &mut Child, deadline: Duration) {
    if let Some(pid) = i32::try_from(process.id()).ok().and_then(Pid::from_raw) {
        // It may have ended by itself.
        let _ = kill_process(pid, Signal::TERM);
    }
    let deadline = Instant::now() + deadline;
    while Instant::now() < deadline && matches!(process.try_wait(), Ok(None)) {
        std::thread::sleep(Duration::from_millis(10));
    }
    // What is left after the deadline is not waited for; both fail harmlessly on what has ended.
    let _ = process.kill();
    let _ = process.wait();
}
