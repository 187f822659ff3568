//! The sessions' own tokens: derived, never stored.
//!
//! A token is HMAC-SHA-256 over a secret of this state directory, the session's id and a random nonce that belongs to
//! the session, as 43 url-safe characters. So the same token can be handed out again for as long as the session
//! exists, also by the next daemon on this state directory, and no table of tokens can leak.

use crate::id::SessionId;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use std::fmt;
use subtle::ConstantTimeEq as _;

/// Characters of a token.
pub const TOKEN_CHARS: usize = 43;
/// Bytes of the secret that all tokens of a state directory are derived from.
pub const SECRET_BYTES: usize = 32;
/// Separates this use of the secret from any other.
const PURPOSE: &[u8] = b"sandboxd session token 1";

/// What makes one session's token differ from that of an earlier session with the same id.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Nonce([u8; 16]);

impl Nonce {
    /// A new random one.
    pub fn generate() -> Self {
        let mut bytes = [0_u8; 16];
        getrandom::fill(&mut bytes).expect("the kernel always has random bytes");
        Self(bytes)
    }
    /// One that was stored.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
    /// For storing.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nonce(…)")
    }
}

/// Derives and checks tokens. Holds the secret; shows nothing of it.
#[derive(Clone)]
pub struct SessionTokens {
    keyed: Hmac<Sha256>,
}

impl fmt::Debug for SessionTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionTokens(…)")
    }
}

impl SessionTokens {
    /// Tokens under a secret.
    pub fn new(secret: &[u8; SECRET_BYTES]) -> Self {
        let keyed = Hmac::new_from_slice(secret).expect("HMAC takes keys of any length");
        Self { keyed }
    }

    /// The token of a session.
    pub fn derive(&self, id: &SessionId, nonce: &Nonce) -> String {
        let mut mac = self.keyed.clone();
        mac.update(PURPOSE);
        mac.update(nonce.as_bytes());
        mac.update(id.as_str().as_bytes());
        URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes())
    }

    /// Whether `presented` is the token of a session. `nonce` is absent for a session that does not exist; the answer
    /// is then no, after the same work.
    pub fn check(&self, id: &SessionId, nonce: Option<&Nonce>, presented: &[u8]) -> bool {
        let nobody = Nonce([0; 16]);
        let expected = self.derive(id, nonce.unwrap_or(&nobody));
        let equal = expected.as_bytes().ct_eq(presented);
        bool::from(equal) && nonce.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> SessionId {
        SessionId::parse(text).unwrap()
    }

    #[test]
    fn a_token_is_43_url_safe_characters_and_comes_again() {
        let tokens = SessionTokens::new(&[7; SECRET_BYTES]);
        let nonce = Nonce::from_bytes([1; 16]);
        let token = tokens.derive(&id("a"), &nonce);
        assert_eq!(token.len(), TOKEN_CHARS);
        assert!(
            token
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        );
        assert_eq!(token, tokens.derive(&id("a"), &nonce));
    }

    #[test]
    fn secret_id_and_nonce_each_change_it() {
        let tokens = SessionTokens::new(&[7; SECRET_BYTES]);
        let nonce = Nonce::from_bytes([1; 16]);
        let token = tokens.derive(&id("a"), &nonce);
        assert_ne!(token, tokens.derive(&id("b"), &nonce));
        assert_ne!(token, tokens.derive(&id("a"), &Nonce::from_bytes([2; 16])));
        let other = SessionTokens::new(&[8; SECRET_BYTES]);
        assert_ne!(token, other.derive(&id("a"), &nonce));
    }

    #[test]
    fn only_the_whole_token_of_an_existing_session_passes() {
        let tokens = SessionTokens::new(&[7; SECRET_BYTES]);
        let nonce = Nonce::generate();
        let token = tokens.derive(&id("a"), &nonce);
        assert!(tokens.check(&id("a"), Some(&nonce), token.as_bytes()));
        assert!(!tokens.check(&id("b"), Some(&nonce), token.as_bytes()));
        assert!(!tokens.check(&id("a"), Some(&nonce), &token.as_bytes()[..42]));
        assert!(!tokens.check(&id("a"), Some(&nonce), b""));
        assert!(!tokens.check(&id("a"), Some(&nonce), &[0xE9; 43]));
        let none = tokens.derive(&id("a"), &Nonce::from_bytes([0; 16]));
        assert!(!tokens.check(&id("a"), None, none.as_bytes()));
    }

    #[test]
    fn nothing_is_shown() {
        let tokens = SessionTokens::new(&[7; SECRET_BYTES]);
        assert_eq!(format!("{tokens:?}"), "SessionTokens(…)");
        assert_eq!(format!("{:?}", Nonce::generate()), "Nonce(…)");
    }
}
