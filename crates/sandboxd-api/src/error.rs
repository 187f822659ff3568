//! Bodies of refusals.

use serde::{Deserialize, Serialize};

/// Body of every refusal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ErrorBody {
    /// What was wrong.
    pub detail: Detail,
}

/// What was wrong, in one of three forms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Detail {
    /// In words.
    Text(String),
    /// A native file operation: a name that clients raise, and words.
    File(FileErrorDetail),
    /// Every field that does not fit (status 422).
    Fields(Vec<FieldError>),
}

/// Why a native file operation failed (status 400 or 404).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FileErrorDetail {
    /// Which of the known failures.
    pub error: FileErrorName,
    /// In words.
    pub message: String,
}

/// The failures that clients know, by the names under which they raise them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum FileErrorName {
    /// Nothing there.
    FileNotFoundError,
    /// A file was expected.
    IsADirectoryError,
    /// A directory was expected.
    NotADirectoryError,
    /// Something is in the way.
    FileExistsError,
    /// The path makes no sense.
    ValueError,
}

/// One field that does not fit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FieldError {
    /// What kind of misfit.
    #[serde(rename = "type")]
    pub kind: String,
    /// Where: `body`, `query` or `path`, then names and positions.
    pub loc: Vec<Loc>,
    /// In words.
    pub msg: String,
    /// What was sent.
    pub input: serde_json::Value,
    /// What was expected, where that is a number or a pattern.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ctx: Option<serde_json::Value>,
}

/// One step of a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Loc {
    /// A field.
    Name(String),
    /// A position in a list, or in the text of a body that is not JSON.
    At(usize),
}
