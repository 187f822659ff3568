//! Stored workspaces, read without a sandbox: the service token only, nothing is started, nothing is logged.

use super::App;
use super::answer::{self, Answer};
use super::decode::{Decode, Fields, rules};
use super::error::Failure;
use super::request::{Json, OfWorkspace, Service};
use super::shell::BASE64;
use super::text;
use crate::id::SessionId;
use crate::limits::{ARCHIVE_NAMES_MAX, LIST_ENTRIES_MAX, TREES_ENTRIES_MAX};
use crate::sessions::ArchiveError;
use axum::extract::State;
use base64::Engine as _;
use sandboxd_api::archive as api;
use sandboxd_api::error::Detail;
use sandboxd_api::files::FileEntry;
use sandboxd_api::shell::{ReadBytesResponse, ReadRequest, ReadResponse};
use sandboxd_files::{Part, Wanted};
use sandboxd_protocol::message::{Entry, Kind};
use std::collections::VecDeque;
use time::OffsetDateTime;

/// A body that is a path.
pub(super) struct OnPath(String);

impl Decode for OnPath {
    fn decode(fields: &mut Fields) -> Option<Self> {
        fields.required("path", rules::text).map(Self)
    }
}

/// `POST /workspaces/{session_id}/ls`
pub(super) async fn ls(
    State(app): State<App>,
    OfWorkspace(id): OfWorkspace,
    Json(path): Json<OnPath>,
) -> Answer {
    let wanted = Wanted {
        entries: usize::try_from(LIST_ENTRIES_MAX).unwrap_or(usize::MAX),
        names: ARCHIVE_NAMES_MAX,
    };
    let part = app.sessions.archive_list(&id, &path.0, wanted).await?;
    if part.more {
        // A listing has no words for "and more", and half of one that looks whole misleads.
        return Err(ArchiveError::TooMany(path.0, LIST_ENTRIES_MAX).into());
    }
    let directory = below_root(&path.0, &app.sessions.service().work_dir);
    let rows: Vec<FileEntry> = part
        .entries
        .iter()
        .map(|entry| row(entry, &directory))
        .collect();
    Ok(answer::json(&rows))
}

/// `POST /workspaces/{session_id}/read`
pub(super) async fn read(
    State(app): State<App>,
    OfWorkspace(id): OfWorkspace,
    Json(ask): Json<ReadRequest>,
) -> Answer {
    let content = app.sessions.archive_read(&id, &ask.path).await?;
    let content = text::read(ask.path, content, ask.offset, ask.limit).await?;
    Ok(answer::json(&ReadResponse { content }))
}

/// `POST /workspaces/{session_id}/read_bytes`
pub(super) async fn read_bytes(
    State(app): State<App>,
    OfWorkspace(id): OfWorkspace,
    Json(path): Json<OnPath>,
) -> Answer {
    let content = app.sessions.archive_read(&id, &path.0).await?;
    let content_b64 = BASE64.encode(&content);
    Ok(answer::json(&ReadBytesResponse { content_b64 }))
}

impl Decode for api::TreeRequest {
    fn decode(fields: &mut Fields) -> Option<Self> {
        let path = fields.or("path", ".".to_owned(), rules::text);
        let (depth, most) = Self::DEPTH;
        let max_depth = fields.or("max_depth", depth, rules::between(1, most));
        let (entries, most) = Self::ENTRIES;
        let max_entries = fields.or("max_entries", entries, rules::between(1, most));
        Some(Self {
            path: path?,
            max_depth: max_depth?,
            max_entries: max_entries?,
        })
    }
}

/// `POST /workspaces/{session_id}/tree`
pub(super) async fn tree(
    State(app): State<App>,
    OfWorkspace(id): OfWorkspace,
    Json(ask): Json<api::TreeRequest>,
) -> Answer {
    Ok(answer::json(
        &grown(&app, &id, &ask, &mut Left::all()).await?,
    ))
}

/// Body of `POST /workspaces/trees`, checked.
pub(super) struct Trees {
    sessions: Vec<SessionId>,
    tree: api::TreeRequest,
}

impl Decode for Trees {
    fn decode(fields: &mut Fields) -> Option<Self> {
        let id = |value| rules::id(SessionId::parse)(value);
        let sessions = fields.required("sessions", rules::list(api::TreesRequest::SESSIONS, id));
        let tree = api::TreeRequest::decode(fields);
        Some(Self {
            sessions: sessions?,
            tree: tree?,
        })
    }
}

/// `POST /workspaces/trees`
pub(super) async fn trees(State(app): State<App>, _: Service, Json(ask): Json<Trees>) -> Answer {
    let mut results = Vec::with_capacity(ask.sessions.len());
    let mut left = Left::all();
    for id in &ask.sessions {
        let result = match grown(&app, id, &ask.tree, &mut left).await {
            Ok(tree) => api::TreeResult {
                session_id: id.to_string(),
                tree: Some(tree),
                error: None,
                status_code: None,
            },
            Err(error) => {
                let (status, _, detail) = Failure::Archive(error).row();
                api::TreeResult {
                    session_id: id.to_string(),
                    tree: None,
                    error: match detail {
                        Detail::Text(words) => Some(words),
                        Detail::File(_) | Detail::Fields(_) => None,
                    },
                    status_code: Some(status.as_u16()),
                }
            }
        };
        results.push(result);
    }
    Ok(answer::json(&api::WorkspaceTrees { results }))
}

/// What one request may still gather. One workspace never uses it up with entries; a hundred of them could.
struct Left {
    entries: usize,
    names: usize,
}

impl Left {
    fn all() -> Self {
        Self {
            entries: TREES_ENTRIES_MAX,
            names: ARCHIVE_NAMES_MAX,
        }
    }

    /// What one directory may give to a tree of at most `asked` entries that has `had` already.
    fn wanted(&self, asked: u64, had: usize) -> Wanted {
        let asked = usize::try_from(asked).unwrap_or(usize::MAX);
        Wanted {
            entries: asked.saturating_sub(had).min(self.entries),
            names: self.names,
        }
    }

    fn take(&mut self, part: &Part) {
        self.entries = self.entries.saturating_sub(part.entries.len());
        self.names = self.names.saturating_sub(part.names);
    }
}

/// A workspace's tree, breadth first, each directory read only as far as entries are still wanted. The start fails as a
/// listing does; what fails below it is left out, and said.
async fn grown(
    app: &App,
    id: &SessionId,
    ask: &api::TreeRequest,
    left: &mut Left,
) -> Result<api::WorkspaceTree, ArchiveError> {
    let start = below_root(&ask.path, &app.sessions.service().work_dir);
    let mut tree = api::WorkspaceTree {
        entries: Vec::new(),
        truncated: false,
    };
    let mut queue = VecDeque::from([(start, 1)]);
    let mut is_start = true;
    while let Some((directory, depth)) = queue.pop_front() {
        let wanted = left.wanted(ask.max_entries, tree.entries.len());
        // The start is always looked at: only that tells whether it is there.
        if wanted.entries == 0 && !is_start {
            tree.truncated = true;
            break;
        }
        let path = if is_start { &ask.path } else { &directory };
        let part = match app.sessions.archive_list(id, path, wanted).await {
            Ok(part) => part,
            Err(error) if is_start => return Err(error),
            Err(_) => {
                tree.truncated = true;
                continue;
            }
        };
        is_start = false;
        left.take(&part);
        tree.truncated |= part.more;
        for entry in &part.entries {
            let row = row(entry, &directory);
            match (row.is_dir, depth < ask.max_depth) {
                (true, true) => queue.push_back((row.path.clone(), depth + 1)),
                (true, false) => tree.truncated = true,
                (false, _) => {}
            }
            tree.entries.push(row);
        }
    }
    Ok(tree)
}

/// A path as it is shown: relative to the workspace's root, without needless parts.
fn below_root(path: &str, work_dir: &str) -> String {
    fn plain(path: &str) -> Vec<&str> {
        let parts = path.split('/');
        parts.filter(|part| !matches!(*part, "" | ".")).collect()
    }
    let parts = plain(path);
    // Two slashes at the start are a place of their own in POSIX paths, and not where the work directory is.
    let below = match path.starts_with('/') && !path.starts_with("//") {
        true => parts.strip_prefix(plain(work_dir).as_slice()),
        false => None,
    };
    below.unwrap_or(&parts).join("/")
}

/// An entry under its directory's path. A name that is no text is shown with replacements.
fn row(entry: &Entry, directory: &str) -> FileEntry {
    let name = String::from_utf8_lossy(&entry.name).into_owned();
    let is_dir = entry.kind == Kind::Directory;
    FileEntry {
        path: if directory.is_empty() {
            name.clone()
        } else {
            format!("{directory}/{name}")
        },
        name,
        is_dir,
        size: (!is_dir).then_some(entry.size),
        modified_at: if is_dir {
            None
        } else {
            iso_8601(entry.modified_nanos)
        },
    }
}

/// A time as ISO 8601 in UTC, with microseconds only where there are some.
///
/// They are rounded as those are who read a time as seconds in floating point, so that they find the same text.
#[expect(
    clippy::cast_possible_truncation,
    reason = "both are whole numbers far inside what an i128 holds"
)]
fn iso_8601(nanos: i64) -> Option<String> {
    let (seconds, rest) = (
        nanos.div_euclid(1_000_000_000),
        nanos.rem_euclid(1_000_000_000),
    );
    let stamp = seconds as f64 + 1e-9 * rest as f64;
    let micros = ((stamp - stamp.trunc()) * 1e6).round_ties_even();
    let micros = stamp.trunc() as i128 * 1_000_000 + micros as i128;
    let time = OffsetDateTime::from_unix_timestamp_nanos(micros * 1_000).ok()?;
    let micros = time.microsecond();
    let fraction = if micros == 0 {
        String::new()
    } else {
        format!(".{micros:06}")
    };
    Some(format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}{fraction}+00:00",
        time.year(),
        u8::from(time.month()),
        time.day(),
        time.hour(),
        time.minute(),
        time.second(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_gathers_only_so_much() {
        let mut left = Left {
            entries: 5,
            names: 9,
        };
        let wanted = |left: &Left, asked, had| {
            let wanted = left.wanted(asked, had);
            (wanted.entries, wanted.names)
        };
        assert_eq!(wanted(&left, 2, 0), (2, 9));
        assert_eq!(wanted(&left, 100, 0), (5, 9));
        assert_eq!(wanted(&left, 3, 3), (0, 9));
        let entry = Entry {
            name: b"f".to_vec(),
            kind: Kind::File,
            size: 0,
            mode: 0,
            modified_nanos: 0,
            target: None,
        };
        let part = |entries, names| Part {
            entries: vec![entry.clone(); entries],
            more: false,
            names,
        };
        left.take(&part(4, 8));
        assert_eq!(wanted(&left, 100, 0), (1, 1));
        left.take(&part(4, 8));
        assert_eq!(wanted(&left, 100, 0), (0, 0));
    }

    #[test]
    fn times_are_iso_8601_in_utc() {
        let of = |nanos| iso_8601(nanos).expect("a time");
        let table = [
            (0, "1970-01-01T00:00:00+00:00"),
            (-1_000, "1969-12-31T23:59:59.999999+00:00"),
            (
                1_700_000_000_123_456_789,
                "2023-11-14T22:13:20.123457+00:00",
            ),
            (
                1_796_034_452_852_143_400,
                "2026-11-30T10:27:32.852143+00:00",
            ),
            (
                1_796_034_452_852_143_900,
                "2026-11-30T10:27:32.852144+00:00",
            ),
            (1_796_034_452_999_999_900, "2026-11-30T10:27:33+00:00"),
        ];
        for (nanos, text) in table {
            assert_eq!(of(nanos), text, "{nanos}");
        }
        assert!(iso_8601(i64::MIN).is_some() && iso_8601(i64::MAX).is_some());
    }

    #[test]
    fn paths_are_shown_relative_to_the_root() {
        let table = [
            ("", ""),
            (".", ""),
            ("/", ""),
            ("/workspace", ""),
            ("/workspace/", ""),
            ("/workspace/sub", "sub"),
            ("./sub/", "sub"),
            ("/workspacex", "workspacex"),
            ("/etc/passwd", "etc/passwd"),
            ("/workspace//sub/./b", "sub/b"),
            ("//workspace/sub", "workspace/sub"),
        ];
        for (path, shown) in table {
            assert_eq!(below_root(path, "/workspace"), shown, "{path}");
        }
    }
}
