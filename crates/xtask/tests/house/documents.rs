//! The documents hold together: every relative link and every path they name is there, every decision is listed,
//! every lesson has its test.

use crate::source::{Source, root, sources};
use std::path::Path;

/// Where a rule was broken, and how.
type Complaints = Vec<String>;

/// A document without its fenced code.
fn prose(text: &str) -> String {
    let mut fenced = false;
    text.lines()
        .map(|line| {
            let fence = line.trim_start().starts_with("```");
            fenced ^= fence;
            if fence || fenced { "" } else { line }
        })
        .collect::<Vec<_>>()
        .join("\n")
}

/// The anchors that a document's headings make.
fn anchors(text: &str) -> Vec<String> {
    let text = prose(text);
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = title
                .chars()
                .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

fn dead_links(file: &Source, root: &Path) -> Complaints {
    let text = prose(&file.text);
    let here = root.join(&file.path);
    let folder = here.parent().expect("a document lies in a folder");
    let mut complaints = Vec::new();
    for (at, _) in text.match_indices("](") {
        let target = text[at + 2..].split([')', ' ']).next().unwrap_or_default();
        let line = text[..at].matches('\n').count() + 1;
        if target.contains("://") || target.starts_with("mailto:") {
            continue;
        }
        let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
        let linked = if path.is_empty() {
            here.clone()
        } else {
            folder.join(path)
        };
        if !linked.exists() {
            complaints.push(format!("{}:{line}: dead link {target}", file.path));
        } else if !anchor.is_empty() {
            let linked = std::fs::read_to_string(&linked).unwrap_or_default();
            if !anchors(&linked).iter().any(|known| known == anchor) {
                complaints.push(format!("{}:{line}: no heading for {target}", file.path));
            }
        }
    }
    complaints.extend(dead_paths(&file.path, &text, root));
    complaints
}

/// Paths of the project that a document names in backticks, and that are not there.
fn dead_paths(document: &str, text: &str, root: &Path) -> Complaints {
    let mut complaints = Vec::new();
    for (n, line) in text.lines().enumerate() {
        for name in line.split('`').skip(1).step_by(2) {
            let ours = ["crates/", "docs/", "tests/", "fuzz/"]
                .iter()
                .any(|p| name.starts_with(p));
            let pattern = name.contains(['*', '{', '<', '…', ' ', ':']) || name.contains("NNNN");
            if ours && !pattern && !root.join(name).exists() {
                complaints.push(format!("{document}:{}: `{name}` is not there", n + 1));
            }
        }
    }
    complaints
}

#[test]
fn no_link_in_the_documents_is_dead() {
    let root = root();
    let files = sources(&root, &[".md"]);
    assert!(files.len() > 1, "no document was found");
    let complaints: Complaints = files
        .iter()
        .flat_map(|file| dead_links(file, &root))
        .collect();
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

#[test]
fn a_dead_link_is_refused() {
    let root = root();
    let complaints = |text: &str| dead_links(&snippet("README.md", text), &root).len();
    assert_eq!(complaints("see [this](docs/nowhere.md)"), 1);
    assert_eq!(
        complaints("see [this](README.md#no-such-heading-at-all)"),
        1
    );
    assert_eq!(complaints("see `crates/nowhere/src`"), 1);
    assert_eq!(
        complaints("see [that](README.md) and `crates/xtask/tests/house/tidy.rs`"),
        0
    );
    assert_eq!(complaints("```\n[x](nowhere)\n```"), 0);
    assert_eq!(anchors("## One: two, three\n"), ["one-two-three"]);
}

#[test]
fn every_decision_is_in_the_index() {
    let root = root();
    let folder = root.join("docs/decisions");
    let index = std::fs::read_to_string(folder.join("README.md")).expect("the index is there");
    let records = sources(&folder, &[".md"]);
    let missing: Vec<&str> = records
        .iter()
        .map(|record| record.path.as_str())
        .filter(|path| *path != "README.md" && !index.contains(path))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/decisions/README.md does not list {missing:?}"
    );
}

/// The names that the daemon's list of settings gives.
fn settings(source: &str) -> Vec<&str> {
    let calls = source.split("setting(").skip(1);
    calls
        .filter_map(|call| call.trim_start().strip_prefix('"')?.split('"').next())
        .collect()
}

/// The names in the first column of a document's tables.
fn rows(document: &str) -> Vec<&str> {
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| row.split('`').next()).collect()
}

#[test]
fn the_configuration_document_has_every_setting_and_no_other() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).expect("it is there");
    let source = read("crates/sandboxd-server/src/config/settings/table.rs");
    let document = read("docs/configuration.md");
    let (settings, rows) = (settings(&source), rows(&document));
    assert!(settings.len() > 30, "the list was not found: {settings:?}");
    let missing: Vec<_> = settings.iter().filter(|s| !rows.contains(s)).collect();
    let invented: Vec<_> = rows.iter().filter(|r| !settings.contains(r)).collect();
    assert!(
        missing.is_empty() && invented.is_empty(),
        "missing: {missing:?}, invented: {invented:?}"
    );
}

/// The tests that the table of lessons names: what stands in backticks and reads like the name of one.
fn named_tests(document: &str) -> Vec<&str> {
    let quoted = document
        .lines()
        .flat_map(|line| line.split('`').skip(1).step_by(2));
    quoted
        .filter(|name| {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            name.chars().all(plain) && name.matches('_').count() >= 2
        })
        .collect()
}

/// The functions of a source that has tests.
fn functions(source: &Source) -> Vec<&str> {
    let has_tests = source.path.contains("tests/")
        || source.text.contains("#[test]")
        || source.text.contains("#[tokio::test");
    let keyword = if source.path.ends_with(".py") {
        "def "
    } else {
        "fn "
    };
    let lines = source.text.lines().filter(|_| has_tests);
    lines
        .filter_map(|line| {
            let (before, after) = line.split_once(keyword)?;
            let at_start = before
                .split_whitespace()
                .all(|word| word.starts_with("pub") || word == "async");
            let end = after.find(['(', '<'])?;
            at_start.then(|| &after[..end])
        })
        .collect()
}

#[test]
fn the_table_of_lessons_names_tests_that_are_there() {
    let root = root();
    let document = std::fs::read_to_string(root.join("docs/lessons.md")).expect("it is there");
    let named = named_tests(&document);
    assert!(named.len() > 100, "the table was not found: {named:?}");
    let files = sources(&root, &[".rs", ".py"]);
    let known: Vec<&str> = files.iter().flat_map(functions).collect();
    let invented: Vec<_> = named.iter().filter(|name| !known.contains(name)).collect();
    assert!(invented.is_empty(), "no test is called {invented:?}");

    let own = files
        .iter()
        .filter(|file| file.path.contains("sandboxd-server/tests/lessons/"));
    let forgotten: Vec<_> = own
        .flat_map(|file| {
            let tests = file.text.split("#[tokio::test").skip(1);
            tests.filter_map(|test| test.split_once(" fn ")?.1.split('(').next())
        })
        .filter(|name| !named.contains(name))
        .collect();
    assert!(forgotten.is_empty(), "not in the table: {forgotten:?}");
}

#[test]
fn a_lesson_without_a_test_is_seen() {
    let row = "| Nobody waits. | `nobody_waits_for_long`, `setting_one`, `/tmp` |";
    assert_eq!(named_tests(row), ["nobody_waits_for_long"]);
    let text = "#[test]\nfn it_is_here() {}\n// fn it_is_not()\n    pub(crate) async fn this_is_too(a: u8) {}\n";
    assert_eq!(
        functions(&snippet("src/a.rs", text)),
        ["it_is_here", "this_is_too"]
    );
    assert_eq!(
        functions(&snippet("tests/a.py", "def test_it():\n")),
        ["test_it"]
    );
    assert!(functions(&snippet("src/a.rs", "fn no_test_at_all() {}\n")).is_empty());
}

fn snippet(path: &str, text: &str) -> Source {
    Source {
        path: path.to_owned(),
        text: text.to_owned(),
    }
}
