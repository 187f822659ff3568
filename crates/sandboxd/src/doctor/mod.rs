//! `sandboxd doctor`: what this host can do. Every answer is tried, not looked up.
//!
//! - [`checks`]: the list, in the order in which it is printed: what was found, what a missing thing costs, how to get it.
//! - [`cgroups`]: whether memory, CPU time and processes can be limited.
//! - [`probe`]: what has to be tried inside namespaces, in short-lived processes of their own; nothing is mounted in ours.
//! - [`host`]: what the kernel says in files.
//! - [`quotas`]: whether file systems limit what sessions store.
//! - [`sockets`]: whether a Docker daemon answers.
//! - [`trial`]: a whole sandbox, started and ended.

mod cgroups;
mod checks;
mod host;
mod probe;
mod quotas;
mod sockets;
mod trial;

pub(crate) use host::host_memory;

use crate::arguments::DoctorArguments;
use crate::failure::FAILED;
use crate::output;
use checks::{Check, State};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::process::ExitCode;

/// Looks, and says what it found.
pub(crate) fn doctor(arguments: &DoctorArguments) -> ExitCode {
    if let Some(name) = &arguments.probe {
        output::say(&probe::answer(name, arguments.state_dir.as_deref()));
        return ExitCode::SUCCESS;
    }
    let state_dir = arguments.state_dir.as_deref();
    let trial = trial::trial(state_dir);
    let checks = checks::all(state_dir, &trial);
    let works = trial.works();
    if arguments.json {
        output::say(&object(&checks, works).to_string());
    } else {
        output::say(&text(&checks, works));
    }
    if works {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(FAILED)
    }
}

fn heading() -> String {
    let who = if rustix::process::geteuid().is_root() {
        "root"
    } else {
        "an ordinary user"
    };
    format!(
        "sandboxd {} on Linux {} ({}), as {who}",
        env!("CARGO_PKG_VERSION"),
        host::kernel_release(),
        std::env::consts::ARCH,
    )
}

fn text(checks: &[Check], works: bool) -> String {
    let width = checks
        .iter()
        .map(|check| check.name.len())
        .max()
        .unwrap_or(0);
    let mut text = format!("{}\n\n", heading());
    for check in checks {
        let found = output::printable(&check.found);
        let _ = writeln!(
            text,
            "{:<5} {:<width$}  {found}",
            check.state.word(),
            check.name
        );
        if check.state != State::Yes {
            for (label, line) in [("costs", &check.costs), ("get", &check.get)] {
                if !line.is_empty() {
                    let _ = writeln!(text, "      {:<width$}  {label}: {line}", "");
                }
            }
        }
    }
    text.push('\n');
    text.push_str(if works {
        "Sandboxes can be made here."
    } else {
        "Sandboxes cannot be made here: see the lines marked `no`."
    });
    text
}

fn object(checks: &[Check], works: bool) -> Value {
    let checks = checks.iter().map(|check| {
        json!({
            "name": check.name,
            "state": check.state.word(),
            "found": check.found,
            "costs": check.costs,
            "get": check.get,
        })
    });
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "kernel": host::kernel_release(),
        "architecture": std::env::consts::ARCH,
        "root": rustix::process::geteuid().is_root(),
        "works": works,
        "checks": checks.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_says_what_it_costs_and_what_is_there_does_not() {
        let check = |state| Check {
            name: "thing",
            state,
            found: "found\u{1b}".to_owned(),
            costs: "this".to_owned(),
            get: "that way".to_owned(),
        };
        let missing = text(&[check(State::No)], false);
        assert!(missing.contains("no    thing  found\\u{1b}"), "{missing}");
        assert!(missing.contains("costs: this") && missing.contains("get: that way"));
        let there = text(&[check(State::Yes)], true);
        assert!(!there.contains("costs:"), "{there}");
        let object = object(&[check(State::Partly)], true);
        assert_eq!(object["checks"][0]["state"], "part");
    }
}
