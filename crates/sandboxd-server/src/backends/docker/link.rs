//! The link: the engine's attach stream. What goes in is the guest's stdin as it is; what comes out is its stdout and its
//! stderr in turns, each piece with a head, which the engine's client takes off. Stdout is the protocol and nothing else;
//! stderr is the guest's few words about itself, which go to the log, bounded and escaped.
//!
//! Nothing is held here but the piece that is being read, which the engine makes of one read of a pipe.

use super::connect::printable;
use crate::id::SandboxId;
use crate::limits::GUEST_WORDS_BYTES_MAX;
use bollard::container::LogOutput;
use bollard::errors::Error;
use bytes::{Buf as _, Bytes};
use futures::Stream;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What the client hands over to read from.
pub(super) type Output = Pin<Box<dyn Stream<Item = Result<LogOutput, Error>> + Send>>;
/// And to write to.
pub(super) type Input = Pin<Box<dyn AsyncWrite + Send>>;

/// Both ends as one stream of bytes.
pub(super) struct AttachedLink {
    sandbox: SandboxId,
    output: Output,
    input: Input,
    piece: Bytes,
    words_left: usize,
}

impl AttachedLink {
    /// Of the guest in this sandbox.
    pub(super) fn new(sandbox: SandboxId, output: Output, input: Input) -> Self {
        Self {
            sandbox,
            output,
            input,
            piece: Bytes::new(),
            words_left: GUEST_WORDS_BYTES_MAX,
        }
    }

    /// Writes the guest's own words to the log, as far as their measure goes.
    fn note(&mut self, words: &[u8]) {
        let length = words.len().min(self.words_left);
        self.words_left -= length;
        let words = printable(&String::from_utf8_lossy(&words[..length]));
        if !words.is_empty() {
            tracing::warn!(sandbox = %self.sandbox, words, "the guest says");
        }
    }
}

impl AsyncRead for AttachedLink {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.piece.is_empty() {
            match ready!(self.output.as_mut().poll_next(context)) {
                None => return Poll::Ready(Ok(())),
                Some(Ok(LogOutput::StdOut { message })) => self.piece = message,
                Some(Ok(LogOutput::StdErr { message })) => self.note(&message),
                Some(Ok(LogOutput::StdIn { .. } | LogOutput::Console { .. })) => {
                    let what = "the engine's stream has a piece of no known kind";
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, what)));
                }
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
            }
        }
        let length = self.piece.len().min(buffer.remaining());
        buffer.put_slice(&self.piece[..length]);
        self.piece.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for AttachedLink {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.input.as_mut().poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.input.as_mut().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.input.as_mut().poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt as _;

    fn link(pieces: Vec<Result<LogOutput, Error>>) -> AttachedLink {
        let output = Box::pin(futures::stream::iter(pieces));
        AttachedLink::new(SandboxId::generate(), output, Box::pin(tokio::io::sink()))
    }

    fn out(text: &'static str) -> Result<LogOutput, Error> {
        Ok(LogOutput::StdOut {
            message: text.into(),
        })
    }

    #[tokio::test]
    async fn only_stdout_is_the_protocol() {
        let words = LogOutput::StdErr {
            message: "sandboxd-guest: broken\n".into(),
        };
        let mut link = link(vec![out("ab"), Ok(words), out(""), out("cde")]);
        let mut first = [0; 3];
        link.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"abc");
        let mut rest = String::new();
        link.read_to_string(&mut rest).await.unwrap();
        assert_eq!(rest, "de");
        assert_eq!(link.words_left, GUEST_WORDS_BYTES_MAX - 23);
    }

    #[tokio::test]
    async fn a_guest_that_never_ends_its_words_fills_no_log() {
        let much = LogOutput::StdErr {
            message: vec![b'x'; GUEST_WORDS_BYTES_MAX * 2].into(),
        };
        let mut link = link(vec![Ok(much.clone()), Ok(much), out("end")]);
        let mut rest = String::new();
        link.read_to_string(&mut rest).await.unwrap();
        assert_eq!((rest.as_str(), link.words_left), ("end", 0));
    }

    #[tokio::test]
    async fn what_is_no_piece_ends_the_link() {
        let console = LogOutput::Console {
            message: "raw".into(),
        };
        let mut link = link(vec![out("a"), Ok(console)]);
        let mut all = Vec::new();
        let error = link.read_to_end(&mut all).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
