//! Every number of this crate.

/// Longest name of a directory entry in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 255;
/// Most links that one path may go through.
pub(crate) const LINKS_MAX: usize = 40;
/// Bytes of random hex in a temporary name.
pub(crate) const TEMPORARY_HEX: usize = 12;
/// Attempts at a temporary name that nobody has.
pub(crate) const TEMPORARY_TRIES: usize = 16;
/// Attempts at an open that the kernel asks to repeat (a rename raced with it).
pub(crate) const OPEN_TRIES: usize = 32;
