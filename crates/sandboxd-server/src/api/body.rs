//! Bodies: read within bounds of size and time, and drained where a request is refused before its body was read.

use super::error::Failure;
use crate::budget::{Budget, Share};
use crate::limits::{
    BODY_BYTES_FREE, BODY_PAUSE_SECONDS_MAX, BODY_SECONDS_MAX, DRAIN_BYTES_MAX, DRAIN_SECONDS_MAX,
};
use axum::body::Body;
use axum::http::Extensions;
use bytes::{Buf as _, Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

/// Reads a whole JSON body within its bounds, whatever `Content-Length` says.
pub(super) async fn whole_json(body: Body, bounds: Bounds<'_>) -> Result<Bytes, Failure> {
    let limit = bounds.limit;
    whole(body, bounds, || Failure::BodyTooLarge(limit)).await
}

/// Reads the content of a native write within its bounds, whatever `Content-Length` says.
pub(super) async fn whole_write(body: Body, bounds: Bounds<'_>) -> Result<Bytes, Failure> {
    let limit = bounds.limit;
    whole(body, bounds, || Failure::WriteTooLarge(limit)).await
}

/// What a request's body takes of the memory that all bodies share. It lies beside the request, and is held until its
/// answer is made: the handler works on what was read.
#[derive(Debug, Clone, Default)]
pub(super) struct Held(Arc<Mutex<Share>>);

impl Held {
    /// That of a request.
    pub(super) fn of(extensions: &Extensions) -> Self {
        extensions.get::<Self>().cloned().unwrap_or_default()
    }

    /// Takes what a body of so many bytes needs more than it has; no where that is not free.
    fn grow(&self, budget: &Budget, bytes: usize) -> bool {
        let counted = u64::try_from(bytes.saturating_sub(BODY_BYTES_FREE)).unwrap_or(u64::MAX);
        let mut share = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let more = counted.saturating_sub(share.bytes());
        more == 0 || budget.add(&mut share, more)
    }
}

/// What bounds a body: its own size, and the memory that all share.
#[derive(Debug)]
pub(super) struct Bounds<'a> {
    /// Most bytes of this one.
    pub(super) limit: u64,
    /// What all share.
    pub(super) budget: &'a Budget,
    /// What this one takes of it.
    pub(super) held: Held,
}

async fn whole(
    mut body: Body,
    bounds: Bounds<'_>,
    too_large: impl Fn() -> Failure,
) -> Result<Bytes, Failure> {
    let limit = usize::try_from(bounds.limit).unwrap_or(usize::MAX);
    let stated = body.size_hint().lower();
    if usize::try_from(stated).map_or(true, |stated| stated > limit) {
        return Err(too_large());
    }
    let end = Instant::now() + Duration::from_secs(BODY_SECONDS_MAX);
    let pause = Duration::from_secs(BODY_PAUSE_SECONDS_MAX);
    let mut content = BytesMut::new();
    loop {
        let deadline = end.min(Instant::now() + pause);
        let frame = match timeout_at(deadline, body.frame()).await {
            Err(_) => return Err(Failure::BodySlow),
            Ok(None) => return Ok(content.freeze()),
            Ok(Some(Err(_))) => return Err(Failure::BodyBroken),
            Ok(Some(Ok(frame))) => frame,
        };
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if data.len() > limit - content.len() {
            return Err(too_large());
        }
        let read = content.len() + data.len();
        if !bounds.held.grow(bounds.budget, read) {
            return Err(Failure::BodiesBusy);
        }
        // A body of one piece, which is most of them, is not copied.
        if content.is_empty() && body.is_end_stream() {
            return Ok(data);
        }
        content.extend_from_slice(&data);
    }
}

/// A request's body that stays reachable after the handler let go of it.
#[derive(Debug, Clone)]
pub(super) struct Shared(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    body: Incoming,
    /// Somebody has asked for content; a client that waits for `100 Continue` has then been told to send.
    asked: bool,
}

impl Shared {
    /// Shares a body.
    pub(super) fn new(body: Incoming) -> Self {
        Self(Arc::new(Mutex::new(State { body, asked: false })))
    }

    /// The lock is never held over an await, and nothing panics while holding it.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads and throws away what the handler left, within bounds, so that a client that is still sending gets to see
    /// the refusal. A client that waits for `100 Continue` is not asked to send.
    pub(super) async fn drain(mut self, waits_for_continue: bool) {
        if waits_for_continue && !self.state().asked {
            return;
        }
        let mut left = DRAIN_BYTES_MAX;
        let drained = async {
            while let Some(Ok(frame)) = self.frame().await {
                let length = frame.data_ref().map_or(0, |data| data.remaining() as u64);
                left = left.saturating_sub(length);
                if left == 0 {
                    break;
                }
            }
        };
        // A body that does not end in time closes its connection, which is what is wanted.
        let _ = timeout(Duration::from_secs(DRAIN_SECONDS_MAX), drained).await;
    }
}

impl hyper::body::Body for Shared {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut state = self.state();
        state.asked = true;
        Pin::new(&mut state.body).poll_frame(context)
    }
    fn is_end_stream(&self) -> bool {
        self.state().body.is_end_stream()
    }
    fn size_hint(&self) -> SizeHint {
        self.state().body.size_hint()
    }
}
