//! What `cargo xtask test` does, in order. Every step can be run alone by its name.

use crate::engine;
use crate::report::{self, Outcome, Report, say};
use crate::tools::{self, cargo, cargo_tool, is_root, root, target};
use anyhow::{Context, bail};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// One step.
struct Step {
    name: &'static str,
    about: &'static str,
    /// Whether `cargo xtask check` runs it.
    quick: bool,
    work: fn() -> anyhow::Result<Outcome>,
}

/// The order: what fails soonest first, and the release build before those who use it.
const STEPS: [Step; 15] = [
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
        name: "python-docker",
        about: "the same, with sandboxes by a container engine",
        quick: false,
        work: python_docker,
    },
    Step {
        name: "peer",
        about: "the Python service's own tests, against the release build",
        quick: false,
        work: peer,
    },
    Step {
        name: "peer-docker",
        about: "the same, with sandboxes by a container engine",
        quick: false,
        work: peer_docker,
    },
    Step {
        name: "fuzz",
        about: "each fuzz target, for some seconds",
        quick: false,
        work: fuzz,
    },
];

/// The names of the quick steps.
fn quick() -> Vec<String> {
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
            "{:13} {}{}",
            step.name,
            step.about,
            if step.quick { " (quick)" } else { "" }
        ));
    }
    ExitCode::SUCCESS
}

/// Runs the quick steps, and then feeds each fuzz target for longer.
pub(crate) fn check(long_fuzz: bool) -> ExitCode {
    let quick = run(&quick());
    if !long_fuzz || quick != ExitCode::SUCCESS {
        return quick;
    }
    let mut report = Report::default();
    report.step("fuzz", crate::fuzz::long);
    report.finish()
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
    if let Some(ended) = engine::end() {
        report.step("engine", || ended);
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
    let mut command = cargo(&[
        "nextest",
        "run",
        "--workspace",
        "--exclude",
        "xtask",
        "--no-fail-fast",
    ]);
    // An ordinary user has what the environment says.
    if let Some(host) = engine::host()? {
        tools::own_engine_packages()?;
        command.env("DOCKER_HOST", host);
    }
    report::run(&mut command)?;
    Ok(Outcome::Passed)
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
/// Why an ordinary user has no engine.
const NO_ENGINE: &str = "only root can make the images of the tests: run this step as root";

fn python() -> anyhow::Result<Outcome> {
    clients(None)
}

fn python_docker() -> anyhow::Result<Outcome> {
    match engine::host()? {
        Some(host) => clients(Some(&host)),
        None => Ok(Outcome::Skipped(NO_ENGINE.to_owned())),
    }
}

/// The suites of `tests/python`, with sandboxes by the engine at this address, or by the service itself.
fn clients(engine: Option<&str>) -> anyhow::Result<Outcome> {
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
        match engine {
            Some(host) => command.env("TESTS_DOCKER_HOST", host),
            None => command.env_remove("TESTS_DOCKER_HOST"),
        };
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
    python_service(None)
}

fn peer_docker() -> anyhow::Result<Outcome> {
    match engine::host()? {
        Some(host) => python_service(Some(&host)),
        None => Ok(Outcome::Skipped(NO_ENGINE.to_owned())),
    }
}

/// The Python service's own tests, with sandboxes by the engine at this address, or by the service itself.
fn python_service(engine: Option<&str>) -> anyhow::Result<Outcome> {
    let binary = built_binary()?;
    let mut command = Command::new("python3");
    command
        .arg(root().join("tests/peer/run.py"))
        .arg("--binary")
        .arg(&binary)
        .arg("--cache")
        .arg(root().join(".cache/peer"))
        .env("PYTHONDONTWRITEBYTECODE", "1");
    if let Some(host) = engine {
        command.args(["--docker-host", host]);
    }
    report::run(&mut command)?;
    Ok(Outcome::Passed)
}

fn fuzz() -> anyhow::Result<Outcome> {
    crate::fuzz::short()
}

fn run_cargo(arguments: &[&str]) -> anyhow::Result<Outcome> {
    report::run(&mut cargo(arguments))?;
    Ok(Outcome::Passed)
}
