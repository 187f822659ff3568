//! Where a run's output goes: to our own streams as it comes, or into memory for `--json`.

use super::streams::{Stream, WriteFailure, Writer};
use crate::limits::JSON_STREAM_BYTES_MAX;
use bytes::Bytes;

/// Takes a run's output.
#[derive(Debug)]
pub(super) enum Sink {
    /// Passed on.
    Attached(Writer),
    /// Kept.
    Collected(Collected),
}

/// The first bytes of both streams.
#[derive(Debug, Default)]
pub(super) struct Collected {
    pub(super) stdout: Kept,
    pub(super) stderr: Kept,
}

/// The first bytes of one stream.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// At most [`JSON_STREAM_BYTES_MAX`].
    pub(super) bytes: Vec<u8>,
    /// Whether more came.
    pub(super) truncated: bool,
}

impl Kept {
    fn take(&mut self, bytes: &[u8]) {
        let room = JSON_STREAM_BYTES_MAX - self.bytes.len();
        let taken = bytes.get(..room).unwrap_or(bytes);
        self.truncated |= taken.len() < bytes.len();
        self.bytes.extend_from_slice(taken);
    }

    /// As text; what is not UTF-8 is replaced. A character cut by the bound is left out.
    pub(super) fn text(&self) -> String {
        let bytes = &self.bytes;
        let cut = self
            .truncated
            .then(|| std::str::from_utf8(bytes).err())
            .flatten()
            .filter(|error| error.error_len().is_none())
            .map_or(bytes.len(), |error| error.valid_up_to());
        String::from_utf8_lossy(bytes.get(..cut).unwrap_or(bytes)).into_owned()
    }
}

impl Sink {
    /// Takes bytes; false where they could not be passed on.
    pub(super) async fn take(&mut self, stream: Stream, bytes: Bytes) -> bool {
        match self {
            Self::Attached(writer) => writer.write(stream, bytes).await,
            Self::Collected(collected) => {
                match stream {
                    Stream::Stdout => collected.stdout.take(&bytes),
                    Stream::Stderr => collected.stderr.take(&bytes),
                }
                true
            }
        }
    }

    /// Resolves when output can no longer be passed on.
    pub(super) async fn failed(&self) {
        match self {
            Self::Attached(writer) => writer.failed().await,
            Self::Collected(_) => std::future::pending().await,
        }
    }

    /// Waits until everything is written, and gives what was kept.
    pub(super) async fn finish(self) -> Result<Collected, WriteFailure> {
        match self {
            Self::Attached(writer) => writer.finish().await.map(|()| Collected::default()),
            Self::Collected(collected) => Ok(collected),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded_and_says_so() {
        let mut kept = Kept::default();
        kept.take(&vec![b'a'; JSON_STREAM_BYTES_MAX - 1]);
        assert!(!kept.truncated);
        kept.take("é".as_bytes());
        assert!(kept.truncated);
        assert_eq!(kept.bytes.len(), JSON_STREAM_BYTES_MAX);
        kept.take(b"more");
        assert_eq!(kept.bytes.len(), JSON_STREAM_BYTES_MAX);
        assert!(kept.text().ends_with('a'), "the half character is left out");
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        let mut kept = Kept::default();
        kept.take(b"a\xffb");
        assert_eq!(kept.text(), "a\u{fffd}b");
    }
}
