//! The older routes.

use super::describe::{Described, route};
use super::refusals;
use sandboxd_api::files::{FileEntry, PathRequest};
use sandboxd_api::shell::{
    EditRequest, EditResponse, ExecRequest, ExecResponse, ExistsResponse, GlobRequest, GrepRequest,
    GrepResponse, ReadBytesResponse, ReadRequest, ReadResponse, WriteRequest, WriteResponse,
};
use serde_json::{Value, json};
use utoipa::openapi::path::HttpMethod::Post;

pub(super) const TAG: &str = "shell";

fn shell(path: &'static str, name: &str, summary: &str) -> Described {
    route(Post, path, TAG, name, summary)
        .of_session()
        .refuses(refusals::USE)
        .refuses(refusals::CEILING)
}

fn path() -> Value {
    json!({ "path": "report.md" })
}

pub(super) fn routes() -> Vec<Described> {
    let mut all = vec![
        shell("/sessions/{session_id}/exec", "exec", "Run a command line")
            .about(
                "By `sh -c` in the work directory, its standard input empty, both streams merged in the order in which they \
                 came. Output over 100 000 bytes is cut, and said. A deadline is exit code 124, with the output until then.",
            )
            .takes::<ExecRequest>(json!({ "command": "ls | wc -l", "timeout_seconds": 30 }))
            .gives::<ExecResponse>("How it ended.", json!({ "output": "3\n", "exit_code": 0, "truncated": false })),
        shell("/sessions/{session_id}/exists", "exists", "Whether there is a file")
            .takes::<PathRequest>(path())
            .gives::<ExistsResponse>("Whether there is a regular file, links followed.", json!({ "exists": true })),
        shell("/sessions/{session_id}/ls", "ls", "List a directory")
            .about("One level, hidden names included, directories first. Nothing where there is no directory.")
            .takes::<PathRequest>(json!({ "path": "." }))
            .gives_list::<FileEntry>("What it holds; a link is named with where it points.", listing("./report.md", 1024)),
    ];
    all.extend(contents());
    all.extend(searches());
    all
}

/// Reading and writing.
fn contents() -> Vec<Described> {
    vec![
        shell("/sessions/{session_id}/read", "read", "Read a file as text")
            .about(
                "Some of its lines. What follows is said at the end, with the offset to go on from. What cannot be read is a \
                 text that begins with `Error` or `[Error`.",
            )
            .takes::<ReadRequest>(json!({ "path": "report.md", "offset": 0, "limit": 2000 }))
            .gives::<ReadResponse>("The lines.", json!({ "content": "# Report" })),
        shell("/sessions/{session_id}/read_bytes", "read_bytes", "Read a file as bytes")
            .takes::<PathRequest>(path())
            .gives::<ReadBytesResponse>(
                "Its bytes as base64; empty where there is no file or it is over `max_read_bytes`.",
                json!({ "content_b64": "IyBSZXBvcnQK" }),
            ),
        shell("/sessions/{session_id}/write", "write", "Write a file")
            .about("Parents are made. A directory is never replaced by a file.")
            .takes::<WriteRequest>(json!({ "path": "report.md", "content_b64": "IyBSZXBvcnQK" }))
            .gives::<WriteResponse>("The path, or why nothing was written.", json!({ "path": "/workspace/report.md", "error": null }))
            .refuses(refusals::BASE64),
        shell("/sessions/{session_id}/edit", "edit", "Replace a text in a file")
            .about("The text must occur exactly once, unless `replace_all` takes every occurrence.")
            .takes::<EditRequest>(json!({
                "path": "report.md", "old_string": "draft", "new_string": "final", "replace_all": false,
            }))
            .gives::<EditResponse>(
                "The path and how often, or why nothing was changed.",
                json!({ "path": "/workspace/report.md", "error": null, "occurrences": 1 }),
            ),
    ]
}

/// Searching.
fn searches() -> Vec<Described> {
    vec![
        shell("/sessions/{session_id}/glob", "glob", "Find files by name")
            .about("At any depth below `path`. Nothing where the search fails or takes more than two minutes.")
            .takes::<GlobRequest>(json!({ "pattern": "**/*.md", "path": "/" }))
            .gives_list::<FileEntry>("The files, sorted by path; sizes are not looked at.", listing("docs/report.md", Value::Null)),
        shell("/sessions/{session_id}/grep", "grep", "Search in files")
            .takes::<GrepRequest>(json!({ "pattern": "def main", "path": "src", "glob": "*.py", "ignore_hidden": true }))
            .gives::<GrepResponse>(
                "The lines that match. Where `error` is set the search itself failed.",
                json!({
                    "matches": [{ "path": "./src/main.py", "line_number": 12, "line": "def main():" }], "error": null,
                }),
            ),
    ]
}

fn listing(path: &str, size: impl Into<Value>) -> Value {
    let size: Value = size.into();
    json!([{ "name": "report.md", "path": path, "is_dir": false, "size": size, "modified_at": null }])
}
