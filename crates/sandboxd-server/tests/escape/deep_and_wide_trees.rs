//! Directories with more entries, and paths with more levels, than anybody needs.

use crate::fast::Fast;
use crate::place::Place;
use crate::wire::TOKEN;
use serde_json::json;
use std::time::{Duration, Instant};

/// Files in one directory.
const WIDE: u32 = 20_000;
/// Levels of one path.
const DEEP: u32 = 2_000;
/// No operation on them may take longer: it has to stop by itself long before.
const BOUND: Duration = Duration::from_secs(30);
/// Most bytes of an answer: what 100,000 entries take.
const ANSWER_MAX: usize = 64 << 20;

const MAKE: &str = r##"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
int main(int n, char **words) {
  int wide = atoi(words[1]), deep = atoi(words[2]); char name[32];
  mkdir("wide", 0755); chdir("wide");
  for (int i = 0; i < wide; i++) { snprintf(name, sizeof name, "file-%d", i); close(open(name, O_CREAT | O_WRONLY, 0644)); }
  chdir("..");
  mkdir("deep", 0755); chdir("deep");
  for (int i = 0; i < deep; i++) { mkdir("d", 0755); if (chdir("d")) return 1; }
  close(open("needle", O_CREAT | O_WRONLY, 0644));
  // Closed to their owner too, all the way down.
  for (int i = 0; i < deep && words[3]; i++) { chdir(".."); chmod("d", 0); }
  return 0;
}
"##;

async fn bounded(place: &Place, id: &str) {
    let other = place.says("b", "echo quick");
    let routes = [
        ("workspaces/ID/ls", json!({"path": "wide"})),
        ("workspaces/ID/tree", json!({"path": ".", "max_depth": 64, "max_entries": 100_000})),
        ("workspaces/ID/tree", json!({"path": "deep", "max_depth": 64})),
        ("sessions/ID/files/list", json!({"path": "/workspace/wide"})),
        ("sessions/ID/files/stat", json!({"path": "/workspace/wide"})),
        ("sessions/ID/ls", json!({"path": "wide"})),
        ("sessions/ID/glob", json!({"pattern": "**/needle", "path": "/workspace"})),
        ("sessions/ID/grep", json!({"pattern": "needle", "path": "/workspace"})),
        ("sessions/ID/exec", json!({"command": "ls wide | wc -l"})),
    ];
    assert_eq!(other.await, "quick");
    let mut fast = Fast::connect(place.addr).await;
    for (route, body) in routes {
        let begin = Instant::now();
        let reply = fast.post(&format!("/{}", route.replace("ID", id)), &body).await;
        let took = begin.elapsed();
        println!("{route} {body}: {took:?}, {} bytes", reply.body.len());
        assert!(took < BOUND, "{route}: {took:?}");
        assert!(reply.body.len() < ANSWER_MAX, "{route}: {}", reply.body.len());
        assert_ne!(reply.status, 500, "{route}: {}", reply.text());
        // Somebody else is served all the while.
        assert_eq!(place.says("b", "echo quick").await, "quick");
    }
}

pub(crate) async fn every_operation_on_them_ends_and_they_go() {
    let place = Place::open().await;
    place.session("a").await;
    place.session("b").await;
    place.compile("a", "make", MAKE);
    place.says("a", &format!("./make {WIDE} {DEEP}")).await;
    bounded(&place, "a").await;
    // The twin: a small one beside them is listed and searched as ever.
    place.says("a", "mkdir small; echo needle > small/file").await;
    let found = place.post("/sessions/a/grep", json!({"pattern": "needle", "path": "/workspace/small"})).await;
    assert!(found.text().contains("small/file"), "{}", found.text());
    let begin = Instant::now();
    place.purge("a").await;
    println!("gone in {:?}", begin.elapsed());
    assert!(!place.stored("a").exists());
    place.close().await;
}

pub(crate) async fn a_deep_tree_that_is_closed_to_its_owner_goes_too() {
    let place = Place::open().await;
    place.session("a").await;
    place.compile("a", "make", MAKE);
    place.says("a", &format!("./make 10 {DEEP} closed")).await;
    // It sleeps, wakes and goes as any other.
    place.ask(TOKEN, "DELETE", "/sessions/a", None).await.nothing();
    place.session("a").await;
    assert!(place.says("a", "ls").await.contains("deep"));
    place.purge("a").await;
    assert!(!place.stored("a").parent().unwrap().exists());
    place.close().await;
}
