//! Feeds the fuzz targets: with the stable compiler, from the seeds beside them and from what earlier runs found.
//!
//! There are two packages of targets. Those in `fuzz` are small, and fed for some seconds by every `cargo xtask test`. The
//! one in `fuzz/service` takes a build of the whole service, and is fed by `cargo xtask check --fuzz` alone, as all are then.

use crate::report::{self, Outcome, say};
use crate::tools::{cargo, root, target};
use anyhow::{Context, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How long each target is fed by `cargo xtask test`, in seconds.
const SHORT_SECONDS: u32 = 8;
/// How long each target is fed by `cargo xtask check --fuzz`, in seconds.
const LONG_SECONDS: u32 = 60;

/// Coverage feedback with the stable compiler: the same passes that nightly's `cargo fuzz` asks for, without sanitizers.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Cdebug-assertions -Coverflow-checks";

/// The small targets, for some seconds each.
pub(crate) fn short() -> anyhow::Result<Outcome> {
    feed(&[root().join("fuzz")], SHORT_SECONDS)
}

/// All targets, for a minute each.
pub(crate) fn long() -> anyhow::Result<Outcome> {
    let service = root().join("fuzz/service");
    // The versions that the service is built with, and no others.
    std::fs::copy(root().join("Cargo.lock"), service.join("Cargo.lock"))?;
    feed(&[root().join("fuzz"), service], LONG_SECONDS)
}

fn feed(packages: &[PathBuf], seconds: u32) -> anyhow::Result<Outcome> {
    let host = host_triple()?;
    let mut failed = Vec::new();
    for package in packages {
        let mut targets = targets_in(package)?;
        targets.sort();
        for name in targets {
            if let Err(error) = feed_one(package, &name, &host, seconds) {
                failed.push(format!("{name}: {error:#}"));
            }
        }
    }
    if !failed.is_empty() {
        bail!("{}", failed.join("; "));
    }
    Ok(Outcome::Passed)
}

fn targets_in(package: &Path) -> anyhow::Result<Vec<String>> {
    let folder = package.join("fuzz_targets");
    let mut targets = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "rs") {
            targets.extend(
                path.file_stem()
                    .map(|stem| stem.to_string_lossy().into_owned()),
            );
        }
    }
    Ok(targets)
}

/// Builds one target and feeds it.
fn feed_one(package: &Path, name: &str, host: &str, seconds: u32) -> anyhow::Result<()> {
    let built = target().join("fuzz");
    let mut build = cargo(&["build", "--release", "--bin", name, "--target", host]);
    if package == root().join("fuzz") {
        build.arg("--locked");
    }
    report::run(
        build
            .current_dir(package)
            .env("RUSTFLAGS", FLAGS)
            .env("CARGO_TARGET_DIR", &built)
            // The service's own programs are not what is fed.
            .env("SANDBOXD_EMBED", "empty"),
    )?;
    let corpus = built.join("corpus").join(name);
    std::fs::create_dir_all(&corpus)?;
    let mut fuzz = Command::new(built.join(host).join("release").join(name));
    fuzz.arg(format!("-max_total_time={seconds}"))
        .args(["-timeout=10", "-verbosity=0"]);
    fuzz.args([
        "-print_final_stats=1",
        "-rss_limit_mb=1024",
        "-malloc_limit_mb=256",
    ]);
    fuzz.arg(format!("-artifact_prefix={}/", built.display()))
        .arg(&corpus);
    let seeds = root().join("fuzz/seeds").join(name);
    if seeds.is_dir() {
        fuzz.arg(seeds);
    }
    say(&format!("feeding {name} for {seconds} s"));
    let output = fuzz.stdin(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        say(&text);
        bail!("ended with {}", output.status);
    }
    let fed = text
        .lines()
        .find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    let fed: u64 = fed.context("the fuzzer counts nothing")?.trim().parse()?;
    say(&format!("{name}: {fed} inputs, no complaint"));
    Ok(())
}

fn host_triple() -> anyhow::Result<String> {
    let output = Command::new("rustc")
        .arg("-vV")
        .output()
        .context("rustc does not start")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(line.context("rustc does not say its host")?.to_owned())
}
