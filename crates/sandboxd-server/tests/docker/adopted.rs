//! Containers and workspaces that the Python service left behind.

use crate::place::{Home, has_engine};
use sandboxd_server::backends::{Ceiling, Enforcement};
use sandboxd_server::sessions::OpenError;
use std::os::unix::fs::MetadataExt as _;

/// Files of a session of the Python service's, as root left them.
fn old_workspace(home: &Home, id: &sandboxd_server::id::SessionId) -> std::path::PathBuf {
    let path = home.stored(id);
    std::fs::create_dir_all(&path).unwrap();
    std::fs::write(path.join("f"), "stored\n").unwrap();
    path.canonicalize().unwrap()
}

#[tokio::test]
async fn an_old_container_is_taken_over_with_what_is_in_it() {
    if !has_engine() {
        return;
    }
    let home = Home::new();
    let id = home.id("a");
    let workspace = old_workspace(&home, &id);
    let container = home.old_container(&id, Some(&workspace)).await;
    let keep = |service: &mut sandboxd_server::config::Service| service.persist_containers = true;
    let place = home.service(keep).await;
    let opened = place.open(&id).await.unwrap();
    let range = opened.session.enforced.get(&Ceiling::UidRange);
    assert!(
        matches!(range, Some(Enforcement::Unenforced(why)) if why.contains("can end its guest")),
        "{range:?}"
    );
    assert_eq!(place.out(&id, "cat f; echo more >> f").await, "stored\n");
    place
        .out(&id, "echo 1 > /opt/made; sleep 98765 & echo")
        .await;
    assert_eq!(workspace.join("f").metadata().unwrap().uid(), 0);
    place.put_to_sleep(&id).await;
    assert!(!home.runs(&container).await);
    assert_eq!(place.out(&id, "cat /opt/made").await, "1\n");
    let looked = home.inspect(&format!("sandboxd-{id}")).await.unwrap();
    assert_eq!(looked.id.as_ref(), Some(&container), "it is the same one");
    place.close().await;
    assert!(!home.runs(&container).await);

    let place = home.service(keep).await;
    let found = place.backend.list().await.unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(place.out(&id, "cat /opt/made f").await, "1\nstored\nmore\n");
    place.purge(&id).await;
    assert!(home.inspect(&container).await.is_none());
    assert_eq!(place.backend.list().await.unwrap(), []);
    place.close().await;
}

#[tokio::test]
async fn an_old_workspace_alone_is_enough() {
    if !has_engine() {
        return;
    }
    let home = Home::new();
    let id = home.id("a");
    old_workspace(&home, &id);
    let place = home.service(|_| {}).await;
    place.open(&id).await.unwrap();
    assert_eq!(place.out(&id, "cat f && rm f").await, "stored\n");
    place.close().await;
}

#[tokio::test]
async fn somebody_elses_container_of_that_name_is_left_alone_and_named() {
    if !has_engine() {
        return;
    }
    let home = Home::new();
    let id = home.id("a");
    let container = home
        .container(&format!("sandboxd-{id}"), &["sleep", "98764"], None)
        .await;
    let place = home
        .service(|service| service.persist_containers = true)
        .await;
    let refused = place.open(&id).await.unwrap_err();
    assert!(
        matches!(&refused, OpenError::Start(cause)
            if cause.contains("was not made by a sandboxd") && cause.contains("docker rm")),
        "{refused}"
    );
    assert!(home.runs(&container).await);
    place.close().await;
    home.remove(&container).await;
}

#[tokio::test]
async fn one_with_another_work_directory_than_is_asked_for_is_not_taken_over() {
    if !has_engine() {
        return;
    }
    let home = Home::new();
    let id = home.id("a");
    let workspace = old_workspace(&home, &id);
    let container = home.old_container(&id, Some(&workspace)).await;
    let place = home
        .service(|service| {
            service.persist_containers = true;
            service.workspace_root = None;
        })
        .await;
    let refused = place.open(&id).await.unwrap_err().to_string();
    assert!(refused.contains("work directory"), "{refused}");
    assert!(home.runs(&container).await, "it is as it was");
    place.close().await;
    home.remove(&container).await;
}
