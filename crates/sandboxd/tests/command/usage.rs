//! Wrong usage: one clear line, and an exit code that cannot be a program's.

use crate::support::{Place, code, complaints, everyone, text};
use std::fs;

#[test]
fn wrong_usage_of_run_is_one_line_and_125() {
    let place = Place::of(everyone()[0]);
    let missing = place.path().join("missing");
    let missing = missing.to_str().expect("a plain path");
    for (words, part) in [
        (&["--timeout", "soon", "--", "true"][..], "--timeout"),
        (&["--timeout", "0s", "--", "true"], "--timeout"),
        (&["--memory", "1k", "--", "true"], "--memory"),
        (&["--memory", "lots", "--", "true"], "--memory"),
        (&["--cpus", "0", "--", "true"], "--cpus"),
        (&["--pids", "none", "--", "true"], "--pids"),
        (&["-e", "NAME", "--", "true"], "NAME=VALUE"),
        (&["--network", "host", "--", "true"], "--network"),
        (
            &["--allow-unenforced", "everything", "--", "true"],
            "everything",
        ),
        (&["--runtime", "nonesuch", "--", "true"], "nonesuch"),
        (&["--workspace", missing, "--", "true"], "--workspace"),
        (&["--workspace", "/", "--", "true"], "--workspace"),
        (&["--config", missing, "--", "true"], missing),
        (&["--frob", "--", "true"], "--frob"),
        (&[], "PROGRAM"),
    ] {
        let output = place.run(words);
        assert_eq!(code(&output), 125, "{words:?}: {output:?}");
        let said = text(&output.stderr);
        assert_eq!(said.lines().count(), 1, "{words:?}: {said}");
        assert!(
            said.starts_with("sandboxd: ") && said.contains(part),
            "{words:?}: {said}"
        );
        assert!(output.stdout.is_empty(), "{words:?}");
    }
}

#[test]
fn a_configuration_that_makes_no_sense_stops_a_run_too() {
    let place = Place::of(everyone()[0]);
    let file = place.path().join("config.toml");
    fs::write(&file, "no_such_key = 1\n").expect("a file");
    let output = place.run([
        "--config",
        file.to_str().expect("a plain path"),
        "--",
        "true",
    ]);
    assert_eq!(code(&output), 125, "{output:?}");
    let said = complaints(&output);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("no_such_key"), "{said:?}");
}

#[test]
fn wrong_usage_elsewhere_is_2() {
    let place = Place::of(everyone()[0]);
    for words in [
        &["frob"][..],
        &["serve", "--listen", "nowhere"],
        &["doctor", "--frob"],
        &[],
    ] {
        let output = place.command().args(words).output().expect("runs");
        assert_eq!(code(&output), 2, "{words:?}: {output:?}");
        assert!(
            output.stdout.is_empty() && !output.stderr.is_empty(),
            "{words:?}"
        );
    }
}

#[test]
fn help_version_and_completions_are_on_stdout() {
    let place = Place::of(everyone()[0]);
    for (words, part) in [
        (&["--help"][..], "doctor"),
        (&["--version"], env!("CARGO_PKG_VERSION")),
        (&["run", "--help"], "127  there is no such program"),
        (&["serve", "--help"], "--print-config"),
        (&["image", "--help"], "docker login"),
        (&["doctor", "--help"], "Examples:"),
        (&["completions", "bash"], "complete -F"),
        (&["completions", "zsh"], "#compdef sandboxd"),
        (&["completions", "fish"], "complete -c sandboxd"),
    ] {
        let output = place.command().args(words).output().expect("runs");
        assert_eq!(code(&output), 0, "{words:?}: {output:?}");
        assert!(text(&output.stdout).contains(part), "{words:?}: {output:?}");
        assert!(output.stderr.is_empty(), "{words:?}");
    }
}
