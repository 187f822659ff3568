//! From a font's codes to characters, and how wide they are.

use super::map::Map;
use crate::limits::PDF_MAP_BYTES_MAX;
use lopdf::{Dictionary, Document, Object};

/// Width of a character of which nothing is known, in thousandths of the font's size.
const WIDTH_UNKNOWN: f32 = 500.0;
/// Width of a space of which nothing is known.
const SPACE_UNKNOWN: f32 = 250.0;

/// A font as far as reading needs it.
pub(super) struct Font {
    /// What the file says that codes mean. Comes first.
    map: Map,
    /// Characters by one-byte code; empty for a font of longer codes.
    simple: Vec<String>,
    first_width: usize,
    widths: Vec<f32>,
}

impl Font {
    /// Its map takes from `entries_left`.
    pub(super) fn read(document: &Document, font: &Dictionary, entries_left: &mut usize) -> Self {
        let kind = value(document, font, b"Subtype").and_then(|kind| kind.as_name().ok());
        let composite = kind == Some(b"Type0");
        let map = value(document, font, b"ToUnicode")
            .and_then(|map| map.as_stream().ok())
            .and_then(|map| map.get_plain_content_with_limit(PDF_MAP_BYTES_MAX).ok());
        let map = map.map_or_else(Map::default, |content| Map::parse(&content, *entries_left));
        *entries_left = entries_left.saturating_sub(map.entries());
        let simple = if composite {
            Vec::new()
        } else {
            simple(document, font)
        };
        let widths = value(document, font, b"Widths").and_then(|widths| widths.as_array().ok());
        let widths = widths.map_or_else(Vec::new, |widths| {
            let widths = widths.iter().take(256);
            widths
                .map(|width| width.as_float().unwrap_or(WIDTH_UNKNOWN))
                .collect()
        });
        let first = value(document, font, b"FirstChar").and_then(|first| first.as_i64().ok());
        Self {
            map,
            simple,
            first_width: first
                .and_then(|first| usize::try_from(first).ok())
                .unwrap_or(0),
            widths,
        }
    }

    /// Adds what a shown string says; gives its width and how many codes it had.
    pub(super) fn show(&self, shown: &[u8], text: &mut String) -> (f32, u16) {
        let (mut width, mut count) = (0.0, 0u16);
        let mut rest = shown;
        while !rest.is_empty() {
            let length = self.code_length(rest);
            let (code, after) = rest.split_at(length);
            rest = after;
            let number = code
                .iter()
                .fold(0u32, |n, byte| (n << 8) | u32::from(*byte));
            if !self.map.put(length, number, text)
                && let Some(char) = self.simple.get(number as usize)
            {
                text.push_str(char);
            }
            width += self.width(number as usize);
            count = count.saturating_add(1);
        }
        (width, count)
    }

    fn code_length(&self, rest: &[u8]) -> usize {
        let usual = if self.simple.is_empty() { 2 } else { 1 };
        let length = if self.simple.is_empty() {
            self.map.code_length(rest).unwrap_or(usual)
        } else {
            usual
        };
        length.clamp(1, rest.len())
    }

    fn width(&self, code: usize) -> f32 {
        let at = code.checked_sub(self.first_width);
        at.and_then(|at| self.widths.get(at))
            .copied()
            .unwrap_or(WIDTH_UNKNOWN)
    }

    /// The width of its space.
    pub(super) fn space(&self) -> f32 {
        let known = 32usize.checked_sub(self.first_width);
        let known = known.and_then(|at| self.widths.get(at)).copied();
        known.filter(|width| *width > 0.0).unwrap_or(SPACE_UNKNOWN)
    }
}

fn value<'a>(document: &'a Document, of: &'a Dictionary, key: &[u8]) -> Option<&'a Object> {
    let value = of.get(key).ok()?;
    document.dereference(value).ok().map(|(_, value)| value)
}

/// The characters of the 256 codes of a font with an encoding of its own.
fn simple(document: &Document, font: &Dictionary) -> Vec<String> {
    let encoding = value(document, font, b"Encoding");
    let name = match encoding {
        Some(Object::Name(name)) => Some(name.clone()),
        Some(Object::Dictionary(encoding)) => value(document, encoding, b"BaseEncoding")
            .and_then(|base| base.as_name().ok())
            .map(<[u8]>::to_vec),
        _ => None,
    };
    let mut asked = font_dictionary();
    if let Some(name) = name {
        asked.set("Encoding", Object::Name(name));
    }
    let every: Vec<u8> = (0..=255).collect();
    let mut chars = of_codes(document, &asked, &every);
    let differences = encoding
        .and_then(|encoding| encoding.as_dict().ok())
        .and_then(|encoding| value(document, encoding, b"Differences"))
        .and_then(|differences| differences.as_array().ok());
    let mut code = 0;
    for difference in differences.into_iter().flatten().take(1_024) {
        match difference {
            Object::Integer(next) => code = usize::try_from(*next).unwrap_or(256),
            Object::Name(glyph) => {
                if let Some(char) = chars.get_mut(code) {
                    *char = of_glyph(document, glyph);
                }
                code = code.saturating_add(1);
            }
            _ => {}
        }
    }
    chars
}

fn font_dictionary() -> Dictionary {
    let mut font = Dictionary::new();
    font.set("Type", Object::Name(b"Font".to_vec()));
    font
}

/// The library's tables, asked by way of a font that has nothing but an encoding.
fn of_codes(document: &Document, font: &Dictionary, codes: &[u8]) -> Vec<String> {
    let encoding = font.get_font_encoding_with_limit(document, 0).ok();
    let one = |code: &u8| {
        let char = encoding
            .as_ref()
            .and_then(|encoding| encoding.bytes_to_string(&[*code]).ok());
        char.unwrap_or_default()
    };
    codes.iter().map(one).collect()
}

fn of_glyph(document: &Document, glyph: &[u8]) -> String {
    let mut encoding = Dictionary::new();
    let differences = vec![Object::Integer(0), Object::Name(glyph.to_vec())];
    encoding.set("Differences", Object::Array(differences));
    let mut font = font_dictionary();
    font.set("Encoding", Object::Dictionary(encoding));
    of_codes(document, &font, &[0]).concat()
}
