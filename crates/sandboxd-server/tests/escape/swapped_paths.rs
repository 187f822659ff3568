//! A directory that is exchanged for a link to the host, and back, while the service walks it.

use crate::fast::Fast;
use crate::place::{CANARY, Place};
use serde_json::json;
use std::time::Duration;

/// Exchanges `d`, with the harmless file `canary` in it, and a link to the host's directory, until it is ended.
const SWAP: &str = r##"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int n, char **words) {
  mkdir("d", 0755); symlink(words[1], "l"); mkdir("d/below", 0755);
  int file = open("d/canary", O_WRONLY | O_CREAT, 0644); write(file, "harmless", 8); close(file);
  creat("ready", 0644);
  // Each side as often as the other, with a moment in between for whoever comes by.
  for (;;) { syscall(SYS_renameat2, AT_FDCWD, "d", AT_FDCWD, "l", 2); for (volatile int i = 0; i < 400; i++); }
}
"##;

/// Rounds of all routes. The race is won within hundreds where it can be won at all.
const ROUNDS: u32 = 400;

pub(crate) async fn no_walk_is_led_outside() {
    let place = Place::open().await;
    place.session("a").await;
    place.compile("a", "swap", SWAP);
    let outside = place.home().join("outside").display().to_string();
    // The attacker goes on in the background, long after its run is over.
    place
        .says("a", &format!("setsid ./swap {outside} >/dev/null 2>&1 &"))
        .await;
    wait_for("it is ready", || place.stored("a").join("ready").exists()).await;
    let mut fast = Fast::connect(place.addr).await;
    let (mut harmless, mut refused, mut asked) = (0, 0, 0);
    for round in 0..ROUNDS {
        let under = |name: &str| format!("/workspace/d/{name}");
        let requests = [
            // Read from the host's side, while the sandbox runs.
            ("workspaces/a/read", json!({"path": "d/canary"})),
            ("workspaces/a/read_bytes", json!({"path": "d/canary"})),
            ("workspaces/a/ls", json!({"path": "d"})),
            ("workspaces/a/tree", json!({"path": "d"})),
            ("workspaces/a/tree", json!({"path": "."})),
            ("workspaces/trees", json!({"sessions": ["a"], "path": "d"})),
            // By the guest, in what the sandbox sees.
            ("sessions/a/files/read", json!({"path": under("canary")})),
            ("sessions/a/files/stat", json!({"path": under("canary")})),
            ("sessions/a/files/list", json!({"path": under("")})),
            ("sessions/a/files/realpath", json!({"path": under("canary")})),
            ("sessions/a/files/mkdir", json!({"path": under(&format!("made-{round}"))})),
            ("sessions/a/files/remove", json!({"path": under(&format!("made-{round}"))})),
            ("sessions/a/read", json!({"path": "d/canary"})),
            ("sessions/a/ls", json!({"path": "d"})),
        ];
        for (path, body) in requests {
            let reply = fast.post(&format!("/{path}"), &body).await;
            let text = reply.text();
            assert!(!text.contains(CANARY), "{path}: {text}");
            asked += 1;
            if path == "workspaces/a/read" {
                match text.contains("harmless") {
                    true => harmless += 1,
                    false => refused += 1,
                }
            }
        }
        let path = format!("/sessions/a/files/write?path={}", under("written"));
        let reply = fast.send("POST", &path, "application/octet-stream", b"x").await;
        assert!([204, 200, 404, 409].contains(&reply.status), "{}", reply.text());
    }
    // Both sides of the exchange were met, or nothing was tried.
    assert!(harmless > 0 && refused > 0, "{harmless} {refused}");
    println!("{asked} requests, {harmless} reads of the harmless file, {refused} refusals");
    place.assert_outside_is_untouched();
    // Its files are removed from under it.
    place.purge("a").await;
    place.assert_outside_is_untouched();
    assert!(!place.stored("a").exists());
    place.close().await;
}

/// Waits, in real time, until something is so.
pub(crate) async fn wait_for(what: &str, so: impl Fn() -> bool) {
    for _ in 0..2_000 {
        if so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never: {what}");
}
