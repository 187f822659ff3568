//! What a daemon that was killed has left, and what is nobody's business.

use crate::place::{Front, Home, has_engine, until};
use bollard::models::{ContainerCreateBody, HostConfig};
use bollard::query_parameters::{
    AttachContainerOptions, CreateContainerOptions, StartContainerOptions,
};
use std::collections::HashMap;

/// A container with these labels that runs for long.
async fn labelled(home: &Home, labels: &[(&str, &str)], name: &str) -> String {
    named(home, labels, &format!("{}-{name}", home.id("left"))).await
}

/// Likewise, with this name.
pub(crate) async fn named(home: &Home, labels: &[(&str, &str)], name: &str) -> String {
    let labels = labels.iter();
    let labels: HashMap<String, String> = labels
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let body = ContainerCreateBody {
        image: Some(crate::place::DEBIAN.to_owned()),
        cmd: Some(vec!["sleep".to_owned(), "98763".to_owned()]),
        labels: Some(labels),
        host_config: Some(HostConfig {
            network_mode: Some("none".to_owned()),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    };
    let client = home.client().await;
    let options = CreateContainerOptions {
        name: Some(name.to_owned()),
        ..CreateContainerOptions::default()
    };
    let made = client.create_container(Some(options), body).await.unwrap();
    let started = client.start_container(&made.id, None::<StartContainerOptions>);
    started.await.unwrap();
    made.id
}

#[tokio::test]
async fn a_start_ends_what_dead_instances_left_and_nothing_else() {
    if !has_engine() {
        return;
    }
    let home = Home::new();
    let place = home.service(|_| {}).await;
    place.close().await;
    let state = std::fs::read_to_string(home.state().join("engine-state")).unwrap();
    let of = |state: &'static str, keep: &'static str, id: &'static str| {
        [
            ("sandboxd.state", state),
            ("sandboxd.instance", "0000000000000000"),
            ("sandboxd.sandbox", id),
            ("sandboxd.keep", keep),
        ]
    };
    let state: &'static str = Box::leak(state.into_boxed_str());
    let scratch = labelled(&home, &of(state, "no", "00000000000000a1"), "scratch").await;
    let kept = labelled(&home, &of(state, "yes", "00000000000000a2"), "kept").await;
    let others = of("1111111111111111", "no", "00000000000000a3");
    let others = labelled(&home, &others, "others").await;
    let plain = labelled(&home, &[], "sandboxd-plain").await;
    let place = home.service(|_| {}).await;
    assert!(home.inspect(&scratch).await.is_none(), "removed");
    // No session has it: the sessions' own sweep removes it after the backend has stopped it.
    assert!(!home.runs(&kept).await, "ended");
    assert!(home.runs(&others).await && home.runs(&plain).await);
    place.close().await;
    for container in [&kept, &others, &plain] {
        home.remove(container).await;
    }
}

#[tokio::test]
async fn what_a_killed_daemon_had_begun_with_a_kept_container_does_not_fail_its_wake() {
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
    place.out(&id, "echo 1 > /opt/made").await;
    let options = || AttachContainerOptions {
        stream: true,
        stdin: true,
        stdout: true,
        stderr: true,
        ..AttachContainerOptions::default()
    };
    for is_started in [false, true] {
        place.put_to_sleep(&id).await;
        // As a daemon does that is killed before, or just after, it has it started.
        let client = home.client().await;
        let attached = client.attach_container(&name, Some(options())).await;
        if is_started {
            let started = client.start_container(&name, None::<StartContainerOptions>);
            started.await.unwrap();
        }
        drop(attached);
        assert_eq!(place.out(&id, "cat /opt/made").await, "1\n", "{is_started}");
    }
    place.purge(&id).await;
    place.close().await;
}

#[tokio::test]
async fn a_sandbox_goes_with_its_link_whoever_closes_it() {
    if !has_engine() {
        return;
    }
    let home = Home::new();
    let id = home.id("a");
    let mut front = Front::new(home.dir.path());
    let place = home.service_at(&front.address(), |_| {}).await;
    place.open(&id).await.unwrap();
    place
        .out(&id, "setsid sleep 98762 >/dev/null 2>&1 & echo")
        .await;
    let own = |client: bollard::Docker| {
        let state = std::fs::read_to_string(home.state().join("engine-state")).unwrap();
        async move {
            let wanted = vec![format!("sandboxd.state={state}")];
            let options = bollard::query_parameters::ListContainersOptions {
                all: true,
                filters: Some(HashMap::from([("label".to_owned(), wanted)])),
                ..Default::default()
            };
            client.list_containers(Some(options)).await.unwrap().len()
        }
    };
    assert_eq!(own(home.client().await).await, 1);
    // As when the daemon is killed: nothing is said to the engine, the link just ends.
    front.go().await;
    until("the engine removed it", async || {
        own(home.client().await).await == 0
    })
    .await;
    front.come();
    place.close().await;
    front.go().await;
}
