//! Runs steps one after the other, lets none of them stop the rest, and says at the end what came out.

use anyhow::{Context, bail};
use std::ffi::OsString;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// How long one command may take. The whole of `cargo xtask test` takes less from a clean clone on two cores.
const COMMAND_TIME_MAX: Duration = Duration::from_secs(40 * 60);

/// How a step came out, when it did not fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It did what it is there for.
    Passed,
    /// It could not be done here; says why, and what would change that.
    Skipped(String),
}

/// What came of the steps so far.
#[derive(Debug, Default)]
pub(crate) struct Report {
    lines: Vec<(String, Duration, anyhow::Result<Outcome>)>,
}

impl Report {
    /// Runs one step under its heading and remembers what came of it.
    pub(crate) fn step(&mut self, name: &str, work: impl FnOnce() -> anyhow::Result<Outcome>) {
        say(&format!("\n=== {name}"));
        let began = Instant::now();
        let outcome = work();
        match &outcome {
            Ok(Outcome::Passed) => {}
            Ok(Outcome::Skipped(why)) => say(&format!("SKIPPED {name}: {why}")),
            Err(error) => say(&format!("FAILED {name}: {error:#}")),
        }
        self.lines.push((name.to_owned(), began.elapsed(), outcome));
    }

    /// Says what every step came to, failures last, then the line that counts.
    pub(crate) fn finish(self) -> ExitCode {
        let (text, failed) = self.summary();
        say(&text);
        if failed == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }

    fn summary(&self) -> (String, usize) {
        let mut text = String::from("\n=== summary\n");
        let (mut passed, mut failed, mut skipped) = (0, 0, 0);
        let mut reasons = String::new();
        for (name, took, outcome) in &self.lines {
            let word = match outcome {
                Ok(Outcome::Passed) => {
                    passed += 1;
                    "passed"
                }
                Ok(Outcome::Skipped(why)) => {
                    skipped += 1;
                    reasons.push_str(&format!("SKIPPED {name}: {why}\n"));
                    "skipped"
                }
                Err(error) => {
                    failed += 1;
                    reasons.push_str(&format!("FAILED {name}: {error:#}\n"));
                    "FAILED"
                }
            };
            text.push_str(&format!("{word:8} {:6.1} s  {name}\n", took.as_secs_f64()));
        }
        text.push_str(&reasons);
        text.push_str(&format!("{passed} passed, {failed} failed"));
        if skipped > 0 {
            text.push_str(&format!(", {skipped} skipped"));
        }
        (text, failed)
    }
}

/// Prints one line of our own.
#[expect(
    clippy::print_stdout,
    reason = "the one place where this program speaks"
)]
pub(crate) fn say(line: &str) {
    println!("{line}");
}

/// Runs a command to its end, with our own output and no input.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let shown = shown(command);
    say(&format!("$ {shown}"));
    let mut child = command
        .stdin(Stdio::null())
        .spawn()
        .with_context(|| format!("`{shown}` does not start"))?;
    let deadline = Instant::now() + COMMAND_TIME_MAX;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            bail!(
                "`{shown}` did not end within {} s",
                COMMAND_TIME_MAX.as_secs()
            );
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    if !status.success() {
        bail!("`{shown}` ended with {status}");
    }
    Ok(())
}

/// Whether a command can be started and ends well; it says nothing.
pub(crate) fn works(program: &str, arguments: &[&str]) -> bool {
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn shown(command: &Command) -> String {
    let set = command.get_envs().filter_map(|(name, value)| {
        let value = value?.to_string_lossy().into_owned();
        (name != "PATH").then(|| format!("{}={value} ", name.to_string_lossy()))
    });
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<OsString> = words.map(OsString::from).collect();
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    format!("{}{}", set.collect::<String>(), words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_is_told_and_counted() {
        let mut report = Report::default();
        report.step("one", || bail!("first"));
        report.step("two", || Ok(Outcome::Passed));
        report.step("three", || Ok(Outcome::Skipped("no tool".to_owned())));
        report.step("four", || bail!("second"));
        let (text, failed) = report.summary();
        assert_eq!(failed, 2);
        assert!(text.contains("FAILED one: first") && text.contains("FAILED four: second"));
        assert!(text.contains("SKIPPED three: no tool"));
        assert_eq!(text.lines().last(), Some("1 passed, 2 failed, 1 skipped"));
    }

    #[test]
    fn a_command_that_fails_is_a_failure() {
        assert!(run(&mut Command::new("false")).is_err());
        assert!(run(&mut Command::new("true")).is_ok());
        assert!(run(&mut Command::new("no-such-program-anywhere")).is_err());
        assert!(!works("false", &[]));
    }
}
