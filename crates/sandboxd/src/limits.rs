//! Every number of the command, with its unit in its name.

/// Bytes read from stdin, or written to stdout, at a time.
pub(crate) const CHUNK_BYTES: usize = 64 * 1024;
/// Chunks on the way between a blocking descriptor and the sandbox.
pub(crate) const CHUNKS_QUEUED_MAX: usize = 8;
/// How often a background job looks whether its terminal is its own again, in milliseconds.
pub(crate) const BACKGROUND_PAUSE_MILLIS: u64 = 200;
/// Requests to end a run that are on the way to the guest.
pub(crate) const CONTROLS_QUEUED_MAX: usize = 8;
/// What `run --json` keeps of each stream, in bytes.
pub(crate) const JSON_STREAM_BYTES_MAX: usize = 1024 * 1024;
/// From the first Ctrl-C to TERM, for a program that does not heed INT, in milliseconds.
pub(crate) const INTERRUPT_GRACE_MILLIS: u64 = 2_000;
/// How long a guest may take to say that a run it was told to end has ended, in milliseconds; then its sandbox is ended.
pub(crate) const END_GRACE_MILLIS: u64 = 5_000;
/// The same after a kill, in milliseconds.
pub(crate) const KILL_GRACE_MILLIS: u64 = 1_000;
/// How long the end of a sandbox may take, in seconds.
pub(crate) const CLOSE_SECONDS_MAX: u64 = 20;
/// Smallest `--memory`, in bytes: less does not hold the guest and a program.
pub(crate) const MEMORY_BYTES_MIN: u64 = 6 * 1024 * 1024;
/// Smallest `--disk`, in bytes.
pub(crate) const DISK_BYTES_MIN: u64 = 1024 * 1024;
/// Longest `--timeout`, in seconds: thirty days.
pub(crate) const TIMEOUT_SECONDS_MAX: u64 = 30 * 24 * 3_600;
/// How long one of doctor's probes may take, in seconds.
pub(crate) const PROBE_SECONDS_MAX: u64 = 10;
/// How long a Docker socket may take to answer doctor, in milliseconds.
pub(crate) const DOCKER_ANSWER_MILLIS: u64 = 2_000;
/// How long the service may take to answer a probe of its health, in seconds.
pub(crate) const HEALTH_SECONDS_MAX: u64 = 5;
/// What is read of that answer at most, in bytes: its first line is all that counts.
pub(crate) const HEALTH_ANSWER_BYTES_MAX: usize = 1024;
/// How often the service looks whether its work is over, in seconds.
pub(crate) const QUIET_LOOK_SECONDS: u64 = 5;
/// Processor time between two looks that is none to speak of, in milliseconds: a few probes and a dashboard.
pub(crate) const QUIET_MILLIS_MAX: u64 = 20;
/// Processor time after which it is worth while to give memory back, in milliseconds.
pub(crate) const WORKED_MILLIS_MIN: u64 = 100;

const _: () = assert!(KILL_GRACE_MILLIS < END_GRACE_MILLIS);
const _: () = assert!(QUIET_MILLIS_MAX < WORKED_MILLIS_MIN);
