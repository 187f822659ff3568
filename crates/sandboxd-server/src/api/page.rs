//! Pages for people: the document of the API, which reads `/openapi.json`, and the sessions, for a token that is typed.
//! Nothing is loaded from elsewhere, and the browser is told to run no other script than the page's own.

use super::answer::{self, Answer};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest as _, Sha256};
use std::sync::OnceLock;

const DOCS: &str = include_str!("openapi/page.html");
const UI: &str = include_str!("ui.html");

/// `GET /docs` and `GET /redoc`
pub(super) async fn docs() -> Answer {
    static POLICY: OnceLock<String> = OnceLock::new();
    Ok(page(DOCS, &POLICY))
}

/// `GET /ui`, where it is switched on
pub(super) async fn ui() -> Answer {
    static POLICY: OnceLock<String> = OnceLock::new();
    Ok(page(UI, &POLICY))
}

fn page(text: &'static str, policy: &OnceLock<String>) -> Response {
    let policy = policy.get_or_init(|| content_policy(text));
    let mut response = answer::bytes(text.into(), "text/html; charset=utf-8");
    let headers = response.headers_mut();
    if let Ok(policy) = HeaderValue::from_str(policy) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    headers.insert(
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    );
    response
}

/// What a page may do: run its own script, have its own style, and ask this service.
fn content_policy(page: &str) -> String {
    let (style, script) = (hash_of(page, "style"), hash_of(page, "script"));
    format!(
        "default-src 'none'; style-src {style}; script-src {script}; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'"
    )
}

/// What stands between a tag of the page and its end, hashed as browsers do it.
fn hash_of(page: &str, tag: &str) -> String {
    let content = page
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
    fn a_page_loads_nothing_from_elsewhere_and_makes_no_markup_of_texts() {
        for page in [DOCS, UI] {
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
                "style=",
            ] {
                assert!(!page.contains(word), "{word}");
            }
            assert_eq!(page.matches("<script>").count(), 1);
            assert_eq!(page.matches("<style>").count(), 1);
            let empty = BASE64_STANDARD.encode(Sha256::digest(b""));
            assert!(!content_policy(page).contains(&empty), "nothing was hashed");
        }
    }

    #[test]
    fn the_typed_token_is_kept_nowhere() {
        for word in ["localStorage", "sessionStorage", "cookie", "location"] {
            assert!(!UI.contains(word), "{word}");
        }
    }
}
