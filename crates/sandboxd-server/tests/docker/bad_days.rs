//! Bad days of a real engine: it is restarted, it is killed, its disk is full, an image is taken away. The next request
//! says so or goes on, nothing hangs, and nothing is said to run that does not.

use crate::own::{OwnEngine, SMALL};
use crate::place::{Home, Place, allow, has_engine, until};
use sandboxd_server::id::SessionId;
use sandboxd_server::sessions::{RunAsk, RunDone, UseError};
use std::sync::Arc;
use std::time::Duration;

/// Longer than every deadline of a request together: what takes longer hangs.
const HANGS: Duration = Duration::from_secs(240);

/// Begins a run that does not end by itself.
fn endless(place: &Place, id: &SessionId) -> tokio::task::JoinHandle<Result<RunDone, UseError>> {
    let sessions = Arc::clone(&place.sessions);
    let id = id.clone();
    let script = "echo on > on; while :; do sleep 1000; done";
    let ask = RunAsk {
        argv: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
        env: Vec::new(),
        timeout: None,
        id: None,
    };
    tokio::spawn(async move { sessions.run(&id, ask).await })
}

/// A session of its own with a run under way while the engine goes and comes back; files outlive that.
async fn goes_and_comes_back(persist: bool, go: impl Fn(&mut OwnEngine)) {
    if !has_engine() {
        return;
    }
    let mut engine = OwnEngine::docker(&[]).await;
    let home = Home::new();
    let place = home
        .service_at(&engine.address(), |service| {
            allow(service, SMALL);
            service.persist_containers = persist;
        })
        .await;
    let id = home.id("a");
    place.open(&id).await.unwrap();
    place.out(&id, "echo kept > f; echo inside > /made").await;
    let run = endless(&place, &id);
    until("the run is under way", async || {
        home.stored(&id).join("on").exists()
    })
    .await;
    go(&mut engine);
    let ended = tokio::time::timeout(HANGS, run).await;
    let ended = ended.expect("the run does not hang").unwrap();
    assert!(
        !matches!(ended, Ok(RunDone::Finished { code: 0, .. })),
        "{ended:?}"
    );
    until("its death is noticed", async || {
        !place.sessions.get(&id).unwrap().alive
    })
    .await;
    let asked = tokio::time::timeout(HANGS, place.run(&id, &["/bin/sh", "-c", "true"])).await;
    let refused = asked.expect("a request does not hang").unwrap_err();
    assert!(matches!(refused, UseError::WakeFailed { .. }), "{refused}");
    assert!(place.sessions.is_hibernated(&id), "it is not said to run");
    engine.begin().await;
    let made = if persist { "inside\n" } else { "" };
    let said = place.out(&id, "cat f; cat /made 2>/dev/null || :").await;
    assert_eq!(said, format!("kept\n{made}"));
    assert!(place.sessions.get(&id).unwrap().alive);
    // One container, and it is that one.
    let running = engine.docker_says(&["ps", "--quiet"]);
    assert_eq!(running.lines().count(), 1, "{running}");
    let all = engine.docker_says(&["ps", "--all", "--quiet"]);
    assert_eq!(all, running);
    assert_eq!(place.backend.list().await.unwrap().len(), 1);
    place.purge(&id).await;
    place.close().await;
    assert_eq!(engine.docker_says(&["ps", "--all", "--quiet"]), "");
}

#[tokio::test]
async fn an_engine_that_is_restarted_takes_no_files() {
    goes_and_comes_back(false, OwnEngine::stop).await;
}

#[tokio::test]
async fn an_engine_that_is_restarted_takes_no_kept_container() {
    goes_and_comes_back(true, OwnEngine::stop).await;
}

#[tokio::test]
async fn an_engine_that_is_killed_takes_no_files() {
    goes_and_comes_back(false, OwnEngine::kill).await;
}

#[tokio::test]
async fn an_engine_that_is_killed_takes_no_kept_container() {
    goes_and_comes_back(true, OwnEngine::kill).await;
}

#[tokio::test]
async fn what_was_in_a_container_only_is_said_to_be_gone() {
    if !has_engine() {
        return;
    }
    let mut engine = OwnEngine::docker(&[]).await;
    let home = Home::new();
    let place = home
        .service_at(&engine.address(), |service| {
            allow(service, SMALL);
            service.workspace_root = None;
        })
        .await;
    let id = home.id("a");
    place.open(&id).await.unwrap();
    place.out(&id, "echo lost > f").await;
    engine.stop();
    engine.begin().await;
    until("its death is noticed", async || {
        !place.sessions.get(&id).unwrap().alive
    })
    .await;
    let gone = place.run(&id, &["/bin/sh", "-c", "true"]).await;
    assert!(matches!(gone, Err(UseError::Gone(_))), "{gone:?}");
    // The twin: another one can be had.
    let other = home.id("b");
    place.open(&other).await.unwrap();
    assert_eq!(place.out(&other, "echo here").await, "here\n");
    place.purge(&id).await;
    place.close().await;
    assert_eq!(engine.docker_says(&["ps", "--all", "--quiet"]), "");
}

#[tokio::test]
async fn an_image_that_was_removed_is_named_and_nothing_is_lost() {
    if !has_engine() {
        return;
    }
    let engine = OwnEngine::docker(&[]).await;
    let home = Home::new();
    let place = home
        .service_at(&engine.address(), |service| allow(service, SMALL))
        .await;
    let id = home.id("a");
    place.open(&id).await.unwrap();
    place.out(&id, "echo kept > f").await;
    place.put_to_sleep(&id).await;
    engine.docker_says(&["image", "rm", SMALL]);
    let asked = tokio::time::timeout(HANGS, place.run(&id, &["/bin/sh", "-c", "true"])).await;
    let refused = asked.expect("a request does not hang").unwrap_err();
    assert!(refused.to_string().contains(SMALL), "{refused}");
    let refused = place.open(&home.id("b")).await.unwrap_err().to_string();
    assert!(refused.contains(SMALL), "{refused}");
    assert!(place.sessions.is_hibernated(&id));
    engine.import();
    assert_eq!(place.out(&id, "cat f").await, "kept\n");
    place.close().await;
}

#[tokio::test]
async fn a_full_disk_is_said_and_leaves_nothing_half_made() {
    if !has_engine() {
        return;
    }
    let engine = OwnEngine::docker_within(96).await;
    let home = Home::new();
    let place = home
        .service_at(&engine.address(), |service| {
            allow(service, SMALL);
            service.ceilings.values.disk_bytes = None;
        })
        .await;
    let (a, b) = (home.id("a"), home.id("b"));
    place.open(&a).await.unwrap();
    let fill = "while cat /usr/bin/* /lib/*/lib*.so.* >> /fill; do :; done 2>/dev/null; echo full";
    assert_eq!(place.out(&a, fill).await, "full\n");
    let opening = tokio::time::timeout(HANGS, place.open(&b)).await;
    let refused = opening.expect("a request does not hang").unwrap_err();
    let refused = refused.to_string();
    assert!(refused.contains("no space left"), "{refused}");
    assert_eq!(
        engine
            .docker_says(&["ps", "--all", "--quiet"])
            .lines()
            .count(),
        1
    );
    // Who has a place already keeps it, and may make room.
    assert_eq!(place.out(&a, "rm /fill; echo room").await, "room\n");
    place.open(&b).await.unwrap();
    assert_eq!(place.out(&b, "echo here").await, "here\n");
    place.purge(&a).await;
    place.purge(&b).await;
    place.close().await;
    assert_eq!(engine.docker_says(&["ps", "--all", "--quiet"]), "");
}
