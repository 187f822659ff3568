//! The only room that prints. Everything else hands it words, so that a reader who goes away early, a control character
//! out of a sandbox, or a closed stream is dealt with in one place.

use std::fmt::Write as _;
use std::io::{self, Write};

/// Text for people or programs on stdout. A reader who has gone is no error: there is nobody left to tell.
pub(crate) fn say(text: &str) {
    let mut stdout = io::stdout().lock();
    let _ = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
}

/// Bytes on stdout as they are.
pub(crate) fn say_raw(bytes: &[u8]) {
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(bytes).and_then(|()| stdout.flush());
}

/// One line on stderr, with our name before it: `sandboxd: …`.
pub(crate) fn complain(text: &str) {
    // One write, so that lines of several processes on one terminal do not mix.
    let _ = io::stderr().write_all(format!("sandboxd: {}\n", printable(text)).as_bytes());
}

/// Help text that belongs to an error, on stderr.
pub(crate) fn complain_raw(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// The text with control characters escaped: part of it may come from a sandbox, and must not move anybody's cursor.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .fold(String::with_capacity(text.len()), |mut out, character| {
            if character.is_control() {
                let _ = write!(out, "{}", character.escape_default());
            } else {
                out.push(character);
            }
            out
        })
}

/// Bytes for people.
pub(crate) fn size(bytes: u64) -> String {
    let mut unit = "B";
    let mut whole = bytes;
    let mut tenths = 0;
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if whole < 1024 {
            break;
        }
        tenths = whole % 1024 * 10 / 1024;
        whole /= 1024;
        unit = larger;
    }
    match unit {
        "B" => format!("{whole} B"),
        unit => format!("{whole}.{tenths} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{printable, size};

    #[test]
    fn control_characters_are_escaped_and_letters_are_not() {
        assert_eq!(printable("a\u{1b}[2Jb\nc"), "a\\u{1b}[2Jb\\nc");
        assert_eq!(printable("größe"), "größe");
    }

    #[test]
    fn sizes_are_for_people() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1_600, "1.5 KiB"),
            (123 * 1024 * 1024, "123.0 MiB"),
            (5 << 40, "5.0 TiB"),
            (u64::MAX, "16777215.9 TiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }
}
