//! What names content: SHA-256, and nothing else.

use sha2::{Digest as _, Sha256};
use std::fmt;
use std::io::{self, Read};

/// Characters of a SHA-256 in hexadecimal.
const HEX_CHARS: usize = 64;

/// A SHA-256 digest, shown as `sha256:…`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(String);

impl Digest {
    /// Reads `sha256:` and 64 lower-case hexadecimal digits; nothing for any other text or algorithm.
    pub fn parse(text: &str) -> Option<Self> {
        Self::of_hex(text.strip_prefix("sha256:")?)
    }

    /// Reads the 64 digits alone.
    pub fn of_hex(hex: &str) -> Option<Self> {
        let good = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (hex.len() == HEX_CHARS && hex.bytes().all(good)).then(|| Self(hex.to_owned()))
    }

    /// The digest of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self::finish(Sha256::new_with_prefix(bytes))
    }

    /// The 64 digits.
    pub fn hex(&self) -> &str {
        &self.0
    }

    /// The first twelve digits, for people.
    pub fn short(&self) -> &str {
        self.0.get(..12).unwrap_or_default()
    }

    pub(super) fn finish(hasher: Sha256) -> Self {
        use fmt::Write as _;
        let mut hex = String::with_capacity(HEX_CHARS);
        for byte in hasher.finalize() {
            let _ = write!(hex, "{byte:02x}");
        }
        Self(hex)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.0)
    }
}

/// A reader that knows the digest and the number of the bytes that went through it.
pub(super) struct Hashing<R> {
    inner: R,
    hasher: Sha256,
    bytes: u64,
}

impl<R: Read> Hashing<R> {
    pub(super) fn new(inner: R) -> Self {
        Self {
            inner,
            hasher: Sha256::new(),
            bytes: 0,
        }
    }

    /// The digest and the number of all bytes so far.
    pub(super) fn finish(self) -> (Digest, u64) {
        (Digest::finish(self.hasher), self.bytes)
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hasher.update(buffer.get(..read).unwrap_or_default());
        self.bytes += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sha256_in_lower_case_is_a_digest() {
        let good = Digest::of(b"");
        assert_eq!(
            good.to_string(),
            "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        assert_eq!(Digest::parse(&good.to_string()), Some(good.clone()));
        for bad in [
            good.hex(),
            &good.to_string().to_uppercase(),
            "sha256:../../../etc/passwd",
            "sha256:",
            "sha512:e3b0",
            &format!("{good}0"),
        ] {
            assert_eq!(Digest::parse(bad), None, "{bad}");
        }
    }
}
