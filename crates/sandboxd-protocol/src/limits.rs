//! Every number of the link, with its unit in its name.

/// Longest message (control frame) in bytes: an argv and environment of the kernel's own limit fit.
pub const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Longest raw frame in bytes.
pub const RAW_BYTES_MAX: usize = 64 * 1024;
/// Bytes that a frame's header takes: one tag, four of length (little endian).
pub const FRAME_HEADER_BYTES: usize = 5;
/// Most substreams open at once on one link.
pub const SUBSTREAMS_MAX: usize = 512;
/// How long the other side has for its first frame.
pub const HELLO_SECONDS_MAX: u64 = 10;
/// Entries in one batch of a listing.
pub const ENTRIES_PER_BATCH: usize = 256;

const _: () = assert!(RAW_BYTES_MAX <= MESSAGE_BYTES_MAX);
