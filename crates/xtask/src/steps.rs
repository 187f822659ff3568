//! What `cargo xtask test` does, in order. Every step can be run alone by its name.

use crate::report::{self, Outcome, Report, say};
use crate::tools::{self, cargo, cargo_tool, is_root, root, target};
use anyhow::{Context, bail};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

/// One step.
struct Step {
    name: &'static str,
    about: &'static str,
    /// Whether `cargo xtask check` runs it.
    quick: bool,
    work: fn() -> anyhow::Result<Outcome>,
}

/// The order: what fails soonest first, and the release build before those who use it.
const STEPS: [Step; 13] = [
    Step {
        name: "tools",
        about: "what the tests need from the system",
        quick: false,
        work: system,
    },
    Step {
        name: "fmt",
        about: "the code is formatted",
        quick: true,
        work: fmt,
    },
    Step {
        name: "house",
        about: "length, unsafe, reasons, links, arrows",
        quick: true,
        work: house,
    },
    Step {
        name: "clippy",
        about: "no lint complains",
        quick: true,
        work: clippy,
    },
    Step {
        name: "unit",
        about: "all Rust tests, those that need root included",
        quick: true,
        work: unit,
    },
    Step {
        name: "doctest",
        about: "the examples in the documentation run",
        quick: false,
        work: doctest,
    },
    Step {
        name: "doc",
        about: "the documentation builds, with no dead reference",
        quick: false,
        work: doc,
    },
    Step {
        name: "deny",
        about: "licences and sources of dependencies, and none of them twice",
        quick: false,
        work: deny,
    },
    Step {
        name: "advisories",
        about: "no dependency has a known hole",
        quick: false,
        work: advisories,
    },
    Step {
        name: "release",
        about: "the release build, with one command",
        quick: false,
        work: release,
    },
    Step {
        name: "python",
        about: "the Python clients, against the release build",
        quick: false,
        work: python,
    },
    Step {
        name: "peer",
        about: "the Python service's own tests, against the release build",
        quick: false,
        work: peer,
    },
    Step {
        name: "fuzz",
        about: "each fuzz target, for some seconds",
        quick: false,
        work: fuzz,
    },
];

/// The names of the quick steps.
pub(crate) fn quick() -> Vec<String> {
    STEPS
        .iter()
        .filter(|step| step.quick)
        .map(|step| step.name.to_owned())
        .collect()
}

/// Lists the steps.
pub(crate) fn list() -> ExitCode {
    for step in &STEPS {
        say(&format!(
            "{:8} {}{}",
            step.name,
            step.about,
            if step.quick { " (quick)" } else { "" }
        ));
    }
    ExitCode::SUCCESS
}

/// Runs the named steps, or all where none is named.
pub(crate) fn run(names: &[String]) -> ExitCode {
    let unknown: Vec<_> = names
        .iter()
        .filter(|n| !STEPS.iter().any(|s| s.name == **n))
        .collect();
    if !unknown.is_empty() {
        let known: Vec<_> = STEPS.iter().map(|step| step.name).collect();
        say(&format!(
            "no step is named {unknown:?}; there are: {}",
            known.join(", ")
        ));
        return ExitCode::from(2);
    }
    if !is_root() {
        say(
            "not root: sandboxes get one mapped user and what limits this user's cgroups allow; tests that need root say so and are left out",
        );
    }
    let mut report = Report::default();
    for step in &STEPS {
        if names.is_empty() || names.iter().any(|name| name == step.name) {
            report.step(step.name, step.work);
        }
    }
    report.finish()
}

fn system() -> anyhow::Result<Outcome> {
    tools::system_packages()?;
    cargo_tool("cargo-nextest")?;
    Ok(Outcome::Passed)
}

fn fmt() -> anyhow::Result<Outcome> {
    run_cargo(&["fmt", "--all", "--", "--check"])
}

fn house() -> anyhow::Result<Outcome> {
    cargo_tool("cargo-nextest")?;
    run_cargo(&["nextest", "run", "--package", "xtask"])
}

fn clippy() -> anyhow::Result<Outcome> {
    run_cargo(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ])
}

fn unit() -> anyhow::Result<Outcome> {
    cargo_tool("cargo-nextest")?;
    run_cargo(&[
        "nextest",
        "run",
        "--workspace",
        "--exclude",
        "xtask",
        "--no-fail-fast",
    ])
}

fn doctest() -> anyhow::Result<Outcome> {
    run_cargo(&["test", "--doc", "--workspace", "--exclude", "xtask"])
}

fn doc() -> anyhow::Result<Outcome> {
    let mut command = cargo(&[
        "doc",
        "--workspace",
        "--no-deps",
        "--document-private-items",
        "--keep-going",
    ]);
    // Appended to what the caller set, so that a build that needs its own flags keeps them.
    let flags = tools::variable("RUSTDOCFLAGS")
        .unwrap_or_default()
        .into_string();
    // A room's list of its files links to private ones: they are documented here, for whoever changes the code.
    let flags = flags.unwrap_or_default() + " -D warnings -A rustdoc::private_intra_doc_links";
    report::run(command.env("RUSTDOCFLAGS", flags.trim()))?;
    Ok(Outcome::Passed)
}

fn deny() -> anyhow::Result<Outcome> {
    cargo_tool("cargo-deny")?;
    run_cargo(&["deny", "--locked", "check", "bans", "licenses", "sources"])
}

fn advisories() -> anyhow::Result<Outcome> {
    cargo_tool("cargo-deny")?;
    let fetched = cargo(&["deny", "fetch", "db"])
        .output()
        .context("cargo deny does not start")?;
    if !fetched.status.success() {
        let why = "the advisory database cannot be reached from here: run this step where it can be, at the latest before a release";
        return Ok(Outcome::Skipped(why.to_owned()));
    }
    run_cargo(&["deny", "--locked", "check", "advisories"])
}

/// The release build, made now where the sources have changed since.
fn built_binary() -> anyhow::Result<PathBuf> {
    run_cargo(&["build", "--release", "--locked"])?;
    let binary = target().join("release/sandboxd");
    if !binary.is_file() {
        bail!("{} was not built", binary.display());
    }
    Ok(binary)
}

fn release() -> anyhow::Result<Outcome> {
    let binary = built_binary()?;
    let size = binary.metadata()?.len();
    say(&format!(
        "{}: {:.1} MB",
        binary.display(),
        size as f64 / 1e6
    ));
    Ok(Outcome::Passed)
}

/// The suites below `tests/python`, each with the environment it runs in.
const SUITES: [&str; 3] = ["era_a", "era_b", "service"];

fn python() -> anyhow::Result<Outcome> {
    let binary = built_binary()?;
    let mut failed = Vec::new();
    for suite in SUITES {
        let python = tools::python(suite)?;
        let mut command = Command::new(python);
        command
            .args(["-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", suite])
            .current_dir(root().join("tests/python"))
            .env("SANDBOXD_BINARY", &binary)
            .env("PYTHONDONTWRITEBYTECODE", "1");
        if let Err(error) = report::run(&mut command) {
            failed.push(format!("{suite}: {error:#}"));
        }
    }
    if !failed.is_empty() {
        bail!("{}", failed.join("; "));
    }
    Ok(Outcome::Passed)
}

fn peer() -> anyhow::Result<Outcome> {
    if !is_root() {
        let why = "they need root filesystems, which only root can make";
        return Ok(Outcome::Skipped(why.to_owned()));
    }
    let binary = built_binary()?;
    let mut command = Command::new("python3");
    command
        .arg(root().join("tests/peer/run.py"))
        .arg("--binary")
        .arg(&binary)
        .arg("--cache")
        .arg(root().join(".cache/peer"))
        .env("PYTHONDONTWRITEBYTECODE", "1");
    report::run(&mut command)?;
    Ok(Outcome::Passed)
}

/// How long each target is fed, in seconds.
const FUZZ_SECONDS: u32 = 20;

/// Coverage feedback with the stable compiler: the same passes that nightly's `cargo fuzz` asks for, without sanitizers.
const FUZZ_FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Cdebug-assertions -Coverflow-checks";

fn fuzz() -> anyhow::Result<Outcome> {
    let folder = root().join("fuzz");
    let mut targets = Vec::new();
    for entry in std::fs::read_dir(folder.join("fuzz_targets")).context("fuzz/fuzz_targets")? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "rs") {
            targets.extend(
                path.file_stem()
                    .map(|stem| stem.to_string_lossy().into_owned()),
            );
        }
    }
    targets.sort();
    let host = host_triple()?;
    let failed: Vec<String> = targets
        .iter()
        .filter_map(|name| {
            fuzz_one(name, &host)
                .err()
                .map(|error| format!("{name}: {error:#}"))
        })
        .collect();
    if !failed.is_empty() {
        bail!("{}", failed.join("; "));
    }
    Ok(Outcome::Passed)
}

/// Builds one target and feeds it, from the corpus that earlier runs found.
fn fuzz_one(name: &str, host: &str) -> anyhow::Result<()> {
    let built = target().join("fuzz");
    let mut build = cargo(&[
        "build",
        "--locked",
        "--release",
        "--bin",
        name,
        "--target",
        host,
    ]);
    build.current_dir(root().join("fuzz"));
    report::run(
        build
            .env("RUSTFLAGS", FUZZ_FLAGS)
            .env("CARGO_TARGET_DIR", &built),
    )?;
    let corpus = built.join("corpus").join(name);
    std::fs::create_dir_all(&corpus)?;
    let mut fuzz = Command::new(built.join(host).join("release").join(name));
    fuzz.arg(format!("-max_total_time={FUZZ_SECONDS}"))
        .args(["-timeout=10", "-verbosity=0"]);
    fuzz.args([
        "-print_final_stats=1",
        "-rss_limit_mb=1024",
        "-malloc_limit_mb=256",
    ]);
    fuzz.arg(format!("-artifact_prefix={}/", built.display()))
        .arg(&corpus);
    say(&format!("feeding {name} for {FUZZ_SECONDS} s"));
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

fn run_cargo(arguments: &[&str]) -> anyhow::Result<Outcome> {
    report::run(&mut cargo(arguments))?;
    Ok(Outcome::Passed)
}
