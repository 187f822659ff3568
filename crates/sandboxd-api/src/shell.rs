//! The older routes: a shell's view of a sandbox. What fails answers 200 with a value that says so.

use crate::run::Limit;
use serde::{Deserialize, Serialize};

/// Body of `POST /sessions/{session_id}/exec`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ExecRequest {
    /// Run by `sh -c` in the work directory.
    #[cfg_attr(feature = "openapi", schema(example = "ls | wc -l"))]
    pub command: String,
    /// Seconds after which it is ended; clamped to the service's `execute_timeout`, which is also the default.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(example = 30))]
    pub timeout_seconds: Option<i64>,
}

/// Answer of `POST /sessions/{session_id}/exec`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ExecResponse {
    /// Both streams in the order in which they came, at most 100 000 bytes.
    #[cfg_attr(feature = "openapi", schema(example = "3\n"))]
    pub output: String,
    /// Its exit code; 124 for the deadline.
    #[cfg_attr(feature = "openapi", schema(example = 0))]
    pub exit_code: Option<u8>,
    /// Whether output was thrown away.
    pub truncated: bool,
    /// The limit that ended the command, or by which it failed; left out where there was none (see the answer of `/run`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(example = "memory"))]
    pub killed_for: Option<Limit>,
    /// Every limit that the session's sandbox ran into meanwhile; left out where there was none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(example = json!(["memory"])))]
    pub limits_reached: Vec<Limit>,
}

/// Body of `POST /sessions/{session_id}/read` and `POST /workspaces/{session_id}/read`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReadRequest {
    /// Which file; a relative one starts at the work directory.
    #[cfg_attr(feature = "openapi", schema(example = "report.md"))]
    pub path: String,
    /// Lines to skip.
    #[serde(default)]
    pub offset: u64,
    /// Most lines to give, at least one.
    #[serde(default = "default_limit")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    pub limit: u64,
}

const fn default_limit() -> u64 {
    ReadRequest::LIMIT
}

impl ReadRequest {
    /// Lines that are given where a request does not say.
    pub const LIMIT: u64 = 2000;
}

/// Answer of the two `read` routes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReadResponse {
    /// The lines, or words about why there are none.
    #[cfg_attr(
        feature = "openapi",
        schema(example = "# Report\n\n[... 12 more lines. Use offset=2 to read more.]")
    )]
    pub content: String,
}

/// Answer of `POST /sessions/{session_id}/read_bytes` and `POST /workspaces/{session_id}/read_bytes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReadBytesResponse {
    /// Standard base64 without line breaks.
    #[cfg_attr(feature = "openapi", schema(example = "IyBSZXBvcnQK"))]
    pub content_b64: String,
}

/// Body of `POST /sessions/{session_id}/write`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WriteRequest {
    /// Which file; parents are made.
    #[cfg_attr(feature = "openapi", schema(example = "report.md"))]
    pub path: String,
    /// Its whole content: standard base64, padded, without line breaks.
    #[cfg_attr(feature = "openapi", schema(example = "IyBSZXBvcnQK"))]
    pub content_b64: String,
}

/// Answer of `POST /sessions/{session_id}/write`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WriteResponse {
    /// The absolute path that was written.
    #[cfg_attr(feature = "openapi", schema(example = "/workspace/report.md"))]
    pub path: Option<String>,
    /// Why nothing was.
    #[cfg_attr(feature = "openapi", schema(example = json!(null)))]
    pub error: Option<String>,
}

/// Body of `POST /sessions/{session_id}/edit`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EditRequest {
    /// Which file.
    #[cfg_attr(feature = "openapi", schema(example = "report.md"))]
    pub path: String,
    /// What to look for, literally.
    #[cfg_attr(feature = "openapi", schema(example = "draft"))]
    pub old_string: String,
    /// What to put there.
    #[cfg_attr(feature = "openapi", schema(example = "final"))]
    pub new_string: String,
    /// Whether to replace every occurrence; otherwise there has to be exactly one.
    #[serde(default)]
    pub replace_all: bool,
}

/// Answer of `POST /sessions/{session_id}/edit`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EditResponse {
    /// The absolute path that was changed.
    #[cfg_attr(feature = "openapi", schema(example = "/workspace/report.md"))]
    pub path: Option<String>,
    /// Why nothing was.
    #[cfg_attr(feature = "openapi", schema(example = json!(null)))]
    pub error: Option<String>,
    /// How many occurrences were replaced.
    #[cfg_attr(feature = "openapi", schema(example = 1))]
    pub occurrences: Option<u64>,
}

/// Answer of `POST /sessions/{session_id}/exists`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ExistsResponse {
    /// Whether it is a regular file, links followed.
    pub exists: bool,
}

/// Body of `POST /sessions/{session_id}/glob`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GlobRequest {
    /// `*` and `?` as in a shell; matched below any directory.
    #[cfg_attr(feature = "openapi", schema(example = "**/*.md"))]
    pub pattern: String,
    /// Where to look; `/`, `.` and an empty text mean the work directory.
    #[serde(default = "default_root")]
    pub path: String,
}

fn default_root() -> String {
    "/".to_owned()
}

/// Body of `POST /sessions/{session_id}/grep`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GrepRequest {
    /// A basic regular expression.
    #[cfg_attr(feature = "openapi", schema(example = "def main"))]
    pub pattern: String,
    /// Where to look; the work directory where absent.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(example = "src"))]
    pub path: Option<String>,
    /// Which files, by name.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(example = "*.py"))]
    pub glob: Option<String>,
    /// Whether hidden files and directories are passed over.
    #[serde(default = "default_true")]
    pub ignore_hidden: bool,
}

const fn default_true() -> bool {
    true
}

/// Answer of `POST /sessions/{session_id}/grep`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GrepResponse {
    /// The lines that match.
    pub matches: Vec<GrepMatch>,
    /// Why the search itself failed; then there are no matches.
    #[cfg_attr(feature = "openapi", schema(example = json!(null)))]
    pub error: Option<String>,
}

/// One line that matches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GrepMatch {
    /// Which file.
    #[cfg_attr(feature = "openapi", schema(example = "./src/main.py"))]
    pub path: String,
    /// Which line, from 1.
    #[cfg_attr(feature = "openapi", schema(example = 12))]
    pub line_number: u64,
    /// The line.
    #[cfg_attr(feature = "openapi", schema(example = "def main():"))]
    pub line: String,
}
