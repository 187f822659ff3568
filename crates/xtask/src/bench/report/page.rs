//! The text of the report.

use crate::bench::figures::{Figure, Target, shown};
use crate::bench::record::{Record, SuiteRecord};
use crate::bench::suites::{SUITES, Spent};
use crate::bench::table::{spread, targets};

const HEAD: &str = "# Measured

Written by `cargo xtask bench --report`, which measures all of this anew on the machine it runs on, installs the peers it
stands beside, and needs root. The figures behind it are in [figures.json](benchmarks/figures.json);
`cargo xtask bench --compare docs/benchmarks/figures.json` says what has changed since.

Everybody takes turns: in each round each does the same thing once, so what else the machine does falls on all alike. Rounds
go on until the medians are known to 2 %, or the time for them is over; whoever is slow takes part in fewer of them. Figures
are medians, with the fastest and what nine tenths do not exceed. *Of ours* is how many times as much as ours it is. Compare
ratios between machines, not figures.
";

/// All of it. `pictures` are suite, file and title.
pub(super) fn page(record: &Record, pictures: &[(String, String, String)]) -> String {
    let mut text = HEAD.to_owned();
    text.push_str(&machine(record));
    text.push_str(&missed(record));
    for suite in &record.suites {
        text.push_str(&section(suite, pictures));
    }
    text
}

fn machine(record: &Record) -> String {
    let machine = &record.machine;
    let taken_at = i64::try_from(record.taken_at).unwrap_or_default();
    let day = time::OffsetDateTime::from_unix_timestamp(taken_at)
        .map_or_else(|_| String::new(), |time| time.date().to_string());
    format!(
        "\nLast measured on {day}: {} × {}, {} GiB, {}, Linux {}, cgroups {}.\n",
        machine.processors,
        machine.processor,
        machine.memory_gib,
        machine.system,
        machine.kernel,
        machine.cgroups
    )
}

/// What is asked and not met, first of all.
fn missed(record: &Record) -> String {
    let mut text = String::new();
    for suite in &record.suites {
        let disturbed = suite.quiet.disturbed().is_some();
        let mut missed = String::new();
        for figure in &suite.findings.figures {
            let targets = figure.targets.iter();
            for target in targets.filter(|target| figure.met(target) == Some(false)) {
                missed.push_str(&format!("  - {}.\n", miss(figure, target)));
            }
        }
        if missed.is_empty() {
            continue;
        }
        let known = SUITES.iter().find(|s| s.name == suite.name);
        let spent = known.and_then(|suite| suite.spent).map(|spent| {
            let Spent { on, decision } = spent;
            format!(" Ours is spent on {on} ([more](decisions/{decision})).")
        });
        text.push_str(&format!(
            "- [{}](#{}){}.{}\n{missed}",
            suite.name,
            suite.name,
            if disturbed {
                ", while the machine was disturbed"
            } else {
                ""
            },
            spent.as_deref().unwrap_or_default(),
        ));
    }
    if text.is_empty() {
        return "\nEvery target is met.\n".to_owned();
    }
    format!("\n## Targets that are missed\n\n{text}")
}

fn miss(figure: &Figure, target: &Target) -> String {
    let unit = &figure.unit;
    let asked = match target {
        Target::AtMost(_) | Target::AtLeast(_) => None,
        Target::TimesOf(..) | Target::SmallerBy(..) | Target::LargerBy(..) => figure.asked(target),
    };
    let asked = asked.map(|asked| format!(", which is {}", amount(asked, unit)));
    let unreached = figure.none_below(target).map(|row| {
        let least = amount(row.figures.median, unit);
        format!(": less than {} takes, {least}", row.who)
    });
    format!(
        "{}: {}; asked is {}{}{}",
        figure.what,
        amount(figure.ours(), unit),
        target.words(unit).trim_end(),
        asked.as_deref().unwrap_or_default(),
        unreached.as_deref().unwrap_or_default(),
    )
}

fn amount(value: f64, unit: &str) -> String {
    format!("{} {unit}", shown(value)).trim_end().to_owned()
}

fn section(suite: &SuiteRecord, pictures: &[(String, String, String)]) -> String {
    let about = SUITES.iter().find(|s| s.name == suite.name);
    let about = about.map_or("", |suite| suite.about);
    let mut text = format!("\n## {}\n\n{about}\n", suite.name);
    if let Some(why) = suite.quiet.disturbed() {
        text.push_str(&format!("\n**Too noisy to judge:** {why}.\n"));
    }
    if let Some(why) = &suite.failed {
        text.push_str(&format!("\n**It could not be finished:** {}\n", cell(why)));
    }
    for (_, file, title) in pictures.iter().filter(|(name, _, _)| *name == suite.name) {
        text.push_str(&format!("\n![{title}](benchmarks/{file})\n"));
    }
    if !suite.findings.figures.is_empty() {
        text.push_str("\n| what | who | median | [min, p90] | of ours | n | target |\n");
        text.push_str("|---|---|--:|--:|--:|--:|---|\n");
    }
    for figure in &suite.findings.figures {
        text.push_str(&rows(figure, suite.quiet.disturbed().is_none()));
    }
    if !suite.findings.notes.is_empty() {
        text.push('\n');
    }
    for note in &suite.findings.notes {
        text.push_str(&format!("- {}\n", cell(note)));
    }
    text
}

fn rows(figure: &Figure, judged: bool) -> String {
    let mut text = String::new();
    for (at, row) in figure.rows.iter().enumerate() {
        let (what, ratio, target) = if at == 0 {
            let unit = if figure.unit.is_empty() {
                String::new()
            } else {
                format!(" ({})", figure.unit)
            };
            let targets = targets(figure, judged).join("<br>");
            (format!("{}{unit}", figure.what), String::new(), targets)
        } else {
            (String::new(), shown(figure.ratio(row)), String::new())
        };
        text.push_str(&format!(
            "| {} | {} | {} | {} | {ratio} | {} | {target} |\n",
            cell(&what),
            cell(&row.who),
            shown(row.figures.median),
            spread(&row.figures),
            row.figures.count,
        ));
    }
    text
}

/// Text that stays in its cell, and is no markup.
fn cell(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
        .replace('|', "\\|")
        .replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figures::{Findings, Samples};
    use crate::bench::machine::{Machine, Quiet};

    #[test]
    fn what_is_missed_stands_first_and_every_row_is_there() {
        let mut findings = Findings::default();
        findings.figure(
            Figure::new("a run", "ms", &Samples::one(7.0))
                .beside("bare", &Samples::one(2.0))
                .target(Target::TimesOf(3.0, "bare".to_owned()))
                .target(Target::SmallerBy(4.0, "bare".to_owned())),
        );
        findings.note("a|peer\nis left out");
        let record = Record {
            taken_at: 0,
            machine: Machine::here(),
            suites: vec![SuiteRecord {
                name: "run".to_owned(),
                quiet: Quiet {
                    busy_before: 0.9,
                    stolen: 0.0,
                    ruler_spread: None,
                    load: String::new(),
                },
                findings,
                failed: None,
            }],
        };
        let text = page(&record, &[]);
        let (missed, run) = (text.find("Targets that are missed"), text.find("## run"));
        assert!(missed < run && missed.is_some(), "{text}");
        assert!(
            text.contains("(decisions/0080-where-the-time-goes.md)"),
            "{text}"
        );
        assert!(
            text.contains("a run: 7.00 ms; asked is at most 3 times bare, which is 6.00 ms.\n"),
            "{text}"
        );
        assert!(
            text.contains("asked is bare at least 4 times as much, which is 0.500 ms: less than bare takes, 2.00 ms.\n"),
            "{text}"
        );
        assert!(text.contains("| a run (ms) | sandboxd | 7.00 |"), "{text}");
        assert!(text.contains("|  | bare | 2.00 |  | 0.286 |"), "{text}");
        assert!(text.contains("Too noisy to judge"), "{text}");
        assert!(text.contains("- a\\|peer is left out"), "{text}");
    }
}
