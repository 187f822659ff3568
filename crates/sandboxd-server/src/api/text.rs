//! File contents as text: which bytes are text, in which encoding, and which lines of it.

use crate::limits::{ECHO_CHARS_MAX, ENCODING_SAMPLE_BYTES};
use encoding_rs::Encoding;

/// Files of these endings are text whatever they hold.
const TEXT_ENDINGS: &[&str] = &[
    "bash",
    "bat",
    "bib",
    "c",
    "cc",
    "cfg",
    "clj",
    "cmake",
    "conf",
    "cpp",
    "cs",
    "css",
    "csv",
    "dart",
    "diff",
    "dockerfile",
    "env",
    "erl",
    "ex",
    "exs",
    "fish",
    "fs",
    "gitignore",
    "go",
    "gradle",
    "graphql",
    "h",
    "hpp",
    "hs",
    "htm",
    "html",
    "ini",
    "ipynb",
    "java",
    "jl",
    "js",
    "json",
    "jsonl",
    "jsx",
    "kt",
    "less",
    "lock",
    "log",
    "lua",
    "md",
    "mjs",
    "ml",
    "nim",
    "patch",
    "php",
    "pl",
    "properties",
    "proto",
    "ps1",
    "py",
    "pyi",
    "r",
    "rb",
    "rs",
    "rst",
    "sass",
    "scala",
    "scss",
    "sh",
    "sql",
    "srt",
    "svelte",
    "svg",
    "swift",
    "tex",
    "tf",
    "toml",
    "ts",
    "tsv",
    "tsx",
    "txt",
    "vue",
    "xml",
    "yaml",
    "yml",
    "zig",
    "zsh",
];
/// Of a file of no known ending, at most one character in this many may be unreadable.
const UNREADABLE_ONE_IN: usize = 100;

/// A text for a message: cut, and on one line.
pub(super) fn brief(text: &str) -> String {
    let mut brief: String = text
        .chars()
        .take(ECHO_CHARS_MAX)
        .map(|char| if char.is_control() { '\u{fffd}' } else { char })
        .collect();
    if brief.len() < text.len() {
        brief.push('…');
    }
    brief
}

/// The text of a file, or `None` for one that is no text. The path's ending helps to decide.
pub(super) fn decoded(path: &str, content: &[u8]) -> Option<String> {
    if let Some((encoding, mark)) = Encoding::for_bom(content) {
        let (text, _) = encoding.decode_without_bom_handling(&content[mark..]);
        return Some(text.into_owned());
    }
    if let Ok(text) = std::str::from_utf8(content)
        && (!text.contains('\0') || is_text_by_name(path))
    {
        return Some(text.to_owned());
    }
    let sample = &content[..content.len().min(ENCODING_SAMPLE_BYTES)];
    let by_name = is_text_by_name(path);
    if !by_name && sample.contains(&0) {
        return None;
    }
    let (text, _) = guessed(sample).decode_without_bom_handling(content);
    let unreadable = |char: &char| {
        *char == '\u{fffd}'
            || (char.is_control() && !matches!(char, '\t' | '\n' | '\r' | '\x0c' | '\x1b'))
    };
    let bad = text.chars().filter(unreadable).count();
    let most = text.chars().count() / UNREADABLE_ONE_IN;
    (by_name || bad <= most).then(|| text.into_owned())
}

fn guessed(sample: &[u8]) -> &'static Encoding {
    let mut detector = chardetng::EncodingDetector::new(chardetng::Iso2022JpDetection::Deny);
    detector.feed(sample, true);
    detector.guess(None, chardetng::Utf8Detection::Allow)
}

fn is_text_by_name(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let ending = name
        .rsplit('.')
        .next()
        .unwrap_or_default()
        .to_ascii_lowercase();
    TEXT_ENDINGS.binary_search(&ending.as_str()).is_ok()
}

/// Lines `offset` to `offset + limit` of a text, and words about what was left out.
pub(super) fn slice(text: &str, offset: u64, limit: u64) -> String {
    let (offset, limit) = (to_usize(offset), to_usize(limit));
    let all = lines(text);
    if offset >= all.len() {
        return "[End of file]".to_owned();
    }
    let end = offset.saturating_add(limit).min(all.len());
    let mut slice = all[offset..end].join("\n");
    let more = all.len() - end;
    if more > 0 {
        slice.push_str(&format!(
            "\n\n[... {more} more lines. Use offset={end} to read more.]"
        ));
    }
    slice
}

fn to_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// The lines of a text without their ends; every mark that Unicode calls a line's end counts.
fn lines(text: &str) -> Vec<&str> {
    const ENDS: [char; 10] = [
        '\n', '\r', '\x0b', '\x0c', '\x1c', '\x1d', '\x1e', '\u{85}', '\u{2028}', '\u{2029}',
    ];
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(ENDS) {
        let (line, end) = rest.split_at(at);
        lines.push(line);
        let width = end.chars().next().map_or(0, char::len_utf8);
        rest = end.strip_prefix("\r\n").unwrap_or(&end[width..]);
    }
    if !rest.is_empty() {
        lines.push(rest);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_are_sorted() {
        assert!(TEXT_ENDINGS.is_sorted());
    }

    #[test]
    fn bytes_become_text_or_do_not() {
        let utf16 = [0xff, 0xfe, b'h', 0, b'i', 0];
        let table: &[(&str, &[u8], Option<&str>)] = &[
            ("a.txt", b"caf\xc3\xa9\n", Some("café\n")),
            ("latin.txt", b"caf\xe9\n", Some("café\n")),
            ("latin", b"caf\xe9\n", Some("café\n")),
            ("bom.txt", b"\xef\xbb\xbfhi", Some("hi")),
            ("utf16.dat", &utf16, Some("hi")),
            ("bin.dat", b"\x00\x01\xff\xfe\x81\x82", None),
            ("picture.png", b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", None),
            ("noise", &[0x81, 0x8d, 0x8f, 0x90, 0x9d, 1, 2, 3], None),
            ("empty", b"", Some("")),
            ("nul.py", b"a\0b", Some("a\0b")),
        ];
        for (path, content, expected) in table {
            assert_eq!(decoded(path, content).as_deref(), *expected, "{path}");
        }
    }

    #[test]
    fn slices_say_what_they_leave_out() {
        let text = "l1\nl2\r\nl3\x0bl4\u{2028}l5\n";
        assert_eq!(slice(text, 0, 2000), "l1\nl2\nl3\nl4\nl5");
        assert_eq!(
            slice(text, 1, 1),
            "l2\n\n[... 3 more lines. Use offset=2 to read more.]"
        );
        assert_eq!(slice(text, 5, 1), "[End of file]");
        assert_eq!(slice(text, u64::MAX, u64::MAX), "[End of file]");
        assert_eq!(slice("", 0, 1), "[End of file]");
        assert_eq!(slice("\n", 0, 1), "");
    }

    #[test]
    fn a_brief_text_is_cut_and_on_one_line() {
        assert_eq!(brief("a\nb"), "a\u{fffd}b");
        assert_eq!(brief(&"x".repeat(500)).chars().count(), 201);
    }
}
