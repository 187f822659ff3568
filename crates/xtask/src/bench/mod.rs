//! What things cost, beside what they cost elsewhere and what they cost at least, in the same run: `cargo xtask bench`.
//!
//! Every figure of ours stands beside *floors*, what the kernel alone takes for the same thing, and *peers*, others who do
//! the same, measured a moment before and after. Targets are said to be met or not, and never fail the run: a shared
//! machine is no referee. Where it was too busy to judge by, that is said, too.
//!
//! - [`suites`]: what is measured; [`peers`]: beside whom.
//! - [`place`]: what suites share; [`rounds`]: measuring in turns; [`machine`]: what is measured on, and how quiet it was.
//! - [`service`] the daemon under test; [`http`] a client that adds little, [`requests`] what it asks; [`processes`] what
//!   the kernel says of who runs.
//! - [`figures`]: medians and targets; [`table`] for a terminal, [`record`] for a file, [`report`] for the documents.

mod figures;
mod http;
mod machine;
pub(crate) mod peers;
mod place;
mod processes;
mod record;
mod report;
mod requests;
mod rounds;
mod service;
mod suites;
mod table;

use crate::report::{run, say};
use crate::tools::{cargo, target};
use anyhow::{Context, bail};
use figures::Findings;
use machine::Machine;
use place::Bench;
use record::{Record, SuiteRecord};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{SystemTime, UNIX_EPOCH};
use suites::{SUITES, Suite};

/// What was asked for on the command line.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Arguments {
    /// Suites: open, run, files, wake, docker, density, load, growth, images, abuse; none means all.
    suites: Vec<String>,
    /// Also write all figures to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Say what differs from the figures in this file, which `--json` wrote.
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
    /// Measure this binary, and do not build one.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// At most so many rounds: for a first look.
    #[arg(long, value_name = "COUNT")]
    rounds: Option<usize>,
    /// Measure with this build, also an unoptimized one: for work on the measuring itself.
    #[arg(long, hide = true)]
    unoptimized: bool,
    /// Write `docs/benchmarks.md` anew, with its plots; suites that were not run keep what they had.
    #[arg(long)]
    report: bool,
}

/// Runs the named suites, or all, and tells what they found in all the ways that were asked for.
pub(crate) fn bench(arguments: &Arguments) -> ExitCode {
    let told = if cfg!(debug_assertions) && !arguments.unoptimized {
        released(arguments)
    } else {
        let measured = measure(arguments);
        // The engine that peers needed, where it was ours.
        let ended = crate::engine::end().map_or(Ok(()), |ended| ended.map(drop));
        measured.and_then(|code| ended.map(|()| code))
    };
    told.unwrap_or_else(|error| {
        say(&format!("bench: {error:#}"));
        ExitCode::FAILURE
    })
}

/// Hands on to a release build of this program: a debug build is slow itself, and would be measured, too.
fn released(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    chosen(&arguments.suites)?;
    run(&mut cargo(&[
        "build",
        "--release",
        "--locked",
        "--package",
        "xtask",
    ]))?;
    let mut same = Command::new(target().join("release/xtask"));
    let status = same.args(std::env::args_os().skip(1)).status()?;
    Ok(ExitCode::from(u8::from(!status.success())))
}

fn chosen(names: &[String]) -> anyhow::Result<Vec<&'static Suite>> {
    let known: Vec<&str> = SUITES.iter().map(|suite| suite.name).collect();
    if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
        bail!(
            "no suite is named {name:?}; there are: {}",
            known.join(", ")
        );
    }
    let asked = |suite: &&Suite| names.is_empty() || names.iter().any(|name| name == suite.name);
    Ok(SUITES.iter().filter(asked).collect())
}

fn measure(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let chosen = chosen(&arguments.suites)?;
    let former = arguments.compare.as_deref().map(Record::read).transpose()?;
    let binary = match &arguments.binary {
        Some(binary) => binary
            .canonicalize()
            .with_context(|| binary.display().to_string())?,
        None => {
            run(&mut cargo(&["build", "--release", "--locked"]))?;
            target().join("release/sandboxd")
        }
    };
    let mut bench = Bench::new(binary, arguments.rounds);
    let mut record = Record {
        taken_at: now(),
        machine: Machine::here(),
        suites: Vec::new(),
    };
    for suite in chosen {
        record.suites.push(one(&mut bench, suite));
        // What was measured is not lost with what comes after it.
        if let Some(path) = &arguments.json {
            record.write(path)?;
        }
    }
    if let Some(former) = former {
        say(&record.compared_with(&former));
    }
    if arguments.report {
        report::write(&record)?;
    }
    let failed: Vec<_> = record
        .suites
        .iter()
        .filter(|s| s.failed.is_some())
        .collect();
    for suite in &failed {
        let why = suite.failed.as_deref().unwrap_or_default();
        say(&format!(
            "suite {} could not be finished: {why}",
            suite.name
        ));
    }
    Ok(ExitCode::from(u8::from(!failed.is_empty())))
}

/// Seconds since 1970.
#[expect(clippy::disallowed_methods, reason = "the day of a report")]
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

fn one(bench: &mut Bench, suite: &Suite) -> SuiteRecord {
    say(&format!("\n=== {} (load {})", suite.name, machine::load()));
    bench.watch = machine::Watch::begin();
    let mut findings = Findings::default();
    let measured = (suite.measure)(bench, &mut findings);
    let quiet = bench.watch.end();
    let failed = measured.err().map(|error| format!("{error:#}"));
    let disturbed = quiet.disturbed();
    say(&table::table(&findings.figures, disturbed.is_none()));
    for note in &findings.notes {
        say(&format!("- {note}"));
    }
    if let Some(why) = &disturbed {
        say(&format!("too noisy to judge: {why}"));
    }
    if let Some(why) = &failed {
        say(&format!("FAILED: {why}"));
    }
    SuiteRecord {
        name: suite.name.to_owned(),
        quiet,
        findings,
        failed,
    }
}
