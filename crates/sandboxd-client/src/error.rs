//! What can go wrong with a request.

use crate::limits::REFUSAL_CHARACTERS_MAX;
use sandboxd_api::error::{Detail, ErrorBody, FileErrorDetail};
use std::sync::Arc;
use std::time::Duration;

/// Why a request has no usable answer.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// No connection, or it broke.
    #[error("could not reach the sandbox service")]
    Unreachable(#[source] Arc<dyn std::error::Error + Send + Sync>),
    /// No answer in time.
    #[error("the sandbox service did not answer within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    /// More than the client takes in.
    #[error("the answer is longer than {limit} bytes")]
    AnswerTooLong {
        /// The bound, in bytes.
        limit: usize,
    },
    /// The service said no.
    #[error("{0}")]
    Refused(Refusal),
    /// A success whose body is something else.
    #[error("the answer is not {expected}")]
    NotUnderstood {
        /// What it should have been.
        expected: &'static str,
        /// Where it is not.
        #[source]
        source: Arc<serde_json::Error>,
    },
}

impl RequestError {
    /// The status of a refusal.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused(refusal) => Some(refusal.status),
            Self::Unreachable(_)
            | Self::TimedOut(_)
            | Self::AnswerTooLong { .. }
            | Self::NotUnderstood { .. } => None,
        }
    }

    /// Whether the request may have reached the service although nothing came back.
    pub(crate) fn in_transit(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::TimedOut(_) | Self::AnswerTooLong { .. } => true,
            Self::Refused(_) | Self::NotUnderstood { .. } => false,
        }
    }
}

/// An answer with a status other than 2xx.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// The body, as it came; bytes that are no UTF-8 as U+FFFD.
    pub body: String,
    /// The service's stable word for the reason, where it has one.
    pub code: Option<String>,
    /// The request's id, by which the service's log can be searched.
    pub request_id: Option<String>,
}

impl Refusal {
    /// The service's words, where its body has the form of a refusal; else the body.
    #[must_use]
    pub fn text(&self) -> String {
        match self.detail() {
            Some(Detail::Text(text)) => text,
            Some(Detail::File(file)) => file.message,
            Some(Detail::Fields(_)) | None => self.body.clone(),
        }
    }

    /// What a file operation failed by, where the service says so by name.
    pub(crate) fn file_error(&self) -> Option<FileErrorDetail> {
        match self.detail() {
            Some(Detail::File(file)) => Some(file),
            Some(Detail::Text(_) | Detail::Fields(_)) | None => None,
        }
    }

    fn detail(&self) -> Option<Detail> {
        let body: ErrorBody = serde_json::from_str(&self.body).ok()?;
        Some(body.detail)
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = self.text();
        write!(f, "the sandbox service refused (HTTP {}): ", self.status)?;
        match text.char_indices().nth(REFUSAL_CHARACTERS_MAX) {
            Some((at, _)) => write!(f, "{}…", &text[..at]),
            None => f.write_str(&text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(body: &str) -> Refusal {
        Refusal {
            status: 404,
            body: body.to_owned(),
            code: None,
            request_id: None,
        }
    }

    #[test]
    fn a_refusal_speaks_in_the_words_of_the_service() {
        let plain = refusal(r#"{"detail":"no such session"}"#);
        assert_eq!(
            plain.to_string(),
            "the sandbox service refused (HTTP 404): no such session"
        );
        let named = refusal(r#"{"detail":{"error":"FileNotFoundError","message":"gone"}}"#);
        assert_eq!(named.text(), "gone");
        assert!(named.file_error().is_some());
        assert!(plain.file_error().is_none());
        assert_eq!(refusal("<html>").text(), "<html>");
    }

    #[test]
    fn a_name_that_nobody_knows_is_no_file_error() {
        let unknown = refusal(r#"{"detail":{"error":"OSError","message":"odd"}}"#);
        assert!(unknown.file_error().is_none());
    }

    #[test]
    fn a_long_refusal_is_cut() {
        let shown = refusal(&"ä".repeat(5000)).to_string();
        assert!(shown.ends_with("ä…"));
        assert!(shown.chars().count() < 2100);
    }
}
