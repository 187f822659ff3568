//! How the guest gets into containers, by now and by earlier versions.

use crate::place::{DEBIAN, Home, allow, has_engine};
use bollard::models::{ContainerCreateBody, HostConfig, Mount, MountType, Volume};
use bollard::query_parameters::{
    CreateContainerOptions, ListVolumesOptions, UploadToContainerOptions,
};
use sandboxd_server::config::Service;
use std::collections::HashMap;

const GUEST_DIRECTORY: &str = "/.sandboxd";

/// Containers are kept, and files are in them.
fn kept(service: &mut Service) {
    service.persist_containers = true;
    service.workspace_root = None;
}

/// The volumes of this state directory.
async fn volumes(home: &Home) -> Vec<Volume> {
    let state = std::fs::read_to_string(home.state().join("engine-state")).unwrap();
    let wanted = vec![format!("sandboxd.state={state}")];
    let options = ListVolumesOptions {
        filters: Some(HashMap::from([("label".to_owned(), wanted)])),
    };
    let client = home.client().await;
    let found = client.list_volumes(Some(options)).await.unwrap();
    found.volumes.unwrap_or_default()
}

#[tokio::test]
async fn no_sandbox_writes_where_all_have_the_guest_from() {
    if !has_engine() {
        return;
    }
    let home = Home::new();
    let (id, other) = (home.id("a"), home.id("b"));
    let place = home.service(kept).await;
    for id in [&id, &other] {
        place.open(id).await.unwrap();
        // As root, who may write everywhere else.
        let tried = "id -u; cd /.sandboxd; for how in 'touch x' 'rm sandboxd-guest' 'mv sandboxd-guest y' \
                     'chmod 777 sandboxd-guest' 'tee -a sandboxd-guest' 'mount -o remount,rw,bind /.sandboxd' \
                     'umount /.sandboxd' 'mv /.sandboxd /y'; do echo '#' | $how >/dev/null 2>&1 && echo \"$how\"; done; ls";
        assert_eq!(place.out(id, tried).await, "0\nsandboxd-guest\n");
        let twin = place.out(id, "touch /opt/x && chmod 777 /opt/x && ls /opt");
        assert_eq!(twin.await, "x\n");
        assert_eq!(place.out(id, "stat -c %u:%a .").await, "0:755\n");
    }
    let all = volumes(&home).await;
    assert_eq!(all.len(), 1, "one for all: {all:?}");
    place.purge(&id).await;
    place.close().await;
    assert_eq!(volumes(&home).await.len(), 1, "a kept container has it");

    let place = home.service(kept).await;
    place.out(&other, "true").await;
    assert_eq!(volumes(&home).await.len(), 1, "a wake needs no other");
    place.purge(&other).await;
    place.close().await;
    home.service(kept).await.close().await;
    assert_eq!(volumes(&home).await.len(), 0);
}

#[tokio::test]
async fn a_container_of_an_earlier_version_wakes() {
    if !has_engine() {
        return;
    }
    let home = Home::new();
    let id = home.id("a");
    let place = home.service(kept).await;
    place.open(&id).await.unwrap();
    place.close().await;
    // Made once more, as it was before there was a volume: the guest was copied in at each start.
    let name = format!("sandboxd-{id}");
    let looked = home.inspect(&name).await.unwrap();
    let (config, host) = (looked.config.unwrap(), looked.host_config.unwrap());
    home.remove(&name).await;
    let words = config.cmd.unwrap().into_iter();
    let body = ContainerCreateBody {
        image: looked.image,
        user: config.user,
        entrypoint: Some(vec!["/.sandboxd-guest".to_owned()]),
        cmd: Some(words.filter(|word| !word.contains("make-work")).collect()),
        env: config.env,
        labels: config.labels,
        working_dir: Some("/".to_owned()),
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        open_stdin: Some(true),
        stdin_once: Some(true),
        host_config: Some(HostConfig {
            mounts: None,
            ..host
        }),
        ..ContainerCreateBody::default()
    };
    let options = CreateContainerOptions {
        name: Some(name.clone()),
        ..CreateContainerOptions::default()
    };
    let client = home.client().await;
    client.create_container(Some(options), body).await.unwrap();

    let place = home.service(kept).await;
    let first = "cat /proc/1/comm; echo 1 > /opt/made";
    assert_eq!(place.out(&id, first).await, ".sandboxd-guest\n");
    place.put_to_sleep(&id).await;
    assert_eq!(place.out(&id, "cat /opt/made").await, "1\n");
    place.purge(&id).await;
    assert!(home.inspect(&name).await.is_none());
    place.close().await;
}

#[tokio::test]
async fn a_kept_container_gets_the_guest_of_now() {
    if !has_engine() {
        return;
    }
    let home = Home::new();
    let id = home.id("a");
    let place = home.service(kept).await;
    place.open(&id).await.unwrap();
    place.out(&id, "echo 1 > /opt/made").await;
    place.close().await;
    // What is in the volume is of another version, which this one does not understand.
    let volume = volumes(&home).await.remove(0).name;
    let body = ContainerCreateBody {
        image: Some(DEBIAN.to_owned()),
        host_config: Some(HostConfig {
            mounts: Some(vec![Mount {
                target: Some(GUEST_DIRECTORY.to_owned()),
                source: Some(volume),
                typ: Some(MountType::VOLUME),
                ..Mount::default()
            }]),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    };
    let client = home.client().await;
    let making = client.create_container(None::<CreateContainerOptions>, body);
    let made = making.await.unwrap().id;
    let mut archive = tar::Builder::new(Vec::new());
    let mut head = tar::Header::new_ustar();
    head.set_size(3);
    head.set_mode(0o555);
    let content: &[u8] = b"old";
    archive
        .append_data(&mut head, "sandboxd-guest", content)
        .unwrap();
    let options = UploadToContainerOptions {
        path: GUEST_DIRECTORY.to_owned(),
        ..UploadToContainerOptions::default()
    };
    let archive = bollard::body_full(archive.into_inner().unwrap().into());
    let copying = client.upload_to_container(&made, Some(options), archive);
    copying.await.unwrap();
    home.remove(&made).await;

    let place = home.service(kept).await;
    assert_eq!(place.out(&id, "cat /opt/made").await, "1\n");
    place.purge(&id).await;
    place.close().await;
}

#[tokio::test]
async fn a_volume_that_somebody_removed_is_made_anew() {
    if !has_engine() {
        return;
    }
    let home = Home::new();
    let id = home.id("a");
    let place = home.service(|service| allow(service, DEBIAN)).await;
    place.open(&id).await.unwrap();
    place.put_to_sleep(&id).await;
    let before = volumes(&home).await.remove(0).name;
    let client = home.client().await;
    let removing = client.remove_volume(
        &before,
        None::<bollard::query_parameters::RemoveVolumeOptions>,
    );
    removing.await.unwrap();
    assert_eq!(place.out(&id, "echo again").await, "again\n");
    let after = volumes(&home).await.remove(0).name;
    assert_ne!(after, before);
    place.close().await;
    assert_eq!(volumes(&home).await.len(), 0, "none is left");
}
