//! What is logged of a request, in one place, so that what is never logged can be seen here: tokens and other headers,
//! queries (a query may hold a path of a tenant's), bodies, output of programs, contents of files.
//!
//! Where the lines go and which are wanted is the program's choice, not this library's. What is counted is in [`metrics`].

pub mod metrics;
mod process;

use crate::limits::ECHO_CHARS_MAX;
use std::time::Duration;
use tracing::Span;

/// What every line of one request carries: the request's id.
pub(crate) fn request_span(id: &str) -> Span {
    tracing::info_span!("request", id)
}

/// A request was answered.
pub(crate) fn answered(span: &Span, method: &str, path: &str, status: u16, took: Duration) {
    let cut = path.char_indices().nth(ECHO_CHARS_MAX);
    let path = cut.map_or(path, |(at, _)| &path[..at]);
    let millis = took.as_secs_f64() * 1_000.0;
    span.in_scope(|| tracing::info!(method, path, status, millis, "answered"));
}

/// A handler panicked: a mistake of ours, with its words where it has some.
pub(crate) fn panicked(panic: &(dyn std::any::Any + Send)) {
    let words = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without words");
    tracing::error!(words, "a handler panicked");
}
