//! Walks what a page shows, and sets lines and spaces where the positions say so: a PDF has neither.

use super::font::Font;
use super::tokens;
use crate::limits::{
    PDF_FONTS_MAX, PDF_FORM_DEPTH_MAX, PDF_MAP_ENTRIES_MAX, PDF_PAGE_BYTES_MAX, PDF_STATES_MAX,
    PDF_TEXT_BYTES_MAX, PDF_TOKENS_MAX,
};
use lopdf::content::{Content, Operation};
use lopdf::{Dictionary, Document, Object};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Instant;

/// Down by more than this part of a text's height is another line.
const LINE_HEIGHTS: f32 = 0.3;
/// A gap of more than this part of a space's width is a space.
const SPACE_WIDTHS: f32 = 0.5;

/// Whether the walk got to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Walked {
    Done,
    Late,
}

impl Walked {
    pub(super) fn is_late(self) -> bool {
        self == Self::Late
    }
}

/// A change of coordinates: `[a b c d e f]` of the format.
#[derive(Debug, Clone, Copy)]
struct Matrix([f32; 6]);

impl Matrix {
    const SAME: Self = Self([1.0, 0.0, 0.0, 1.0, 0.0, 0.0]);

    fn moved(x: f32, y: f32) -> Self {
        Self([1.0, 0.0, 0.0, 1.0, x, y])
    }

    /// First this one, then `next`.
    fn then(self, next: Self) -> Self {
        let ([a, b, c, d, e, f], [g, h, i, j, k, l]) = (self.0, next.0);
        Self([
            a * g + b * i,
            a * h + b * j,
            c * g + d * i,
            c * h + d * j,
            e * g + f * i + k,
            e * h + f * j + l,
        ])
    }

    /// How large something of size one comes out, along its own baseline.
    fn scale(self) -> f32 {
        self.0[0].hypot(self.0[1])
    }
}

/// What `q` keeps.
#[derive(Clone)]
struct State {
    place: Matrix,
    font: Option<Rc<Font>>,
    size: f32,
    leading: f32,
    char_gap: f32,
    word_gap: f32,
    stretch: f32,
}

/// Where the text so far ends.
struct End {
    x: f32,
    y: f32,
    /// Direction of its baseline.
    along: (f32, f32),
    height: f32,
}

/// A walk through one page.
pub(super) struct Walk<'a> {
    document: &'a Document,
    deadline: Instant,
    text: String,
    end: Option<End>,
    state: State,
    kept: Vec<State>,
    /// Where the line starts, and where the next text goes.
    line: Matrix,
    next: Matrix,
    /// By the address of its dictionary, which the document holds still.
    fonts: HashMap<*const Dictionary, Rc<Font>>,
    /// What the fonts' maps of characters may still hold.
    entries_left: usize,
}

impl<'a> Walk<'a> {
    pub(super) fn new(document: &'a Document, deadline: Instant) -> Self {
        Self {
            document,
            deadline,
            text: String::new(),
            end: None,
            state: State {
                place: Matrix::SAME,
                font: None,
                size: 1.0,
                leading: 0.0,
                char_gap: 0.0,
                word_gap: 0.0,
                stretch: 1.0,
            },
            kept: Vec::new(),
            line: Matrix::SAME,
            next: Matrix::SAME,
            fonts: HashMap::new(),
            entries_left: PDF_MAP_ENTRIES_MAX,
        }
    }

    pub(super) fn text(self) -> String {
        self.text
    }

    /// Walks through a page's content, or through a form's that is shown `depth` forms deep. An operation that is broken
    /// ends its content, not the page.
    pub(super) fn content(
        &mut self,
        content: &[u8],
        resources: &[&'a Dictionary],
        depth: usize,
    ) -> Walked {
        for operation in Content::decode_iter(content) {
            let Ok(operation) = operation else { break };
            if Instant::now() >= self.deadline {
                return Walked::Late;
            }
            if self.text.len() > PDF_TEXT_BYTES_MAX {
                break;
            }
            if self.operation(&operation, resources, depth).is_late() {
                return Walked::Late;
            }
        }
        Walked::Done
    }

    fn operation(
        &mut self,
        operation: &Operation,
        resources: &[&'a Dictionary],
        depth: usize,
    ) -> Walked {
        let operands = &operation.operands;
        let number = |at: usize| -> f32 {
            let number = operands.get(at).and_then(|number| number.as_float().ok());
            number.filter(|number| number.is_finite()).unwrap_or(0.0)
        };
        let matrix = || Matrix([0, 1, 2, 3, 4, 5].map(number));
        match operation.operator.as_str() {
            "q" if self.kept.len() < PDF_STATES_MAX => self.kept.push(self.state.clone()),
            "Q" => {
                if let Some(state) = self.kept.pop() {
                    self.state = state;
                }
            }
            "cm" => self.state.place = matrix().then(self.state.place),
            "BT" => self.go(Matrix::SAME),
            "Tm" => self.go(matrix()),
            "Td" => self.go(Matrix::moved(number(0), number(1)).then(self.line)),
            "TD" => {
                self.state.leading = -number(1);
                self.go(Matrix::moved(number(0), number(1)).then(self.line));
            }
            "T*" => self.next_line(),
            "TL" => self.state.leading = number(0),
            "Tc" => self.state.char_gap = number(0),
            "Tw" => self.state.word_gap = number(0),
            "Tz" => self.state.stretch = number(0) / 100.0,
            "Tf" => {
                if let Some(Ok(name)) = operands.first().map(Object::as_name) {
                    self.state.font = self.font(name, resources);
                }
                self.state.size = number(1);
            }
            "Tj" => self.show_all(operands.iter().take(1)),
            "TJ" => {
                if let Some(Object::Array(parts)) = operands.first() {
                    self.show_all(parts.iter());
                }
            }
            "'" => {
                self.next_line();
                self.show_all(operands.iter().take(1));
            }
            "\"" => {
                self.state.word_gap = number(0);
                self.state.char_gap = number(1);
                self.next_line();
                self.show_all(operands.iter().skip(2).take(1));
            }
            "Do" => {
                if let Some(Ok(name)) = operands.first().map(Object::as_name) {
                    return self.form(name, resources, depth);
                }
            }
            _ => {}
        }
        Walked::Done
    }

    fn go(&mut self, to: Matrix) {
        self.line = to;
        self.next = to;
    }

    fn next_line(&mut self) {
        self.go(Matrix::moved(0.0, -self.state.leading).then(self.line));
    }

    fn show_all<'o>(&mut self, parts: impl Iterator<Item = &'o Object>) {
        for part in parts {
            match part {
                Object::String(shown, _) => self.show(shown),
                // Thousandths of the size, to the left.
                Object::Integer(_) | Object::Real(_) => {
                    let back = part.as_float().unwrap_or(0.0);
                    let on = -back / 1_000.0 * self.state.size * self.state.stretch;
                    self.next = Matrix::moved(on, 0.0).then(self.next);
                }
                _ => {}
            }
            if self.text.len() > PDF_TEXT_BYTES_MAX {
                break;
            }
        }
    }

    fn show(&mut self, shown: &[u8]) {
        let Some(font) = self.state.font.clone() else {
            return;
        };
        let at = self.next.then(self.state.place);
        let scale = at.scale();
        let [a, b, .., x, y] = at.0;
        let along = (a / scale.max(f32::EPSILON), b / scale.max(f32::EPSILON));
        let height = (self.state.size * scale).abs();
        let mut added = String::new();
        let (width, count) = font.show(shown, &mut added);
        if let Some(end) = &self.end {
            let (dx, dy) = (x - end.x, y - end.y);
            let (ux, uy) = end.along;
            // Away from the baseline, and along it.
            let away = (dy * ux - dx * uy).abs();
            let on = dx * ux + dy * uy;
            let space = font.space() / 1_000.0 * height * self.state.stretch.abs();
            if away > LINE_HEIGHTS * height.min(end.height).max(f32::EPSILON) {
                self.text.push('\n');
            } else if (on > SPACE_WIDTHS * space || on < -end.height)
                && !self.text.ends_with([' ', '\n'])
                && !added.starts_with(' ')
            {
                self.text.push(' ');
            }
        }
        self.text.push_str(&added);
        let spaces = shown.iter().filter(|byte| **byte == b' ').count();
        let spaces = f32::from(u16::try_from(spaces).unwrap_or(u16::MAX));
        let on = width / 1_000.0 * self.state.size
            + f32::from(count) * self.state.char_gap
            + spaces * self.state.word_gap;
        self.next = Matrix::moved(on * self.state.stretch, 0.0).then(self.next);
        let [.., x, y] = self.next.then(self.state.place).0;
        self.end = Some(End {
            x,
            y,
            along,
            height,
        });
    }

    /// A named entry of a kind in the resources.
    fn resource(
        &self,
        kind: &[u8],
        name: &[u8],
        resources: &[&'a Dictionary],
    ) -> Option<&'a Object> {
        let document = self.document;
        resources.iter().find_map(|resources| {
            let (_, kind) = document.dereference(resources.get(kind).ok()?).ok()?;
            let named = kind.as_dict().ok()?.get(name).ok()?;
            document.dereference(named).ok().map(|(_, named)| named)
        })
    }

    fn font(&mut self, name: &[u8], resources: &[&'a Dictionary]) -> Option<Rc<Font>> {
        let font = self.resource(b"Font", name, resources)?;
        let font = font.as_dict().ok()?;
        let key: *const Dictionary = font;
        if let Some(known) = self.fonts.get(&key) {
            return Some(known.clone());
        }
        if self.fonts.len() >= PDF_FONTS_MAX {
            return None;
        }
        let read = Rc::new(Font::read(self.document, font, &mut self.entries_left));
        self.fonts.insert(key, read.clone());
        Some(read)
    }

    fn form(&mut self, name: &[u8], resources: &[&'a Dictionary], depth: usize) -> Walked {
        if depth >= PDF_FORM_DEPTH_MAX {
            return Walked::Done;
        }
        let form = self.resource(b"XObject", name, resources);
        let Some(Object::Stream(form)) = form else {
            return Walked::Done;
        };
        let kind = form.dict.get(b"Subtype").and_then(Object::as_name).ok();
        if kind != Some(b"Form") {
            return Walked::Done;
        }
        let Ok(content) = form.get_plain_content_with_limit(PDF_PAGE_BYTES_MAX) else {
            return Walked::Done;
        };
        if tokens(&content) > PDF_TOKENS_MAX {
            return Walked::Done;
        }
        let own = form.dict.get(b"Resources").ok();
        let own = own.and_then(|own| self.document.dereference(own).ok());
        let own = own.and_then(|(_, own)| own.as_dict().ok());
        let (kept, states) = (self.state.clone(), std::mem::take(&mut self.kept));
        if let Ok(Object::Array(matrix)) = form.dict.get(b"Matrix")
            && matrix.len() == 6
        {
            let number = |at: usize| matrix[at].as_float().unwrap_or(0.0);
            let matrix = Matrix([0, 1, 2, 3, 4, 5].map(number));
            self.state.place = matrix.then(self.state.place);
        }
        let own: Vec<&'a Dictionary> = own.into_iter().chain(resources.iter().copied()).collect();
        let walked = self.content(&content, &own, depth + 1);
        self.state = kept;
        self.kept = states;
        walked
    }
}
