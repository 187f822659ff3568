//! All that a run of the command found, as it is kept in a file, and compared with another.

use super::figures::{Findings, shown};
use super::machine::{Machine, Quiet};
use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Medians that differ by less are called the same.
const SAME: f64 = 0.05;

/// What one run found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Seconds since 1970.
    pub(crate) taken_at: u64,
    /// Where.
    pub(crate) machine: Machine,
    /// In the order in which they were run.
    pub(crate) suites: Vec<SuiteRecord>,
}

/// What one suite found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SuiteRecord {
    /// Its name.
    pub(crate) name: String,
    /// How quiet the machine was.
    pub(crate) quiet: Quiet,
    /// What it found.
    pub(crate) findings: Findings,
    /// Why it could not be finished.
    pub(crate) failed: Option<String>,
}

impl Record {
    /// Reads one.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        serde_json::from_str(&text)
            .with_context(|| format!("{} was not written by `bench --json`", path.display()))
    }

    /// Writes it.
    pub(crate) fn write(&self, path: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        std::fs::write(path, text + "\n").with_context(|| path.display().to_string())
    }

    /// This one, with the suites of a later run in the place of its own.
    pub(crate) fn renewed(mut self, later: &Self) -> Self {
        self.taken_at = later.taken_at;
        for suite in &later.suites {
            match self.suites.iter_mut().find(|s| s.name == suite.name) {
                Some(own) => *own = suite.clone(),
                None => self.suites.push(suite.clone()),
            }
        }
        let place = |suite: &SuiteRecord| {
            let known = super::suites::SUITES.iter();
            known.clone().position(|s| s.name == suite.name)
        };
        self.suites.sort_by_key(place);
        self
    }

    /// Every median that both have, with what it is of.
    fn medians<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = Change<'a>> {
        self.suites.iter().flat_map(move |suite| {
            let before = other.suites.iter().find(|s| s.name == suite.name);
            let before = before.map_or(&[][..], |suite| &suite.findings.figures);
            suite.findings.figures.iter().flat_map(move |figure| {
                let old = before.iter().find(|f| f.what == figure.what);
                figure.rows.iter().filter_map(move |row| {
                    let old = old?.rows.iter().find(|r| r.who == row.who)?;
                    Some(Change {
                        suite: &suite.name,
                        what: &figure.what,
                        unit: &figure.unit,
                        who: &row.who,
                        before: old.figures.median,
                        now: row.figures.median,
                    })
                })
            })
        })
    }

    /// What differs from a former run, in columns; the peers' too, since they say what the machine did.
    pub(crate) fn compared_with(&self, former: &Self) -> String {
        let mut rows = vec![["", "who", "before", "now", "ratio", ""].map(str::to_owned)];
        for change in self.medians(former) {
            let ratio = change.now / change.before;
            let word = match ratio {
                r if !r.is_finite() => "",
                r if r > 1.0 + SAME => "more",
                r if r < 1.0 - SAME => "less",
                _ => "same",
            };
            rows.push([
                format!("{}: {} ({})", change.suite, change.what, change.unit),
                change.who.to_owned(),
                shown(change.before),
                shown(change.now),
                format!("{ratio:.2}"),
                word.to_owned(),
            ]);
        }
        let mut text = super::table::columns(&rows);
        if self.machine != former.machine {
            text.push_str("the former run was on another machine: compare ratios, not figures\n");
        }
        text
    }
}

struct Change<'a> {
    suite: &'a str,
    what: &'a str,
    unit: &'a str,
    who: &'a str,
    before: f64,
    now: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figures::{Figure, Samples};

    fn record(ours: f64) -> Record {
        let mut findings = Findings::default();
        findings.figure(
            Figure::new("a run", "ms", &Samples::one(ours)).beside("bare", &Samples::one(1.0)),
        );
        Record {
            taken_at: 0,
            machine: Machine::here(),
            suites: vec![SuiteRecord {
                name: "run".to_owned(),
                quiet: Quiet {
                    busy_before: 0.0,
                    stolen: 0.0,
                    ruler_spread: None,
                    load: String::new(),
                },
                findings,
                failed: None,
            }],
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_compared() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("figures.json");
        record(2.0).write(&path).expect("can be written");
        let former = Record::read(&path).expect("can be read");
        let text = record(1.0).compared_with(&former);
        assert!(text.contains("0.50") && text.contains("less"), "{text}");
        assert!(text.contains("1.00") && text.contains("same"), "{text}");
        std::fs::write(&path, "{}").expect("can be written");
        let error = Record::read(&path).expect_err("is no record");
        assert!(error.to_string().contains("figures.json"), "{error}");
    }
}
