//! `persist_containers`: the same container, stopped and started.

use crate::place::{DEBIAN, Home, STATIC, allow, has_engine, until};
use bollard::query_parameters::{RemoveImageOptions, TagImageOptions};
use sandboxd_server::sessions::{RunDone, UseError};

#[tokio::test]
async fn what_is_in_a_container_outlives_its_sleep_and_its_daemon() {
    if !has_engine() {
        return;
    }
    let home = Home::new();
    let id = home.id("a");
    let name = format!("sandboxd-{id}");
    let place = home
        .service(|service| service.persist_containers = true)
        .await;
    place.open(&id).await.unwrap();
    place.out(&id, "echo 1 > /opt/made; echo 2 > f").await;
    let container = home.inspect(&name).await.unwrap().id.unwrap();
    place.put_to_sleep(&id).await;
    assert!(!home.runs(&container).await);
    assert_eq!(place.out(&id, "cat /opt/made f").await, "1\n2\n");
    place.close().await;
    assert!(!home.runs(&container).await, "a clean end stops it");

    let place = home
        .service(|service| service.persist_containers = true)
        .await;
    assert_eq!(place.out(&id, "cat /opt/made f").await, "1\n2\n");
    let again = home.inspect(&name).await.unwrap().id.unwrap();
    assert_eq!(again, container, "it is the same one");
    place.purge(&id).await;
    assert!(home.inspect(&container).await.is_none());
    assert!(!home.stored(&id).exists());
    place.close().await;
}

#[tokio::test]
async fn a_changed_ceiling_holds_from_the_next_wake_on() {
    if !has_engine() {
        return;
    }
    let home = Home::new();
    let id = home.id("a");
    let place = home
        .service(|service| service.persist_containers = true)
        .await;
    place.open(&id).await.unwrap();
    place.close().await;
    let place = home
        .service(|service| {
            service.persist_containers = true;
            service.ceilings.values.memory_bytes = Some(100 << 20);
            service.ceilings.values.pids = Some(77);
        })
        .await;
    place.out(&id, "true").await;
    let looked = home.inspect(&format!("sandboxd-{id}")).await.unwrap();
    let host = looked.host_config.unwrap();
    assert_eq!(host.memory, Some(100 << 20));
    assert_eq!(host.memory_swap, Some(100 << 20));
    assert_eq!(host.pids_limit, Some(77));
    place.purge(&id).await;
    place.close().await;
}

#[tokio::test]
async fn a_kept_container_that_was_removed_is_never_replaced_by_an_empty_one() {
    if !has_engine() {
        return;
    }
    let home = Home::new();
    let id = home.id("a");
    let place = home
        .service(|service| {
            service.persist_containers = true;
            service.workspace_root = None;
        })
        .await;
    place.open(&id).await.unwrap();
    place.out(&id, "echo 1 > /opt/made").await;
    place.put_to_sleep(&id).await;
    home.remove(&format!("sandboxd-{id}")).await;
    for _ in 0..2 {
        let refused = place.run(&id, &["true"]).await.unwrap_err();
        assert!(!matches!(refused, UseError::NotFound(_)), "{refused}");
    }
    assert!(home.inspect(&format!("sandboxd-{id}")).await.is_none());
    place.sessions.delete(&id, true).await.unwrap();
    place.close().await;
}

#[tokio::test]
async fn a_kept_container_past_its_time_goes_and_the_session_stays() {
    if !has_engine() {
        return;
    }
    let home = Home::new();
    let (id, other) = (home.id("a"), home.id("b"));
    let place = home
        .service(|service| {
            service.persist_containers = true;
            service.container_ttl = Some(1);
        })
        .await;
    for id in [&id, &other] {
        place.open(id).await.unwrap();
        place.out(id, "echo 1 > /opt/made; echo 2 > f").await;
    }
    let container = async |id| home.inspect(&format!("sandboxd-{id}")).await;
    place.put_to_sleep(&id).await;
    assert!(container(&id).await.is_some());
    until("it is swept", async || {
        place.sessions.sweep().await;
        container(&id).await.is_none()
    })
    .await;
    // One that is awake is nobody's to sweep, and what was kept beside the container is there.
    assert!(container(&other).await.is_some());
    assert_eq!(place.out(&other, "cat /opt/made f").await, "1\n2\n");
    assert_eq!(place.out(&id, "test ! -e /opt/made; cat f").await, "2\n");
    for id in [&id, &other] {
        place.purge(id).await;
        assert!(container(id).await.is_none());
    }
    place.close().await;
}

#[tokio::test]
async fn a_kept_container_that_no_session_has_is_swept() {
    if !has_engine() {
        return;
    }
    let home = Home::new();
    let id = home.id("a");
    let place = home
        .service(|service| service.persist_containers = true)
        .await;
    place.open(&id).await.unwrap();
    place.close().await;
    let name = format!("sandboxd-{id}");
    assert!(home.inspect(&name).await.is_some());
    // Another one's of the same name pattern stays.
    let others = format!("{name}-others");
    let others = home.container(&others, &["sleep", "98761"], None).await;
    // The same state directory without its records: as after a crash between the two.
    let place = home.without_records().service(|_| {}).await;
    until("it is swept", async || {
        place.sessions.sweep().await;
        home.inspect(&name).await.is_none()
    })
    .await;
    assert!(home.runs(&others).await);
    place.close().await;
    home.remove(&others).await;
}

/// Gives an image this name.
async fn tag(home: &Home, image: &str, repository: &str) {
    let options = TagImageOptions {
        repo: Some(repository.to_owned()),
        tag: Some("1".to_owned()),
    };
    let client = home.client().await;
    client.tag_image(image, Some(options)).await.unwrap();
}

#[tokio::test]
async fn a_kept_container_wakes_over_its_own_image_when_the_runtimes_is_another() {
    if !has_engine() {
        return;
    }
    let home = Home::new();
    let (id, other) = (home.id("a"), home.id("b"));
    let repository = format!("sandboxd-test/moving-{}", home.id("i")).to_lowercase();
    let name = format!("{repository}:1");
    tag(&home, DEBIAN, &repository).await;
    let place = home
        .service(|service| {
            service.persist_containers = true;
            allow(service, &name);
        })
        .await;
    place.open(&id).await.unwrap();
    place.out(&id, "echo 1 > /opt/made").await;
    place.put_to_sleep(&id).await;
    tag(&home, STATIC, &repository).await;
    assert_eq!(place.out(&id, "cat /opt/made").await, "1\n");
    // A new session has what the name means now, which has no shell.
    place.open(&other).await.unwrap();
    let done = place.run(&other, &["/bin/sh", "-c", "true"]).await.unwrap();
    assert!(
        matches!(done, RunDone::Finished { code: 127, .. }),
        "{done:?}"
    );
    place.put_to_sleep(&id).await;
    let client = home.client().await;
    let removing = client.remove_image(&name, None::<RemoveImageOptions>, None);
    removing.await.unwrap();
    assert_eq!(
        place.out(&id, "cat /opt/made").await,
        "1\n",
        "without a name"
    );
    place.purge(&id).await;
    place.purge(&other).await;
    place.close().await;
}
