//! Root filesystems: shared, never written, under a write layer that may be kept.

use crate::rented::{House, host, is_root, small_root};
use sandboxd_server::backends::{
    CreateError, KeepLayer, PrepareError, PreparedImage, SandboxSpec, Start,
};
use sandboxd_server::id::SandboxId;
use sandboxd_server::runtimes::images::Untold;
use sandboxd_server::runtimes::{Runtime, Source};
use std::path::Path;

async fn prepare(house: &House, source: Source) -> Result<PreparedImage, PrepareError> {
    house
        .backend
        .prepare(
            &Runtime::plain("image", "image", source),
            &Untold::watcher(),
        )
        .await
}

fn spec(image: PreparedImage) -> SandboxSpec {
    SandboxSpec { image, ..host() }
}

#[tokio::test]
async fn a_directory_is_shared_and_never_written() {
    if !is_root() {
        return;
    }
    let image = tempfile::tempdir().unwrap();
    small_root(image.path());
    let house = House::new().await;
    let prepared = prepare(&house, Source::Directory(image.path().to_owned()))
        .await
        .unwrap();
    let spec = spec(prepared);
    let one = house.rent(&spec).await;
    let other = house.rent(&spec).await;
    let did = one
        .says("stat -c %u /etc/release; echo changed > /etc/release; rm /bin/sleep; touch /new; chown 7:7 /new; cat /etc/release")
        .await;
    assert_eq!(did, "0\nchanged");
    assert_eq!(
        other.says("cat /etc/release; ls /bin/sleep").await,
        "small\n/bin/sleep"
    );
    assert_eq!(
        std::fs::read_to_string(image.path().join("etc/release")).unwrap(),
        "small\n"
    );
    assert!(!image.path().join("new").exists());
    one.end().await;
    other.end().await;
    house.close().await;
}

#[tokio::test]
async fn links_where_mounts_go_stop_the_start() {
    if !is_root() {
        return;
    }
    let house = House::new().await;
    for (name, target) in [
        ("dev", "/proc/sys/kernel"),
        ("proc", "/tmp"),
        ("tmp", "../../../tmp"),
        ("workspace", "/proc"),
        ("sys", "/usr"),
    ] {
        let image = tempfile::tempdir().unwrap();
        small_root(image.path());
        std::os::unix::fs::symlink(target, image.path().join(name)).unwrap();
        let prepared = prepare(&house, Source::Directory(image.path().to_owned()))
            .await
            .unwrap();
        let id = SandboxId::generate();
        let refused = house.try_rent(&id, &spec(prepared), Start::Fresh).await;
        let error = refused.err().expect("refused");
        assert!(matches!(error, CreateError::Step { .. }), "{name}: {error}");
        assert!(error.to_string().contains(name), "{name}: {error}");
    }
    house.close().await;
}

#[tokio::test]
async fn a_kept_layer_is_woken_with_what_was_in_it() {
    if !is_root() {
        return;
    }
    let image = tempfile::tempdir().unwrap();
    small_root(image.path());
    let state = tempfile::tempdir().unwrap();
    for image in [
        PreparedImage::Host,
        PreparedImage::Rootfs {
            path: image.path().to_owned(),
            key: "small".to_owned(),
        },
    ] {
        let house = House::at(state.path()).await;
        let spec = SandboxSpec {
            keep_layer: true,
            ..spec(image)
        };
        let id = SandboxId::generate();
        let never = house.try_rent(&id, &spec, Start::KeptLayer).await;
        assert!(matches!(never.err(), Some(CreateError::LayerMissing)));
        let sandbox = house.try_rent(&id, &spec, Start::Fresh).await.unwrap();
        sandbox
            .says("echo work > /etc/made; chown 5:6 /etc/made; mkdir -p /var; echo x > /var/x")
            .await;
        let map = sandbox.says("cat /proc/self/uid_map").await;
        sandbox.sleep().await;
        let found = house.backend.list().await.unwrap();
        assert_eq!(found.len(), 1);
        assert!(found[0].id == id && !found[0].running);
        // Its ids are nobody else's while it sleeps.
        let other = house.rent(&host()).await;
        assert_ne!(other.says("cat /proc/self/uid_map").await, map);
        other.end().await;
        house.backend.shutdown().await;
        // Also by another instance of the daemon.
        let house = House::at(state.path()).await;
        let over_another = SandboxSpec {
            image: PreparedImage::Rootfs {
                path: "/another".into(),
                key: "another".to_owned(),
            },
            ..spec.clone()
        };
        let mixed = house.try_rent(&id, &over_another, Start::KeptLayer).await;
        let mixed = mixed.err().expect("refused").to_string();
        assert!(mixed.contains("it lies over the image"), "{mixed}");
        let sandbox = house.try_rent(&id, &spec, Start::KeptLayer).await.unwrap();
        assert_eq!(
            sandbox.says("cat /etc/made; stat -c %u:%g /etc/made").await,
            "work\n5:6"
        );
        assert_eq!(sandbox.says("cat /proc/self/uid_map").await, map);
        sandbox.end().await;
        house.backend.destroy(&id).await.unwrap();
        house.backend.destroy(&id).await.unwrap();
        assert!(house.backend.list().await.unwrap().is_empty());
        house.close().await;
    }
}

#[tokio::test]
async fn a_sandbox_without_a_layer_cannot_be_kept() {
    if !is_root() {
        return;
    }
    let house = House::new().await;
    let sandbox = house.rent(&host()).await;
    let kept = house.backend.stop(&sandbox.id, KeepLayer::Yes).await;
    assert!(kept.is_err());
    assert!(house.backend.list().await.unwrap().is_empty());
    house.close().await;
}

fn tar_of(directory: &Path, at: &Path) {
    let mut archive = tar::Builder::new(std::fs::File::create(at).unwrap());
    archive.follow_symlinks(false);
    archive.append_dir_all(".", directory).unwrap();
    archive.finish().unwrap();
}

#[tokio::test]
async fn a_tar_is_unpacked_once() {
    if !is_root() {
        return;
    }
    let image = tempfile::tempdir().unwrap();
    small_root(image.path());
    std::os::unix::fs::chown(image.path().join("etc/release"), Some(3), Some(4)).unwrap();
    let files = tempfile::tempdir().unwrap();
    let tar = files.path().join("image.tar");
    tar_of(image.path(), &tar);
    let house = House::new().await;
    let first = prepare(&house, Source::Tar(tar.clone())).await.unwrap();
    let again = prepare(&house, Source::Tar(tar)).await.unwrap();
    assert_eq!(first, again);
    let sandbox = house.rent(&spec(first)).await;
    assert_eq!(
        sandbox
            .says("stat -c %u:%g /etc/release; cat /etc/release")
            .await,
        "3:4\nsmall"
    );
    sandbox.end().await;
    house.close().await;
}
