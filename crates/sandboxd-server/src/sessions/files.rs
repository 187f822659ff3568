//! Files of a session: the native rule (era B), which never wakes it, and any path the sandbox sees (era A), which does.
//!
//! A native operation is done by the guest while the sandbox runs, and by the descriptor walk on the stored workspace
//! otherwise. Both apply one rule, so the client cannot tell.

use super::content::{Content, Origin, Pieces, Record};
use super::detail::Detail;
use super::runs::own;
use super::spec::user_of;
use super::table::Shared;
use super::visit::{Reached, Visit};
use super::words::{
    FollowDone, FollowError, FollowFile, NativeDone, NativeError, NativeFile, UseError,
};
use crate::config::Service;
use crate::id::SessionId;
use crate::limits::{
    CONTENT_PIECES_BYTES_MIN, FILE_SECONDS_MAX, GUEST_ANSWER_SECONDS_MAX, LIST_ENTRIES_MAX,
    WORKSPACE_SECONDS_MAX,
};
use crate::runtimes::Source;
use rustix::io::Errno;
use sandboxd_protocol::client::{Client, FileFailure, LinkError};
use sandboxd_protocol::message::{FileError, HandBack, PathRule};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Mode of a file that a native write makes, before the umask.
const NATIVE_MODE: u32 = 0o666;
/// Mode of a file that an era A write makes.
const FOLLOW_MODE: u32 = 0o644;

/// Whether native writes are possible for a session: its files belong to root inside. Whose they are is not known where
/// the runtime is none any more, nor, of an image that may name a user of its own, before a sandbox has run from it.
pub(super) fn native_writes(service: &Service, detail: &Detail) -> bool {
    let Some(runtime) = detail.runtime.as_deref() else {
        return false;
    };
    match detail.user.or_else(|| user_of(service, runtime)) {
        Some(uid) => uid == 0,
        None => !matches!(runtime.source, Source::Image(_)),
    }
}

pub(super) async fn native(
    shared: &Arc<Shared>,
    id: &SessionId,
    path: &str,
    op: NativeFile,
) -> Result<NativeDone, NativeError> {
    let (service, writes) = {
        let table = shared.table();
        let (_, detail) = table
            .visible(id)
            .ok_or_else(|| UseError::NotFound(id.clone()))?;
        let writes = native_writes(&table.service, detail);
        (table.service.clone(), writes)
    };
    if !service.native_files || !shared.workspaces.is_on() {
        return Err(NativeError::Off);
    }
    if op.writes() && !writes {
        return Err(FileError::HandBack(HandBack::Denied).into());
    }
    let mut record = Record::new(Visit::begin(shared, id)?, op.name(), path.to_owned());
    let work = async move {
        let found = native_on(&record.visit, &service, &record.target, op).await;
        match &found {
            Ok(Found::Done(_)) => record.tell(true, String::new()),
            // Told when it has gone out.
            Ok(Found::Large(_)) => {}
            Err(error) => record.tell(false, word_for(error).to_owned()),
        }
        Ok::<_, UseError>(found.map(|found| match found {
            Found::Done(done) => done,
            Found::Large(origin) => {
                let pieces = Pieces::new(origin, record);
                NativeDone::Content(Content::Pieces(Box::new(pieces)))
            }
        }))
    };
    own(shared, id, work).await?
}

/// What a native operation came to.
#[derive(Debug)]
pub(crate) enum Found {
    /// It is done.
    Done(NativeDone),
    /// A large content, of which nothing has come yet.
    Large(Origin),
}

async fn native_on(
    visit: &Visit,
    service: &Service,
    path: &str,
    op: NativeFile,
) -> Result<Found, NativeError> {
    let inner = inner_path(path, &service.work_dir)?;
    let limit = service.max_read_bytes;
    if let NativeFile::Write(content) = &op
        && u64::try_from(content.len()).unwrap_or(u64::MAX) > limit
    {
        return Err(FileError::HandBack(HandBack::TooLarge).into());
    }
    if let Some(reached) = visit.reached_now() {
        refuse_more(&reached, &op)?;
        let rule = PathRule::Beneath {
            root: service.work_dir.clone().into_bytes(),
        };
        let asked = async {
            if matches!(op, NativeFile::Read) {
                return begin_read(&reached, rule, inner.as_bytes(), limit).await;
            }
            let done = ask(&reached.client, rule, inner.as_bytes(), op.clone(), limit).await;
            Ok(Found::Done(absolute(done?, &service.work_dir)))
        };
        match patient(asked, answers(&reached.client)).await {
            Ok(found) => return Ok(found),
            Err(FileFailure::File(error)) => return Err(error.into()),
            // The files are still there: the walk serves them.
            Err(FileFailure::Link(error)) => {
                visit.broken(&reached, &error);
            }
        }
    }
    let walked = visit
        .shared
        .workspaces
        .clone()
        .native(visit.id.clone(), inner, op, limit);
    match timeout(Duration::from_secs(WORKSPACE_SECONDS_MAX), walked).await {
        Ok(found) => Ok(match found? {
            Found::Done(done) => Found::Done(absolute(done, &service.work_dir)),
            large @ Found::Large(_) => large,
        }),
        Err(_) => Err(FileError::Os(rustix::io::Errno::TIMEDOUT.raw_os_error()).into()),
    }
}

/// Begins to read by a guest. A small file is read at once.
async fn begin_read(
    reached: &Reached,
    rule: PathRule,
    path: &[u8],
    limit: u64,
) -> Result<Found, FileFailure> {
    let content = reached.client.begin_read(rule, path, limit).await?;
    if content.size() >= CONTENT_PIECES_BYTES_MIN {
        return Ok(Found::Large(Origin::Guest(content, reached.clone())));
    }
    let content = Content::Whole(content.whole().await?);
    Ok(Found::Done(NativeDone::Content(content)))
}

/// A resolved path comes relative to the work directory; the client sees it as the sandbox does.
fn absolute(done: NativeDone, work_dir: &str) -> NativeDone {
    match done {
        NativeDone::Path(path) if !path.starts_with('/') => NativeDone::Path(join(work_dir, &path)),
        other => other,
    }
}

fn join(dir: &str, path: &str) -> String {
    let dir = dir.trim_end_matches('/');
    if path.is_empty() {
        return if dir.is_empty() {
            "/".into()
        } else {
            dir.into()
        };
    }
    format!("{dir}/{path}")
}

/// The path below the work directory, without empty components. What the rule hands back stays in it for the rule.
fn inner_path(path: &str, work_dir: &str) -> Result<String, NativeError> {
    if path.contains('\0') {
        return Err(NativeError::BadPath("the path has a NUL byte".to_owned()));
    }
    if !path.starts_with('/') {
        return Err(NativeError::BadPath("the path is not absolute".to_owned()));
    }
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    for expected in work_dir.split('/').filter(|part| !part.is_empty()) {
        if parts.next() != Some(expected) {
            return Err(FileError::HandBack(HandBack::Outside).into());
        }
    }
    Ok(parts.collect::<Vec<_>>().join("/"))
}

pub(super) async fn follow(
    shared: &Arc<Shared>,
    id: &SessionId,
    path: &str,
    op: FollowFile,
) -> Result<FollowDone, FollowError> {
    let visit = Visit::begin(shared, id)?;
    let service = shared.service();
    if path.contains('\0') {
        return Err(FileError::Invalid("the path has a NUL byte".to_owned()).into());
    }
    let path = match path {
        absolute if absolute.starts_with('/') => absolute.to_owned(),
        relative => join(&service.work_dir, relative),
    };
    let ceiling = service.execute_timeout;
    let began = Instant::now();
    let name = match &op {
        FollowFile::Read { .. } => "read",
        FollowFile::Write(_) => "write",
        FollowFile::Stat => "stat",
        FollowFile::List => "ls",
    };
    let work = async move {
        let done = follow_on(&visit, path, op).await;
        visit.shared.metrics.file_op(name, began.elapsed());
        Ok(done)
    };
    // The work goes on when the ceiling is reached; only the waiting ends.
    let waiting = own(shared, id, work);
    match timeout(Duration::from_secs(ceiling), waiting).await {
        Ok(done) => done?,
        Err(_) => Err(UseError::Ceiling(ceiling).into()),
    }
}

async fn follow_on(visit: &Visit, path: String, op: FollowFile) -> Result<FollowDone, FollowError> {
    let reached = visit.reach().await?;
    let (op, limit) = match op {
        FollowFile::Read { limit } => (NativeFile::Read, limit),
        FollowFile::Write(content) => (NativeFile::Write(content), 0),
        FollowFile::Stat => (NativeFile::Stat, 0),
        FollowFile::List => (NativeFile::List, 0),
    };
    refuse_more(&reached, &op)?;
    let asked = ask(
        &reached.client,
        PathRule::Follow,
        path.as_bytes(),
        op,
        limit,
    );
    match patient(asked, answers(&reached.client)).await {
        Ok(answer) => Ok(FollowDone { path, answer }),
        Err(FileFailure::File(error)) => Err(error.into()),
        Err(FileFailure::Link(error)) => Err(link_failed(visit, &reached, &error).into()),
    }
}

/// What is stored over its ceiling may shrink and not grow.
fn refuse_more(reached: &Reached, op: &NativeFile) -> Result<(), FileError> {
    match op {
        NativeFile::Write(_) | NativeFile::MakeDir if reached.meter.is_full() => {
            Err(FileError::NoSpace)
        }
        _ => {
            // A write is worth counting too.
            if op.writes() {
                reached.meter.stir();
            }
            Ok(())
        }
    }
}

fn link_failed(visit: &Visit, reached: &Reached, error: &LinkError) -> UseError {
    visit.broken(reached, error)
}

/// Waits for an operation, no longer than a client does. One that takes longer is given up (a large tree may take its time),
/// and the guest is asked whether it is still there: only one that does not answer that either is none.
pub(super) async fn patient<T>(
    work: impl Future<Output = Result<T, FileFailure>>,
    answers: impl Future<Output = bool>,
) -> Result<T, FileFailure> {
    if let Ok(done) = timeout(Duration::from_secs(FILE_SECONDS_MAX), work).await {
        return done;
    }
    match timeout(Duration::from_secs(GUEST_ANSWER_SECONDS_MAX), answers).await {
        Ok(true) => Err(FileError::Os(Errno::TIMEDOUT.raw_os_error()).into()),
        Ok(false) | Err(_) => Err(LinkError::Silent(FILE_SECONDS_MAX * 1_000).into()),
    }
}

/// Whether a guest answers the smallest of questions.
pub(super) async fn answers(client: &Client) -> bool {
    let asked = client.stat(PathRule::Follow, b"/").await;
    !matches!(asked, Err(FileFailure::Link(_)))
}

/// Asks a guest. Its answers are bounded by the protocol; its names are text only at the HTTP edge.
async fn ask(
    client: &Client,
    rule: PathRule,
    path: &[u8],
    op: NativeFile,
    limit: u64,
) -> Result<NativeDone, FileFailure> {
    let mode = match rule {
        PathRule::Beneath { .. } => NATIVE_MODE,
        PathRule::Follow => FOLLOW_MODE,
    };
    Ok(match op {
        NativeFile::Read => {
            NativeDone::Content(Content::Whole(client.read(rule, path, limit).await?))
        }
        NativeFile::Write(content) => {
            client.write(rule, path, content, mode, true).await?;
            NativeDone::Done
        }
        NativeFile::Stat => NativeDone::Entry(client.stat(rule, path).await?),
        NativeFile::List => NativeDone::Entries(client.list(rule, path, LIST_ENTRIES_MAX).await?),
        NativeFile::RealPath => {
            let resolved = client.real_path(rule, path).await?;
            let text = String::from_utf8(resolved);
            NativeDone::Path(text.map_err(|_| FileError::HandBack(HandBack::Os))?)
        }
        NativeFile::MakeDir => {
            client.make_dir(rule, path).await?;
            NativeDone::Done
        }
        NativeFile::Remove => {
            client.remove(rule, path).await?;
            NativeDone::Done
        }
    })
}

impl NativeFile {
    /// Whether it changes anything.
    pub fn writes(&self) -> bool {
        matches!(self, Self::Write(_) | Self::MakeDir | Self::Remove)
    }

    /// Its name in the activity log.
    fn name(&self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write(_) => "write",
            Self::Stat => "stat",
            Self::List => "ls",
            Self::RealPath => "realpath",
            Self::MakeDir => "mkdir",
            Self::Remove => "remove",
        }
    }
}

/// The activity log's words for a native operation that failed.
fn word_for(error: &NativeError) -> &'static str {
    match error {
        NativeError::BadPath(_) => "ValueError",
        NativeError::Use(_) => "sandbox gone",
        NativeError::Off => "native files off",
        NativeError::File(error) => match error {
            FileError::HandBack(_) => "via the sandbox",
            FileError::NotFound => "not found",
            FileError::IsADirectory => "IsADirectoryError",
            FileError::NotADirectory => "NotADirectoryError",
            FileError::Exists => "FileExistsError",
            FileError::Invalid(_) => "ValueError",
            FileError::Denied => "PermissionError",
            FileError::TooLarge { .. }
            | FileError::TooMany(_)
            | FileError::NoSpace
            | FileError::Os(_) => "OSError",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_native_path_is_cut_at_the_work_directory() {
        let inner = |path| inner_path(path, "/workspace");
        assert_eq!(inner("/workspace").unwrap(), "");
        assert_eq!(inner("/workspace//a/b/").unwrap(), "a/b");
        assert_eq!(inner("//workspace/a").unwrap(), "a");
        // The rule itself judges these.
        assert_eq!(inner("/workspace/../etc").unwrap(), "../etc");
        assert_eq!(inner("/workspace/./a").unwrap(), "./a");
        let outside = NativeError::File(FileError::HandBack(HandBack::Outside));
        assert_eq!(inner("/etc/passwd").unwrap_err(), outside);
        assert_eq!(inner("/workspaces/a").unwrap_err(), outside);
        assert_eq!(inner("/").unwrap_err(), outside);
        assert!(matches!(inner("workspace/a"), Err(NativeError::BadPath(_))));
        assert!(matches!(inner(""), Err(NativeError::BadPath(_))));
        assert!(matches!(
            inner("/workspace/\0"),
            Err(NativeError::BadPath(_))
        ));
        assert_eq!(inner_path("/a", "/").unwrap(), "a");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_operation_costs_the_sandbox_only_if_its_guest_is_silent() {
        let slow = || std::future::pending::<Result<(), FileFailure>>();
        let given_up = patient(slow(), async { true }).await;
        let timed_out = FileError::Os(Errno::TIMEDOUT.raw_os_error());
        assert_eq!(given_up, Err(timed_out.into()));
        let gone = Err(LinkError::Silent(FILE_SECONDS_MAX * 1_000).into());
        assert_eq!(patient(slow(), async { false }).await, gone);
        assert_eq!(patient(slow(), std::future::pending()).await, gone);
        assert_eq!(patient(async { Ok(1) }, async { false }).await, Ok(1));
    }

    #[test]
    fn relative_paths_start_at_the_work_directory() {
        assert_eq!(join("/workspace", "a"), "/workspace/a");
        assert_eq!(join("/workspace/", ""), "/workspace");
        assert_eq!(join("/", "a"), "/a");
        assert_eq!(join("/", ""), "/");
    }
}
