//! What a file says that a font's codes mean: its `ToUnicode` map.

use std::collections::BTreeMap;

/// Characters of one code at most.
const UNITS_PER_CODE_MAX: usize = 16;

/// A `ToUnicode` map. Ranges are kept as ranges: a short map can name every 32-bit code.
#[derive(Default)]
pub(super) struct Map {
    /// Length, lowest and highest code.
    lengths: Vec<(usize, u32, u32)>,
    /// By length and lowest code: the highest code, and the lowest one's characters.
    ranges: BTreeMap<(usize, u32), (u32, Vec<u16>)>,
}

impl Map {
    /// At most so many entries of it.
    pub(super) fn parse(content: &[u8], most: usize) -> Self {
        let mut map = Self::default();
        let mut words: Vec<Vec<u8>> = Vec::new();
        let mut section = Section::None;
        let mut at = 0;
        while map.entries() < most
            && let Some((word, after)) = next_word(content, at)
        {
            at = after;
            match word {
                Word::Name(b"begincodespacerange") => section = Section::Lengths,
                Word::Name(b"beginbfchar") => section = Section::Chars,
                Word::Name(b"beginbfrange") => section = Section::Ranges,
                Word::Name(_) => section = Section::None,
                Word::Code(code) if section != Section::None => words.push(code),
                Word::Code(_) => {}
                Word::List(list) => {
                    if section == Section::Ranges && words.len() == 2 {
                        let left = most - map.entries();
                        map.list(&words[0], list.into_iter().take(left));
                    }
                    words.clear();
                    continue;
                }
            }
            if section == Section::None {
                words.clear();
            } else if words.len() == section.words() {
                map.entry(section, &words);
                words.clear();
            }
        }
        map
    }

    /// How much it holds.
    pub(super) fn entries(&self) -> usize {
        self.ranges.len() + self.lengths.len()
    }

    fn entry(&mut self, section: Section, words: &[Vec<u8>]) {
        let Some((length, low)) = code(&words[0]) else {
            return;
        };
        match (section, words.get(1), words.get(2)) {
            (Section::Lengths, Some(high), _) => {
                if let Some((_, high)) = code(high) {
                    self.lengths.push((length, low, high));
                }
            }
            (Section::Chars, Some(chars), _) => {
                self.ranges.insert((length, low), (low, units(chars)));
            }
            (Section::Ranges, Some(high), Some(chars)) => {
                if let Some((_, high)) = code(high) {
                    self.ranges.insert((length, low), (high, units(chars)));
                }
            }
            _ => {}
        }
    }

    fn list(&mut self, low: &[u8], list: impl Iterator<Item = Vec<u8>>) {
        let Some((length, low)) = code(low) else {
            return;
        };
        for (code, chars) in (low..=u32::MAX).zip(list) {
            self.ranges.insert((length, code), (code, units(&chars)));
        }
    }

    /// Whether the code is known; if so, its characters are added.
    pub(super) fn put(&self, length: usize, code: u32, text: &mut String) -> bool {
        let found = self.ranges.range(..=(length, code)).next_back();
        let Some(((of, low), (high, chars))) = found else {
            return false;
        };
        if *of != length || *high < code {
            return false;
        }
        let mut chars = chars.clone();
        if let Some(last) = chars.last_mut() {
            let on = u16::try_from((code - low) & 0xffff).unwrap_or(0);
            *last = last.wrapping_add(on);
        }
        text.extend(
            char::decode_utf16(chars)
                .map(|char| char.unwrap_or(char::REPLACEMENT_CHARACTER))
                .filter(|char| *char != '\0'),
        );
        true
    }

    /// How many bytes the next code takes, where the map says so.
    pub(super) fn code_length(&self, rest: &[u8]) -> Option<usize> {
        let fits = |&&(length, low, high): &&(usize, u32, u32)| {
            let Some((_, code)) = rest.get(..length).and_then(code) else {
                return false;
            };
            // Each byte has bounds of its own.
            (0..length).all(|index| {
                let byte = |number: u32| (number >> (8 * index)) & 0xff;
                byte(low) <= byte(code) && byte(code) <= byte(high)
            })
        };
        let fitting = self.lengths.iter().take(64).find(fits);
        fitting.map(|(length, ..)| *length)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Section {
    None,
    Lengths,
    Chars,
    Ranges,
}

impl Section {
    fn words(self) -> usize {
        match self {
            Self::None => 0,
            Self::Lengths | Self::Chars => 2,
            Self::Ranges => 3,
        }
    }
}

enum Word<'a> {
    Name(&'a [u8]),
    Code(Vec<u8>),
    List(Vec<Vec<u8>>),
}

/// The next word of a map from a place on, and where it ends. What is neither name, code nor list of codes is passed over.
fn next_word(content: &[u8], mut at: usize) -> Option<(Word<'_>, usize)> {
    loop {
        let rest = content.get(at..)?;
        match rest.first()? {
            b'<' if rest.get(1) == Some(&b'<') => at += 2,
            b'<' => {
                let (code, length) = hex(rest)?;
                return Some((Word::Code(code), at + length));
            }
            b'[' => {
                let end = memchr::memchr(b']', rest)?;
                let mut list = Vec::new();
                let mut inner = &rest[1..end];
                while let Some(open) = memchr::memchr(b'<', inner) {
                    let Some((code, length)) = hex(&inner[open..]) else {
                        break;
                    };
                    list.push(code);
                    inner = &inner[open + length..];
                }
                return Some((Word::List(list), at + end + 1));
            }
            b'%' => at += memchr::memchr2(b'\n', b'\r', rest)? + 1,
            byte if byte.is_ascii_alphabetic() => {
                let length = rest
                    .iter()
                    .position(|byte| !byte.is_ascii_alphanumeric())
                    .unwrap_or(rest.len());
                return Some((Word::Name(&rest[..length]), at + length));
            }
            _ => at += 1,
        }
    }
}

/// `<…>` as bytes, and its length.
fn hex(rest: &[u8]) -> Option<(Vec<u8>, usize)> {
    let end = memchr::memchr(b'>', rest)?;
    let digits: Vec<u8> = rest[1..end]
        .iter()
        .filter_map(|byte| char::from(*byte).to_digit(16))
        .filter_map(|digit| u8::try_from(digit).ok())
        .take(UNITS_PER_CODE_MAX * 4)
        .collect();
    let bytes = digits
        .chunks(2)
        .map(|pair| (pair[0] << 4) | pair.get(1).copied().unwrap_or(0))
        .collect();
    Some((bytes, end + 1))
}

fn code(bytes: &[u8]) -> Option<(usize, u32)> {
    (1..=4).contains(&bytes.len()).then(|| {
        let number = bytes
            .iter()
            .fold(0u32, |n, byte| (n << 8) | u32::from(*byte));
        (bytes.len(), number)
    })
}

fn units(bytes: &[u8]) -> Vec<u16> {
    let pairs = bytes.chunks(2);
    pairs
        .map(|pair| match *pair {
            [high, low] => u16::from_be_bytes([high, low]),
            [low] => u16::from(low),
            _ => 0,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_read_and_ranges_stay_ranges() {
        let map = Map::parse(
            b"/CIDInit /ProcSet findresource begin % <0001> <0002> not this\n\
              1 begincodespacerange <0000> <ffff> endcodespacerange\n\
              2 beginbfchar <0003> <0041> <0004> <00660069> endbfchar\n\
              2 beginbfrange <0010> <0020> <0061> <0030> <0031> [<0078> <d83dde00>] endbfrange\n\
              1 beginbfrange <00000000> <ffffffff> <0041> endbfrange",
            100,
        );
        let char = |length, code| {
            let mut text = String::new();
            map.put(length, code, &mut text).then_some(text)
        };
        assert_eq!(char(2, 3).as_deref(), Some("A"));
        assert_eq!(char(2, 4).as_deref(), Some("fi"));
        assert_eq!(char(2, 0x12).as_deref(), Some("c"));
        assert_eq!(char(2, 0x31).as_deref(), Some("😀"));
        assert_eq!(char(2, 0x32), None);
        assert_eq!(char(1, 3), None);
        assert_eq!(char(4, 1).as_deref(), Some("B"));
        assert_eq!(map.ranges.len(), 6);
        assert_eq!(map.code_length(&[0, 1, 2]), Some(2));
        assert_eq!(Map::default().code_length(&[0, 1]), None);
        let cut = Map::parse(b"1 beginbfrange <00> <ff> [<0041> <0042> <0043>]", 2);
        assert_eq!(cut.entries(), 2);
    }
}
