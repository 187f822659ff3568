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

/// On which side of its column a cell stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// Rows under each other, the first one with the heads.
pub(crate) fn columns<const N: usize>(rows: &[[String; N]], sides: [Align; N]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(widths).zip(sides);
        let cells = cells.map(|((cell, width), side)| match side {
            Align::Left => format!("{cell:<width$}"),
            Align::Right => format!("{cell:>width$}"),
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Align, columns, printable, size};

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

    #[test]
    fn control_characters_are_escaped_and_letters_are_not() {
        assert_eq!(printable("a\u{1b}[2Jb\nc"), "a\\u{1b}[2Jb\\nc");
        assert_eq!(printable("größe"), "größe");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_lines_end_with_words() {
        let rows = [["A", "NUMBER"], ["größer", "1"]].map(|row| row.map(str::to_owned));
        let text = columns(&rows, [Align::Left, Align::Right]);
        assert_eq!(text, "A       NUMBER\ngrößer       1\n");
        let text = columns(&rows, [Align::Right, Align::Left]);
        assert_eq!(text, "     A  NUMBER\ngrößer  1\n");
    }
}
