//! Paths, work directories and names that a caller chooses, to move the border.

use crate::place::{CANARY, Place};
use crate::wire::{Request, TOKEN};
use serde_json::json;

pub(crate) async fn no_path_of_a_caller_moves_the_border() {
    let place = Place::open().await;
    place.session("a").await;
    place.says("a", "mkdir sub; echo mine > sub/file").await;
    let walls = "cat /proc/self/mountinfo; stat -c '%n %d %i %a %u' / /* /workspace/*";
    let before = place.says("a", walls).await;
    let canary = place.canary().display().to_string();
    let up = "../".repeat(20);
    let paths: Vec<String> = vec![
        canary.clone(),
        format!("{up}{canary}"),
        format!("/workspace/{up}{canary}"),
        format!("sub/{up}{canary}"),
        "/proc/self/root/etc/shadow".to_owned(),
        "/proc/1/root/etc/shadow".to_owned(),
        "/proc/self/fd/3".to_owned(),
        "/workspace/../../../outside/canary".to_owned(),
        "/workspace/..".to_owned(),
        "..".to_owned(),
        "/".to_owned(),
        "//".to_owned(),
        "/workspace//../../etc/shadow".to_owned(),
        "/workspacex/file".to_owned(),
        "\u{0}".to_owned(),
        "sub/file\u{0}.txt".to_owned(),
        "%2e%2e/%2e%2e/outside/canary".to_owned(),
        "..\\..\\outside\\canary".to_owned(),
        "C:\\outside".to_owned(),
        "~root/.ssh/id_rsa".to_owned(),
        "file:///etc/shadow".to_owned(),
        "a/".repeat(2_000),
        "n".repeat(5_000),
        format!("/workspace/{}", "n".repeat(256)),
    ];
    let mut tried = 0;
    for path in &paths {
        for route in [
            "workspaces/a/ls", "workspaces/a/read", "workspaces/a/read_bytes", "workspaces/a/tree",
            "sessions/a/files/read", "sessions/a/files/stat", "sessions/a/files/list", "sessions/a/files/realpath",
            "sessions/a/files/remove", "sessions/a/read", "sessions/a/read_bytes", "sessions/a/ls",
        ] {
            let reply = place.post(&format!("/{route}"), json!({ "path": path })).await;
            let text = reply.text();
            assert!(!text.contains(CANARY) && !text.contains("root:$"), "{route} {path}: {text}");
            assert_ne!(reply.status, 500, "{route} {path}: {text}");
            // The stored files are never more than what lies below the work directory.
            if route.starts_with("workspaces") && reply.status == 200 {
                assert!(!text.contains("canary") && !text.contains("passwd"), "{route} {path}: {text}");
            }
            tried += 1;
        }
    }
    assert!(tried > 250);
    for id in ["..", ".", "a%2f..", "a/..", "%2e%2e", "a\\..", ".hidden", "a%0a"] {
        for route in ["ls", "read", "tree"] {
            let reply = place.post(&format!("/workspaces/{id}/{route}"), json!({"path": "."})).await;
            assert!([404, 422].contains(&reply.status), "{id}: {}", reply.text());
        }
        let query = format!("/sessions/{id}/files/write?path=/workspace/x");
        let reply = Request::new(place.addr, "POST", &query).token(TOKEN).body(b"x").send().await;
        assert!([404, 422].contains(&reply.status), "{id}: {}", reply.text());
    }
    assert_eq!(place.says("a", walls).await, before);
    assert_eq!(place.says("a", "cat sub/file").await, "mine");
    place.assert_outside_is_untouched();
    place.close().await;
}
