//! What things cost, beside what they would cost at least, in the same run: `cargo xtask bench`.
//!
//! Every figure of ours stands beside a *floor*: what the kernel alone takes for the same thing, done by a bare program
//! a moment before. Rounds are interleaved, so that load on the machine falls on both. Limits are said to be met or not,
//! and never fail the run: a shared machine is no referee.
//!
//! Rooms: [`suites`], [`asleep`] and [`abuse`] are what is measured; [`floor`] the bare program; [`service`] the daemon under test,
//! and [`processes`] what the kernel says of it; [`http`] a client that adds little; [`figures`] medians and the table.

mod abuse;
mod asleep;
mod figures;
mod floor;
mod http;
mod processes;
mod service;
mod suites;

use crate::report::{run, say};
use crate::tools::{cargo, target};
use anyhow::{Context, bail};
use figures::Line;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Measures one thing.
type Suite = fn(&Path) -> anyhow::Result<Vec<Line>>;

/// What can be measured.
const SUITES: [(&str, Suite); 9] = [
    ("floor", suites::floor),
    ("create", suites::create),
    ("run", suites::run),
    ("read", suites::read),
    ("memory", suites::memory),
    ("wake", asleep::wake),
    ("resident", asleep::resident),
    ("asleep", asleep::asleep),
    ("abuse", abuse::abuse),
];

/// Runs the named suite, or all, prints the table and writes it to `json`.
pub(crate) fn bench(
    suite: Option<&str>,
    json: Option<PathBuf>,
    binary: Option<PathBuf>,
) -> ExitCode {
    match measure(suite, binary).and_then(|lines| tell(&lines, json)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("bench: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn measure(suite: Option<&str>, binary: Option<PathBuf>) -> anyhow::Result<Vec<Line>> {
    let chosen: Vec<_> = SUITES
        .iter()
        .filter(|(name, _)| suite.is_none_or(|suite| suite == *name))
        .collect();
    if chosen.is_empty() {
        let names: Vec<&str> = SUITES.iter().map(|(name, _)| *name).collect();
        bail!("there is no such suite; there are: {}", names.join(", "));
    }
    let binary = match binary {
        Some(binary) => binary,
        None => {
            if suite != Some("floor") {
                run(&mut cargo(&["build", "--release", "--locked"]))?;
            }
            target().join("release/sandboxd")
        }
    };
    let mut lines = Vec::new();
    for (name, measure) in chosen {
        say(&format!("measuring: {name} (load {})", load()));
        lines.extend(measure(&binary).with_context(|| format!("suite {name}"))?);
    }
    Ok(lines)
}

fn tell(lines: &[Line], json: Option<PathBuf>) -> anyhow::Result<()> {
    say(&figures::table(lines));
    say(&format!(
        "load {} at the end; times in ms, medians [fastest, slowest tenth begins]",
        load()
    ));
    let Some(path) = json else { return Ok(()) };
    let lines: Vec<_> = lines.iter().map(Line::json).collect();
    let document = serde_json::json!({ "load_at_the_end": load(), "lines": lines });
    let text = serde_json::to_string_pretty(&document)?;
    std::fs::write(&path, text + "\n").with_context(|| path.display().to_string())
}

/// The machine's load, as the kernel says it.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}
