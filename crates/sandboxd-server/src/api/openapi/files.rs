//! Files of a session by the workspace routes.

use super::describe::{Described, route};
use super::refusals;
use sandboxd_api::files::{FileEntry, PathRequest, RealPath};
use serde_json::{Value, json};
use utoipa::openapi::path::HttpMethod::Post;

pub(super) const TAG: &str = "files";

fn path() -> Value {
    json!({ "path": "/workspace/report.md" })
}

fn entry() -> Value {
    json!({ "name": "report.md", "path": "/workspace/report.md", "is_dir": false, "size": 1024, "modified_at": null })
}

pub(super) fn routes() -> Vec<Described> {
    let native = |path, name: &str, summary: &str| {
        route(Post, path, TAG, name, summary)
            .of_session()
            .refuses(refusals::NATIVE)
    };
    vec![
        native("/sessions/{session_id}/files/read", "read_file", "Read a file")
            .about(
                "A large file is sent while it is read: as many bytes as it had when it was opened, which the length says. One that \
                 becomes shorter meanwhile, or whose sandbox goes, is broken off with its connection.",
            )
            .takes::<PathRequest>(path())
            .gives_bytes("Its bytes.")
            .refuses(refusals::MISSING),
        native("/sessions/{session_id}/files/write", "write_file", "Write a file")
            .about(
                "Whole and atomically: under another name first, then renamed. Parents are made; an existing file's mode is \
                 kept. A body over `max_read_bytes` is handed back (409).",
            )
            .needs_query("path", "Absolute, below the work directory.", "/workspace/report.md")
            .takes_bytes("The file's whole content.")
            .gives_nothing("It is written.")
            .refuses(refusals::FULL)
            .refuses(refusals::MISSING),
        native("/sessions/{session_id}/files/stat", "stat_file", "What is known of a file")
            .takes::<PathRequest>(path())
            .gives::<FileEntry>("What is known; never a time.", entry())
            .refuses(refusals::MISSING),
        native("/sessions/{session_id}/files/list", "list_directory", "List a directory")
            .about("One level, hidden names included, sorted by name.")
            .takes::<PathRequest>(json!({ "path": "/workspace" }))
            .gives_list::<FileEntry>("What it holds.", json!([entry()]))
            .refuses(refusals::MISSING),
        native("/sessions/{session_id}/files/realpath", "resolve_path", "A path without links")
            .about("Paths with a link are handed back (409); what does not exist is kept as it was written.")
            .takes::<PathRequest>(path())
            .gives::<RealPath>("The path.", path())
            .refuses(refusals::MISSING),
        native("/sessions/{session_id}/files/mkdir", "make_directory", "Make a directory")
            .about("Its parents too. One that exists is fine.")
            .takes::<PathRequest>(json!({ "path": "/workspace/src" }))
            .gives_nothing("It is there.")
            .refuses(refusals::FULL)
            .refuses(refusals::MISSING),
        native("/sessions/{session_id}/files/remove", "remove_file", "Remove a file or a tree")
            .about("A link is removed itself. The work directory cannot be removed (400).")
            .takes::<PathRequest>(path())
            .gives_nothing("It is gone.")
            .refuses(refusals::MISSING),
    ]
}
