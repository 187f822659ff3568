//! Stored workspaces.

use super::describe::{Described, route};
use super::refusals;
use sandboxd_api::archive::{TreeRequest, TreesRequest, WorkspaceTree, WorkspaceTrees};
use sandboxd_api::files::{FileEntry, PathRequest};
use sandboxd_api::shell::{ReadBytesResponse, ReadRequest, ReadResponse};
use serde_json::{Value, json};
use utoipa::openapi::path::HttpMethod::Post;

pub(super) const TAG: &str = "archive";

fn entries() -> Value {
    json!([
        { "name": "src", "path": "src", "is_dir": true, "size": null, "modified_at": null },
        {
            "name": "report.md", "path": "report.md", "is_dir": false, "size": 1024,
            "modified_at": "2026-09-21T10:00:00.250000+00:00",
        },
    ])
}

pub(super) fn routes() -> Vec<Described> {
    let stored =
        |path, name: &str, summary: &str| route(Post, path, TAG, name, summary).of_workspace();
    let tree = || json!({ "entries": entries(), "truncated": false });
    vec![
        stored("/workspaces/{session_id}/ls", "archive_ls", "List a stored directory")
            .about("One level, hidden names included, directories first. Links and special files are left out.")
            .takes::<PathRequest>(json!({ "path": "." }))
            .gives_list::<FileEntry>("What it holds.", entries())
            .refuses(refusals::NO_DIRECTORY)
            .refuses(refusals::TOO_MANY),
        stored("/workspaces/{session_id}/read", "archive_read", "Read a stored file as text")
            .about("Some of its lines, as `/sessions/{session_id}/read` has them, but with statuses for what fails.")
            .takes::<ReadRequest>(json!({ "path": "report.md", "offset": 0, "limit": 2000 }))
            .gives::<ReadResponse>("The lines.", json!({ "content": "# Report" }))
            .refuses(refusals::NO_FILE)
            .refuses(refusals::NO_TEXT),
        stored("/workspaces/{session_id}/read_bytes", "archive_read_bytes", "Read a stored file as bytes")
            .takes::<PathRequest>(json!({ "path": "report.md" }))
            .gives::<ReadBytesResponse>("Its bytes as base64.", json!({ "content_b64": "IyBSZXBvcnQK" }))
            .refuses(refusals::NO_FILE),
        stored("/workspaces/{session_id}/tree", "archive_tree", "A stored tree")
            .about(
                "Breadth first, within bounds of depth and number. What is left out is said by `truncated`. A directory is read \
                 only as far as entries are wanted, so one that is cut shows whichever come first on the disk.",
            )
            .takes::<TreeRequest>(json!({ "path": ".", "max_depth": 6, "max_entries": 2000 }))
            .gives::<WorkspaceTree>("The tree.", tree())
            .refuses(refusals::NO_DIRECTORY),
        route(Post, "/workspaces/trees", TAG, "archive_trees", "The trees of several workspaces")
            .about(
                "One answer per id, in the order of the request, repetitions included. A workspace that fails does so in its \
                 own answer. All trees together have at most 200000 entries; what is past them is left out, and \
                 `truncated` says so.",
            )
            .for_the_service()
            .takes::<TreesRequest>(json!({
                "sessions": ["conversation-5f2c9a1e", "unknown"], "path": ".", "max_depth": 6, "max_entries": 2000,
            }))
            .gives::<WorkspaceTrees>(
                "The trees.",
                json!({
                    "results": [
                        { "session_id": "conversation-5f2c9a1e", "tree": tree(), "error": null, "status_code": null },
                        {
                            "session_id": "unknown", "tree": null, "error": "No stored workspace: unknown",
                            "status_code": 404,
                        },
                    ],
                }),
            ),
    ]
}
