//! Identifiers: parsed, never assembled.

use crate::limits::ID_CHARS_MAX;
use std::fmt;

/// A session's id, chosen by the client or made here: `^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(String);

/// A tenant's label; the same pattern as a session id. It is counted, and grants nothing.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tenant(String);

/// A run's id, chosen by the client: `^[0-9a-f]{32}$`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RunId(String);

/// One sandbox of one session; a session that wakes gets another one.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SandboxId(String);

/// Text that does not have an identifier's form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a valid {what}: it has to match {pattern}")]
pub struct InvalidId {
    /// What was parsed.
    pub what: &'static str,
    /// The pattern that it misses.
    pub pattern: &'static str,
}

/// The pattern of session ids and tenants.
pub const NAME_PATTERN: &str = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$";
/// The pattern of run ids.
pub const RUN_ID_PATTERN: &str = "^[0-9a-f]{32}$";

fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= ID_CHARS_MAX
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

impl SessionId {
    /// Parses a client's text.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        is_name(text)
            .then(|| Self(text.to_owned()))
            .ok_or(InvalidId {
                what: "session id",
                pattern: NAME_PATTERN,
            })
    }
    /// Makes a new one: `s-` and 16 hexadecimal digits.
    pub fn generate() -> Self {
        Self(format!("s-{}", random_hex(8)))
    }
}

impl Tenant {
    /// Parses a client's text.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        is_name(text)
            .then(|| Self(text.to_owned()))
            .ok_or(InvalidId {
                what: "tenant",
                pattern: NAME_PATTERN,
            })
    }
}

impl RunId {
    /// Parses a client's text.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        let hex = |b: &u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
        (text.len() == 32 && text.as_bytes().iter().all(hex))
            .then(|| Self(text.to_owned()))
            .ok_or(InvalidId {
                what: "run id",
                pattern: RUN_ID_PATTERN,
            })
    }
}

impl SandboxId {
    /// Makes a new one: 16 hexadecimal digits.
    pub fn generate() -> Self {
        Self(random_hex(8))
    }
    /// Parses what [`SandboxId::generate`] made, as found on disk.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        let hex = |b: &u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
        (text.len() == 16 && text.as_bytes().iter().all(hex))
            .then(|| Self(text.to_owned()))
            .ok_or(InvalidId {
                what: "sandbox id",
                pattern: "^[0-9a-f]{16}$",
            })
    }
}

/// As many random bytes, in hexadecimal digits.
pub(crate) fn random_hex(bytes: usize) -> String {
    use std::fmt::Write as _;
    let mut raw = vec![0_u8; bytes];
    getrandom::fill(&mut raw).expect("the kernel always has random bytes");
    raw.iter()
        .fold(String::with_capacity(bytes * 2), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

macro_rules! text_of {
    ($($name:ident),*) => {$(
        impl $name {
            /// As text.
            pub fn as_str(&self) -> &str { &self.0 }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str(&self.0) }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str(&self.0) }
        }
    )*};
}
text_of!(SessionId, Tenant, RunId, SandboxId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_one_form() {
        for good in ["a", "A.b_c-d", &"x".repeat(64)] {
            assert!(SessionId::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            ".a",
            "-a",
            "a/b",
            "a\n",
            "ä",
            "a b",
            "..",
            &"x".repeat(65),
        ] {
            assert!(SessionId::parse(bad).is_err(), "{bad}");
            assert!(Tenant::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn generated_ids_parse() {
        assert!(SessionId::parse(SessionId::generate().as_str()).is_ok());
        assert!(SandboxId::parse(SandboxId::generate().as_str()).is_ok());
        assert!(RunId::parse(&"0f".repeat(16)).is_ok());
        assert!(RunId::parse(&"0F".repeat(16)).is_err());
    }
}
