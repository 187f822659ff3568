//! Answers: compact JSON, raw bytes, or nothing.

use crate::budget::Share;
use crate::sessions::{BrokenOff, Content};
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt as _};
use hyper::body::{Frame, SizeHint};
use serde::Serialize;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// What a handler gives.
pub(super) type Answer = Result<Response, super::error::Failure>;

/// Compact JSON with status 200.
pub(super) fn json<T: Serialize>(value: &T) -> Response {
    match serde_json::to_vec(value) {
        Ok(text) => bytes(Bytes::from(text), "application/json"),
        // Every type of the API is made of texts, numbers and lists, so this is a mistake of ours.
        Err(error) => {
            tracing::error!(%error, "an answer could not be written as JSON");
            internal_error()
        }
    }
}

/// As [`json`], of what a run printed: its room in the memory for all output is given back when the answer is sent.
pub(super) fn json_of_output<T: Serialize>(value: &T, room: Share) -> Response {
    json(value).map(|body| Body::new(Holding { body, _room: room }))
}

/// A body, and what is held until it has left or was given up.
struct Holding {
    body: Body,
    _room: Share,
}

impl hyper::body::Body for Holding {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }
    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Bytes of a type, with status 200.
pub(super) fn bytes(content: Bytes, content_type: &'static str) -> Response {
    let mut response = Response::new(Body::from(content));
    let value = HeaderValue::from_static(content_type);
    response.headers_mut().insert(header::CONTENT_TYPE, value);
    response
}

/// The content of a file, with status 200; a large one goes out as it comes.
pub(super) fn content(content: Content, content_type: &'static str) -> Response {
    match content {
        Content::Whole(content) => bytes(content, content_type),
        Content::Pieces(pieces) => bytes(Bytes::new(), content_type).map(|_| {
            let left = pieces.size();
            let coming = stream::try_unfold(pieces, async |mut pieces| {
                Ok(pieces.next().await?.map(|piece| (piece, pieces)))
            });
            Body::new(Coming {
                coming: Some(coming.boxed()),
                left,
            })
        }),
    }
}

/// A body of a known length that is still on its way. Where it breaks off, so does the connection: with the length told,
/// no client takes it for the whole.
struct Coming {
    coming: Option<BoxStream<'static, Result<Bytes, BrokenOff>>>,
    left: u64,
}

impl hyper::body::Body for Coming {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        let Some(coming) = &mut self.coming else {
            return Poll::Ready(None);
        };
        let next = ready!(coming.poll_next_unpin(context));
        if let Some(Ok(piece)) = &next {
            let length = u64::try_from(piece.len()).unwrap_or(u64::MAX);
            self.left = self.left.saturating_sub(length);
        }
        if let Some(Err(error)) = &next {
            tracing::debug!(%error, "an answer was broken off");
        }
        // What it holds is let go with the last piece, not when somebody asks for one more.
        if self.left == 0 || !matches!(next, Some(Ok(_))) {
            self.coming = None;
        }
        Poll::Ready(next.map(|piece| piece.map(Frame::data)))
    }
    fn is_end_stream(&self) -> bool {
        self.left == 0
    }
    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// 204.
pub(super) fn nothing() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

/// 307 to a path of this service.
pub(super) fn moved(path: &str) -> Response {
    let mut response = StatusCode::TEMPORARY_REDIRECT.into_response();
    if let Ok(value) = HeaderValue::from_str(path) {
        response.headers_mut().insert(header::LOCATION, value);
    }
    response
}

/// 500, in the contract's words.
pub(super) fn internal_error() -> Response {
    let body = Bytes::from_static(b"Internal Server Error");
    let mut response = bytes(body, "text/plain; charset=utf-8");
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response
}
