//! A sandbox for tools that hand whatever comes to a model: nothing raises but [`DegradingSandbox::start`].

use crate::limits::DEGRADING_TIMEOUT;
use crate::opening::OpenError;
use crate::sandbox::Sandbox;
use sandboxd_api::files::FileEntry;
use sandboxd_api::sessions::SessionUsage;
use sandboxd_api::shell::{EditResponse, ExecResponse, GrepMatch, GrepRequest, WriteResponse};
use std::time::Duration;

/// A sandbox whose failures are values that say so, by the older routes. It opens when it is first used, and a failed
/// open is tried again by the next use. After its session is gone it goes on degrading until it is stopped.
#[derive(Debug, Clone)]
pub struct DegradingSandbox {
    sandbox: Sandbox,
}

/// What a search found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grep {
    /// The lines that match; none is an outcome too.
    Matches(Vec<GrepMatch>),
    /// Why the search itself failed.
    Failed(String),
}

impl DegradingSandbox {
    pub(crate) fn new(sandbox: Sandbox) -> Self {
        Self { sandbox }
    }

    /// The same sandbox, with errors.
    #[must_use]
    pub fn raising(&self) -> &Sandbox {
        &self.sandbox
    }

    /// Opens the session now, if it is not open. The only thing here that raises.
    ///
    /// # Errors
    /// Where it does not open.
    pub async fn start(&self) -> Result<(), OpenError> {
        self.sandbox.start().await
    }

    /// Closes the session if it was opened, and deletes its stored files if `purge` says so. What goes wrong is passed
    /// over; it can be started again.
    pub async fn stop(&self, purge: bool) {
        // A closed sandbox has nothing to purge here: nothing may open only to be ended.
        if self.sandbox.opened().is_none() {
            return;
        }
        if purge {
            drop(self.sandbox.purge().await);
        } else {
            drop(self.sandbox.stop().await);
        }
    }

    /// Whether the session lives. Opens nothing.
    pub async fn is_alive(&self) -> bool {
        let info = self.sandbox.info(false).await;
        matches!(info, Ok(Some(info)) if info.alive)
    }

    /// A usage sample, where one can be had. Opens nothing.
    pub async fn resource_usage(&self) -> Option<SessionUsage> {
        self.sandbox.info(true).await.ok().flatten()?.usage
    }

    /// The longest that the service lets a command take; 60 s until it has said so.
    #[must_use]
    pub fn server_timeout(&self) -> Duration {
        let opened = self.sandbox.opened();
        opened.map_or(DEGRADING_TIMEOUT, |open| open.execute_timeout)
    }

    /// Runs a command line; else exit code 1 and words about the service.
    pub async fn execute(&self, command: &str, timeout: Option<Duration>) -> ExecResponse {
        let outcome = self.sandbox.shell().exec(command, timeout).await;
        outcome.unwrap_or_else(|_| ExecResponse {
            output: "Error: sandbox service unavailable".to_owned(),
            exit_code: Some(1),
            truncated: false,
            killed_for: None,
            limits_reached: Vec::new(),
        })
    }

    /// The text of a file, `limit` lines from line `offset` on; else words that begin with `Error`.
    pub async fn read(&self, path: &str, offset: u64, limit: u64) -> String {
        match self.sandbox.shell().read(path, offset, limit).await {
            Ok(answer) => answer.content,
            Err(_) => format!("Error: could not read '{path}'"),
        }
    }

    /// The bytes of a file; else none.
    pub async fn read_bytes(&self, path: &str) -> Vec<u8> {
        self.sandbox
            .shell()
            .read_bytes(path)
            .await
            .unwrap_or_default()
    }

    /// Writes a file; else the answer's `error` is set.
    pub async fn write(&self, path: &str, content: &[u8]) -> WriteResponse {
        let outcome = self.sandbox.shell().write(path, content).await;
        outcome.unwrap_or_else(|_| WriteResponse {
            path: None,
            error: Some(format!("Error: could not write '{path}'")),
        })
    }

    /// Replaces a text in a file; else the answer's `error` is set.
    pub async fn edit(&self, path: &str, old: &str, new: &str, replace_all: bool) -> EditResponse {
        let outcome = self.sandbox.shell().edit(path, old, new, replace_all).await;
        outcome.unwrap_or_else(|_| EditResponse {
            path: None,
            error: Some(format!("Error: could not edit '{path}'")),
            occurrences: None,
        })
    }

    /// Whether there is a regular file; else `false`.
    pub async fn exists(&self, path: &str) -> bool {
        self.sandbox.shell().exists(path).await.unwrap_or(false)
    }

    /// What a directory holds; else nothing.
    pub async fn ls(&self, path: &str) -> Vec<FileEntry> {
        self.sandbox.shell().ls(path).await.unwrap_or_default()
    }

    /// The files whose paths match a pattern; else none.
    pub async fn glob(&self, pattern: &str, path: &str) -> Vec<FileEntry> {
        self.sandbox
            .shell()
            .glob(pattern, path)
            .await
            .unwrap_or_default()
    }

    /// The lines that match a basic regular expression; else words.
    pub async fn grep(&self, request: &GrepRequest) -> Grep {
        match self.sandbox.shell().grep(request).await {
            Ok(answer) => match answer.error {
                Some(error) => Grep::Failed(error),
                None => Grep::Matches(answer.matches),
            },
            Err(_) => Grep::Failed(format!("Error: could not search for '{}'", request.pattern)),
        }
    }
}
