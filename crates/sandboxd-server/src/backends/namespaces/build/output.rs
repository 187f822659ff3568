//! What a step prints, which is anybody's: bounded, and escaped before it is told.

use crate::limits::{BUILD_LINE_BYTES, BUILD_TAIL_BYTES};
use std::collections::VecDeque;

/// What was heard of a step.
#[derive(Debug, Default)]
pub(super) struct Heard {
    tail: VecDeque<u8>,
    line: Vec<u8>,
}

impl Heard {
    /// Takes some output; `say` gets each line that is whole.
    pub(super) fn take(&mut self, bytes: &[u8], mut say: impl FnMut(&str)) {
        for byte in bytes {
            if self.tail.len() == BUILD_TAIL_BYTES {
                self.tail.pop_front();
            }
            self.tail.push_back(*byte);
            match byte {
                b'\n' | b'\r' if self.line.is_empty() => {}
                b'\n' | b'\r' => {
                    say(&escaped(&self.line));
                    self.line.clear();
                }
                byte if self.line.len() < BUILD_LINE_BYTES => self.line.push(*byte),
                _ => {}
            }
        }
    }

    /// The end of all of it, after a colon; nothing where there was none.
    pub(super) fn tail(&self) -> String {
        let bytes: Vec<u8> = self.tail.iter().copied().collect();
        let text = escaped(bytes.trim_ascii());
        match text.as_str() {
            "" => String::new(),
            text if self.tail.len() == BUILD_TAIL_BYTES => format!(": …{text}"),
            text => format!(": {text}"),
        }
    }
}

/// Without control characters; lines are told from each other by a bar.
fn escaped(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' => out.push_str(" | "),
            '\r' => {}
            '\t' => out.push(' '),
            character if character.is_control() => out.extend(character.escape_default()),
            character => out.push(character),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_short_and_harmless() {
        let mut heard = Heard::default();
        let mut lines = Vec::new();
        let long = "x".repeat(BUILD_LINE_BYTES * 3);
        for piece in ["on", "e\ntwo\x1b[2J\r\n\n", &long, "\nend"] {
            heard.take(piece.as_bytes(), |line| lines.push(line.to_owned()));
        }
        assert_eq!(lines[..2], ["one", "two\\u{1b}[2J"]);
        assert_eq!(lines[2].len(), BUILD_LINE_BYTES);
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn the_tail_is_the_end_and_bounded() {
        let mut heard = Heard::default();
        assert_eq!(heard.tail(), "");
        heard.take(b"first\nlast\n", |_| {});
        assert_eq!(heard.tail(), ": first | last");
        for _ in 0..1000 {
            heard.take(b"more and more\x07\n", |_| {});
        }
        let tail = heard.tail();
        assert!(tail.starts_with(": \u{2026}") && tail.ends_with("more\\u{7}"));
        assert!(tail.len() < 4 * BUILD_TAIL_BYTES);
    }
}
