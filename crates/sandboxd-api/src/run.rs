//! Programs, and how they ended.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Body of `POST /sessions/{session_id}/run`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunRequest {
    /// Program and arguments, literally; at least one item.
    #[cfg_attr(feature = "openapi", schema(min_items = 1, example = json!(["python", "-c", "print(6 * 7)"])))]
    pub argv: Vec<String>,
    /// Variables on top of the sandbox's own.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(example = json!({"NO_COLOR": "1"})))]
    pub env: BTreeMap<String, String>,
    /// Seconds after which the run is ended, above zero; clamped to the service's `execute_timeout`, which is also the
    /// default.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(exclusive_minimum = 0, example = 30.0))]
    pub timeout_seconds: Option<f64>,
    /// The client's id for the run, by which it can be stopped: 32 hexadecimal digits.
    #[cfg_attr(
        feature = "openapi",
        schema(
            pattern = "^[0-9a-f]{32}$",
            example = "0b5a3c1d9e8f47a6b2c4d6e8f0a1b3c5"
        )
    )]
    pub run_id: String,
}

/// Answer of `POST /sessions/{session_id}/run`, in exactly three shapes: finished (`exit_code` set), timed out, or over
/// the output limit (then each stream's first 65 536 bytes). Bytes that are no UTF-8 come as U+FFFD.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunResponse {
    /// Standard output.
    #[cfg_attr(feature = "openapi", schema(example = "42\n"))]
    pub stdout: String,
    /// Standard error.
    #[cfg_attr(feature = "openapi", schema(example = ""))]
    pub stderr: String,
    /// The program's exit code, or 128 and its signal; 126 and 127 as a shell has them. Absent where it was ended.
    #[cfg_attr(feature = "openapi", schema(example = 0))]
    pub exit_code: Option<u8>,
    /// Ended by its deadline.
    pub timed_out: bool,
    /// Ended for its output.
    pub output_limited: bool,
    /// The limit that it went over, in bytes of both streams.
    #[cfg_attr(feature = "openapi", schema(example = json!(null)))]
    pub output_limit: Option<u64>,
    /// The limit that ended the run, or by which it failed; left out where there was none. For `pids` and `disk`, which
    /// refuse and do not kill: the run failed, and the limit refused something meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(example = "memory"))]
    pub killed_for: Option<Limit>,
    /// Every limit that the session's sandbox ran into while the run went on, the one above among them; left out where
    /// there was none. Another run of the session may have been the one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(example = json!(["memory"])))]
    pub limits_reached: Vec<Limit>,
}

/// A limit that a run can run into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Limit {
    /// Memory: the kernel killed for it.
    Memory,
    /// Processes and threads.
    Pids,
    /// Bytes or files that are stored.
    Disk,
    /// The run's time.
    Time,
    /// The run's output.
    Output,
}

impl Limit {
    /// Its name, as it is sent.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Disk => "disk",
            Self::Time => "time",
            Self::Output => "output",
        }
    }
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
