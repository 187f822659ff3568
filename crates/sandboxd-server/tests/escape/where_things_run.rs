//! Commands that run on the host although they were meant for a sandbox: each way to run one says where it is.

use crate::place::Place;
use serde_json::json;

const NAMESPACES: [&str; 7] = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"];

pub(crate) async fn every_way_to_run_something_runs_it_inside() {
    let place = Place::open().await;
    place.session("a").await;
    let mine: Vec<String> = NAMESPACES
        .iter()
        .map(|name| std::fs::read_link(format!("/proc/self/ns/{name}")).unwrap().display().to_string())
        .collect();
    let say = "for n in user mnt pid net ipc uts cgroup; do readlink /proc/self/ns/$n; done";
    let by_exec = place
        .post("/sessions/a/exec", json!({ "command": say }))
        .await
        .ok()["output"]
        .as_str()
        .unwrap()
        .to_owned();
    let ways = [
        ("run", place.says("a", say).await),
        ("exec", by_exec),
        (
            "a program by its bare name",
            place.run("a", &["sh", "-c", say], json!({})).await.out,
        ),
        (
            "a background child",
            place.says("a", &format!("setsid sh -c '{say}' & wait")).await,
        ),
    ];
    for (way, said) in ways {
        let theirs: Vec<&str> = said.lines().collect();
        assert_eq!(theirs.len(), NAMESPACES.len(), "{way}: {said}");
        for (ours, theirs) in mine.iter().zip(theirs) {
            assert_ne!(ours, theirs, "{way}");
        }
    }
    // Routes that search and edit run nothing at all: there is no program to find in their path.
    place.says("a", "mkdir bin; for n in sh grep find sed ls; do printf '#!/bin/sh\\ntouch /workspace/ran\\n' > bin/$n; chmod +x bin/$n; done; echo x > text").await;
    for (op, body) in [
        ("grep", json!({"pattern": "$(touch /workspace/ran)", "path": "/workspace"})),
        ("glob", json!({"pattern": "`touch ran`*", "path": "/workspace"})),
        ("ls", json!({"path": "/workspace; touch /workspace/ran"})),
        ("read", json!({"path": "$(touch /workspace/ran)"})),
        ("exists", json!({"path": "| touch /workspace/ran"})),
        ("edit", json!({"path": "/workspace/text", "old_string": "x", "new_string": "$(touch /workspace/ran)"})),
    ] {
        place.post(&format!("/sessions/a/{op}"), body).await;
    }
    assert!(!place.stored("a").join("ran").exists());
    place.close().await;
}
