//! Files of a sandbox by the native routes.

use crate::address::encode;
use crate::error::{Refusal, RequestError};
use crate::http::Ask;
use crate::opening::{Open, OpenError};
use crate::run::RunError;
use crate::sandbox::Sandbox;
use crate::service::session_path;
use bytes::Bytes;
use sandboxd_api::error::FileErrorName;
use sandboxd_api::files::{FileEntry, PathRequest, RealPath};
use sandboxd_api::policy::ServicePolicy;
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// Why a file operation failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// Nothing there.
    #[error("{path}: nothing there")]
    NotFound {
        /// The path that was asked for.
        path: String,
    },
    /// A file was expected.
    #[error("{path}: is a directory")]
    IsADirectory {
        /// The path that was asked for.
        path: String,
    },
    /// A directory was expected.
    #[error("{path}: is not a directory")]
    NotADirectory {
        /// The path that was asked for.
        path: String,
    },
    /// Something is in the way.
    #[error("{path}: something is in the way")]
    AlreadyExists {
        /// The path that was asked for.
        path: String,
    },
    /// The path makes no sense for this.
    #[error("{path:?}: {reason}")]
    InvalidPath {
        /// The path that was asked for.
        path: String,
        /// Why.
        reason: String,
    },
    /// The sandbox could not do it.
    #[error("{path}: the sandbox could not do it (exit code {exit_code}): {said}")]
    Failed {
        /// The path that was asked for.
        path: String,
        /// The exit code inside.
        exit_code: u8,
        /// What was printed to standard error.
        said: String,
    },
    /// The session did not open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The sandbox or its session is gone.
    #[error("the sandbox is gone: {said}")]
    Gone {
        /// The service's words.
        said: String,
    },
    /// The program that does it inside the sandbox has no exit code.
    #[error("the file operation was cut off")]
    Run(#[source] Arc<RunError>),
    /// The request failed.
    #[error(transparent)]
    Request(#[from] RequestError),
}

/// What a native route answers.
enum Native<T> {
    Done(T),
    /// The sandbox has to do it.
    HandedBack,
}

/// Files by their absolute paths below the work directory. What the service can do from outside it does, without waking a
/// sleeping session; the rest (links, special files, services that store no workspaces) is done by programs inside.
impl Sandbox {
    /// The bytes of a file.
    ///
    /// # Errors
    /// Where it is no file, or cannot be read.
    pub async fn read_bytes(&self, path: &str) -> Result<Bytes, FileError> {
        match self
            .native(path, "read", |policy| policy.native_files)
            .await?
        {
            Native::Done(bytes) => Ok(bytes),
            Native::HandedBack => self.read_inside(path).await,
        }
    }

    /// Writes a file, its parents included.
    ///
    /// # Errors
    /// Where a directory is in the way, or it cannot be written.
    pub async fn write_bytes(
        &self,
        path: &str,
        content: impl Into<Bytes>,
    ) -> Result<(), FileError> {
        let content = content.into();
        let open = self.open().await?;
        if allows(&open, |policy| policy.native_writes) {
            let route = format!("/files/write?path={}", encode(path));
            let ask = Ask::post(
                session_path(&open.session_id, &route),
                Some(&open.token),
                self.plan().request_timeout,
            );
            let sent = self.http().send(ask.bytes(content.clone())).await;
            if let Native::Done(_) = outcome(path, sent)? {
                return Ok(());
            }
        }
        self.write_inside(path, &content).await
    }

    /// What is known of a file or directory.
    ///
    /// # Errors
    /// Where there is nothing.
    pub async fn stat(&self, path: &str) -> Result<FileEntry, FileError> {
        match self
            .native(path, "stat", |policy| policy.native_files)
            .await?
        {
            Native::Done(body) => decoded(&body, "what is known of a file"),
            Native::HandedBack => self.stat_inside(path).await,
        }
    }

    /// Whether there is anything.
    ///
    /// # Errors
    /// Where that cannot be told.
    pub async fn exists(&self, path: &str) -> Result<bool, FileError> {
        match self.stat(path).await {
            Ok(_) => Ok(true),
            Err(FileError::NotFound { .. } | FileError::NotADirectory { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// What a directory holds, by name.
    ///
    /// # Errors
    /// Where it is no directory.
    pub async fn list_dir(&self, path: &str) -> Result<Vec<FileEntry>, FileError> {
        match self
            .native(path, "list", |policy| policy.native_files)
            .await?
        {
            Native::Done(body) => decoded(&body, "a listing"),
            Native::HandedBack => self.list_inside(path).await,
        }
    }

    /// Makes a directory, its parents included; one that exists is fine.
    ///
    /// # Errors
    /// Where something else is in the way.
    pub async fn make_dir(&self, path: &str) -> Result<(), FileError> {
        match self
            .native(path, "mkdir", |policy| policy.native_writes)
            .await?
        {
            Native::Done(_) => Ok(()),
            Native::HandedBack => self.make_dir_inside(path).await,
        }
    }

    /// Removes a file, a link itself, or a whole tree.
    ///
    /// # Errors
    /// Where there is nothing.
    pub async fn remove(&self, path: &str) -> Result<(), FileError> {
        match self
            .native(path, "remove", |policy| policy.native_writes)
            .await?
        {
            Native::Done(_) => Ok(()),
            Native::HandedBack => self.remove_inside(path).await,
        }
    }

    /// The path without links; components that do not exist are kept as written.
    ///
    /// # Errors
    /// Where that cannot be told.
    pub async fn realpath(&self, path: &str) -> Result<String, FileError> {
        match self
            .native(path, "realpath", |policy| policy.native_realpath)
            .await?
        {
            Native::Done(body) => {
                let real: RealPath = decoded(&body, "a path")?;
                Ok(real.path)
            }
            Native::HandedBack => self.realpath_inside(path).await,
        }
    }

    async fn native(
        &self,
        path: &str,
        route: &str,
        allowed: fn(&ServicePolicy) -> bool,
    ) -> Result<Native<Bytes>, FileError> {
        let open = self.open().await?;
        if !allows(&open, allowed) {
            return Ok(Native::HandedBack);
        }
        let request = PathRequest {
            path: path.to_owned(),
        };
        let at = session_path(&open.session_id, &format!("/files/{route}"));
        let ask = Ask::post(at, Some(&open.token), self.plan().request_timeout).json(&request);
        outcome(path, self.http().send(ask).await)
    }
}

fn allows(open: &Arc<Open>, allowed: fn(&ServicePolicy) -> bool) -> bool {
    open.policy.as_ref().is_some_and(allowed)
}

fn outcome(path: &str, answer: Result<Bytes, RequestError>) -> Result<Native<Bytes>, FileError> {
    let refusal = match answer {
        Ok(body) => return Ok(Native::Done(body)),
        Err(RequestError::Refused(refusal)) => refusal,
        Err(error) => return Err(error.into()),
    };
    match refusal.status {
        409 => Ok(Native::HandedBack),
        400 | 404 => Err(named(path, refusal)),
        410 => Err(FileError::Gone {
            said: refusal.text(),
        }),
        _ => Err(RequestError::Refused(refusal).into()),
    }
}

/// A 400 or 404: of the path where it names a failure, else of the session.
fn named(path: &str, refusal: Refusal) -> FileError {
    let path = path.to_owned();
    let Some(detail) = refusal.file_error() else {
        return match refusal.status {
            404 => FileError::Gone {
                said: refusal.text(),
            },
            _ => RequestError::Refused(refusal).into(),
        };
    };
    match detail.error {
        FileErrorName::FileNotFoundError => FileError::NotFound { path },
        FileErrorName::IsADirectoryError => FileError::IsADirectory { path },
        FileErrorName::NotADirectoryError => FileError::NotADirectory { path },
        FileErrorName::FileExistsError => FileError::AlreadyExists { path },
        FileErrorName::ValueError => FileError::InvalidPath {
            path,
            reason: detail.message,
        },
    }
}

fn decoded<T: DeserializeOwned>(body: &[u8], expected: &'static str) -> Result<T, FileError> {
    serde_json::from_slice(body).map_err(|error| {
        RequestError::NotUnderstood {
            expected,
            source: Arc::new(error),
        }
        .into()
    })
}
