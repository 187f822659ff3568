//! Reading the project's own files: which there are, and a Rust source with its comments and texts blanked out, so that
//! a rule about code cannot be broken, or kept, by a comment.

use std::path::{Path, PathBuf};

/// The root of the project.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("crates/xtask lies two levels below the root")
        .to_owned()
}

/// One file of the project.
#[derive(Debug)]
pub(crate) struct Source {
    /// Its path below the root, with `/` between the parts.
    pub(crate) path: String,
    /// What is in it.
    pub(crate) text: String,
}

/// Every text file below `root` whose name ends in one of `endings`, sorted by path; build output is not looked at.
pub(crate) fn sources(root: &Path, endings: &[&str]) -> Vec<Source> {
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of the project can be listed") {
            let entry = entry.expect("a folder of the project can be listed to its end");
            let name = entry.file_name().to_string_lossy().into_owned();
            let kind = entry.file_type().expect("an entry has a type");
            if kind.is_dir() {
                let skipped = ["target", ".git", ".cache", "node_modules", "__pycache__"];
                if !skipped.contains(&name.as_str()) && !name.ends_with(".egg-info") {
                    open.push(entry.path());
                }
            } else if kind.is_file() && endings.iter().any(|ending| name.ends_with(ending)) {
                let path = entry.path();
                let text = std::fs::read_to_string(&path)
                    .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                let below = path
                    .strip_prefix(root)
                    .expect("it was found below the root");
                found.push(Source {
                    path: below.to_string_lossy().into_owned(),
                    text,
                });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// `text` as Rust with every comment and the inside of every string and character blanked out; lines stay where they are.
pub(crate) fn code(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = match chars[at] {
            '/' if chars.get(at + 1) == Some(&'/') => line_end(&chars, at),
            '/' if chars.get(at + 1) == Some(&'*') => comment_end(&chars, at),
            '"' => text_end(&chars, at),
            'r' | 'b' | 'c' if !follows_word(&chars, at) => raw_text_end(&chars, at),
            '\'' => character_end(&chars, at),
            _ => at + 1,
        };
        if end == at + 1 {
            out.push(chars[at]);
        } else {
            let blanked = chars[at..end].iter();
            out.extend(blanked.map(|&c| if c == '\n' { '\n' } else { ' ' }));
        }
        at = end;
    }
    out
}

/// Whether `code` (already blanked) holds `word` with no letter, digit or underscore beside it. A word may hold `::`.
pub(crate) fn mentions(code: &str, word: &str) -> bool {
    code.lines().any(|line| column(line, word).is_some())
}

/// Where `word` stands in `line`, by itself.
pub(crate) fn column(line: &str, word: &str) -> Option<usize> {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word)
        .map(|(at, _)| at)
        .find(|&at| !line[..at].ends_with(part) && !line[at + word.len()..].starts_with(part))
}

fn follows_word(chars: &[char], at: usize) -> bool {
    at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_')
}

fn line_end(chars: &[char], at: usize) -> usize {
    let rest = chars[at..].iter();
    rest.clone()
        .position(|&c| c == '\n')
        .map_or(chars.len(), |n| at + n)
}

fn comment_end(chars: &[char], at: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = at;
    while at + 1 < chars.len() {
        match (chars[at], chars[at + 1]) {
            ('/', '*') => {
                depth += 1;
                at += 2;
            }
            ('*', '/') => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    chars.len()
}

fn text_end(chars: &[char], at: usize) -> usize {
    let mut at = at + 1;
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// The end of `r"…"`, `r#"…"#`, `b"…"`, `br"…"`, `c"…"`, `b'…'`, or just the next character when none begins here.
fn raw_text_end(chars: &[char], at: usize) -> usize {
    let mut open = at;
    while matches!(chars.get(open), Some('r' | 'b' | 'c')) && open < at + 2 {
        open += 1;
    }
    let raw = chars[at..open].contains(&'r');
    match chars.get(open) {
        Some('"') if !raw => return text_end(chars, open),
        Some('\'') if !raw => return character_end(chars, open).max(at + 1),
        _ => {}
    }
    let hashes = chars[open..].iter().take_while(|&&c| c == '#').count();
    if !raw || chars.get(open + hashes) != Some(&'"') {
        return at + 1;
    }
    let mut at = open + hashes + 1;
    while at < chars.len() {
        let closing = chars[at + 1..].iter().take(hashes);
        if chars[at] == '"' && closing.filter(|&&c| c == '#').count() == hashes {
            return at + 1 + hashes;
        }
        at += 1;
    }
    chars.len()
}

/// The end of `'x'` or `'\n'`; a lifetime is left as it is.
fn character_end(chars: &[char], at: usize) -> usize {
    if chars.get(at + 1) == Some(&'\\') {
        let rest = chars[(at + 3).min(chars.len())..].iter();
        return rest
            .clone()
            .position(|&c| c == '\'')
            .map_or(at + 1, |n| at + 4 + n);
    }
    if chars.get(at + 2) == Some(&'\'') {
        at + 3
    } else {
        at + 1
    }
}

#[test]
fn comments_and_texts_are_blanked_and_lines_kept() {
    let text = "let a = \"unsafe \\\" x\"; // unsafe\n/* unsafe /* in */ unsafe */ let b = r#\"unsafe \"q\"\"#;\nunsafe { c('\"', '\\'', b'x') } fn f<'a>() {}";
    let blanked = code(text);
    assert_eq!(blanked.lines().count(), 3);
    let lines: Vec<&str> = blanked.lines().collect();
    assert!(!mentions(lines[0], "unsafe"), "{blanked}");
    assert!(!mentions(lines[1], "unsafe"), "{blanked}");
    assert!(lines[1].contains("let b ="), "{blanked}");
    assert!(mentions(lines[2], "unsafe"), "{blanked}");
    assert!(lines[2].contains("fn f<'a>()"), "{blanked}");
}

#[test]
fn a_word_stands_by_itself() {
    assert!(mentions("use axum::Router;", "axum"));
    assert!(!mentions("let taxumly = 1;", "axum"));
    assert!(mentions("crate::api::x()", "crate::api"));
    assert!(!mentions("crate::api_keys::x()", "crate::api"));
}
