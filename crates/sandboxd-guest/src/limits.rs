//! Every number of the guest, with its unit in its name.

use std::time::Duration;

/// How long after a TERM the whole tree is killed.
pub(crate) const STOP_GRACE: Duration = Duration::from_secs(2);
/// How long pipes that somebody in the background holds open are listened to after the program's own exit.
pub(crate) const DRAIN_GRACE: Duration = Duration::from_millis(100);
/// Most bytes that are taken from a pipe after that grace: the most that a pipe holds.
pub(crate) const DRAIN_BYTES_MAX: usize = 1024 * 1024;
/// How long the end of a tree may take before the guest gives the whole sandbox up.
pub(crate) const TREE_END_MAX: Duration = Duration::from_secs(10);
/// Pause between two looks at a tree that is being ended.
pub(crate) const TREE_PAUSE: Duration = Duration::from_millis(1);
/// How long the guest waits, when a program has failed, for the daemon's word on what it left behind.
pub(crate) const LAST_WORD_MAX: Duration = Duration::from_secs(1);
/// How long the end of what earlier runs left behind may take, when a run finds no place under the process ceiling.
pub(crate) const LEFTOVERS_END_MAX: Duration = Duration::from_secs(5);
/// How long the places of ended processes may take to become free again.
pub(crate) const PLACES_FREE_MAX: Duration = Duration::from_secs(2);
/// Looks at a tree that stopped growing, before processes in an uninterruptible wait count as stopped.
pub(crate) const QUIET_LOOKS: u32 = 3;
/// Looks at a tree that is dead, before a keeper that does not go is killed too.
pub(crate) const DEAD_LOOKS: u32 = 200;
/// Bytes read from a program's stream at once.
pub(crate) const STREAM_READ_BYTES: usize = 32 * 1024;
/// Least and most bytes read from a file at once.
pub(crate) const FILE_READ_BYTES_LEAST: usize = 4 * 1024;
/// See [`FILE_READ_BYTES_LEAST`]: what one frame takes.
pub(crate) const FILE_READ_BYTES: usize = sandboxd_protocol::limits::RAW_BYTES_MAX;
/// How long after an operation the memory that it left with the allocator is given back to the kernel.
pub(crate) const REST: Duration = Duration::from_millis(500);
/// Streams of ended runs that background programs may keep writing to; the oldest is closed beyond that.
pub(crate) const SINKS_MAX: usize = 64;
/// Bytes thrown away at once from such a stream.
pub(crate) const SINK_READ_BYTES: usize = 4 * 1024;
/// Longest single argument or environment string in bytes, its NUL included: the kernel's `MAX_ARG_STRLEN`.
pub(crate) const ARG_BYTES_MAX: u64 = 128 * 1024;
/// Least and most that the kernel grants arguments and environment together; between them, a quarter of the stack.
pub(crate) const ARGS_BYTES_LEAST: u64 = 128 * 1024;
/// See [`ARGS_BYTES_LEAST`].
pub(crate) const ARGS_BYTES_MOST: u64 = 6 * 1024 * 1024;
/// Directory entries touched between two chances for other work.
pub(crate) const FILE_STEPS: usize = 256;
/// Events that the kernel hands over at once; few, for the room they take while nothing happens.
pub(crate) const EVENTS_AT_ONCE: usize = 32;
/// How long connecting to a port on the loopback may take.
pub(crate) const DIAL_MAX: Duration = Duration::from_secs(10);
/// Bytes that the kernel writes about one signal (`struct signalfd_siginfo`).
pub(crate) const SIGNAL_BYTES: usize = 128;
/// How long a run's cgroup may take to empty itself after it was killed, before what is left is killed one by one.
pub(crate) const LEAF_LOOK: Duration = Duration::from_millis(20);
