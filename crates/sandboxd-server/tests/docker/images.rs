//! Images that bring nothing, and images that bring what is in the way.

use crate::place::{ENTRYPOINT, Home, STATIC, allow, has_engine};
use sandboxd_server::sessions::{OpenError, RunDone};

#[tokio::test]
async fn an_image_without_a_shell_and_a_c_library_works() {
    if !has_engine() {
        return;
    }
    let home = Home::new();
    let place = home.service(|service| allow(service, STATIC)).await;
    let id = home.id("a");
    place.open(&id).await.unwrap();
    let done = place.run(&id, &["/only", "exit", "7"]).await.unwrap();
    assert!(
        matches!(done, RunDone::Finished { code: 7, .. }),
        "{done:?}"
    );
    let shell = place.run(&id, &["/bin/sh", "-c", "true"]).await.unwrap();
    assert!(
        matches!(shell, RunDone::Finished { code: 127, .. }),
        "{shell:?}"
    );
    place.put_to_sleep(&id).await;
    let done = place.run(&id, &["/only", "exit", "0"]).await.unwrap();
    assert!(
        matches!(done, RunDone::Finished { code: 0, .. }),
        "{done:?}"
    );
    place.close().await;
}

#[tokio::test]
async fn an_images_own_entry_point_is_not_run() {
    if !has_engine() {
        return;
    }
    let home = Home::new();
    let place = home.service(|service| allow(service, ENTRYPOINT)).await;
    let id = home.id("a");
    place.open(&id).await.unwrap();
    assert_eq!(place.out(&id, "echo ours").await, "ours\n");
    let first = place.out(&id, "cat /proc/1/comm").await;
    assert!(first.starts_with("sandboxd-guest"), "{first}");
    place.close().await;
}

#[tokio::test]
async fn an_image_that_is_not_there_is_named() {
    if !has_engine() {
        return;
    }
    let home = Home::new();
    let place = home
        .service(|service| allow(service, "sandboxd-test/no-such:1"))
        .await;
    let refused = place.open(&home.id("a")).await.unwrap_err();
    assert!(
        matches!(&refused, OpenError::Start(cause) if cause.contains("sandboxd-test/no-such:1")),
        "{refused}"
    );
    place.close().await;
}
