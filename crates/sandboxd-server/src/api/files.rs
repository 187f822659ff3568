//! Files of a session by the workspace routes: below the work directory, no links, atomic writes.

use super::App;
use super::answer::{self, Answer};
use super::body;
use super::decode::{Decode, Fields, rules};
use super::error::Failure;
use super::request::{Json, OfSession, Query};
use crate::id::SessionId;
use crate::sessions::{NativeDone, NativeError, NativeFile};
use axum::extract::{Request, State};
use axum::response::Response;
use sandboxd_api::files as api;
use sandboxd_protocol::message::{Entry, Kind};

/// A path, in a body or a query.
pub(super) struct OnPath(String);

impl Decode for OnPath {
    fn decode(fields: &mut Fields) -> Option<Self> {
        fields.required("path", rules::text).map(Self)
    }
}

type OfPath = Json<OnPath>;

/// `POST /sessions/{session_id}/files/read`
pub(super) async fn read(app: State<App>, id: OfSession, path: OfPath) -> Answer {
    native(&app, &id.0, path.0.0, NativeFile::Read).await
}

/// `POST /sessions/{session_id}/files/write?path=`, content in the body
pub(super) async fn write(
    app: State<App>,
    id: OfSession,
    Query(path): Query<OnPath>,
    request: Request,
) -> Answer {
    let service = app.sessions.service();
    if !service.native().files || !app.sessions.native_writes(&id.0) {
        return Err(Failure::Native(NativeError::Off, path.0));
    }
    let bounds = body::Bounds {
        limit: service.max_read_bytes,
        budget: &app.bodies,
        held: body::Held::of(request.extensions()),
    };
    let content = body::whole_write(request.into_body(), bounds).await?;
    native(&app, &id.0, path.0, NativeFile::Write(content)).await
}

/// `POST /sessions/{session_id}/files/stat`
pub(super) async fn stat(app: State<App>, id: OfSession, path: OfPath) -> Answer {
    native(&app, &id.0, path.0.0, NativeFile::Stat).await
}

/// `POST /sessions/{session_id}/files/list`
pub(super) async fn list(app: State<App>, id: OfSession, path: OfPath) -> Answer {
    native(&app, &id.0, path.0.0, NativeFile::List).await
}

/// `POST /sessions/{session_id}/files/realpath`
pub(super) async fn realpath(app: State<App>, id: OfSession, path: OfPath) -> Answer {
    native(&app, &id.0, path.0.0, NativeFile::RealPath).await
}

/// `POST /sessions/{session_id}/files/mkdir`
pub(super) async fn mkdir(app: State<App>, id: OfSession, path: OfPath) -> Answer {
    native(&app, &id.0, path.0.0, NativeFile::MakeDir).await
}

/// `POST /sessions/{session_id}/files/remove`
pub(super) async fn remove(app: State<App>, id: OfSession, path: OfPath) -> Answer {
    native(&app, &id.0, path.0.0, NativeFile::Remove).await
}

async fn native(app: &App, id: &SessionId, path: String, op: NativeFile) -> Answer {
    match app.sessions.native(id, &path, op).await {
        Ok(done) => response(done, path),
        Err(error) => Err(Failure::Native(error, path)),
    }
}

fn response(done: NativeDone, path: String) -> Result<Response, Failure> {
    Ok(match done {
        NativeDone::Done => answer::nothing(),
        NativeDone::Content(content) => answer::content(content, "application/octet-stream"),
        NativeDone::Entry(entry) => answer::json(&file_entry(&entry, path)),
        NativeDone::Path(path) => answer::json(&api::RealPath { path }),
        NativeDone::Entries(entries) => {
            let directory = path.trim_end_matches('/');
            let mut rows = Vec::with_capacity(entries.len());
            for entry in &entries {
                // A name that is no text cannot be given back to us, so somebody inside has to list this directory.
                let Ok(name) = std::str::from_utf8(&entry.name) else {
                    let words = sandboxd_protocol::message::HandBack::Os;
                    let error = sandboxd_protocol::message::FileError::HandBack(words);
                    return Err(Failure::Native(NativeError::File(error), path));
                };
                rows.push(file_entry(entry, format!("{directory}/{name}")));
            }
            answer::json(&rows)
        }
    })
}

/// An entry under the path it was asked for by. Times are left out: clients of these routes expect none.
fn file_entry(entry: &Entry, path: String) -> api::FileEntry {
    let is_dir = entry.kind == Kind::Directory;
    let last = path.trim_end_matches('/').rsplit('/').next();
    api::FileEntry {
        name: last.unwrap_or_default().to_owned(),
        is_dir,
        size: (!is_dir).then_some(entry.size),
        modified_at: None,
        path,
    }
}
