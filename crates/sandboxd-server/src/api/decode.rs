//! Fields of a body or a query to values, as leniently as existing clients were used to: booleans and numbers may be
//! spelled as text, unknown fields are ignored (or refused, where a route says so), and every misfit is listed.

pub(super) mod rules;

use super::error::Failure;
use crate::limits::{ECHO_CHARS_MAX, ECHO_MEMBERS_MAX};
use sandboxd_api::error::{FieldError, Loc};
use serde_json::{Map, Value, json};

/// One misfit of a value; the place is added by whoever knows it.
#[derive(Debug)]
pub(super) struct Misfit {
    kind: String,
    msg: String,
    input: Value,
    ctx: Option<Value>,
    /// Steps below the value that was checked (positions in a list, names in an object).
    below: Vec<Loc>,
}

impl Misfit {
    fn new(kind: &'static str, msg: impl Into<String>, input: &Value) -> Vec<Self> {
        Self::with(kind, msg, input, None)
    }
    fn with(
        kind: &'static str,
        msg: impl Into<String>,
        input: &Value,
        ctx: Option<Value>,
    ) -> Vec<Self> {
        vec![Self {
            kind: kind.to_owned(),
            msg: msg.into(),
            input: echo(input, 3),
            ctx,
            below: Vec::new(),
        }]
    }
    fn at(self, place: &[Loc]) -> FieldError {
        FieldError {
            kind: self.kind,
            loc: place.iter().cloned().chain(self.below).collect(),
            msg: self.msg,
            input: self.input,
            ctx: self.ctx,
        }
    }
}

/// What a rule gives.
pub(super) type Ruled<T> = Result<T, Vec<Misfit>>;

/// The fields of one object. They are taken out as they are read.
#[derive(Debug)]
pub(super) struct Fields {
    place: Vec<Loc>,
    object: Map<String, Value>,
    /// A query's names and values, in order, where a name may come more than once.
    pairs: Vec<(String, String)>,
    errors: Vec<FieldError>,
}

impl Fields {
    /// The fields of a body. Anything but an object is a misfit.
    pub(super) fn of_body(body: Value) -> Result<Self, Failure> {
        match body {
            Value::Object(object) => Ok(Self::of("body", object)),
            other => Err(not_an_object(&other)),
        }
    }

    /// The fields of a query: texts; of equal names the last counts.
    pub(super) fn of_query(query: Option<&str>) -> Self {
        let pairs: Vec<(String, String)> = form_pairs(query.unwrap_or_default()).collect();
        let object = pairs.iter().cloned();
        let object = object.map(|(name, value)| (name, Value::String(value)));
        let object = object.collect();
        Self {
            pairs,
            ..Self::of("query", object)
        }
    }

    fn of(place: &'static str, object: Map<String, Value>) -> Self {
        Self {
            place: vec![Loc::Name(place.to_owned())],
            object,
            pairs: Vec::new(),
            errors: Vec::new(),
        }
    }

    /// Every value of a query's field that may come more than once, or not at all.
    pub(super) fn each<T>(
        &mut self,
        name: &str,
        rule: impl Fn(Value) -> Ruled<T>,
    ) -> Option<Vec<T>> {
        self.object.remove(name);
        let pairs = std::mem::take(&mut self.pairs);
        let mut values = Some(Vec::new());
        for (_, value) in pairs.iter().filter(|(found, _)| found == name) {
            let ruled = self.ruled(name, rule(Value::String(value.clone())));
            values = values.zip(ruled).map(|(mut values, value)| {
                values.push(value);
                values
            });
        }
        self.pairs = pairs;
        values
    }

    /// A field that has to be there.
    pub(super) fn required<T>(
        &mut self,
        name: &str,
        rule: impl FnOnce(Value) -> Ruled<T>,
    ) -> Option<T> {
        match self.object.remove(name) {
            Some(value) => self.ruled(name, rule(value)),
            None => {
                let mut misfits = Misfit::new("missing", "Field required", &Value::Null);
                if self.place.first() != Some(&Loc::Name("query".to_owned())) {
                    for misfit in &mut misfits {
                        misfit.input = echo_members(&self.object, 2);
                    }
                }
                self.ruled(name, Err(misfits))
            }
        }
    }

    /// A field that may be absent. The outer `None` is a misfit, the inner one an absent field.
    #[expect(
        clippy::option_option,
        reason = "a misfit and an absent field are different things"
    )]
    pub(super) fn optional<T>(
        &mut self,
        name: &str,
        rule: impl FnOnce(Value) -> Ruled<T>,
    ) -> Option<Option<T>> {
        match self.object.remove(name) {
            Some(value) => self.ruled(name, rule(value)).map(Some),
            None => Some(None),
        }
    }

    /// A field with a default.
    pub(super) fn or<T>(
        &mut self,
        name: &str,
        default: T,
        rule: impl FnOnce(Value) -> Ruled<T>,
    ) -> Option<T> {
        match self.object.remove(name) {
            Some(value) => self.ruled(name, rule(value)),
            None => Some(default),
        }
    }

    fn ruled<T>(&mut self, name: &str, ruled: Ruled<T>) -> Option<T> {
        match ruled {
            Ok(value) => Some(value),
            Err(misfits) => {
                let mut place = self.place.clone();
                place.push(Loc::Name(name.to_owned()));
                let misfits = misfits.into_iter().map(|misfit| misfit.at(&place));
                self.errors.extend(misfits);
                None
            }
        }
    }

    /// Makes every field that was not taken a misfit.
    pub(super) fn refuse_rest(&mut self) {
        for (name, value) in std::mem::take(&mut self.object) {
            let msg = "Extra inputs are not permitted";
            let _: Option<()> = self.ruled(&name, Err(Misfit::new("extra_forbidden", msg, &value)));
        }
    }

    /// What was decoded, or every misfit.
    pub(super) fn done<T>(self, decoded: Option<T>) -> Result<T, Failure> {
        match decoded {
            Some(decoded) if self.errors.is_empty() => Ok(decoded),
            _ => Err(Failure::Invalid(self.errors)),
        }
    }
}

/// A request type that is made from fields.
pub(super) trait Decode: Sized {
    /// Whether a field that it does not take is a misfit.
    const STRICT: bool = false;
    /// Takes what it needs; `None` where a misfit was listed.
    fn decode(fields: &mut Fields) -> Option<Self>;
}

/// The misfit of a body that is no object.
fn not_an_object(body: &Value) -> Failure {
    let msg = "Input should be a valid dictionary or object to extract fields from";
    body_misfit(Misfit::new("model_attributes_type", msg, body))
}

/// A misfit of the whole body.
fn body_misfit(misfits: Vec<Misfit>) -> Failure {
    let place = [Loc::Name("body".to_owned())];
    Failure::Invalid(
        misfits
            .into_iter()
            .map(|misfit| misfit.at(&place))
            .collect(),
    )
}

/// Parses a body's text. `json` says whether its type is JSON; the text of another type is no object.
pub(super) fn body_of(text: &[u8], json: bool) -> Result<Value, Failure> {
    if text.is_empty() {
        return Err(body_misfit(Misfit::new(
            "missing",
            "Field required",
            &Value::Null,
        )));
    }
    if !json {
        let text = Value::String(String::from_utf8_lossy(text).into_owned());
        return Err(not_an_object(&text));
    }
    serde_json::from_slice(text).map_err(|error| {
        let mut misfit = Misfit::with(
            "json_invalid",
            "JSON decode error",
            &json!({}),
            Some(json!({ "error": error.to_string() })),
        );
        for misfit in &mut misfit {
            misfit.below.push(Loc::At(offset(text, &error)));
        }
        body_misfit(misfit)
    })
}

/// How many bytes of a text are before the place of an error.
fn offset(text: &[u8], error: &serde_json::Error) -> usize {
    let lines = text.split_inclusive(|&byte| byte == b'\n');
    let before: usize = lines
        .take(error.line().saturating_sub(1))
        .map(<[u8]>::len)
        .sum();
    (before + error.column().saturating_sub(1)).min(text.len())
}

/// The misfit of an id in the path.
pub(super) fn path_misfit(name: &str, input: &str, pattern: &'static str) -> Failure {
    let place = [Loc::Name("path".to_owned()), Loc::Name(name.to_owned())];
    let misfits = mismatch(&Value::String(input.to_owned()), pattern);
    Failure::Invalid(
        misfits
            .into_iter()
            .map(|misfit| misfit.at(&place))
            .collect(),
    )
}

fn mismatch(input: &Value, pattern: &'static str) -> Vec<Misfit> {
    Misfit::with(
        "string_pattern_mismatch",
        format!("String should match pattern '{pattern}'"),
        input,
        Some(json!({ "pattern": pattern })),
    )
}

/// The names and values of a form-encoded text.
fn form_pairs(text: &str) -> impl Iterator<Item = (String, String)> {
    let decode = |part: &str| {
        let bytes = part.replace('+', " ");
        String::from_utf8_lossy(&percent_decoded(bytes.as_bytes())).into_owned()
    };
    text.split('&')
        .filter(|pair| !pair.is_empty())
        .map(move |pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        })
}

fn percent_decoded(text: &[u8]) -> Vec<u8> {
    let digit = |byte: Option<&u8>| byte.and_then(|&byte| char::from(byte).to_digit(16));
    let mut bytes = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        match (byte, digit(text.get(at + 1)), digit(text.get(at + 2))) {
            (b'%', Some(high), Some(low)) => {
                bytes.extend(u8::try_from(high * 16 + low));
                at += 3;
            }
            _ => {
                bytes.push(byte);
                at += 1;
            }
        }
    }
    bytes
}

/// A request's value as it is repeated in a refusal: cut in length, width and depth.
fn echo(value: &Value, depth: usize) -> Value {
    match value {
        Value::String(text) => match text.char_indices().nth(ECHO_CHARS_MAX) {
            Some((at, _)) => Value::String(format!("{}…", &text[..at])),
            None => value.clone(),
        },
        Value::Array(_) | Value::Object(_) if depth == 0 => Value::String("…".to_owned()),
        Value::Array(items) => {
            let items = items.iter().take(ECHO_MEMBERS_MAX);
            Value::Array(items.map(|item| echo(item, depth - 1)).collect())
        }
        Value::Object(members) => echo_members(members, depth - 1),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn echo_members(members: &Map<String, Value>, depth: usize) -> Value {
    let members = members.iter().take(ECHO_MEMBERS_MAX).map(|(name, member)| {
        let name: String = name.chars().take(ECHO_CHARS_MAX).collect();
        (name, echo(member, depth))
    });
    Value::Object(members.collect())
}

impl Misfit {
    /// A misfit of an inner object, whose place becomes what is below the outer one.
    fn again(error: FieldError) -> Self {
        Self {
            kind: error.kind,
            msg: error.msg,
            input: error.input,
            ctx: error.ctx,
            below: error.loc,
        }
    }
}
