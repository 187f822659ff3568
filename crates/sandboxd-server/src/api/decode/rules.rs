//! What a value may be. Each rule gives the value, or its misfits.

use super::{Misfit, Ruled, mismatch};
use crate::id::{InvalidId, Tenant};
use crate::limits::{LABEL_VALUE_CHARS_MAX, LABELS_MAX};
use sandboxd_api::error::Loc;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// `null`, or what another rule says.
pub(in crate::api) fn nullable<T>(
    rule: impl FnOnce(Value) -> Ruled<T>,
) -> impl FnOnce(Value) -> Ruled<Option<T>> {
    |value| match value {
        Value::Null => Ok(None),
        value => rule(value).map(Some),
    }
}

/// A text; never made from a number.
pub(in crate::api) fn text(value: Value) -> Ruled<String> {
    match value {
        Value::String(text) => Ok(text),
        other => Err(Misfit::new(
            "string_type",
            "Input should be a valid string",
            &other,
        )),
    }
}

/// A text of an identifier's form.
pub(in crate::api) fn id<T>(
    parse: impl FnOnce(&str) -> Result<T, InvalidId>,
) -> impl FnOnce(Value) -> Ruled<T> {
    |value| {
        let text = text(value)?;
        parse(&text).map_err(|invalid| mismatch(&Value::String(text), invalid.pattern))
    }
}

/// A truth value, also spelled as 0, 1 or a word.
pub(in crate::api) fn boolean(value: Value) -> Ruled<bool> {
    let found = match &value {
        Value::Bool(flag) => Some(*flag),
        Value::Number(number) => match number.as_f64() {
            Some(0.0) => Some(false),
            Some(1.0) => Some(true),
            _ => None,
        },
        Value::String(word) => match word.to_ascii_lowercase().as_str() {
            "1" | "true" | "t" | "yes" | "y" | "on" => Some(true),
            "0" | "false" | "f" | "no" | "n" | "off" => Some(false),
            _ => None,
        },
        Value::Null | Value::Array(_) | Value::Object(_) => {
            let msg = "Input should be a valid boolean";
            return Err(Misfit::new("bool_type", msg, &value));
        }
    };
    let msg = "Input should be a valid boolean, unable to interpret input";
    found.ok_or_else(|| Misfit::new("bool_parsing", msg, &value))
}

/// A whole number, also spelled with a fraction of zero or as text.
pub(in crate::api) fn whole(value: &Value) -> Ruled<i64> {
    /// Floats up to here are exact whole numbers.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "only whole numbers in the exact range are converted"
    )]
    let integral =
        |number: f64| (number.fract() == 0.0 && number.abs() <= EXACT).then_some(number as i64);
    match value {
        Value::Bool(flag) => Ok(i64::from(*flag)),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => Ok(whole),
            (None, Some(float)) if float.fract() != 0.0 => Err(Misfit::new(
                "int_from_float",
                "Input should be a valid integer, got a number with a fractional part",
                value,
            )),
            (None, float) => float.and_then(integral).ok_or_else(|| {
                let msg = "Input should be a valid integer, got a number that is too large";
                Misfit::new("int_parsing_size", msg, value)
            }),
        },
        Value::String(text) => {
            let text = text.trim();
            let digits = text
                .split_once('.')
                .filter(|(_, fraction)| fraction.bytes().all(|byte| byte == b'0'))
                .map_or(text, |(whole, _)| whole);
            digits.parse().map_err(|_| {
                let msg = "Input should be a valid integer, unable to parse string as an integer";
                Misfit::new("int_parsing", msg, value)
            })
        }
        Value::Null | Value::Array(_) | Value::Object(_) => Err(Misfit::new(
            "int_type",
            "Input should be a valid integer",
            value,
        )),
    }
}

/// A whole number of at least `least`, which is not negative.
pub(in crate::api) fn at_least(least: u32) -> impl FnOnce(Value) -> Ruled<u64> {
    move |value| {
        let number = whole(&value)?;
        match u64::try_from(number) {
            Ok(number) if number >= u64::from(least) => Ok(number),
            _ => Err(Misfit::with(
                "greater_than_equal",
                format!("Input should be greater than or equal to {least}"),
                &value,
                Some(json!({ "ge": least })),
            )),
        }
    }
}

/// A whole number above zero.
pub(in crate::api) fn positive(value: Value) -> Ruled<u64> {
    let number = whole(&value)?;
    match u64::try_from(number) {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(not_above_zero(&value)),
    }
}

/// A whole number in a range.
pub(in crate::api) fn between(least: u32, most: u64) -> impl FnOnce(Value) -> Ruled<u64> {
    move |value| {
        let input = value.clone();
        match at_least(least)(value)? {
            number if number <= most => Ok(number),
            _ => Err(Misfit::with(
                "less_than_equal",
                format!("Input should be less than or equal to {most}"),
                &input,
                Some(json!({ "le": most })),
            )),
        }
    }
}

/// A number above zero, also spelled as text, also infinite.
pub(in crate::api) fn above_zero(value: Value) -> Ruled<f64> {
    let number = match &value {
        Value::Bool(flag) => Ok(f64::from(u8::from(*flag))),
        Value::Number(number) => number.as_f64().ok_or_else(Vec::new),
        Value::String(text) => text.trim().parse().map_err(|_| {
            let msg = "Input should be a valid number, unable to parse string as a number";
            Misfit::new("float_parsing", msg, &value)
        }),
        Value::Null | Value::Array(_) | Value::Object(_) => Err(Misfit::new(
            "float_type",
            "Input should be a valid number",
            &value,
        )),
    }?;
    if number > 0.0 {
        Ok(number)
    } else {
        Err(not_above_zero(&value))
    }
}

/// A finite number above zero.
pub(in crate::api) fn finite(value: Value) -> Ruled<f64> {
    let input = value.clone();
    match above_zero(value)? {
        number if number.is_finite() => Ok(number),
        _ => Err(Misfit::new(
            "finite_number",
            "Input should be a finite number",
            &input,
        )),
    }
}

fn not_above_zero(value: &Value) -> Vec<Misfit> {
    let msg = "Input should be greater than 0";
    Misfit::with("greater_than", msg, value, Some(json!({ "gt": 0 })))
}

/// Labels: few, with names of an identifier's form and short values without control characters.
pub(in crate::api) fn labels(value: Value) -> Ruled<BTreeMap<String, String>> {
    let input = value.clone();
    let labels = members(value, label_value)?;
    if labels.len() > LABELS_MAX {
        let count = labels.len();
        let msg = format!("Dictionary should have at most {LABELS_MAX} items, not {count}");
        let ctx = json!({ "max_length": LABELS_MAX, "actual_length": count });
        return Err(Misfit::with("too_long", msg, &input, Some(ctx)));
    }
    let wrong = labels.keys().find(|name| Tenant::parse(name).is_err());
    if let Some(name) = wrong {
        let name = Value::String(name.clone());
        return Err(mismatch(&name, sandboxd_api::NAME_PATTERN));
    }
    Ok(labels)
}

fn label_value(value: Value) -> Ruled<String> {
    let text = text(value)?;
    if text.chars().count() > LABEL_VALUE_CHARS_MAX || text.chars().any(char::is_control) {
        let msg = format!(
            "String should have at most {LABEL_VALUE_CHARS_MAX} characters, and no control characters"
        );
        return Err(Misfit::new("string_too_long", msg, &Value::String(text)));
    }
    Ok(text)
}

/// `name=value`, or a name alone, which asks for a label of any value.
pub(in crate::api) fn label_filter(value: Value) -> Ruled<(String, Option<String>)> {
    let text = text(value)?;
    let (name, wanted) = match text.split_once('=') {
        Some((name, wanted)) => (name, Some(wanted.to_owned())),
        None => (text.as_str(), None),
    };
    match Tenant::parse(name) {
        Ok(_) => Ok((name.to_owned(), wanted)),
        Err(_) => Err(Misfit::new(
            "label",
            "Input should be name=value, or the name of a label",
            &Value::String(text),
        )),
    }
}

/// A list of at least one item, and at most `most`.
pub(in crate::api) fn list<T>(
    most: usize,
    rule: impl Fn(Value) -> Ruled<T>,
) -> impl FnOnce(Value) -> Ruled<Vec<T>> {
    move |value| {
        let Value::Array(items) = value else {
            return Err(Misfit::new(
                "list_type",
                "Input should be a valid list",
                &value,
            ));
        };
        let length = items.len();
        if length == 0 || length > most {
            return Err(bad_length(items, most));
        }
        let (mut list, mut misfits) = (Vec::with_capacity(length), Vec::new());
        for (index, item) in items.into_iter().enumerate() {
            match rule(item) {
                Ok(item) => list.push(item),
                Err(found) => misfits.extend(below(found, Loc::At(index))),
            }
        }
        if misfits.is_empty() {
            Ok(list)
        } else {
            Err(misfits)
        }
    }
}

fn bad_length(items: Vec<Value>, most: usize) -> Vec<Misfit> {
    let length = items.len();
    let (kind, msg, bound) = if length == 0 {
        let msg = "List should have at least 1 item after validation, not 0".to_owned();
        ("too_short", msg, ("min_length", 1))
    } else {
        let msg = format!("List should have at most {most} items after validation, not {length}");
        ("too_long", msg, ("max_length", most))
    };
    let ctx = json!({ "field_type": "List", bound.0: bound.1, "actual_length": length });
    Misfit::with(kind, msg, &Value::Array(items), Some(ctx))
}

/// An object of texts.
pub(in crate::api) fn texts(value: Value) -> Ruled<BTreeMap<String, String>> {
    members(value, text)
}

/// An object whose members all follow one rule.
pub(in crate::api) fn members<T>(
    value: Value,
    rule: impl Fn(Value) -> Ruled<T>,
) -> Ruled<BTreeMap<String, T>> {
    let Value::Object(object) = value else {
        let msg = "Input should be a valid dictionary";
        return Err(Misfit::new("dict_type", msg, &value));
    };
    let (mut map, mut misfits) = (BTreeMap::new(), Vec::new());
    for (name, member) in object {
        match rule(member) {
            Ok(member) => {
                map.insert(name, member);
            }
            Err(found) => misfits.extend(below(found, Loc::Name(name))),
        }
    }
    if misfits.is_empty() {
        Ok(map)
    } else {
        Err(misfits)
    }
}

fn below(misfits: Vec<Misfit>, step: Loc) -> impl Iterator<Item = Misfit> {
    misfits.into_iter().map(move |mut misfit| {
        misfit.below.insert(0, step.clone());
        misfit
    })
}

/// An object with fields of its own, nothing else allowed.
pub(in crate::api) fn object<T: super::Decode>(value: Value) -> Ruled<T> {
    let Value::Object(object) = value else {
        let msg = "Input should be a valid dictionary or object to extract fields from";
        return Err(Misfit::new("model_attributes_type", msg, &value));
    };
    let mut fields = super::Fields {
        place: Vec::new(),
        object,
        pairs: Vec::new(),
        errors: Vec::new(),
    };
    let decoded = T::decode(&mut fields);
    fields.refuse_rest();
    match decoded {
        Some(decoded) if fields.errors.is_empty() => Ok(decoded),
        _ => Err(fields.errors.into_iter().map(Misfit::again).collect()),
    }
}
