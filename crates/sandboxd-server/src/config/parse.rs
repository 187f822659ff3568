//! Text to values, as the settings spell them. Numbers follow Python's own readers (blanks around, `_` between
//! digits), since that is what an existing deployment's variables were written for; what makes no sense as a ceiling
//! (negative, not finite) is refused here instead.

use crate::limits::POOL_MAX;

/// A whole number of at least zero.
pub(super) fn whole(text: &str) -> Result<u64, &'static str> {
    let text = digits_of(text).ok_or("expected a whole number")?;
    if let Some(rest) = text.strip_prefix('-') {
        return match rest.parse::<u64>() {
            Ok(0) => Ok(0),
            _ => Err("expected a whole number that is not negative"),
        };
    }
    let text = text.strip_prefix('+').unwrap_or(&text);
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("expected a whole number");
    }
    // Numbers go out as JSON and come in as signed integers elsewhere, so the signed range is what is accepted.
    match text.parse::<u64>() {
        Ok(number) if i64::try_from(number).is_ok() => Ok(number),
        _ => Err("expected a whole number below 2^63"),
    }
}

/// A whole number of at least one.
pub(super) fn positive(text: &str) -> Result<u64, &'static str> {
    match whole(text)? {
        0 => Err("expected a number above zero"),
        number => Ok(number),
    }
}

/// How many sandboxes are kept ready for a runtime.
pub(super) fn pool(text: &str) -> Result<u64, &'static str> {
    match whole(text)? {
        number if number <= POOL_MAX => Ok(number),
        _ => Err("expected a whole number, at most 64"),
    }
}

/// A finite number above zero.
pub(super) fn decimal(text: &str) -> Result<f64, &'static str> {
    let text = digits_of(text).ok_or("expected a number")?;
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => Ok(number),
        Ok(_) => Err("expected a finite number above zero"),
        Err(_) => Err("expected a number"),
    }
}

/// `1/0 true/false yes/no on/off`, in any case.
pub(super) fn flag(text: &str) -> Result<bool, &'static str> {
    match text.trim().to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err("expected one of 1/0, true/false, yes/no, on/off"),
    }
}

/// A size in Docker's syntax: a number with an optional unit `b k m g t` (an optional `b` after it), in powers of 1024.
pub(super) fn size(text: &str) -> Result<u64, &'static str> {
    const EXPECTED: &str = "expected a size such as 512m or 1g";
    let lower = text.trim().to_ascii_lowercase();
    let short = match lower.strip_suffix('b') {
        Some(short) if short.ends_with(['k', 'm', 'g', 't']) => short,
        _ => &lower,
    };
    let (digits, shift) = match short.as_bytes().last() {
        Some(b'b') => (&short[..short.len() - 1], 0),
        Some(b'k') => (&short[..short.len() - 1], 10),
        Some(b'm') => (&short[..short.len() - 1], 20),
        Some(b'g') => (&short[..short.len() - 1], 30),
        Some(b't') => (&short[..short.len() - 1], 40),
        _ => (short, 0),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let numeric = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !numeric(whole) || !numeric(fraction) || fraction.len() > 9 {
        return Err(EXPECTED);
    }
    let scale = 10_u128.pow(u32::try_from(fraction.len()).map_err(|_| EXPECTED)?);
    let number: u128 = format!("{whole}{fraction}").parse().map_err(|_| EXPECTED)?;
    let bytes = number
        .checked_shl(shift)
        .filter(|bytes| bytes >> shift == number);
    match bytes.map(|bytes| bytes / scale) {
        Some(0) => Err("expected a size above zero"),
        Some(bytes) => match i64::try_from(bytes) {
            Ok(signed) => Ok(signed.unsigned_abs()),
            Err(_) => Err("the size is too large"),
        },
        None => Err("the size is too large"),
    }
}

/// Strips blanks, and underscores that stand between two digits; `None` where an underscore stands elsewhere.
fn digits_of(text: &str) -> Option<String> {
    let text = text.trim();
    let bytes = text.as_bytes();
    for (at, _) in text.match_indices('_') {
        let digit = |index: Option<usize>| {
            index
                .and_then(|index| bytes.get(index))
                .is_some_and(u8::is_ascii_digit)
        };
        if !digit(at.checked_sub(1)) || !digit(at.checked_add(1)) {
            return None;
        }
    }
    (!text.is_empty()).then(|| text.replace('_', ""))
}
