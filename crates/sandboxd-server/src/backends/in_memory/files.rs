//! The files that a sandbox of the double sees, and how its guest answers requests about them.

use super::guest::MemoryGuest;
use super::tree::{Tree, normal};
use crate::workspaces::HostFiles;
use bytes::{Bytes, BytesMut};
use sandboxd_protocol::message::{Entry, FileAnswer, FileError, FileOp, FileRequest, PathRule};
use sandboxd_protocol::server::{FileExchange, LetGo};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The files that a sandbox of the double sees: a tree in memory, and the stored workspace where there is one.
#[derive(Debug, Clone)]
pub(super) struct Files {
    pub(super) tree: Arc<Mutex<Tree>>,
    pub(super) workspace: Option<HostFiles>,
    pub(super) work_dir: String,
}

/// Where a path leads.
enum Place<'a> {
    Memory(&'a str),
    Host(&'a HostFiles, &'a str),
}

impl Files {
    pub(super) fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A plain absolute path; a relative one starts at `cwd`.
    pub(super) fn absolute(&self, cwd: &str, path: &str) -> String {
        normal(cwd, path)
    }

    fn place<'a>(&'a self, path: &'a str) -> Place<'a> {
        let inner = path.strip_prefix(self.work_dir.as_str());
        match (&self.workspace, inner) {
            (Some(host), Some("")) => Place::Host(host, ""),
            (Some(host), Some(inner)) if inner.starts_with('/') => Place::Host(host, &inner[1..]),
            _ => Place::Memory(path),
        }
    }

    pub(super) fn is_dir(&self, path: &str) -> bool {
        self.list(path, u32::MAX).is_ok()
    }

    pub(super) fn read(&self, path: &str) -> Result<Bytes, FileError> {
        match self.place(path) {
            Place::Memory(path) => self.tree().read(path),
            Place::Host(host, inner) => host.read(inner, u64::MAX),
        }
    }

    pub(super) fn write(
        &self,
        path: &str,
        content: Bytes,
        mode: u32,
        parents: bool,
    ) -> Result<(), FileError> {
        match self.place(path) {
            Place::Memory(path) => self.tree().write(path, content, mode, parents),
            Place::Host(host, inner) => host.write(inner, &content, mode, parents),
        }
    }

    pub(super) fn stat(&self, path: &str) -> Result<Entry, FileError> {
        match self.place(path) {
            Place::Memory(path) => self.tree().stat(path),
            Place::Host(host, inner) => host.stat(inner),
        }
    }

    fn list(&self, path: &str, limit: u32) -> Result<Vec<Entry>, FileError> {
        match self.place(path) {
            Place::Memory(path) => self.tree().list(path, limit),
            Place::Host(host, inner) => host.list(inner, limit),
        }
    }

    pub(super) fn make_dir(&self, path: &str) -> Result<(), FileError> {
        match self.place(path) {
            Place::Memory(path) => self.tree().make_dir(path),
            Place::Host(host, inner) => host.make_dir(inner),
        }
    }

    pub(super) fn remove(&self, path: &str) -> Result<(), FileError> {
        match self.place(path) {
            Place::Memory(path) => self.tree().remove(path),
            Place::Host(host, inner) => host.remove(inner),
        }
    }

    fn rename(&self, path: &str, to: &str) -> Result<(), FileError> {
        match (self.place(path), self.place(to)) {
            (Place::Memory(path), Place::Memory(to)) => self.tree().rename(path, to),
            (Place::Host(host, path), Place::Host(_, to)) => host.rename(path, to),
            _ => Err(FileError::Os(rustix::io::Errno::XDEV.raw_os_error())),
        }
    }
}

impl MemoryGuest {
    /// The absolute path meant by a request.
    fn path_of(&self, rule: &PathRule, path: &[u8]) -> Result<String, FileError> {
        let text = std::str::from_utf8(path)
            .map_err(|_| FileError::Invalid("this double knows text paths only".to_owned()))?;
        Ok(match rule {
            PathRule::Beneath { root } => {
                let root = String::from_utf8_lossy(root);
                normal(&root, text)
            }
            PathRule::Follow => normal("/", text),
        })
    }

    pub(super) async fn answer(
        &self,
        request: FileRequest,
        exchange: &mut FileExchange,
    ) -> Result<(), LetGo> {
        let FileRequest { rule, path, op } = request;
        let off = self.switches.size_off();
        // The strict rule is the walk's: one function for both executors.
        if let (PathRule::Beneath { .. }, Some(host)) = (&rule, &self.files.workspace) {
            let inner = String::from_utf8_lossy(&path).into_owned();
            return answer_from_host(host, &inner, op, exchange, off).await;
        }
        let path = match self.path_of(&rule, &path) {
            Ok(path) => path,
            Err(error) => return exchange.answer(FileAnswer::Error(error)).await,
        };
        let files = &self.files;
        let answer = match op {
            FileOp::Read { limit } => return send(exchange, files.read(&path), limit, off).await,
            FileOp::Write {
                mode,
                parents,
                limit,
            } => {
                let Some(content) = receive(exchange, limit).await? else {
                    let error = FileError::TooLarge {
                        size: limit + 1,
                        limit,
                    };
                    return exchange.answer(FileAnswer::Error(error)).await;
                };
                files
                    .write(&path, content, mode, parents)
                    .map(|()| FileAnswer::Done)
            }
            FileOp::Stat => files.stat(&path).map(FileAnswer::Entry),
            FileOp::List { limit } => match files.list(&path, limit) {
                Ok(entries) => return exchange.entries(entries).await,
                Err(error) => Err(error),
            },
            FileOp::MakeDir => files.make_dir(&path).map(|()| FileAnswer::Done),
            FileOp::Remove => files.remove(&path).map(|()| FileAnswer::Done),
            FileOp::Rename { to } => self
                .path_of(&rule, &to)
                .and_then(|to| files.rename(&path, &to))
                .map(|()| FileAnswer::Done),
            FileOp::RealPath => Ok(FileAnswer::Path(match path.as_str() {
                "" => b"/".to_vec(),
                path => path.as_bytes().to_vec(),
            })),
        };
        exchange
            .answer(answer.unwrap_or_else(FileAnswer::Error))
            .await
    }
}

async fn answer_from_host(
    host: &HostFiles,
    inner: &str,
    op: FileOp,
    exchange: &mut FileExchange,
    size_off: i64,
) -> Result<(), LetGo> {
    let answer = match op {
        FileOp::Read { limit } => {
            return send(exchange, host.read(inner, limit), limit, size_off).await;
        }
        FileOp::Write {
            mode,
            parents,
            limit,
        } => {
            let Some(content) = receive(exchange, limit).await? else {
                let error = FileError::TooLarge {
                    size: limit + 1,
                    limit,
                };
                return exchange.answer(FileAnswer::Error(error)).await;
            };
            host.write(inner, &content, mode, parents)
                .map(|()| FileAnswer::Done)
        }
        FileOp::Stat => host.stat(inner).map(FileAnswer::Entry),
        FileOp::List { limit } => match host.list(inner, limit) {
            Ok(entries) => return exchange.entries(entries).await,
            Err(error) => Err(error),
        },
        FileOp::MakeDir => host.make_dir(inner).map(|()| FileAnswer::Done),
        FileOp::Remove => host.remove(inner).map(|()| FileAnswer::Done),
        FileOp::Rename { to } => host
            .rename(inner, &String::from_utf8_lossy(&to))
            .map(|()| FileAnswer::Done),
        FileOp::RealPath => host.real_path(inner).map(FileAnswer::Path),
    };
    exchange
        .answer(answer.unwrap_or_else(FileAnswer::Error))
        .await
}

async fn send(
    exchange: &mut FileExchange,
    content: Result<Bytes, FileError>,
    limit: u64,
    size_off: i64,
) -> Result<(), LetGo> {
    let content = content.and_then(|content| {
        let size = content.len() as u64;
        if size > limit {
            return Err(FileError::TooLarge { size, limit });
        }
        Ok(content)
    });
    match content {
        Ok(content) => {
            let size = (content.len() as u64).saturating_add_signed(size_off);
            exchange.answer(FileAnswer::Content { size }).await?;
            exchange.content(&content).await?;
            exchange.answer(FileAnswer::Done).await
        }
        Err(error) => exchange.answer(FileAnswer::Error(error)).await,
    }
}

/// The content of a write; `None` over the limit.
async fn receive(exchange: &mut FileExchange, limit: u64) -> Result<Option<Bytes>, LetGo> {
    let mut content = BytesMut::new();
    while let Some(bytes) = exchange.next_content().await? {
        content.extend_from_slice(&bytes);
        if content.len() as u64 > limit {
            return Ok(None);
        }
    }
    Ok(Some(content.freeze()))
}
