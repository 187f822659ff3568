//! Bytes from the other side of a link, cut anywhere: what comes out must not depend on where they were cut, must not
//! be longer than was allowed, and must be what was said.

#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use sandboxd_protocol::frame::{self, Frame, FrameError};
use sandboxd_protocol::limits::{ANSWER_BYTES_MAX, FRAME_HEADER_BYTES};

/// Everything that comes out of `bytes` when they arrive in pieces of `piece`.
fn taken(bytes: &[u8], piece: usize) -> (Vec<Frame>, Option<FrameError>, usize) {
    let mut buffer = BytesMut::new();
    let mut frames = Vec::new();
    for part in bytes.chunks(piece.max(1)) {
        buffer.extend_from_slice(part);
        loop {
            let held = buffer.len();
            let missing = frame::missing(&buffer, ANSWER_BYTES_MAX);
            match frame::take(&mut buffer, ANSWER_BYTES_MAX) {
                Ok(Some(frame)) => {
                    assert_eq!(missing, Ok(0), "a whole frame misses nothing");
                    assert!(frame.payload.len() <= ANSWER_BYTES_MAX);
                    assert_eq!(held - buffer.len(), FRAME_HEADER_BYTES + frame.payload.len());
                    frames.push(frame);
                }
                Ok(None) => {
                    assert_eq!(held, buffer.len(), "what is not whole is left alone");
                    assert!(missing.is_ok_and(|missing| missing > 0));
                    break;
                }
                Err(error) => {
                    assert_eq!(missing, Err(error), "both judge a header alike");
                    return (frames, Some(error), 0);
                }
            }
        }
    }
    (frames, None, buffer.len())
}

fuzz_target!(|input: (u8, &[u8])| {
    let (piece, bytes) = input;
    let whole = taken(bytes, bytes.len());
    assert_eq!(whole, taken(bytes, 1 + usize::from(piece)));
});
