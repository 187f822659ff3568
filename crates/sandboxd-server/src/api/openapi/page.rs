//! The document for people: one page that reads `/openapi.json` and shows it. Nothing is loaded from elsewhere, and the
//! browser is told to run no other script than the page's own.

use crate::api::answer::{self, Answer};
use axum::http::{HeaderValue, header};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest as _, Sha256};
use std::sync::OnceLock;

const PAGE: &str = include_str!("page.html");

/// `GET /docs` and `GET /redoc`
pub(in crate::api) async fn docs() -> Answer {
    static POLICY: OnceLock<String> = OnceLock::new();
    let policy = POLICY.get_or_init(content_policy);
    let mut response = answer::bytes(PAGE.into(), "text/html; charset=utf-8");
    let headers = response.headers_mut();
    if let Ok(policy) = HeaderValue::from_str(policy) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    headers.insert(
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    );
    Ok(response)
}

/// What the page may do: run its own script, have its own style, and ask this service.
fn content_policy() -> String {
    let (style, script) = (hash_of("style"), hash_of("script"));
    format!(
        "default-src 'none'; style-src {style}; script-src {script}; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'"
    )
}

/// What stands between a tag of the page and its end, hashed as browsers do it.
fn hash_of(tag: &str) -> String {
    let content = PAGE
        .split_once(&format!("<{tag}>"))
        .and_then(|(_, rest)| rest.split_once(&format!("</{tag}>")))
        .map_or("", |(content, _)| content);
    let hash = BASE64_STANDARD.encode(Sha256::digest(content.as_bytes()));
    format!("'sha256-{hash}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_loads_nothing_from_elsewhere() {
        for word in [
            "http://",
            "https://",
            "//cdn",
            "src=",
            "@import",
            " url(",
            ":url(",
            "innerHTML",
            "eval(",
        ] {
            assert!(!PAGE.contains(word), "{word}");
        }
        assert_eq!(PAGE.matches("<script>").count(), 1);
        assert_eq!(PAGE.matches("<style>").count(), 1);
        let empty = BASE64_STANDARD.encode(Sha256::digest(b""));
        assert!(!content_policy().contains(&empty), "nothing was hashed");
    }
}
