//! A substream that carries plain bytes: a dialled port. Bytes travel as content frames; an empty one ends a direction.

use crate::frame::Tag;
use crate::limits::RAW_BYTES_MAX;
use crate::substream::{FrameReader, FrameWriter};
use bytes::{Buf, Bytes};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes both ways over one substream. `keep` is what holds it open, and ends it when this is dropped.
pub(crate) struct Channel<K> {
    reader: FrameReader,
    writer: FrameWriter,
    rest: Bytes,
    read_over: bool,
    write_over: bool,
    _keep: K,
}

impl<K> Channel<K> {
    pub(crate) fn new(reader: FrameReader, writer: FrameWriter, keep: K) -> Self {
        Self {
            reader,
            writer,
            rest: Bytes::new(),
            read_over: false,
            write_over: false,
            _keep: keep,
        }
    }
}

fn broken() -> io::Error {
    io::Error::from(io::ErrorKind::BrokenPipe)
}

impl<K: Unpin> AsyncRead for Channel<K> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.rest.is_empty() && !self.read_over {
            match ready!(self.reader.poll_next(cx)) {
                Ok(Some(frame)) if frame.tag == Tag::Content => {
                    self.read_over = frame.payload.is_empty();
                    self.rest = frame.payload;
                }
                Ok(None) => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
                Ok(Some(_)) => return Poll::Ready(Err(io::ErrorKind::InvalidData.into())),
                Err(error) => {
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
                }
            }
        }
        let length = self.rest.len().min(out.remaining());
        out.put_slice(&self.rest[..length]);
        self.rest.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl<K: Unpin> AsyncWrite for Channel<K> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.write_over {
            return Poll::Ready(Err(broken()));
        }
        ready!(self.writer.poll_pending(cx)).map_err(|_| broken())?;
        let length = bytes.len().min(RAW_BYTES_MAX);
        if length > 0 {
            self.writer
                .put_raw(Tag::Content, &bytes[..length])
                .map_err(|_| broken())?;
            // Accepted; what cannot go now goes before the next write or with a flush.
            let _ = self.writer.poll_pending(cx);
        }
        Poll::Ready(Ok(length))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writer.poll_pending(cx).map_err(|_| broken())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.write_over {
            ready!(self.writer.poll_pending(cx)).map_err(|_| broken())?;
            self.writer
                .put_raw(Tag::Content, &[])
                .map_err(|_| broken())?;
            self.write_over = true;
        }
        self.writer.poll_pending(cx).map_err(|_| broken())
    }
}
