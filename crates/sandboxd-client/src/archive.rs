//! Stored workspaces, read without a sandbox.

use crate::address::encode;
use crate::error::RequestError;
use crate::http::Ask;
use crate::limits::DEGRADING_TIMEOUT;
use crate::service::Service;
use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use sandboxd_api::archive::{TreeRequest, TreesRequest, WorkspaceTree, WorkspaceTrees};
use sandboxd_api::files::{FileEntry, PathRequest};
use sandboxd_api::shell::{ReadBytesResponse, ReadRequest, ReadResponse};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::time::Duration;

/// Why an archive has no answer.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// The service said no, in these words.
    #[error("{said}")]
    Refused {
        /// The HTTP status: 400 a path that is none or a file that is not to be read so, 404 nothing there, 409 a service
        /// that stores nothing.
        status: u16,
        /// The service's words.
        said: String,
    },
    /// The request failed otherwise.
    #[error(transparent)]
    Request(RequestError),
    /// The content is not base64.
    #[error("the answer's content is not base64")]
    NotBase64(#[from] base64::DecodeError),
    /// The service left a workspace out of its answer that it was asked for.
    #[error("the service said nothing about this workspace")]
    LeftOut,
}

impl ArchiveError {
    /// The HTTP status, where the service answered.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            Self::Request(_) | Self::NotBase64(_) | Self::LeftOut => None,
        }
    }
}

impl From<RequestError> for ArchiveError {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Refused(refusal) => Self::Refused {
                status: refusal.status,
                said: refusal.text(),
            },
            error => Self::Request(error),
        }
    }
}

/// How much of a tree is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeBounds {
    /// Levels, 1 to 64.
    pub max_depth: u64,
    /// Entries, 1 to 100 000.
    pub max_entries: u64,
}

impl Default for TreeBounds {
    /// 6 levels and 2000 entries.
    fn default() -> Self {
        Self {
            max_depth: TreeRequest::DEPTH.0,
            max_entries: TreeRequest::ENTRIES.0,
        }
    }
}

/// Takes base64 with and without its padding: the content matters, not how it was wrapped up.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// The stored workspaces of a service, by their sessions' ids. Works whether or not the session is open, and starts
/// nothing. Needs the service's token. Paths are relative to the workspace.
#[derive(Debug, Clone)]
pub struct WorkspaceArchive {
    service: Service,
    timeout: Duration,
}

impl WorkspaceArchive {
    pub(crate) fn new(service: Service) -> Self {
        Self {
            service,
            timeout: DEGRADING_TIMEOUT,
        }
    }

    /// The same archive with another patience than 60 s.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// What a directory holds: directories first, then by name.
    ///
    /// # Errors
    /// Where there is no such workspace or directory, or no usable answer.
    pub async fn ls(&self, session_id: &str, path: &str) -> Result<Vec<FileEntry>, ArchiveError> {
        let request = PathRequest {
            path: path.to_owned(),
        };
        self.ask(session_id, "ls", &request, "a listing").await
    }

    /// The text of a file, `limit` lines from line `offset` on.
    ///
    /// # Errors
    /// Where there is no such workspace or file, where it is no text or too big, or no usable answer.
    pub async fn read(
        &self,
        session_id: &str,
        path: &str,
        offset: u64,
        limit: u64,
    ) -> Result<String, ArchiveError> {
        let request = ReadRequest {
            path: path.to_owned(),
            offset,
            limit,
        };
        let answer: ReadResponse = self
            .ask(session_id, "read", &request, "the text of a file")
            .await?;
        Ok(answer.content)
    }

    /// The bytes of a file.
    ///
    /// # Errors
    /// Where there is no such workspace or file, where it is too big, or no usable answer.
    pub async fn read_bytes(&self, session_id: &str, path: &str) -> Result<Vec<u8>, ArchiveError> {
        let request = PathRequest {
            path: path.to_owned(),
        };
        let answer: ReadBytesResponse = self
            .ask(session_id, "read_bytes", &request, "the bytes of a file")
            .await?;
        let mut content = answer.content_b64;
        content.retain(|character| !character.is_ascii_whitespace());
        Ok(LENIENT.decode(content)?)
    }

    /// A whole tree, breadth first.
    ///
    /// # Errors
    /// Where there is no such workspace or directory, or no usable answer.
    pub async fn tree(
        &self,
        session_id: &str,
        path: &str,
        bounds: TreeBounds,
    ) -> Result<WorkspaceTree, ArchiveError> {
        self.ask(session_id, "tree", &tree_request(path, bounds), "a tree")
            .await
    }

    /// The trees of at most 100 workspaces in one request, by id; a workspace that fails does so alone.
    ///
    /// # Errors
    /// Where the request as a whole is refused or there is no usable answer.
    pub async fn trees<S: AsRef<str>>(
        &self,
        session_ids: &[S],
        path: &str,
        bounds: TreeBounds,
    ) -> Result<BTreeMap<String, Result<WorkspaceTree, ArchiveError>>, ArchiveError> {
        let ids = session_ids.iter().map(|id| id.as_ref().to_owned());
        let request = TreesRequest {
            sessions: ids.clone().collect(),
            tree: tree_request(path, bounds),
        };
        let ask = Ask::post(
            "/workspaces/trees",
            self.service.token.as_ref(),
            self.timeout,
        );
        let answer: WorkspaceTrees = self
            .service
            .http
            .fetch(ask.json(&request), "a list of trees")
            .await?;
        let mut trees: BTreeMap<_, _> = ids.map(|id| (id, Err(ArchiveError::LeftOut))).collect();
        for result in answer.results {
            let tree = result.tree.ok_or_else(|| ArchiveError::Refused {
                status: result.status_code.unwrap_or_default(),
                said: result.error.unwrap_or_default(),
            });
            trees.insert(result.session_id, tree);
        }
        Ok(trees)
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        session_id: &str,
        route: &str,
        body: &(impl Serialize + Sync),
        expected: &'static str,
    ) -> Result<T, ArchiveError> {
        let path = format!("/workspaces/{}/{route}", encode(session_id));
        let ask = Ask::post(path, self.service.token.as_ref(), self.timeout).json(body);
        Ok(self.service.http.fetch(ask, expected).await?)
    }
}

fn tree_request(path: &str, bounds: TreeBounds) -> TreeRequest {
    TreeRequest {
        path: path.to_owned(),
        max_depth: bounds.max_depth,
        max_entries: bounds.max_entries,
    }
}
