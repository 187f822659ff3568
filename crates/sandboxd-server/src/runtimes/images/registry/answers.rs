//! What an answer means: good, worth another try, or final; and how long to wait before the next try.

use super::super::progress::{Event, Progress};
use super::super::reference::Reference;
use crate::limits::{REGISTRY_ATTEMPTS_MAX, REGISTRY_PAUSE_MILLIS_MAX, REGISTRY_PAUSE_MILLIS_MIN};
use reqwest::header::{CONTENT_RANGE, HeaderValue, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use std::time::Duration;

/// Why one request came to nothing.
#[derive(Debug)]
pub(super) enum Fault {
    /// It may succeed later; not before some time, where the registry says so.
    Again(String, Option<Duration>),
    /// It will not.
    Final(String),
}

/// Waits before the next attempt; the words of a fault that is not tried again.
pub(super) async fn pause(fault: Fault, attempt: u32, progress: &dyn Progress) -> Option<String> {
    let (why, wait) = match fault {
        Fault::Final(why) => return Some(why),
        Fault::Again(why, _) if attempt >= REGISTRY_ATTEMPTS_MAX => return Some(why),
        Fault::Again(why, wait) => (why, wait),
    };
    let doubled = REGISTRY_PAUSE_MILLIS_MIN.saturating_mul(1 << (attempt - 1).min(16));
    // Spread, so that many who were cut off together do not come back together.
    let mut spread = [0; 1];
    let _ = getrandom::fill(&mut spread);
    let millis = doubled + doubled * u64::from(spread[0]) / 512;
    let most = Duration::from_millis(REGISTRY_PAUSE_MILLIS_MAX);
    let wait = wait.unwrap_or(Duration::from_millis(millis)).min(most);
    progress.event(Event::Again { why: &why, wait });
    tokio::time::sleep(wait).await;
    None
}

pub(super) fn goes_on_at(response: &Response, had: u64) -> bool {
    let range = response
        .headers()
        .get(CONTENT_RANGE)
        .and_then(|range| range.to_str().ok());
    response.status() == StatusCode::PARTIAL_CONTENT
        && range.is_some_and(|range| range.starts_with(&format!("bytes {had}-")))
}

/// A good answer, or the words of another.
pub(super) async fn answered(response: Response, name: &Reference) -> Result<Response, Fault> {
    let status = response.status();
    let wait = retry_after(&response);
    match status {
        StatusCode::OK | StatusCode::PARTIAL_CONTENT => Ok(response),
        // What is there is not what was begun; the next attempt takes it from the start.
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(Fault::Final(format!(
            "access to {name} is denied (it may not exist, or sandboxd's Docker configuration has no credentials for it)"
        ))),
        StatusCode::NOT_FOUND => Err(Fault::Final(format!("it has no {name}"))),
        StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => {
            Err(Fault::Again(format!("it answered {status}"), wait))
        }
        status if status.is_server_error() => {
            Err(Fault::Again(format!("it answered {status}"), wait))
        }
        status => Err(Fault::Final(format!("it answered {status}"))),
    }
}

pub(super) fn retry_after(response: &Response) -> Option<Duration> {
    let text = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    Some(Duration::from_secs(text.trim().parse().ok()?))
}

/// The whole body, up to a number of bytes.
pub(super) async fn bounded(mut response: Response, most: u64) -> Result<Vec<u8>, Fault> {
    let mut bytes = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if (bytes.len() + chunk.len()) as u64 > most => {
                return Err(Fault::Final("its answer is far too long".to_owned()));
            }
            Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
            Ok(None) => return Ok(bytes),
            Err(error) => return Err(Fault::Again(words(&error), None)),
        }
    }
}

pub(super) fn basic(user: &str, password: &str) -> Result<HeaderValue, Fault> {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
    secret(&format!("Basic {text}"))
        .ok_or_else(|| Fault::Final("the credentials fit into no header".to_owned()))
}

pub(super) fn secret(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// The innermost cause: what is around it repeats the address.
pub(super) fn words(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    match error.is_timeout() {
        true => "it does not answer in time".to_owned(),
        false => cause.to_string(),
    }
}
