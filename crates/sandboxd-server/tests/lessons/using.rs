//! Files and searches, over a real socket.

use crate::wire::{Reply, Service};
use futures::future::{Either, join_all, select};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Value, json};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// So many rounds of the race between a directory and a link.
const RACES: usize = 300;
/// So many files in the directory that is too large to look at.
const MANY: usize = 5_000;

/// A service with one stored workspace, whose session is closed; gives the workspace.
async fn stored(env: &[(&str, &str)]) -> (Service, PathBuf) {
    let service = Service::start(env).await;
    service.open("a").await;
    let closed = service.request("DELETE", "/sessions/a").send().await;
    closed.nothing();
    let dir = service.root.join("a/workspace");
    (service, dir)
}

async fn archive(service: &Service, op: &str, body: Value) -> Reply {
    service.post(&format!("/workspaces/a/{op}"), body).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_is_swapped_in_never_shows_what_lies_outside() {
    let (service, dir) = stored(&[]).await;
    let outside = tempfile::tempdir().expect("a directory");
    std::fs::write(outside.path().join("f"), "the host's secret").expect("written");
    std::fs::write(outside.path().join("secret-name"), "").expect("written");
    std::fs::create_dir(dir.join("swap")).expect("made");
    std::fs::write(dir.join("swap/f"), "inside").expect("written");
    symlink(outside.path(), dir.join("other")).expect("linked");
    let over = Arc::new(AtomicBool::new(false));
    let swapper = {
        let (over, dir) = (over.clone(), dir.clone());
        std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let (a, b) = (dir.join("swap"), dir.join("other"));
                renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE).expect("swapped");
            }
        })
    };
    let (mut shown, mut refused) = (0, 0);
    for _ in 0..RACES {
        for (op, path) in [
            ("read", "swap/f"),
            ("read_bytes", "swap/f"),
            ("ls", "swap"),
            ("tree", "swap"),
            ("tree", "."),
        ] {
            let reply = archive(&service, op, json!({ "path": path })).await;
            let text = reply.text();
            // The secret in plain text and in base64, and a name beside it.
            for secret in ["host's secret", "dGhlIGhvc3Qn", "secret-name"] {
                assert!(!text.contains(secret), "{op} {path}: {text}");
            }
            match reply.status {
                200 => shown += 1,
                400 | 404 => refused += 1,
                other => panic!("{op} {path}: {other} {text}"),
            }
        }
    }
    over.store(true, Ordering::Relaxed);
    swapper.join().expect("joined");
    assert!(shown > 0 && refused > 0, "{shown} shown, {refused} refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_leads_nowhere_is_left_out_and_names_no_place_of_the_host() {
    let (service, dir) = stored(&[]).await;
    std::fs::write(dir.join("f"), "x").expect("written");
    symlink(dir.join("gone"), dir.join("dangling")).expect("linked");
    let listing = archive(&service, "ls", json!({"path": "."})).await.ok();
    assert_eq!(listing.as_array().map(Vec::len), Some(1), "{listing}");
    assert_eq!(listing[0]["name"], "f");
    let tree = archive(&service, "tree", json!({})).await.ok();
    assert_eq!(tree["entries"].as_array().map(Vec::len), Some(1), "{tree}");
    let host = service.root.display().to_string();
    for op in ["read", "read_bytes", "ls", "tree"] {
        let reply = archive(&service, op, json!({"path": "dangling"})).await;
        assert!([400, 404].contains(&reply.status), "{op}: {}", reply.text());
        assert!(!reply.text().contains(&host), "{op}: {}", reply.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_huge_file_is_refused_by_its_size() {
    let (service, dir) = stored(&[]).await;
    let file = std::fs::File::create(dir.join("huge")).expect("made");
    file.set_len(500 << 20).expect("grown");
    for op in ["read", "read_bytes"] {
        let words = archive(&service, op, json!({"path": "huge"}))
            .await
            .refused(400);
        assert!(
            words.contains("524288000 bytes") && words.contains("read limit"),
            "{words}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_of_one_entry_ends_in_a_directory_of_very_many() {
    let (service, dir) = stored(&[]).await;
    std::fs::create_dir(dir.join("many")).expect("made");
    for n in 0..MANY {
        std::fs::File::create(dir.join(format!("many/{n:05}"))).expect("made");
    }
    let body = json!({"path": "many", "max_entries": 1});
    let tree = archive(&service, "tree", body).await.ok();
    assert_eq!(tree["entries"].as_array().map(Vec::len), Some(1));
    assert_eq!(tree["truncated"], true);
    assert_eq!(tree["entries"][0]["size"], 0);
}

/// An open session and how to ask it things.
struct Session {
    service: Service,
}

impl Session {
    async fn open(env: &[(&str, &str)]) -> Self {
        let service = Service::start(env).await;
        service.open("a").await;
        Self { service }
    }

    async fn ask(&self, op: &str, body: Value) -> Reply {
        self.service.post(&format!("/sessions/a/{op}"), body).await
    }

    async fn read(&self, path: &str) -> String {
        let read = self.ask("read", json!({ "path": path })).await.ok();
        read["content"].as_str().expect("text").to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_that_outlasts_the_ceiling_is_504_and_holds_nobody_up() {
    let service = Service::start(&[("SANDBOXD_EXECUTE_TIMEOUT", "2")]).await;
    let operations = [
        ("grep", json!({"pattern": "x"})),
        ("glob", json!({"pattern": "*"})),
        ("ls", json!({"path": "."})),
        ("read", json!({"path": "f"})),
        ("read_bytes", json!({"path": "f"})),
        ("write", json!({"path": "f", "content_b64": ""})),
        (
            "edit",
            json!({"path": "f", "old_string": "a", "new_string": "b"}),
        ),
        ("exists", json!({"path": "f"})),
    ];
    for (op, _) in &operations {
        service.open(op).await;
    }
    // Only the guests that exist fall silent.
    service.switches().silence_guests();
    service.open("neighbour").await;
    let stuck = join_all(operations.iter().map(|(op, body)| {
        let path = format!("/sessions/{op}/{op}");
        let service = &service;
        async move { service.post(&path, body.clone()).await }
    }));
    let neighbour = async {
        for _ in 0..3 {
            let exec = json!({"command": "echo on"});
            let done = service.post("/sessions/neighbour/exec", exec).await;
            assert_eq!(done.ok()["output"], "on\n");
        }
    };
    // The neighbour has all of its answers before any of the others has one.
    match select(pin!(stuck), pin!(neighbour)).await {
        Either::Left(_) => panic!("the neighbour waited for those that are stuck"),
        Either::Right(((), stuck)) => {
            for (reply, (op, _)) in stuck.await.iter().zip(&operations) {
                assert_eq!(reply.status, 504, "{op}: {}", reply.text());
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_out_of_a_listing_can_be_read_also_with_blanks_and_quotes_in_it() {
    let session = Session::open(&[]).await;
    for dir in ["a b", "it's", "x\"y", "$HOME"] {
        let path = format!("{dir}/f g");
        let write = json!({"path": path, "content_b64": "eA=="});
        let written = session.ask("write", write).await.ok();
        assert_eq!(written["error"], Value::Null, "{dir}");
        let listing = session.ask("ls", json!({ "path": dir })).await.ok();
        let row = listing[0]["path"].as_str().expect("a path");
        assert_eq!(session.read(row).await, "x", "{dir}: {row}");
        let native = session.ask("files/list", json!({"path": format!("/workspace/{dir}")}));
        let listing = native.await.ok();
        let row = listing[0]["path"].as_str().expect("a path");
        let read = session.ask("files/read", json!({ "path": row })).await;
        assert_eq!((read.status, read.body.as_slice()), (200, b"x".as_slice()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_are_literal_over_lines_quotes_and_backslashes() {
    let session = Session::open(&[]).await;
    let before = "one\n\"two\" \\n 'three'\n$& \\1 &\nend\n";
    let content = {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(before)
    };
    let write = json!({"path": "f", "content_b64": content});
    session.ask("write", write).await.ok();
    let (old, new) = (
        "\"two\" \\n 'three'\n$& \\1 &",
        "a\n/b/\\2\\\\ 'c' \"d\" $x `e`",
    );
    let edit = json!({"path": "f", "old_string": old, "new_string": new});
    let edited = session.ask("edit", edit).await.ok();
    assert_eq!(edited["occurrences"], 1, "{edited}");
    assert_eq!(session.read("f").await, format!("one\n{new}\nend"));
}
