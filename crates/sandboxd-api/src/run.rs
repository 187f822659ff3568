//! Programs, and how they ended.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Body of `POST /sessions/{session_id}/run`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunRequest {
    /// Program and arguments, literally; at least one item.
    pub argv: Vec<String>,
    /// Variables on top of the sandbox's own.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Seconds after which the run is ended, above zero; clamped to the service's `execute_timeout`, which is also the
    /// default.
    #[serde(default)]
    pub timeout_seconds: Option<f64>,
    /// The client's id for the run, by which it can be stopped: 32 hexadecimal digits.
    pub run_id: String,
}

/// Answer of `POST /sessions/{session_id}/run`, in exactly three shapes: finished (`exit_code` set), timed out, or over
/// the output limit (then each stream's first 65 536 bytes). Bytes that are no UTF-8 come as U+FFFD.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunResponse {
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// The program's exit code, or 128 and its signal; 126 and 127 as a shell has them. Absent where it was ended.
    pub exit_code: Option<u8>,
    /// Ended by its deadline.
    pub timed_out: bool,
    /// Ended for its output.
    pub output_limited: bool,
    /// The limit that it went over, in bytes of both streams.
    pub output_limit: Option<u64>,
}
