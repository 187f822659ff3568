//! Links, hard links, queues, sockets and device files where the service expects a file.

use crate::place::{CANARY, Place, none_works};
use crate::wire::{Reply, TOKEN};
use serde_json::json;
use std::os::unix::fs::MetadataExt as _;

/// What is planted in the work directory from inside.
const NAMES: &[&str] = &[
    "absolute", "upward", "passwd", "directory", "dangling", "loop", "queue", "socket", "magic", "cwd", "chain",
];
/// A device file, which only the host's root can plant.
const DEVICE: &str = "device";

/// All that is planted.
fn names() -> impl Iterator<Item = &'static str> {
    let device = crate::ordinary::is_root().then_some(DEVICE);
    NAMES.iter().copied().chain(device)
}

async fn plant(place: &Place, id: &str) {
    let canary = place.canary().display().to_string();
    let outside = place.home().join("outside").display().to_string();
    let program = format!(
        r"
import os, socket
os.symlink('{canary}', 'absolute'); os.symlink('../../../outside/canary', 'upward')
os.symlink('/etc/passwd', 'passwd'); os.symlink('{outside}', 'directory'); os.symlink('{outside}/new', 'dangling')
os.symlink('loop', 'loop'); os.mkfifo('queue'); os.symlink('/proc/self/root{canary}', 'magic')
os.symlink('/proc/self/cwd/../../outside/canary', 'cwd'); os.symlink('absolute', 'chain')
socket.socket(socket.AF_UNIX).bind('socket')
os.mkdir('sub'); os.symlink('..', 'sub/up'); os.symlink('{outside}', 'sub/out'); open('plain', 'w').write('plain')
"
    );
    assert_eq!(place.python_says(id, &program).await, "");
    // A file of the host's does not become one's own by a second name.
    none_works(place, id, &["ln /etc/hostname hard && ln /usr/bin/env hard", "ln /proc/1/status hard"]).await;
    let stored = place.stored(id).join(DEVICE);
    if crate::ordinary::is_root() && !stored.exists() {
        // The memory of the machine.
        let made = rustix::fs::mknodat(
            rustix::fs::CWD,
            &stored,
            rustix::fs::FileType::CharacterDevice,
            rustix::fs::Mode::from_raw_mode(0o666),
            rustix::fs::makedev(1, 1),
        );
        made.unwrap();
        none_works(place, id, &["head -c 1 device", "echo x > device"]).await;
    }
}

/// Every route that takes a path, on this one.
async fn every_route(place: &Place, id: &str, name: &str) -> Vec<(String, Reply)> {
    let native = json!({"path": format!("/workspace/{name}")});
    let plain = json!({ "path": name });
    let mut asked = vec![
        (format!("/workspaces/{id}/ls"), plain.clone()),
        (format!("/workspaces/{id}/read"), plain.clone()),
        (format!("/workspaces/{id}/read_bytes"), plain.clone()),
        (format!("/workspaces/{id}/tree"), plain.clone()),
    ];
    for op in ["read", "stat", "list", "realpath", "mkdir"] {
        asked.push((format!("/sessions/{id}/files/{op}"), native.clone()));
    }
    let mut replies = Vec::new();
    for (path, body) in asked {
        let reply = place.post(&path, body).await;
        replies.push((path, reply));
    }
    let path = format!("/sessions/{id}/files/write?path=/workspace/{name}/x");
    let reply = crate::wire::Request::new(place.addr, "POST", &path).token(TOKEN);
    replies.push((path, reply.body(b"written").send().await));
    // Onto the name itself; a file in its place is made beside it, so nothing may have been followed.
    let path = format!("/sessions/{id}/files/write?path=/workspace/{name}");
    let reply = crate::wire::Request::new(place.addr, "POST", &path).token(TOKEN);
    replies.push((path, reply.body(b"written").send().await));
    replies
}

/// The routes that see what a program inside would see, links resolved there: the host's file is at none of their ends, and
/// a queue that nobody writes holds none of them up.
async fn every_older_route(place: &Place, id: &str) {
    for name in names() {
        for (op, body) in [
            ("exists", json!({ "path": name })),
            ("ls", json!({ "path": name })),
            ("read", json!({ "path": name })),
            ("read_bytes", json!({ "path": name })),
            ("edit", json!({ "path": name, "old_string": "canary", "new_string": "found" })),
            ("grep", json!({ "path": name, "pattern": "canary-" })),
            ("glob", json!({ "path": name, "pattern": "can*" })),
        ] {
            // A program's own read of a queue that it was told to read: it ends by the time that searches have.
            if (op, name) == ("grep", "queue") {
                continue;
            }
            let reply = place.post(&format!("/sessions/{id}/{op}"), body).await;
            assert!(!reply.text().contains(CANARY), "{op} on {name}: {}", reply.text());
            assert_ne!(reply.status, 500, "{op} on {name}: {}", reply.text());
        }
    }
    place.assert_outside_is_untouched();
}

async fn nothing_leads_out(place: &Place, id: &str) {
    for name in names() {
        for (path, reply) in every_route(place, id, name).await {
            let text = reply.text();
            assert!(!text.contains(CANARY), "{path} on {name}: {text}");
            assert!(!text.contains("root:x:0"), "{path} on {name}: {text}");
            // Handed back, not there, not listed; and in time, also on a queue that nobody writes.
            let is_tree = path.ends_with("/tree") || path.ends_with("/ls");
            let expected: &[u16] = if is_tree { &[200, 400, 403, 404, 409] } else { &[400, 403, 404, 409] };
            let says_what_it_is = path.ends_with("/realpath") || path.ends_with("/stat");
            assert!(
                expected.contains(&reply.status) || (says_what_it_is && reply.status == 200),
                "{path} on {name}: {} {text}",
                reply.status
            );
            if is_tree && reply.status == 200 {
                assert!(!text.contains("canary"), "{path} on {name}: {text}");
            }
        }
    }
    place.assert_outside_is_untouched();
    // The twin: a plain file beside them is read by all.
    let read = place.post(&format!("/workspaces/{id}/read"), json!({"path": "plain"})).await;
    assert!(read.text().contains("plain"), "{}", read.text());
    let read = place
        .post(&format!("/sessions/{id}/files/read"), json!({"path": "/workspace/plain"}))
        .await;
    assert_eq!(read.text(), "plain");
}

pub(crate) async fn no_route_follows_them_awake_or_asleep() {
    // Room for one: the second session puts the first to sleep.
    let place = Place::open_with(&[("SANDBOXD_MAX_SESSIONS", "1"), ("SANDBOXD_EVICT_IDLE_AFTER", "0")]).await;
    place.session("a").await;
    plant(&place, "a").await;
    nothing_leads_out(&place, "a").await;
    every_older_route(&place, "a").await;
    place.session("b").await;
    let state = place.get("/sessions/a").await.ok();
    assert_eq!(state["state"], "hibernated", "{state}");
    nothing_leads_out(&place, "a").await;
    // What is removed is the link, never what it leads to.
    for name in names() {
        place.post("/sessions/a/files/remove", json!({"path": format!("/workspace/{name}")})).await;
    }
    place.assert_outside_is_untouched();
    place.close().await;
}

pub(crate) async fn the_service_changes_no_owner_and_no_mode_through_them() {
    let place = Place::open().await;
    place.session("a").await;
    plant(&place, "a").await;
    let before = std::fs::metadata(place.canary()).unwrap();
    let reply = place.ask(TOKEN, "DELETE", "/sessions/a", None).await;
    reply.nothing();
    // The mark that says whose files these are is gone, so all of them are given to the sandbox's range once more.
    let marker = place.stored("a").parent().unwrap().join(".workspace.owner-range");
    let _ = std::fs::remove_file(marker);
    place.session("a").await;
    let after = std::fs::metadata(place.canary()).unwrap();
    assert_eq!(
        (before.uid(), before.gid(), before.mode(), before.ctime()),
        (after.uid(), after.gid(), after.mode(), after.ctime())
    );
    assert_eq!(place.says("a", "cat plain").await, "plain");
    place.purge("a").await;
    place.assert_outside_is_untouched();
    place.close().await;
}
