//! The bytes of the link's words: one tag byte, four bytes of length (little endian), the payload.
//!
//! A message's payload is `postcard`; every other frame is raw bytes. Nothing here does I/O. Lengths are judged from the
//! header alone, before a byte of payload is read or room for it made, since each side treats the other's bytes as
//! hostile.

use crate::limits::{FRAME_HEADER_BYTES, RAW_BYTES_MAX};
use bytes::{Buf, Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What a frame carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tag {
    /// A message.
    Message,
    /// Standard input, or the content of a file or a dialled port.
    Content,
    /// Bytes of a program's stdout.
    Stdout,
    /// Bytes of a program's stderr.
    Stderr,
}

impl Tag {
    const fn byte(self) -> u8 {
        match self {
            Self::Message => 0,
            Self::Content => 1,
            Self::Stdout => 2,
            Self::Stderr => 3,
        }
    }

    const fn of(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Message),
            1 => Some(Self::Content),
            2 => Some(Self::Stdout),
            3 => Some(Self::Stderr),
            _ => None,
        }
    }
}

/// One whole frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// What it carries.
    pub tag: Tag,
    /// Its bytes.
    pub payload: Bytes,
}

/// Why bytes are no frame, or a frame no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// No such tag.
    #[error("unknown frame tag {0}")]
    Tag(u8),
    /// A length over the limit.
    #[error("frame of {bytes} bytes, at most {limit} are allowed")]
    TooLong {
        /// Bytes that the header claims.
        bytes: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// A message that is none, or has bytes after its end.
    #[error("malformed message")]
    Malformed,
}

/// Appends one raw frame. More than [`RAW_BYTES_MAX`] bytes are refused.
pub fn put_raw(out: &mut BytesMut, tag: Tag, payload: &[u8]) -> Result<(), FrameError> {
    if payload.len() > RAW_BYTES_MAX {
        return Err(too_long(payload.len(), RAW_BYTES_MAX));
    }
    out.reserve(FRAME_HEADER_BYTES + payload.len());
    put_header(out, tag, payload.len())?;
    out.extend_from_slice(payload);
    Ok(())
}

/// Appends one message. One of more than `limit` bytes is refused.
pub fn put_message<T: Serialize>(
    out: &mut BytesMut,
    message: &T,
    limit: usize,
) -> Result<(), FrameError> {
    let payload = postcard::to_stdvec(message).map_err(|_| FrameError::Malformed)?;
    if payload.len() > limit {
        return Err(too_long(payload.len(), limit));
    }
    out.reserve(FRAME_HEADER_BYTES + payload.len());
    put_header(out, Tag::Message, payload.len())?;
    out.extend_from_slice(&payload);
    Ok(())
}

/// Takes the first frame off the front of `buffer`; `None` when more bytes are needed.
pub fn take(buffer: &mut BytesMut, message_limit: usize) -> Result<Option<Frame>, FrameError> {
    let Some((tag, length)) = header(buffer, message_limit)? else {
        return Ok(None);
    };
    if buffer.len() < FRAME_HEADER_BYTES + length {
        return Ok(None);
    }
    buffer.advance(FRAME_HEADER_BYTES);
    let payload = buffer.split_to(length).freeze();
    Ok(Some(Frame { tag, payload }))
}

/// Bytes that are missing until [`take`] can do something: the rest of a header, or of the frame that it announces.
pub fn missing(buffer: &[u8], message_limit: usize) -> Result<usize, FrameError> {
    Ok(match header(buffer, message_limit)? {
        None => FRAME_HEADER_BYTES - buffer.len(),
        Some((_, length)) => (FRAME_HEADER_BYTES + length).saturating_sub(buffer.len()),
    })
}

/// Reads a message out of a frame's payload; bytes after its end are refused.
pub fn message<T: DeserializeOwned>(payload: &[u8]) -> Result<T, FrameError> {
    match postcard::take_from_bytes(payload) {
        Ok((message, [])) => Ok(message),
        Ok(_) | Err(_) => Err(FrameError::Malformed),
    }
}

fn header(buffer: &[u8], message_limit: usize) -> Result<Option<(Tag, usize)>, FrameError> {
    let Some(&[tag, a, b, c, d]) = buffer.first_chunk::<FRAME_HEADER_BYTES>() else {
        return Ok(None);
    };
    let tag = Tag::of(tag).ok_or(FrameError::Tag(tag))?;
    let limit = match tag {
        Tag::Message => message_limit,
        Tag::Content | Tag::Stdout | Tag::Stderr => RAW_BYTES_MAX,
    };
    let claimed = u32::from_le_bytes([a, b, c, d]);
    match usize::try_from(claimed) {
        Ok(length) if length <= limit => Ok(Some((tag, length))),
        Ok(length) => Err(too_long(length, limit)),
        Err(_) => Err(too_long(usize::MAX, limit)),
    }
}

fn put_header(out: &mut BytesMut, tag: Tag, length: usize) -> Result<(), FrameError> {
    let length = u32::try_from(length)
        .map_err(|_| too_long(length, usize::try_from(u32::MAX).unwrap_or(usize::MAX)))?;
    out.extend_from_slice(&[tag.byte()]);
    out.extend_from_slice(&length.to_le_bytes());
    Ok(())
}

const fn too_long(bytes: usize, limit: usize) -> FrameError {
    FrameError::TooLong { bytes, limit }
}

#[cfg(test)]
mod tests;
