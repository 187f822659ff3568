//! Every number of the link, with its unit in its name.

/// Longest message (control frame) in bytes: an argv and environment of the kernel's own limit fit.
pub const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Longest message in bytes that a guest may answer with; a batch of entries is cut to fit.
pub const ANSWER_BYTES_MAX: usize = 256 * 1024;
/// Bytes that a frame's header takes: one tag, four of length (little endian).
pub const FRAME_HEADER_BYTES: usize = 5;
/// Longest frame that the multiplexer sends as one of its own, in bytes: a quarter of a substream's window, so that four fit
/// and none is cut.
pub const PIECE_BYTES: usize = WINDOW_BYTES / 4;
/// Longest content of a raw frame in bytes. With its header it is one piece.
pub const RAW_BYTES_MAX: usize = PIECE_BYTES - FRAME_HEADER_BYTES;
/// Most substreams open at once on one link, as the daemon counts them.
pub const SUBSTREAMS_MAX: usize = 512;
/// Most substreams that a guest knows at once: those that the daemon has let go and the guest is still ending count.
pub const GUEST_SUBSTREAMS_MAX: usize = 1024;
/// Most substreams that the daemon's half knows at once: those that are let go while the link is full count.
pub const CLIENT_SUBSTREAMS_MAX: usize = 4096;
/// Receive window in bytes that each substream has, the multiplexer's own least.
pub const WINDOW_BYTES: usize = 256 * 1024;
/// Substreams that a guest may open in vain before the link is ended.
pub const REFUSED_SUBSTREAMS_MAX: usize = 64;
/// How long the other side has for its first frame.
pub const HELLO_SECONDS_MAX: u64 = 10;
/// How long the opening of a substream may take.
pub const OPEN_SECONDS_MAX: u64 = 10;
/// How long a guest may be silent within one file operation or dial.
pub const SILENCE_SECONDS_MAX: u64 = 120;
/// How long after a broken substream the link's own end is awaited, to tell the two apart.
pub const END_GRACE_MILLIS: u64 = 100;
/// How long a link that is being closed has to say so.
pub const CLOSE_SECONDS_MAX: u64 = 1;
/// Entries in one batch of a listing.
pub const ENTRIES_PER_BATCH: usize = 256;
/// Bytes of names and targets after which a batch of a listing is sent even if it is not full.
pub const BATCH_BYTES: usize = 64 * 1024;
/// Longest name of one directory entry in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Bytes of stdin that may be on the way to a program that has not read them. The daemon sends no more before the guest
/// reports some as taken, so that a word of control is never stuck behind stdin.
pub const STDIN_WINDOW_BYTES: usize = 3 * RAW_BYTES_MAX;
/// Bytes that the buffers around the link take, each way.
pub const LINK_BUFFER_BYTES: usize = 4 * 1024;
/// Bytes asked for in one read of a substream, unless a longer frame is under way.
pub const READ_BYTES: usize = 4 * 1024;

const _: () = assert!(RAW_BYTES_MAX <= MESSAGE_BYTES_MAX);
const _: () = assert!(RAW_BYTES_MAX <= ANSWER_BYTES_MAX);
// One entry (name and target of the kernel's longest) on top of a full batch still fits an answer.
const _: () = assert!(BATCH_BYTES + ENTRIES_PER_BATCH * 64 + 8192 <= ANSWER_BYTES_MAX);
const _: () = assert!(SUBSTREAMS_MAX < GUEST_SUBSTREAMS_MAX);
const _: () = assert!(GUEST_SUBSTREAMS_MAX < CLIENT_SUBSTREAMS_MAX);
// Stdin that nobody reads leaves a piece of the substream's window to control.
const _: () =
    assert!(STDIN_WINDOW_BYTES.div_ceil(RAW_BYTES_MAX) * PIECE_BYTES + PIECE_BYTES <= WINDOW_BYTES);
