//! File contents as text: which bytes are text, in which encoding, and which lines of it.

use crate::limits::{ECHO_CHARS_MAX, ENCODING_SAMPLE_BYTES};
use crate::pdf::{self, PdfError};
use bytes::Bytes;
use encoding_rs::{Encoding, ISO_2022_JP, UTF_8};
use std::borrow::Cow;

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
    "etx",
    "ex",
    "exs",
    "fish",
    "fs",
    "geojson",
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
    "jsonld",
    "jsx",
    "ksh",
    "kt",
    "less",
    "lock",
    "log",
    "lua",
    "md",
    "mjs",
    "ml",
    "n3",
    "ndjson",
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
    "rtx",
    "sass",
    "scala",
    "scss",
    "sgm",
    "sgml",
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
    "vcf",
    "vtt",
    "vue",
    "webmanifest",
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

/// Why a file has no text. The texts are public.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoText {
    /// It is none.
    #[error("[Binary File]")]
    Binary,
    /// A PDF that gives none.
    #[error(transparent)]
    Pdf(#[from] PdfError),
}

/// Some lines of a file, as [`slice()`] has them. The path's ending helps to tell what it is. Nothing of it is done on the
/// caller's thread.
///
/// # Errors
/// [`NoText`].
pub(super) async fn read(
    path: String,
    content: Bytes,
    offset: u64,
    limit: u64,
) -> Result<String, NoText> {
    if ending(&path).as_deref() == Some("pdf") {
        return Ok(slice(&pdf::text(content).await?, offset, limit));
    }
    let work = move || {
        let text = decoded(&path, &content).ok_or(NoText::Binary)?;
        Ok(slice(&text, offset, limit))
    };
    let done = tokio::task::spawn_blocking(work).await;
    // It does not panic and is not aborted; should it, then there is no text.
    done.unwrap_or(Err(NoText::Binary))
}

/// The text of a file, or `None` for one that is no text.
fn decoded<'a>(path: &str, content: &'a [u8]) -> Option<Cow<'a, str>> {
    let by_name = ending(path).is_some_and(|ending| {
        let ending = ending.as_str();
        TEXT_ENDINGS.binary_search(&ending).is_ok()
    });
    let guess = guessed(content);
    if by_name {
        let exact = |(encoding, content): (&'static Encoding, &'a [u8])| {
            encoding.decode_without_bom_handling_and_without_replacement(content)
        };
        // Every byte is a character of the last.
        return guess
            .and_then(exact)
            .or_else(|| std::str::from_utf8(content).ok().map(Cow::Borrowed))
            .or_else(|| Some(encoding_rs::mem::decode_latin1(content)));
    }
    let readable = |(encoding, content): (&'static Encoding, &'a [u8])| {
        let (text, _) = encoding.decode_without_bom_handling(content);
        // An encoding that was only guessed has a character for nearly every byte, so that control characters are all
        // that tells noise from text.
        let noise = |char: &char| {
            *char == '\u{fffd}'
                || (encoding != UTF_8
                    && char.is_control()
                    && !matches!(char, '\t' | '\n' | '\r' | '\x0c' | '\x1b'))
        };
        let bad = text.chars().filter(noise).count();
        (bad <= text.chars().count() / UNREADABLE_ONE_IN).then_some(text)
    };
    guess
        .and_then(readable)
        .or_else(|| readable((UTF_8, content)))
}

/// What the first bytes say about the encoding, and the content without its mark. Nothing for content that has the look
/// of no text.
fn guessed(content: &[u8]) -> Option<(&'static Encoding, &[u8])> {
    if let Some((encoding, mark)) = Encoding::for_bom(content) {
        return Some((encoding, &content[mark..]));
    }
    let sample = &content[..content.len().min(ENCODING_SAMPLE_BYTES)];
    let whole = sample.len() == content.len();
    // What is UTF-8 as far as it is looked at is not anything else, except for the one encoding that looks like ASCII.
    let utf8 = match std::str::from_utf8(sample) {
        Ok(_) => true,
        Err(error) => !whole && error.error_len().is_none(),
    };
    if utf8 && !sample.contains(&0x1b) {
        return Some((UTF_8, content));
    }
    if sample.contains(&0) {
        return None;
    }
    let mut detector = chardetng::EncodingDetector::new(chardetng::Iso2022JpDetection::Allow);
    detector.feed(sample, whole);
    let encoding = detector.guess(None, chardetng::Utf8Detection::Allow);
    if utf8 && encoding != ISO_2022_JP {
        return Some((UTF_8, content));
    }
    Some((encoding, content))
}

/// The ending of a path's name in lower case.
fn ending(path: &str) -> Option<String> {
    let name = path.rsplit('/').next()?;
    let (_, ending) = name.rsplit_once('.')?;
    Some(ending.to_ascii_lowercase())
}

/// Lines `offset` to `offset + limit` of a text, and words about what was left out.
fn slice(text: &str, offset: u64, limit: u64) -> String {
    let offset = to_usize(offset);
    let end = offset.saturating_add(to_usize(limit));
    let mut slice = String::new();
    let (mut taken, mut all) = (0, 0);
    for line in lines(text) {
        if (offset..end).contains(&all) {
            if taken > 0 {
                slice.push('\n');
            }
            slice.push_str(line);
            taken += 1;
        }
        all += 1;
    }
    if offset >= all {
        return "[End of file]".to_owned();
    }
    let more = all.saturating_sub(end);
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
fn lines(text: &str) -> impl Iterator<Item = &str> {
    const ENDS: [char; 10] = [
        '\n', '\r', '\x0b', '\x0c', '\x1c', '\x1d', '\x1e', '\u{85}', '\u{2028}', '\u{2029}',
    ];
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Some(at) = rest.find(ENDS) else {
            return Some(std::mem::take(&mut rest));
        };
        let (line, end) = rest.split_at(at);
        let width = end.chars().next().map_or(0, char::len_utf8);
        rest = end.strip_prefix("\r\n").unwrap_or(&end[width..]);
        Some(line)
    })
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
            ("nul.dat", b"a\0b", Some("a\0b")),
            ("noise.txt", b"\x81\x00\xff", Some("\u{81}\0ÿ")),
            ("go", b"\x81\x00\xff", None),
            ("CAPITAL.TXT", b"\x81\x00\xff", Some("\u{81}\0ÿ")),
            ("odd.md", b"\xff\xfea", Some("ÿþa")),
            ("odd.dat", b"\xff\xfea", None),
            (
                "sjis.txt",
                b"\x93\xfa\x96\x7b\x8c\xea\x82\xcc\x95\xb6\x8f\xcd\x82\xc5\x82\xb7\x81\x42",
                Some("日本語の文章です。"),
            ),
            ("jis.txt", b"\x1b$BF|K\\8l\x1b(B\n", Some("日本語\n")),
            (
                "colour.log",
                b"\x1b[31mred\x1b[0m",
                Some("\x1b[31mred\x1b[0m"),
            ),
        ];
        for (path, content, expected) in table {
            assert_eq!(decoded(path, content).as_deref(), *expected, "{path}");
        }
    }

    #[test]
    fn a_sample_that_ends_inside_a_character_is_still_utf_8() {
        let mut content = "é".repeat(ENCODING_SAMPLE_BYTES).into_bytes();
        content.insert(0, b'a');
        let text = decoded("notes", &content).expect("text");
        assert_eq!(text.as_bytes(), content);
        // One bad byte far behind the sample is one bad character, not another encoding.
        content.push(0xff);
        let text = decoded("notes", &content).expect("text");
        assert!(text.starts_with("aéé") && text.ends_with("é\u{fffd}"));
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
