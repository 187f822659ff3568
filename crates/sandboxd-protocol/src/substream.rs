//! One substream in two halves, each with its frames.
//!
//! The halves may live in different tasks, and either can end the whole: `yamux` resets a substream when it is dropped,
//! and a run must end when its reader goes away even if somebody still holds the writer. So the substream sits in a
//! slot that both halves look into, and [`Hold`] takes it out.

use crate::client::LinkError;
use crate::frame::{self, Frame, FrameError, Tag};
use crate::limits::{END_GRACE_MILLIS, MESSAGE_BYTES_MAX, RAW_BYTES_MAX, READ_BYTES};
use bytes::{Buf, BytesMut};
use futures::io::{AsyncRead, AsyncWrite};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Cuts a fresh substream into its halves. `link_over` tells that the link has ended; messages over `message_limit`
/// bytes are refused while reading.
pub(crate) fn halves(
    stream: yamux::Stream,
    link_over: CancellationToken,
    message_limit: usize,
) -> (FrameReader, FrameWriter, Hold) {
    let place = Place(Arc::new(Mutex::new(Slot {
        stream: Some(stream),
        reader: None,
        writer: None,
    })));
    let reader = FrameReader {
        place: place.clone(),
        link_over: link_over.clone(),
        buffer: BytesMut::new(),
        message_limit,
        over: false,
    };
    let writer = FrameWriter {
        place: place.clone(),
        link_over,
        pending: BytesMut::new(),
    };
    (reader, writer, Hold(place))
}

struct Slot {
    stream: Option<yamux::Stream>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

#[derive(Clone)]
struct Place(Arc<Mutex<Slot>>);

impl Place {
    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Holds a substream open: dropping it ends the substream, whoever still has a half, and the other side sees its end.
pub(crate) struct Hold(Place);

impl Drop for Hold {
    fn drop(&mut self) {
        let (stream, reader, writer) = {
            let mut slot = self.0.slot();
            (slot.stream.take(), slot.reader.take(), slot.writer.take())
        };
        drop(stream);
        for waker in [reader, writer].into_iter().flatten() {
            waker.wake();
        }
    }
}

/// Why a half can go no further: the link's end, or only the substream's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The other side (or this one) let the substream go.
    Closed,
    /// Its bytes make no sense.
    Garbage(FrameError),
}

/// The half that frames come out of. Cancelling a read loses nothing.
pub(crate) struct FrameReader {
    place: Place,
    link_over: CancellationToken,
    buffer: BytesMut,
    message_limit: usize,
    over: bool,
}

impl FrameReader {
    /// The next frame, or `None` at the end of the substream, also an untimely one.
    pub(crate) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Frame>, FrameError>> {
        loop {
            if let Some(frame) = frame::take(&mut self.buffer, self.message_limit)? {
                return Poll::Ready(Ok(Some(frame)));
            }
            if self.over {
                return Poll::Ready(Ok(None));
            }
            let missing = frame::missing(&self.buffer, self.message_limit)?;
            // Room grows with what has arrived, not with what a header claims.
            let room = missing.clamp(READ_BYTES, RAW_BYTES_MAX);
            let filled = self.buffer.len();
            self.buffer.resize(filled + room, 0);
            let read = {
                let mut slot = self.place.slot();
                let slot = &mut *slot;
                match slot.stream.as_mut() {
                    None => Poll::Ready(Ok(0)),
                    Some(stream) => {
                        let read = Pin::new(stream).poll_read(cx, &mut self.buffer[filled..]);
                        if read.is_pending() {
                            slot.reader = Some(cx.waker().clone());
                        }
                        read
                    }
                }
            };
            match read {
                Poll::Ready(Ok(0) | Err(_)) => {
                    self.buffer.truncate(filled);
                    self.over = true;
                }
                Poll::Ready(Ok(read)) => self.buffer.truncate(filled + read),
                Poll::Pending => {
                    self.buffer.truncate(filled);
                    if filled == 0 {
                        // Nothing is under way: hold no memory while waiting.
                        self.buffer = BytesMut::new();
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    /// The next frame; `None` at the substream's end or the link's.
    pub(crate) async fn next(&mut self) -> Result<Option<Frame>, FrameError> {
        let link_over = self.link_over.clone();
        tokio::select! {
            biased;
            frame = poll_fn(|cx| self.poll_next(cx)) => frame,
            () = link_over.cancelled() => Ok(None),
        }
    }

    /// The next frame, where the end of the substream is an error.
    pub(crate) async fn expect(&mut self) -> Result<Frame, LinkError> {
        match self.next().await {
            Ok(Some(frame)) => Ok(frame),
            Ok(None) => Err(self.untimely_end().await),
            Err(error) => Err(LinkError::Protocol(error.to_string())),
        }
    }

    /// The next frame as a message; anything else is an error.
    pub(crate) async fn message<T: DeserializeOwned>(&mut self) -> Result<T, LinkError> {
        let frame = self.expect().await?;
        if frame.tag != Tag::Message {
            return Err(LinkError::Protocol(
                "raw bytes where a message belongs".to_owned(),
            ));
        }
        frame::message(&frame.payload).map_err(|error| LinkError::Protocol(error.to_string()))
    }

    /// A substream that ended early: did the whole link end? It takes a moment until that is known for sure.
    pub(crate) async fn untimely_end(&self) -> LinkError {
        let grace = Duration::from_millis(END_GRACE_MILLIS);
        match tokio::time::timeout(grace, self.link_over.cancelled()).await {
            Ok(()) => LinkError::Gone,
            Err(_) => LinkError::Protocol("a substream ended early".to_owned()),
        }
    }
}

/// The half that frames go into. A cancelled write may or may not have been sent, but never in part: what is left of it
/// goes before the next one.
pub(crate) struct FrameWriter {
    place: Place,
    link_over: CancellationToken,
    pending: BytesMut,
}

impl FrameWriter {
    /// Pushes what is pending.
    pub(crate) fn poll_pending(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        while !self.pending.is_empty() {
            let written = {
                let mut slot = self.place.slot();
                let slot = &mut *slot;
                match slot.stream.as_mut() {
                    None => Poll::Ready(Ok(0)),
                    Some(stream) => {
                        let written = Pin::new(stream).poll_write(cx, &self.pending);
                        if written.is_pending() {
                            slot.writer = Some(cx.waker().clone());
                        }
                        written
                    }
                }
            };
            match written {
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Err(Broken::Closed)),
                Poll::Ready(Ok(written)) => self.pending.advance(written),
                Poll::Pending => return Poll::Pending,
            }
        }
        // Keeps no memory between frames.
        self.pending = BytesMut::new();
        Poll::Ready(Ok(()))
    }

    /// Puts one raw frame behind what is pending. The caller has seen [`FrameWriter::poll_pending`] ready.
    pub(crate) fn put_raw(&mut self, tag: Tag, payload: &[u8]) -> Result<(), Broken> {
        frame::put_raw(&mut self.pending, tag, payload).map_err(Broken::Garbage)
    }

    async fn push(&mut self) -> Result<(), Broken> {
        let link_over = self.link_over.clone();
        tokio::select! {
            biased;
            pushed = poll_fn(|cx| self.poll_pending(cx)) => pushed,
            () = link_over.cancelled() => Err(Broken::Closed),
        }
    }

    /// Sends one message.
    pub(crate) async fn message<T: Serialize>(&mut self, message: &T) -> Result<(), Broken> {
        self.push().await?;
        frame::put_message(&mut self.pending, message, MESSAGE_BYTES_MAX)
            .map_err(Broken::Garbage)?;
        self.push().await
    }

    /// Sends bytes, as many frames as they need.
    pub(crate) async fn raw(&mut self, tag: Tag, bytes: &[u8]) -> Result<(), Broken> {
        for piece in bytes.chunks(RAW_BYTES_MAX) {
            self.push().await?;
            self.put_raw(tag, piece)?;
            self.push().await?;
        }
        Ok(())
    }
}
