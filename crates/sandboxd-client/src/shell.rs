//! The older routes of a session: a shell's view of it.

use crate::error::RequestError;
use crate::http::Ask;
use crate::limits::MARGIN;
use crate::opening::OpenError;
use crate::sandbox::Sandbox;
use crate::service::session_path;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sandboxd_api::files::{FileEntry, PathRequest};
use sandboxd_api::shell::{
    EditRequest, EditResponse, ExecRequest, ExecResponse, ExistsResponse, GlobRequest, GrepRequest,
    GrepResponse, ReadBytesResponse, ReadRequest, ReadResponse, WriteRequest, WriteResponse,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// Why one of the older routes has no answer. What only fails inside the sandbox is an answer.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ShellError {
    /// The session did not open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The request failed.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The content is not base64.
    #[error("the answer's content is not base64")]
    NotBase64(#[from] base64::DecodeError),
}

/// A session by the older routes. Paths may be relative to the work directory, and reach anywhere in the sandbox.
#[derive(Debug, Clone, Copy)]
pub struct Shell<'a> {
    sandbox: &'a Sandbox,
}

impl<'a> Shell<'a> {
    pub(crate) fn new(sandbox: &'a Sandbox) -> Self {
        Self { sandbox }
    }

    /// Runs a command line with both streams merged. A deadline is exit code 124; fractions of a second are rounded up.
    ///
    /// # Errors
    /// Where the session does not open or there is no usable answer.
    pub async fn exec(
        self,
        command: &str,
        timeout: Option<Duration>,
    ) -> Result<ExecResponse, ShellError> {
        let request = ExecRequest {
            command: command.to_owned(),
            timeout_seconds: timeout.map(whole_seconds),
        };
        self.ask_within("exec", &request, timeout, "the outcome of a command")
            .await
    }

    /// The text of a file, `limit` lines from line `offset` on.
    ///
    /// # Errors
    /// Where the session does not open or there is no usable answer.
    pub async fn read(
        self,
        path: &str,
        offset: u64,
        limit: u64,
    ) -> Result<ReadResponse, ShellError> {
        let request = ReadRequest {
            path: path.to_owned(),
            offset,
            limit,
        };
        self.ask("read", &request, "the text of a file").await
    }

    /// The bytes of a file; none where there is no such file.
    ///
    /// # Errors
    /// Where the session does not open or there is no usable answer.
    pub async fn read_bytes(self, path: &str) -> Result<Vec<u8>, ShellError> {
        let answer: ReadBytesResponse = self
            .ask("read_bytes", &of(path), "the bytes of a file")
            .await?;
        Ok(BASE64_STANDARD.decode(answer.content_b64)?)
    }

    /// Writes a file, its parents included.
    ///
    /// # Errors
    /// Where the session does not open or there is no usable answer.
    pub async fn write(self, path: &str, content: &[u8]) -> Result<WriteResponse, ShellError> {
        let request = WriteRequest {
            path: path.to_owned(),
            content_b64: BASE64_STANDARD.encode(content),
        };
        self.ask("write", &request, "the outcome of a write").await
    }

    /// Replaces a text in a file.
    ///
    /// # Errors
    /// Where the session does not open or there is no usable answer.
    pub async fn edit(
        self,
        path: &str,
        old: &str,
        new: &str,
        replace_all: bool,
    ) -> Result<EditResponse, ShellError> {
        let request = EditRequest {
            path: path.to_owned(),
            old_string: old.to_owned(),
            new_string: new.to_owned(),
            replace_all,
        };
        self.ask("edit", &request, "the outcome of an edit").await
    }

    /// Whether there is a regular file, links followed.
    ///
    /// # Errors
    /// Where the session does not open or there is no usable answer.
    pub async fn exists(self, path: &str) -> Result<bool, ShellError> {
        let answer: ExistsResponse = self
            .ask("exists", &of(path), "whether a file exists")
            .await?;
        Ok(answer.exists)
    }

    /// What a directory holds; nothing where there is none.
    ///
    /// # Errors
    /// Where the session does not open or there is no usable answer.
    pub async fn ls(self, path: &str) -> Result<Vec<FileEntry>, ShellError> {
        self.ask("ls", &of(path), "a listing").await
    }

    /// The files whose paths match a pattern, below `path`; `/` means the work directory.
    ///
    /// # Errors
    /// Where the session does not open or there is no usable answer.
    pub async fn glob(self, pattern: &str, path: &str) -> Result<Vec<FileEntry>, ShellError> {
        let request = GlobRequest {
            pattern: pattern.to_owned(),
            path: path.to_owned(),
        };
        self.ask("glob", &request, "a listing").await
    }

    /// The lines that match a basic regular expression.
    ///
    /// # Errors
    /// Where the session does not open or there is no usable answer.
    pub async fn grep(self, request: &GrepRequest) -> Result<GrepResponse, ShellError> {
        self.ask("grep", request, "the outcome of a search").await
    }

    async fn ask<T: DeserializeOwned>(
        self,
        route: &str,
        body: &(impl Serialize + Sync),
        expected: &'static str,
    ) -> Result<T, ShellError> {
        self.ask_within(route, body, None, expected).await
    }

    /// Any of these may have to wait for a wake and for as long as the service lets an operation take.
    async fn ask_within<T: DeserializeOwned>(
        self,
        route: &str,
        body: &(impl Serialize + Sync),
        timeout: Option<Duration>,
        expected: &'static str,
    ) -> Result<T, ShellError> {
        let open = self.sandbox.open().await?;
        let within = timeout.unwrap_or(open.execute_timeout) + MARGIN;
        let path = session_path(&open.session_id, &format!("/{route}"));
        let ask = Ask::post(path, Some(&open.token), within).json(body);
        Ok(self.sandbox.http().fetch(ask, expected).await?)
    }
}

fn of(path: &str) -> PathRequest {
    PathRequest {
        path: path.to_owned(),
    }
}

fn whole_seconds(time: Duration) -> i64 {
    let up = u64::from(time.subsec_nanos() > 0);
    i64::try_from(time.as_secs().saturating_add(up)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_second_is_a_whole_one() {
        assert_eq!(whole_seconds(Duration::from_millis(1)), 1);
        assert_eq!(whole_seconds(Duration::from_secs(7)), 7);
        assert_eq!(whole_seconds(Duration::from_millis(7001)), 8);
        assert_eq!(whole_seconds(Duration::MAX), i64::MAX);
    }
}
