//! The house rules that can be read off the files: length, where `unsafe` stands, reasons, words. Each rule is a
//! function from a file to what is wrong with it, so that it can be shown to fail on a bad snippet. On documents:
//! `documents.rs`.

use crate::source::{Source, code, column, mentions, root, sources};

const LINES_SOFT: usize = 400;
const LINES_HARD: usize = 800;

/// Where a rule was broken, and how.
type Complaints = Vec<String>;

fn hold(rule: impl Fn(&Source) -> Complaints, endings: &[&str]) {
    let files = sources(&root(), endings);
    assert!(
        !files.is_empty(),
        "no file ends in {endings:?}: the rule would hold by accident"
    );
    let complaints: Complaints = files.iter().flat_map(rule).collect();
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

// ---- length -------------------------------------------------------------------------------------------------------

#[expect(clippy::print_stdout, reason = "the soft limit is said, not enforced")]
fn too_long(file: &Source) -> Complaints {
    let lines = file.text.lines().count();
    if lines > LINES_SOFT {
        println!(
            "{}: {lines} lines, over the soft limit of {LINES_SOFT}",
            file.path
        );
    }
    if lines > LINES_HARD {
        return vec![format!(
            "{}: {lines} lines; the limit is {LINES_HARD}: split it",
            file.path
        )];
    }
    Vec::new()
}

#[test]
fn no_file_is_too_long() {
    hold(too_long, &[".rs", ".py"]);
}

#[test]
fn a_long_file_is_refused() {
    assert!(too_long(&snippet("a.rs", &"\n".repeat(LINES_HARD))).is_empty());
    assert_eq!(
        too_long(&snippet("a.rs", &"\n".repeat(LINES_HARD + 1))).len(),
        1
    );
}

// ---- unsafe -------------------------------------------------------------------------------------------------------

fn unsafe_out_of_place(file: &Source) -> Complaints {
    let code = code(&file.text);
    if !mentions(&code, "unsafe") {
        return Vec::new();
    }
    if !file.path.ends_with("/sys.rs") {
        return numbered(&code, "unsafe")
            .map(|line| format!("{}:{line}: `unsafe` lives in files named sys.rs", file.path))
            .collect();
    }
    let mut complaints = Vec::new();
    let opts_in = lint_exceptions(&code).any(|(at, end)| {
        code[at..end].starts_with("#![") && mentions(&code[at..end], "unsafe_code")
    });
    if !opts_in {
        complaints.push(format!(
            "{}: opts in with #![expect(unsafe_code, reason = …)]",
            file.path
        ));
    }
    let lines: Vec<&str> = file.text.lines().collect();
    for line in numbered(&code, "unsafe") {
        if needs_safety_note(&code, line - 1) && !has_safety_note(&lines, line - 1) {
            complaints.push(format!(
                "{}:{line}: `unsafe` without its SAFETY reason",
                file.path
            ));
        }
    }
    complaints
}

/// Whether `unsafe` on line `at` (counted from 0) vouches for something, as a block or an `impl` does. A declaration
/// only hands the duty on: the blocks inside it and around its calls are the ones that vouch.
fn needs_safety_note(code: &str, at: usize) -> bool {
    let rest = code.lines().skip(at).collect::<Vec<_>>().join(" ");
    let after = column(&rest, "unsafe").map(|at| rest[at + "unsafe".len()..].trim_start());
    after.is_some_and(|after| !(after.starts_with("fn") || after.starts_with("extern")))
}

/// Whether the comment that ends at most three lines above line `at` (counted from 0), or on it, says why it is sound.
fn has_safety_note(lines: &[&str], at: usize) -> bool {
    let says = |line: &str| line.contains("SAFETY:") || line.contains("# Safety");
    if says(lines[at]) {
        return true;
    }
    let comment = |line: &str| line.trim_start().starts_with("//");
    let attribute = |line: &str| line.trim_start().starts_with("#[");
    let above = lines[..at].iter().rev();
    let mut code_lines = 0;
    for line in above {
        if says(line) {
            return true;
        }
        if !comment(line) && !attribute(line) {
            code_lines += 1;
        }
        if code_lines > 3 {
            return false;
        }
    }
    false
}

#[test]
fn unsafe_stays_in_sys_files_with_its_reason() {
    hold(unsafe_out_of_place, &[".rs"]);
}

#[test]
fn unsafe_elsewhere_is_refused() {
    let body = "fn f() {\n    unsafe { g() }\n}\n";
    assert_eq!(unsafe_out_of_place(&snippet("src/run.rs", body)).len(), 1);
    let opted = "#![expect(unsafe_code, reason = \"calls the kernel\")]\n";
    let noted = body.replace("unsafe", "// SAFETY: g has no duties.\n    unsafe");
    assert_eq!(
        unsafe_out_of_place(&snippet("src/sys.rs", &noted)).len(),
        1,
        "no opt-in"
    );
    assert_eq!(
        unsafe_out_of_place(&snippet("src/sys.rs", &format!("{opted}{body}"))).len(),
        1
    );
    assert!(unsafe_out_of_place(&snippet("src/sys.rs", &format!("{opted}{noted}"))).is_empty());
    assert!(unsafe_out_of_place(&snippet("src/run.rs", "// unsafe is a word\n")).is_empty());
    let far =
        "// SAFETY: an older one.\nfn a() {}\nfn b() {}\nfn c() {}\nfn d() {}\nunsafe { g() }\n";
    assert_eq!(
        unsafe_out_of_place(&snippet("src/sys.rs", &format!("{opted}{far}"))).len(),
        1
    );
}

// ---- lint exceptions ----------------------------------------------------------------------------------------------

/// Where each attribute that allows or expects a lint begins and ends in blanked code.
fn lint_exceptions(code: &str) -> impl Iterator<Item = (usize, usize)> {
    let starts = code.match_indices("#[").chain(code.match_indices("#!["));
    starts.filter_map(|(at, _)| {
        let end = at + bracket_end(&code[at..])?;
        let attribute = &code[at..end];
        let excepts = ["allow(", "expect("].iter().any(|word| {
            attribute.match_indices(word).any(|(at, _)| {
                !attribute[..at].ends_with(|c: char| c.is_alphanumeric() || "_.".contains(c))
            })
        });
        excepts.then_some((at, end))
    })
}

fn bracket_end(code: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, c) in code.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

fn exception_without_reason(file: &Source) -> Complaints {
    let code = code(&file.text);
    let bare = lint_exceptions(&code).filter(|&(at, end)| {
        let Some(reason) = code[at..end].find("reason") else {
            return true;
        };
        // In the blanked text a reason is blanks only; its length is what can be seen of it.
        let rest = &code[at + reason + "reason".len()..end];
        let Some(value) = rest.trim_start().strip_prefix('=') else {
            return true;
        };
        value.len() - value.trim_start().len() < "\"why it is\"".len()
    });
    bare.map(|(at, _)| {
        let line = code[..at].matches('\n').count() + 1;
        format!(
            "{}:{line}: a lint exception carries reason = \"…\"",
            file.path
        )
    })
    .collect()
}

#[test]
fn every_lint_exception_has_a_reason() {
    hold(exception_without_reason, &[".rs"]);
}

#[test]
fn a_bare_exception_is_refused() {
    let bad = [
        "#[allow(dead_code)]\nfn f() {}",
        "#![expect(\n    unsafe_code,\n)]",
        "#[expect(dead_code, reason = \"\")]",
        "#[cfg_attr(test, allow(dead_code))]",
    ];
    for text in bad {
        assert_eq!(
            exception_without_reason(&snippet("a.rs", text)).len(),
            1,
            "{text}"
        );
    }
    let good = [
        "#[expect(dead_code, reason = \"read by the debugger\")]",
        "#[derive(Debug)]\nstruct A;",
        "fn f() { g().expect(\"is there\"); }",
        "// #[allow(dead_code)]",
        "#[test]\nfn f() { a[0].expect(\"x\"); }",
    ];
    for text in good {
        assert!(
            exception_without_reason(&snippet("a.rs", text)).is_empty(),
            "{text}"
        );
    }
}

fn lints_not_inherited(file: &Source) -> Complaints {
    let package = file.text.contains("[package]");
    let inherits = file.text.contains("[lints]\nworkspace = true");
    if !package || inherits || file.path.starts_with("fuzz/") {
        return Vec::new();
    }
    vec![format!(
        "{}: inherits the workspace's lints ([lints] workspace = true)",
        file.path
    )]
}

#[test]
fn every_crate_inherits_the_lints() {
    hold(lints_not_inherited, &["Cargo.toml"]);
    assert_eq!(
        lints_not_inherited(&snippet("Cargo.toml", "[package]\nname = \"a\"")).len(),
        1
    );
}

/// Bans and exceptions in the settings of clippy and cargo-deny say why: an inline table has a `reason`.
fn setting_without_reason(file: &Source) -> Complaints {
    let entry = |line: &str| {
        let line = line.trim_start();
        line.starts_with('{') && !line.contains("reason = \"") && !line.contains("allow = [")
    };
    let lines = file.text.lines().enumerate();
    lines
        .filter(|(_, line)| entry(line))
        .map(|(n, _)| format!("{}:{}: says why (reason = \"…\")", file.path, n + 1))
        .collect()
}

#[test]
fn every_ban_and_exception_has_a_reason() {
    hold(setting_without_reason, &["clippy.toml", "deny.toml"]);
    let bad = snippet("deny.toml", "skip = [\n  { crate = \"a\" },\n]");
    assert_eq!(setting_without_reason(&bad).len(), 1);
    let good = snippet(
        "deny.toml",
        "skip = [\n  { crate = \"a\", reason = \"b needs it\" },\n]",
    );
    assert!(setting_without_reason(&good).is_empty());
}

// ---- words --------------------------------------------------------------------------------------------------------

/// Notes to self, put together here so that this file does not hold them.
const NOTES: [&str; 3] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
];

fn note_to_self(file: &Source) -> Complaints {
    let notes = NOTES.iter();
    notes
        .flat_map(|note| numbered(&file.text, note).map(move |line| (note, line)))
        .map(|(note, line)| format!("{}:{line}: `{note}`: do it, or file an issue", file.path))
        .collect()
}

#[test]
fn no_note_to_self_is_left() {
    hold(note_to_self, &[".rs", ".md", ".toml", ".py", ".sh"]);
    for note in NOTES {
        assert_eq!(
            note_to_self(&snippet("a.rs", &format!("// {note}: later"))).len(),
            1
        );
    }
    assert!(note_to_self(&snippet("a.sh", concat!("mktemp a.XX", "XXXX"))).is_empty());
}

/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 8] = [
    "utils", "util", "common", "manager", "managers", "helper", "helpers", "misc",
];

fn empty_name(file: &Source) -> Complaints {
    let stem = file.path.trim_end_matches(".rs").trim_end_matches(".py");
    let parts = stem
        .split(['/', '-', '_', '.'])
        .filter(|part| EMPTY_NAMES.contains(part));
    let mut complaints: Complaints = parts
        .map(|part| format!("{}: `{part}` says nothing: name what is inside", file.path))
        .collect();
    let code = if file.path.ends_with(".rs") {
        code(&file.text)
    } else {
        String::new()
    };
    for (n, line) in code.lines().enumerate() {
        let Some(at) = column(line, "mod") else {
            continue;
        };
        let name: String = line[at + 3..]
            .trim_start()
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        if name.split('_').any(|part| EMPTY_NAMES.contains(&part)) {
            complaints.push(format!(
                "{}:{}: module `{name}` says nothing",
                file.path,
                n + 1
            ));
        }
    }
    complaints
}

#[test]
fn names_say_what_is_inside() {
    hold(empty_name, &[".rs", ".py"]);
    assert_eq!(empty_name(&snippet("crates/a/src/utils.rs", "")).len(), 1);
    assert_eq!(
        empty_name(&snippet("crates/a/tests/common/mod.rs", "")).len(),
        1
    );
    assert_eq!(
        empty_name(&snippet("a.rs", "pub(crate) mod session_manager;")).len(),
        1
    );
    assert!(empty_name(&snippet("crates/a/src/run.rs", "mod tests { }")).is_empty());
}

// ---- parts of the rules -------------------------------------------------------------------------------------------

/// The lines, counted from 1, on which `word` stands by itself.
fn numbered<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let lines = text.lines().enumerate();
    lines
        .filter(move |(_, line)| column(line, word).is_some())
        .map(|(n, _)| n + 1)
}

fn snippet(path: &str, text: &str) -> Source {
    Source {
        path: path.to_owned(),
        text: text.to_owned(),
    }
}
