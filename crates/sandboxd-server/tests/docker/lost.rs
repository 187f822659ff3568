//! Containers that vanish, and an engine that does.

use crate::place::{Front, Home, has_engine, until};
use sandboxd_server::sessions::UseError;
use std::time::{Duration, Instant};

#[tokio::test]
async fn an_engine_that_is_away_is_said_and_sessions_go_on_when_it_is_back() {
    if !has_engine() {
        return;
    }
    let home = Home::new();
    let mut front = Front::new(home.dir.path());
    let place = home.service_at(&front.address(), |_| {}).await;
    let id = home.id("a");
    place.open(&id).await.unwrap();
    place.out(&id, "echo kept > f").await;
    front.go().await;
    until("its death is noticed", async || {
        !place.sessions.get(&id).unwrap().alive
    })
    .await;
    let began = Instant::now();
    let refused = place.run(&id, &["true"]).await.unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(60));
    assert!(!matches!(refused, UseError::NotFound(_)), "{refused}");
    let opened = place.open(&home.id("b")).await.unwrap_err().to_string();
    assert!(
        opened.contains("engine.sock") || opened.contains("looking for"),
        "{opened}"
    );
    front.come();
    assert_eq!(place.out(&id, "cat f").await, "kept\n");
    place.close().await;
    front.go().await;
}

#[tokio::test]
async fn a_container_that_is_removed_from_outside_is_healed_where_its_files_are_stored() {
    if !has_engine() {
        return;
    }
    let home = Home::new();
    let place = home
        .service(|service| service.persist_containers = true)
        .await;
    let id = home.id("a");
    place.open(&id).await.unwrap();
    place.out(&id, "echo kept > f").await;
    home.remove(&format!("sandboxd-{id}")).await;
    until("its death is noticed", async || {
        !place.sessions.get(&id).unwrap().alive
    })
    .await;
    assert_eq!(place.out(&id, "cat f").await, "kept\n");
    place.purge(&id).await;
    place.close().await;
}
