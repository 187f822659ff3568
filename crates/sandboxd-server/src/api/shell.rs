//! The older routes: commands and files as a shell sees them. What fails answers 200 with a value that says so; only a
//! session that cannot be used, a body that does not fit and the service's ceiling are refusals.

use super::App;
use super::answer::{self, Answer};
use super::decode::{Decode, Fields, rules};
use super::error::Failure;
use super::request::{Json, OfSession};
use super::run::{limit, text_of};
use super::text;
use crate::id::SessionId;
use crate::sessions::{
    Content, ExecDone, FollowDone, FollowError, FollowFile, Happened, Limited, NativeDone, UseError,
};
use axum::extract::State;
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use sandboxd_api::files::FileEntry;
use sandboxd_api::shell as api;
use sandboxd_protocol::message::{Entry, FileError, Kind};
use std::time::Instant;

/// Standard base64 with padding; stray bits in a last character are forgiven, as existing clients' were.
pub(super) const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);
/// What a shell answers for a program that the kernel will not start.
const NOT_RUNNABLE: u8 = 126;

impl Decode for api::ExecRequest {
    fn decode(fields: &mut Fields) -> Option<Self> {
        let command = fields.required("command", rules::text);
        let timeout_seconds = fields.or(
            "timeout_seconds",
            None,
            rules::nullable(|value| rules::whole(&value)),
        );
        Some(Self {
            command: command?,
            timeout_seconds: timeout_seconds?,
        })
    }
}

/// `POST /sessions/{session_id}/exec`
pub(super) async fn exec(
    State(app): State<App>,
    OfSession(id): OfSession,
    Json(ask): Json<api::ExecRequest>,
) -> Answer {
    let done = match app
        .sessions
        .exec(&id, ask.command, ask.timeout_seconds)
        .await
    {
        Err(UseError::Invalid(why)) => ExecDone {
            output: format!("{why}\n").into_bytes(),
            code: NOT_RUNNABLE,
            truncated: false,
            limited: Limited::default(),
        },
        other => other?,
    };
    Ok(answer::json(&api::ExecResponse {
        output: text_of(done.output),
        exit_code: Some(done.code),
        truncated: done.truncated,
        killed_for: done.limited.killed_for.map(limit),
        limits_reached: done.limited.reached.into_iter().map(limit).collect(),
    }))
}

impl Decode for api::ReadRequest {
    fn decode(fields: &mut Fields) -> Option<Self> {
        let path = fields.required("path", rules::text);
        let offset = fields.or("offset", 0, rules::at_least(0));
        let limit = fields.or("limit", Self::LIMIT, rules::at_least(1));
        Some(Self {
            path: path?,
            offset: offset?,
            limit: limit?,
        })
    }
}

/// `POST /sessions/{session_id}/read`
pub(super) async fn read(
    State(app): State<App>,
    OfSession(id): OfSession,
    Json(ask): Json<api::ReadRequest>,
) -> Answer {
    let operation = Operation::begin(&app, &id, "read", &ask.path);
    let content = match content(&app, &id, &ask.path).await? {
        Ok((_, content)) if content.is_empty() => String::new(),
        Ok((path, content)) => match text::read(path, content, ask.offset, ask.limit).await {
            Ok(lines) => lines,
            Err(error) => format!("[Error: {error}]"),
        },
        Err(FileError::TooLarge { size, limit }) => format!(
            "[Error: File is {size} bytes, over the {limit}-byte read limit. Read a part of it with a command instead, \
             such as \"sed -n '1,200p' <path>\".]"
        ),
        Err(FileError::NotFound | FileError::IsADirectory | FileError::NotADirectory) => {
            format!("Error: File '{}' not found", ask.path)
        }
        Err(error) => format!("Error: Cannot read '{}': {error}", ask.path),
    };
    let ok = !content.starts_with("Error:") && !content.starts_with("[Error");
    operation.end(ok, format!("{} chars", content.chars().count()));
    Ok(answer::json(&api::ReadResponse { content }))
}

/// A body that is a path.
pub(super) struct OnPath(String);

impl Decode for OnPath {
    fn decode(fields: &mut Fields) -> Option<Self> {
        fields.required("path", rules::text).map(Self)
    }
}

/// `POST /sessions/{session_id}/read_bytes`
pub(super) async fn read_bytes(
    State(app): State<App>,
    OfSession(id): OfSession,
    Json(path): Json<OnPath>,
) -> Answer {
    let operation = Operation::begin(&app, &id, "read_bytes", &path.0);
    // A prefix of a file that is too large would decode to wrong bytes, so nothing is given.
    let content = match content(&app, &id, &path.0).await? {
        Ok((_, content)) => content,
        Err(_) => Bytes::new(),
    };
    operation.end(!content.is_empty(), format!("{} bytes", content.len()));
    let content_b64 = BASE64.encode(&content);
    Ok(answer::json(&api::ReadBytesResponse { content_b64 }))
}

impl Decode for api::WriteRequest {
    fn decode(fields: &mut Fields) -> Option<Self> {
        let path = fields.required("path", rules::text);
        let content_b64 = fields.required("content_b64", rules::text);
        Some(Self {
            path: path?,
            content_b64: content_b64?,
        })
    }
}

/// `POST /sessions/{session_id}/write`
pub(super) async fn write(
    State(app): State<App>,
    OfSession(id): OfSession,
    Json(ask): Json<api::WriteRequest>,
) -> Answer {
    let content = BASE64
        .decode(&ask.content_b64)
        .map_err(|error| Failure::NotBase64(error.to_string()))?;
    drop(ask.content_b64);
    let operation = Operation::begin(&app, &id, "write", &ask.path);
    let length = content.len();
    let written = follow(&app, &id, &ask.path, FollowFile::Write(content.into())).await?;
    let (path, error) = match written {
        Ok(done) => (Some(done.path), None),
        Err(error) => (None, Some(format!("Cannot write '{}': {error}", ask.path))),
    };
    let detail = error.clone().unwrap_or_else(|| format!("{length} bytes"));
    operation.end(error.is_none(), detail);
    Ok(answer::json(&api::WriteResponse { path, error }))
}

/// `POST /sessions/{session_id}/exists`
pub(super) async fn exists(
    State(app): State<App>,
    OfSession(id): OfSession,
    Json(path): Json<OnPath>,
) -> Answer {
    let operation = Operation::begin(&app, &id, "exists", &path.0);
    let found = follow(&app, &id, &path.0, FollowFile::Stat).await?;
    let exists = match found.map(|done| done.answer) {
        Ok(NativeDone::Entry(entry)) => entry.kind == Kind::File,
        Ok(_) | Err(_) => false,
    };
    operation.end(exists, if exists { "found" } else { "missing" }.to_owned());
    Ok(answer::json(&api::ExistsResponse { exists }))
}

/// `POST /sessions/{session_id}/ls`
pub(super) async fn ls(
    State(app): State<App>,
    OfSession(id): OfSession,
    Json(path): Json<OnPath>,
) -> Answer {
    let operation = Operation::begin(&app, &id, "ls", &path.0);
    let mut rows = Vec::new();
    if !path.0.is_empty() {
        let found = follow(&app, &id, &path.0, FollowFile::List).await?;
        if let Ok(NativeDone::Entries(entries)) = found.map(|done| done.answer) {
            let directory = path.0.trim_end_matches('/');
            rows = entries.iter().map(|entry| row(entry, directory)).collect();
            rows.sort_by(|one, other| (!one.is_dir, &one.name).cmp(&(!other.is_dir, &other.name)));
        }
    }
    operation.end(true, format!("{} entries", rows.len()));
    Ok(answer::json(&rows))
}

/// A row of `ls -l`: a link is named with where it points.
fn row(entry: &Entry, directory: &str) -> FileEntry {
    let mut name = String::from_utf8_lossy(&entry.name).into_owned();
    if let Some(target) = &entry.target {
        name = format!("{name} -> {}", String::from_utf8_lossy(target));
    }
    FileEntry {
        path: format!("{directory}/{name}"),
        name,
        is_dir: entry.kind == Kind::Directory,
        size: Some(entry.size),
        modified_at: None,
    }
}

/// A whole file and the absolute path that was meant.
pub(super) async fn content(
    app: &App,
    id: &SessionId,
    path: &str,
) -> Result<Result<(String, Bytes), FileError>, Failure> {
    let limit = app.sessions.service().max_read_bytes;
    let done = follow(app, id, path, FollowFile::Read { limit }).await?;
    Ok(done.and_then(|done| match done.answer {
        NativeDone::Content(Content::Whole(content)) => Ok((done.path, content)),
        _ => Err(FileError::Invalid("no content".to_owned())),
    }))
}

/// A file operation. What the file system says is for the answer; what the session says refuses the request.
pub(super) async fn follow(
    app: &App,
    id: &SessionId,
    path: &str,
    op: FollowFile,
) -> Result<Result<FollowDone, FileError>, Failure> {
    match app.sessions.follow(id, path, op).await {
        Ok(done) => Ok(Ok(done)),
        Err(FollowError::File(error)) => Ok(Err(error)),
        Err(FollowError::Use(UseError::Invalid(why))) => Ok(Err(FileError::Invalid(why))),
        Err(FollowError::Use(error)) => Err(error.into()),
    }
}

/// An operation that the session's log will show.
pub(super) struct Operation<'a> {
    app: &'a App,
    id: &'a SessionId,
    op: &'static str,
    target: String,
    started: Instant,
}

impl<'a> Operation<'a> {
    pub(super) fn begin(app: &'a App, id: &'a SessionId, op: &'static str, target: &str) -> Self {
        Self {
            app,
            id,
            op,
            target: target.to_owned(),
            started: Instant::now(),
        }
    }

    pub(super) fn end(self, ok: bool, detail: String) {
        let happened = Happened {
            op: self.op,
            target: self.target,
            ok,
            detail,
            took: self.started.elapsed(),
        };
        self.app.sessions.record_event(self.id, happened);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_strict_where_it_matters() {
        assert!(BASE64.decode("").is_ok());
        assert!(BASE64.decode("eA==").is_ok());
        for bad in ["***", "abc", "YWJj\n", "eA=", "eA", "e A=", "eA===", "_-=="] {
            assert!(BASE64.decode(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_link_is_named_with_where_it_points() {
        let entry = Entry {
            name: b"l".to_vec(),
            kind: Kind::Link,
            size: 7,
            mode: 0o777,
            modified_nanos: 0,
            target: Some(b"nowhere".to_vec()),
        };
        let row = row(&entry, "/w");
        assert_eq!(row.name, "l -> nowhere");
        assert_eq!(row.path, "/w/l -> nowhere");
        assert!(!row.is_dir);
    }
}
