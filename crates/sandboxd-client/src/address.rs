//! Where the service is, and what opens it.

use hyper::Uri;
use hyper::header::HeaderValue;
use hyper::http::uri::{Authority, Scheme};

/// An address that cannot be used, or a token that cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// It is not of the form `http://host:port`, with or without a path.
    #[error("{url:?} is not an address of the form http://host:port")]
    NotAnAddress {
        /// What was given.
        url: String,
    },
    /// It asks for TLS, which needs a connector.
    #[error("{url:?} needs TLS, and no connector for it was given")]
    NeedsTls {
        /// What was given.
        url: String,
    },
    /// The token has characters that a header cannot carry.
    #[error("the token has characters that a header cannot carry")]
    TokenNotSendable,
}

/// A token; never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(HeaderValue);

impl Token {
    /// The token with this text.
    ///
    /// # Errors
    /// Where a header cannot carry it.
    pub fn new(text: &str) -> Result<Self, AddressError> {
        let mut value = HeaderValue::from_str(text).map_err(|_| AddressError::TokenNotSendable)?;
        value.set_sensitive(true);
        Ok(Self(value))
    }

    pub(crate) fn header(&self) -> HeaderValue {
        self.0.clone()
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

/// A service's address in parts.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    scheme: Scheme,
    authority: Authority,
    /// What stands before every path, without a slash at its end.
    prefix: String,
}

impl Address {
    pub(crate) fn parse(url: &str) -> Result<Self, AddressError> {
        let not = || AddressError::NotAnAddress {
            url: url.to_owned(),
        };
        let parts = url.parse::<Uri>().map_err(|_| not())?.into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
            return Err(not());
        };
        if scheme != Scheme::HTTP && scheme != Scheme::HTTPS {
            return Err(not());
        }
        let path = parts.path_and_query.ok_or_else(not)?;
        if path.query().is_some() {
            return Err(not());
        }
        let prefix = path.path().trim_end_matches('/').to_owned();
        Ok(Self {
            scheme,
            authority,
            prefix,
        })
    }

    pub(crate) fn wants_tls(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    /// The address of a path that begins with a slash and is already encoded.
    pub(crate) fn at(&self, path_and_query: &str) -> Result<Uri, hyper::http::Error> {
        Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(format!("{}{path_and_query}", self.prefix))
            .build()
    }
}

/// A text as one part of a path, or as a value of a query: every byte that could mean something is encoded.
pub(crate) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_have_a_path() {
        let address = Address::parse("http://sandboxes.internal:8080/api/").expect("an address");
        let uri = address.at("/healthz").expect("a uri");
        assert_eq!(uri, "http://sandboxes.internal:8080/api/healthz");
        let address = Address::parse("http://[::1]:80").expect("an address");
        assert_eq!(address.at("/").expect("a uri"), "http://[::1]:80/");
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for url in [
            "",
            "localhost",
            "localhost:8080",
            "/x",
            "ftp://a/",
            "http://a/?b=c",
            "http://a b",
        ] {
            let refused = Address::parse(url);
            assert!(
                matches!(refused, Err(AddressError::NotAnAddress { .. })),
                "{url:?}: {refused:?}"
            );
        }
    }

    #[test]
    fn everything_that_could_mean_something_is_encoded() {
        assert_eq!(
            encode("/workspace/a b+c?&ü"),
            "%2Fworkspace%2Fa%20b%2Bc%3F%26%C3%BC"
        );
        assert_eq!(encode("s-0123.A_b~"), "s-0123.A_b~");
    }

    #[test]
    fn a_token_is_never_shown() {
        let token = Token::new("secret").expect("a token");
        assert!(!format!("{token:?} {:?}", token.header()).contains("secret"));
        assert_eq!(Token::new("a\nb"), Err(AddressError::TokenNotSendable));
    }
}
