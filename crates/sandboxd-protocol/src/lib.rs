//! What the daemon and the guest say to each other over a sandbox's link.
//!
//! The link is one duplex byte stream. `yamux` cuts it into substreams, and every operation (a run, a file read, a
//! dialled port) is one substream: the daemon opens it, sends one [`message::Request`], and both sides then exchange
//! frames until the operation is over. Closing a substream ends its work; the end of the link is the end of the sandbox.
//!
//! Rooms, in the order in which a request walks them:
//!
//! - [`message`]: the words.
//! - [`frame`]: their bytes, without I/O; fuzzed, since both sides treat the other's bytes as hostile.
//! - [`client`]: the daemon's half; [`content`] is a file that it reads piece by piece.
//! - [`server`]: the guest's half, and the trait [`server::Guest`] that a guest implements.
//! - [`limits`]: every number of this crate.

mod channel;
pub mod client;
pub mod content;
pub mod frame;
pub mod limits;
mod link;
pub mod message;
mod run;
pub mod server;
mod substream;
