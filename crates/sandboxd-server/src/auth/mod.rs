//! Who calls. A [`Caller`] is made here and nowhere else.
//!
//! There are two kinds of token: the service's own, which works everywhere, and each session's
//! ([`session_tokens`]), which works on that session alone. Both are compared in constant time and never logged.

pub mod session_tokens;

use crate::id::SessionId;
use sha2::{Digest as _, Sha256};
use std::fmt;
use subtle::ConstantTimeEq as _;

/// Somebody whose token was right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller(Kind);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Service,
    Session(SessionId),
}

impl Caller {
    /// Whether the caller holds the service token, and so may know which sessions exist.
    pub fn is_service(&self) -> bool {
        self.0 == Kind::Service
    }
    /// The session whose token the caller holds.
    pub fn session(&self) -> Option<&SessionId> {
        match &self.0 {
            Kind::Service => None,
            Kind::Session(id) => Some(id),
        }
    }
}

/// The token is missing, wrong, or another session's. Nothing else is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("Invalid or missing sandbox token")]
pub struct Unauthorized;

/// Checks tokens. Keeps only the digest of the service token: equal digests take equal time to compare, whatever the
/// length of what was presented.
#[derive(Clone)]
pub struct Guard {
    service: [u8; 32],
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guard(…)")
    }
}

impl Guard {
    /// A guard for this service token.
    pub fn new(service_token: &str) -> Self {
        Self {
            service: Sha256::digest(service_token.as_bytes()).into(),
        }
    }

    /// Lets the holder of the service token through.
    pub fn service(&self, presented: &[u8]) -> Result<Caller, Unauthorized> {
        let digest: [u8; 32] = Sha256::digest(presented).into();
        if bool::from(digest.ct_eq(&self.service)) && !presented.is_empty() {
            Ok(Caller(Kind::Service))
        } else {
            Err(Unauthorized)
        }
    }

    /// Lets the holder of the service token or of this session's own token through. `own` compares the latter.
    pub fn session(
        &self,
        presented: &[u8],
        id: &SessionId,
        own: impl FnOnce(&SessionId, &[u8]) -> bool,
    ) -> Result<Caller, Unauthorized> {
        match self.service(presented) {
            Ok(caller) => Ok(caller),
            Err(_) if own(id, presented) => Ok(Caller(Kind::Session(id.clone()))),
            Err(unauthorized) => Err(unauthorized),
        }
    }
}

/// Makes a service token: 43 url-safe characters of 32 random bytes.
pub fn make_service_token() -> String {
    use base64::Engine as _;
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).expect("the kernel always has random bytes");
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_service_token_passes() {
        let guard = Guard::new("secret");
        assert!(
            guard
                .service(b"secret")
                .is_ok_and(|caller| caller.is_service())
        );
        for wrong in ["", "secre", "secret ", "Secret", "secretsecret"] {
            assert_eq!(guard.service(wrong.as_bytes()), Err(Unauthorized));
        }
        assert_eq!(Guard::new("").service(b""), Err(Unauthorized));
        assert_eq!(format!("{guard:?}"), "Guard(…)");
    }

    #[test]
    fn a_session_token_makes_a_caller_of_that_session() {
        let guard = Guard::new("secret");
        let id = SessionId::parse("a").unwrap();
        let own = |_: &SessionId, presented: &[u8]| presented == b"own";
        let caller = guard.session(b"own", &id, own).unwrap();
        assert!(!caller.is_service());
        assert_eq!(caller.session(), Some(&id));
        assert!(guard.session(b"secret", &id, own).unwrap().is_service());
        assert_eq!(guard.session(b"other", &id, own), Err(Unauthorized));
    }

    #[test]
    fn a_made_token_is_long_and_never_the_same() {
        let token = make_service_token();
        assert_eq!(token.len(), 43);
        assert_ne!(token, make_service_token());
    }
}
