//! The one table: failure to status, code and public words.

use super::text::NoText;
use crate::auth::Unauthorized;
use crate::config::PolicyRefusal;
use crate::limits::RETRY_AFTER_SECONDS;
use crate::sessions::{ArchiveError, NativeError, OpenError, StartError, UseError};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use sandboxd_api::error::{Detail, ErrorBody, FieldError, FileErrorDetail, FileErrorName};
use sandboxd_protocol::message::FileError;

/// Carries a refusal's code: a stable word for programs, where the body's words are for people.
pub(super) const ERROR_CODE_HEADER: HeaderName = HeaderName::from_static("x-error-code");

/// Why a request is refused.
#[derive(Debug)]
pub(super) enum Failure {
    /// No such route.
    Route,
    /// A route, but not by this method.
    Method,
    /// The token.
    Token(Unauthorized),
    /// Fields that do not fit.
    Invalid(Vec<FieldError>),
    /// A target and headers over the limit.
    HeadTooLarge(usize),
    /// A JSON body over the limit.
    BodyTooLarge(u64),
    /// A body that paused or went on for too long.
    BodySlow,
    /// All bodies together take what they may.
    BodiesBusy,
    /// A body that ended early or broke its framing.
    BodyBroken,
    /// A native write over the limit.
    WriteTooLarge(u64),
    /// Content that is not base64.
    NotBase64(String),
    /// A file that is to be read as text, and gives none.
    NoText(NoText),
    /// Parts of the service cannot serve now.
    NotReady(String),
    /// A session did not open.
    Open(OpenError),
    /// A session did not do what was asked.
    Use(UseError),
    /// A native file operation failed, on this path.
    Native(NativeError, String),
    /// The archive gave nothing.
    Archive(ArchiveError),
    /// A policy change was not made.
    Policy(PolicyRefusal),
    /// The settings after a policy change cannot be put in force.
    Settings(StartError),
}

/// A status, a code, and public words.
type Row = (StatusCode, &'static str, Detail);

impl Failure {
    /// The row of the table.
    pub(super) fn row(self) -> Row {
        let text = |status, code, words: String| (status, code, Detail::Text(words));
        match self {
            Self::Route => text(StatusCode::NOT_FOUND, "no_route", "Not Found".to_owned()),
            Self::Method => text(
                StatusCode::METHOD_NOT_ALLOWED,
                "method",
                "Method Not Allowed".to_owned(),
            ),
            Self::Token(error) => text(StatusCode::UNAUTHORIZED, "token", error.to_string()),
            Self::Invalid(fields) => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "invalid",
                Detail::Fields(fields),
            ),
            Self::HeadTooLarge(limit) => text(
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "head_too_large",
                format!("The request's target and headers are larger than {limit} bytes"),
            ),
            Self::BodyTooLarge(limit) => text(
                StatusCode::PAYLOAD_TOO_LARGE,
                "body_too_large",
                format!("The body is larger than {limit} bytes"),
            ),
            Self::BodySlow => text(
                StatusCode::REQUEST_TIMEOUT,
                "body_slow",
                "The body did not arrive in time".to_owned(),
            ),
            Self::BodiesBusy => text(
                StatusCode::SERVICE_UNAVAILABLE,
                "bodies_busy",
                "Bodies of other requests take all memory that there is for them; try again"
                    .to_owned(),
            ),
            Self::BodyBroken => text(
                StatusCode::BAD_REQUEST,
                "body_broken",
                "The body ended early".to_owned(),
            ),
            Self::WriteTooLarge(limit) => text(
                StatusCode::CONFLICT,
                "hand_back",
                format!("larger than a native write ({limit} bytes)"),
            ),
            Self::NotBase64(cause) => text(
                StatusCode::BAD_REQUEST,
                "not_base64",
                format!("content_b64 is not valid base64: {cause}"),
            ),
            Self::NoText(error @ NoText::Binary) => {
                text(StatusCode::BAD_REQUEST, "binary", error.to_string())
            }
            Self::NoText(error @ NoText::Pdf(_)) => {
                text(StatusCode::BAD_REQUEST, "pdf", error.to_string())
            }
            Self::NotReady(parts) => text(
                StatusCode::SERVICE_UNAVAILABLE,
                "not_ready",
                format!("Not ready: {parts}"),
            ),
            Self::Open(error) => open_row(&error),
            Self::Use(error) => use_row(&error),
            Self::Native(error, path) => native_row(error, &path),
            Self::Archive(error) => archive_row(&error),
            Self::Policy(error) => policy_row(&error),
            Self::Settings(error) => text(StatusCode::BAD_REQUEST, "policy", error.to_string()),
        }
    }
}

fn open_row(error: &OpenError) -> Row {
    let (status, code) = match error {
        OpenError::UnknownRuntime { .. } => (StatusCode::BAD_REQUEST, "unknown_runtime"),
        OpenError::AttachWithoutId => (StatusCode::BAD_REQUEST, "attach_without_id"),
        OpenError::Exists(_) => (StatusCode::CONFLICT, "session_exists"),
        OpenError::OtherRuntime { .. } => (StatusCode::CONFLICT, "other_runtime"),
        OpenError::Opening(_) => (StatusCode::CONFLICT, "session_opening"),
        OpenError::NothingToAttach(_) => (StatusCode::NOT_FOUND, "nothing_to_attach"),
        OpenError::OpenLimit(_) => (StatusCode::TOO_MANY_REQUESTS, "open_limit"),
        OpenError::TenantLimit { .. } => (StatusCode::TOO_MANY_REQUESTS, "tenant_limit"),
        OpenError::ResidentLimit(_) => (StatusCode::TOO_MANY_REQUESTS, "session_limit"),
        OpenError::CannotWake { .. } => (StatusCode::TOO_MANY_REQUESTS, "cannot_wake"),
        OpenError::Start(_) => (StatusCode::BAD_GATEWAY, "not_started"),
        OpenError::ShuttingDown => (StatusCode::SERVICE_UNAVAILABLE, "shutting_down"),
    };
    (status, code, Detail::Text(error.to_string()))
}

fn use_row(error: &UseError) -> Row {
    let (status, code) = match error {
        UseError::NotFound(_) => (StatusCode::NOT_FOUND, "no_session"),
        UseError::Gone(_) => (StatusCode::GONE, "sandbox_gone"),
        UseError::CannotWake { .. } => (StatusCode::TOO_MANY_REQUESTS, "cannot_wake"),
        UseError::WakeFailed { .. } => (StatusCode::BAD_GATEWAY, "wake_failed"),
        UseError::NotRemoved { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "not_removed"),
        UseError::NotRead { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "not_read"),
        UseError::NotAsleep { .. } => (StatusCode::CONFLICT, "not_asleep"),
        UseError::NotWritten { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "not_written"),
        UseError::Busy(_) => (StatusCode::TOO_MANY_REQUESTS, "busy"),
        UseError::Invalid(_) => (StatusCode::BAD_REQUEST, "not_runnable"),
        UseError::Ceiling(_) => (StatusCode::GATEWAY_TIMEOUT, "service_ceiling"),
    };
    (status, code, Detail::Text(error.to_string()))
}

/// Native file operations. A missing *file* has the object form and a missing *session* the text form: clients tell
/// them apart by that. 409 means "somebody inside the sandbox has to do this one".
fn native_row(error: NativeError, path: &str) -> Row {
    let path = super::text::brief(path);
    let words = |error: &FileError| format!("{error}: '{path}'");
    let known = |status, error, message| {
        let detail = FileErrorDetail { error, message };
        (status, "file", Detail::File(detail))
    };
    let hand_back = |words| (StatusCode::CONFLICT, "hand_back", Detail::Text(words));
    match error {
        NativeError::Use(error) => use_row(&error),
        NativeError::Off => hand_back("Native file operations are off".to_owned()),
        NativeError::BadPath(words) => known(
            StatusCode::BAD_REQUEST,
            FileErrorName::ValueError,
            format!("{words}: '{path}'"),
        ),
        NativeError::File(error) => match &error {
            FileError::NotFound => known(
                StatusCode::NOT_FOUND,
                FileErrorName::FileNotFoundError,
                words(&error),
            ),
            FileError::IsADirectory => known(
                StatusCode::BAD_REQUEST,
                FileErrorName::IsADirectoryError,
                words(&error),
            ),
            FileError::NotADirectory => known(
                StatusCode::BAD_REQUEST,
                FileErrorName::NotADirectoryError,
                words(&error),
            ),
            FileError::Exists => known(
                StatusCode::BAD_REQUEST,
                FileErrorName::FileExistsError,
                words(&error),
            ),
            FileError::Invalid(_) => known(
                StatusCode::BAD_REQUEST,
                FileErrorName::ValueError,
                words(&error),
            ),
            FileError::NoSpace => (
                StatusCode::INSUFFICIENT_STORAGE,
                "no_space",
                Detail::Text(words(&error)),
            ),
            FileError::HandBack(_)
            | FileError::TooLarge { .. }
            | FileError::TooMany(_)
            | FileError::Denied
            | FileError::Os(_) => hand_back(words(&error)),
        },
    }
}

fn archive_row(error: &ArchiveError) -> Row {
    let (status, code) = match error {
        ArchiveError::NoRoot => (StatusCode::CONFLICT, "no_workspace_root"),
        ArchiveError::NoWorkspace(_) => (StatusCode::NOT_FOUND, "no_workspace"),
        ArchiveError::Outside(_) => (StatusCode::BAD_REQUEST, "outside"),
        ArchiveError::NotFound(_) => (StatusCode::NOT_FOUND, "not_found"),
        ArchiveError::NotADirectory(_) => (StatusCode::NOT_FOUND, "not_a_directory"),
        ArchiveError::IsADirectory(_) => (StatusCode::NOT_FOUND, "not_a_file"),
        ArchiveError::TooLarge { .. } => (StatusCode::BAD_REQUEST, "file_too_large"),
        ArchiveError::TooMany(..) => (StatusCode::BAD_REQUEST, "too_many_entries"),
        ArchiveError::Failed { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "archive"),
    };
    (status, code, Detail::Text(error.to_string()))
}

fn policy_row(error: &PolicyRefusal) -> Row {
    let (status, code) = match error {
        PolicyRefusal::UnknownDefault { .. } | PolicyRefusal::UnknownRuntime(_) => {
            (StatusCode::BAD_REQUEST, "unknown_runtime")
        }
        PolicyRefusal::Size { .. } | PolicyRefusal::Contradiction { .. } => {
            (StatusCode::BAD_REQUEST, "policy")
        }
    };
    (status, code, Detail::Text(error.to_string()))
}

impl From<Unauthorized> for Failure {
    fn from(error: Unauthorized) -> Self {
        Self::Token(error)
    }
}
impl From<NoText> for Failure {
    fn from(error: NoText) -> Self {
        Self::NoText(error)
    }
}
impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        Self::Open(error)
    }
}
impl From<UseError> for Failure {
    fn from(error: UseError) -> Self {
        Self::Use(error)
    }
}
impl From<ArchiveError> for Failure {
    fn from(error: ArchiveError) -> Self {
        Self::Archive(error)
    }
}
impl From<PolicyRefusal> for Failure {
    fn from(error: PolicyRefusal) -> Self {
        Self::Policy(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let (status, code, detail) = self.row();
        let mut response = super::answer::json(&ErrorBody { detail });
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(ERROR_CODE_HEADER, HeaderValue::from_static(code));
        // Full is said at once, and so is a part that cannot serve; either may be over soon.
        if matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
        ) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS));
        }
        // A refused body may be left half read, so that the connection cannot be used again anyway.
        if matches!(status, StatusCode::REQUEST_TIMEOUT) {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}
