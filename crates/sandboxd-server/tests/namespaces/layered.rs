//! Sandboxes on images of several layers: what is seen inside, who owns it, who runs.

use crate::registry::{Packed, Registry, tar_of, tar_of_directory};
use crate::rented::{House, as_ordinary_user, host, is_root, small_root};
use sandboxd_server::backends::namespaces::{Namespaces, Programs, Settings, kept_images};
use sandboxd_server::backends::{KeepLayer, PrepareError, PreparedImage, SandboxSpec, Start};
use sandboxd_server::id::SandboxId;
use sandboxd_server::runtimes::images::reference::Reference;
use sandboxd_server::runtimes::images::{
    Cancel, ImageError, Images, Settings as RegistrySettings, Untold, import,
};
use sandboxd_server::runtimes::{Runtime, Source};
use serde_json::json;
use std::path::Path;

fn spec(image: PreparedImage) -> SandboxSpec {
    SandboxSpec { image, ..host() }
}

fn named(name: &str) -> Runtime {
    Runtime::plain("image", name, Source::Image(name.to_owned()))
}

/// The layers of an image with a shell: below a whole root, above changes to it.
fn layers() -> [Vec<u8>; 2] {
    let root = tempfile::tempdir().unwrap();
    small_root(root.path());
    for name in ["gone", "kept"] {
        std::fs::write(root.path().join("etc").join(name), name).unwrap();
    }
    std::fs::create_dir_all(root.path().join("srv/old")).unwrap();
    std::fs::write(root.path().join("srv/old/file"), "old").unwrap();
    std::fs::write(
        root.path().join("etc/passwd"),
        "app:x:7:9::/home/app:/bin/sh\n",
    )
    .unwrap();
    let (uid, gid) = crate::registry::ours();
    let (app, staff) = if uid == 0 {
        ((7, 9), (3, 50))
    } else {
        ((uid, gid), (uid, gid))
    };
    let above = tar_of(&[
        ("etc/.wh.gone", b"", (uid, gid)),
        ("srv/old/.wh..wh..opq", b"", (uid, gid)),
        ("srv/old/new", b"new", (uid, gid)),
        ("home/app/notes", b"mine", app),
        ("etc/staff", b"ours", staff),
    ]);
    [tar_of_directory(root.path()), above]
}

const LOOK: &str = "cat /etc/kept /srv/old/new /home/app/notes; ls /etc/gone /srv/old/file 2>/dev/null; \
                    stat -c %u:%g /etc/kept /home/app/notes /etc/staff";

/// Sets an attribute, and reads it again.
const MARK: &str = r#"
#include <stdio.h>
#include <sys/xattr.h>
int main(int n, char **words) {
  char value[8];
  if (n != 3 || setxattr(words[1], words[2], "y", 1, 0)) { perror("setxattr"); return 1; }
  return getxattr(words[1], words[2], value, sizeof value) == 1 ? 0 : 2;
}
"#;

/// The same image, with a program in it that sets attributes.
fn layers_with_a_marker() -> [Vec<u8>; 3] {
    let made = tempfile::tempdir().unwrap();
    std::fs::write(made.path().join("mark.c"), MARK).unwrap();
    let built = std::process::Command::new("cc")
        .args(["-static", "-o", "usr/bin/mark", "mark.c"])
        .current_dir({
            std::fs::create_dir_all(made.path().join("usr/bin")).unwrap();
            made.path()
        })
        .status();
    assert!(built.unwrap().success());
    let [below, above] = layers();
    [below, tar_of_directory(made.path()), above]
}

/// An archive of an image as `docker save` writes it.
fn saved(at: &Path, name: &str, layers: &[Vec<u8>], config: serde_json::Value) {
    use sandboxd_server::runtimes::images::digest::Digest;
    std::fs::create_dir_all(at).unwrap();
    let mut files = Vec::new();
    let mut digests = Vec::new();
    for (number, layer) in layers.iter().enumerate() {
        std::fs::write(at.join(number.to_string()), layer).unwrap();
        files.push(number.to_string());
        digests.push(Digest::of(layer).to_string());
    }
    let config = json!({"config": config, "rootfs": {"type": "layers", "diff_ids": digests}});
    std::fs::write(at.join("config"), config.to_string()).unwrap();
    let manifest = json!([{"Config": "config", "RepoTags": [name], "Layers": files}]);
    std::fs::write(at.join("manifest.json"), manifest.to_string()).unwrap();
}

#[tokio::test]
async fn a_pulled_image_is_seen_whole_with_its_owners_and_never_written() {
    if !is_root() {
        return;
    }
    let Some(registry) = Registry::open().await else {
        return;
    };
    let [below, above] = layers();
    let config = json!({"Env": ["PATH=/usr/bin", "OWN=1"], "User": "app"});
    let layers = [Packed::Gzip(below), Packed::Zstd(above)];
    registry.push("app:1", &layers, config).await;
    let name = registry.name("app:1");
    let state = tempfile::tempdir().unwrap();
    let programs = Programs::embedded().unwrap();
    let settings = Settings {
        registries: RegistrySettings::default(),
        ..Settings::default()
    };
    let backend = Namespaces::start_with(state.path(), programs, settings).await;
    let house = House::of(backend.unwrap(), state.path());
    // Both wait for one and the same pull.
    let runtime = named(&name);
    let untold = Untold::watcher();
    let (one, two) = tokio::join!(
        house.backend.prepare(&runtime, &untold),
        house.backend.prepare(&runtime, &untold)
    );
    let (image, other) = (one.unwrap(), two.unwrap());
    assert_eq!(image, other);
    let defaults = image.defaults().unwrap();
    assert_eq!(defaults.env["OWN"], "1");
    let user = defaults.user.clone().unwrap().unwrap();
    assert_eq!(
        (user.uid, user.gid, user.home.as_deref()),
        (7, 9, Some("/home/app"))
    );
    let sandbox = house.rent(&spec(image.clone())).await;
    let seen = sandbox.says(LOOK).await;
    assert_eq!(seen, "keptnewmine0:0\n7:9\n3:50");
    sandbox
        .says("echo changed > /etc/kept; rm /srv/old/new /etc/staff; mkdir /etc/gone")
        .await;
    let as_user = SandboxSpec {
        user: Some(user.uid),
        group: Some(user.gid),
        ..spec(image)
    };
    let second = house.rent(&as_user).await;
    assert_eq!(second.says(LOOK).await, seen);
    assert_eq!(
        second
            .says("id -u; id -g; echo more > /home/app/notes; cat /home/app/notes")
            .await,
        "7\n9\nmore"
    );
    assert_ne!(second.sh("echo x > /etc/staff").await.exit.code, 0);
    second.end().await;
    sandbox.end().await;
    house.close().await;
}

#[tokio::test]
async fn what_is_not_here_is_refused_with_the_command_that_fetches_it() {
    let state = tempfile::tempdir().unwrap();
    let house = House::at(state.path()).await;
    let refused = house
        .backend
        .prepare(&named("python:3.12-slim"), &Untold::watcher())
        .await
        .unwrap_err();
    assert!(matches!(refused, PrepareError::Missing { .. }));
    let text = refused.to_string();
    assert!(
        text.contains("sandboxd image pull python:3.12-slim"),
        "{text}"
    );
    let text = house
        .backend
        .prepare(&named("No Name"), &Untold::watcher())
        .await
        .unwrap_err()
        .to_string();
    assert!(text.contains("no name of an image"), "{text}");
    house.close().await;
}

#[tokio::test]
async fn an_image_in_use_is_not_removed_and_a_kept_layer_wakes_over_its_own() {
    if !is_root() {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let house = House::at(state.path()).await;
    let images = Images::of(state.path());
    let files = tempfile::tempdir().unwrap();
    let [below, above] = layers();
    let version = |layers: &[Vec<u8>]| {
        saved(files.path(), "app:1", layers, json!({}));
        let imported = import(&images, files.path(), None, &Cancel::default(), &Untold);
        imported.unwrap().remove(0).id
    };
    let first = version(std::slice::from_ref(&below));
    let name = named("app:1");
    let keep = |image| SandboxSpec {
        keep_layer: true,
        ..spec(image)
    };
    let id = SandboxId::generate();
    let image = house
        .backend
        .prepare(&name, &Untold::watcher())
        .await
        .unwrap();
    let sandbox = house
        .try_rent(&id, &keep(image), Start::Fresh)
        .await
        .unwrap();
    sandbox.says("echo mine > /etc/mine").await;
    let none = std::collections::BTreeSet::new();
    assert!(matches!(
        images.remove("app:1", &none),
        Err(ImageError::InUse { .. })
    ));
    sandbox.sleep().await;
    // The name moves on; the session that sleeps does not.
    version(&[below, above]);
    let kept = kept_images(state.path());
    assert_eq!(kept.iter().collect::<Vec<_>>(), [&first.to_string()]);
    assert_eq!(
        images
            .collect(&kept, std::time::Duration::ZERO)
            .unwrap()
            .images,
        0
    );
    let image = house
        .backend
        .prepare(&name, &Untold::watcher())
        .await
        .unwrap();
    let own = house.backend.kept_image(&id).await;
    assert!(
        matches!(&own, Some(PreparedImage::Layers { key, .. }) if *key == first.to_string()),
        "{own:?}"
    );
    drop(own);
    let woken = house
        .try_rent(&id, &keep(image), Start::KeptLayer)
        .await
        .unwrap();
    assert_eq!(woken.says("cat /etc/mine /etc/gone").await, "mine\ngone");
    woken.end().await;
    house.backend.destroy(&id).await.unwrap();
    let kept = kept_images(state.path());
    assert_eq!(
        images
            .collect(&kept, std::time::Duration::ZERO)
            .unwrap()
            .images,
        1
    );
    assert!(images.open(&first).unwrap().is_none());
    assert!(
        images
            .find(&Reference::parse("app:1").unwrap())
            .unwrap()
            .is_some()
    );
    house.close().await;
}

#[tokio::test]
async fn an_ordinary_user_has_layers_too() {
    if !as_ordinary_user("layered::an_ordinary_user_has_layers_too") {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let house = House::at(state.path()).await;
    let images = Images::of(state.path());
    let files = tempfile::tempdir().unwrap();
    saved(files.path(), "app:1", &layers(), json!({}));
    import(&images, files.path(), None, &Cancel::default(), &Untold).unwrap();
    let image = house
        .backend
        .prepare(&named("app:1"), &Untold::watcher())
        .await
        .unwrap();
    let sandbox = house.rent(&spec(image)).await;
    assert_eq!(sandbox.says(LOOK).await, "keptnewmine0:0\n0:0\n0:0");
    sandbox
        .says("rm /etc/kept; echo x > /etc/gone; echo y > /srv/old/file; cat /etc/gone")
        .await;
    house
        .backend
        .stop(&sandbox.id, KeepLayer::No)
        .await
        .unwrap();
    house.close().await;
}

#[tokio::test]
async fn a_program_inside_cannot_hide_what_a_layer_has_by_the_marks_of_layers() {
    if !is_root() {
        return;
    }
    let house = House::new().await;
    let images = Images::of(&house.state);
    let files = tempfile::tempdir().unwrap();
    saved(files.path(), "marks:1", &layers_with_a_marker(), json!({}));
    import(&images, files.path(), None, &Cancel::default(), &Untold).unwrap();
    let image = house
        .backend
        .prepare(&named("marks:1"), &Untold::watcher())
        .await
        .unwrap();
    let keep = SandboxSpec {
        keep_layer: true,
        ..spec(image)
    };
    let id = SandboxId::generate();
    let sandbox = house.try_rent(&id, &keep, Start::Fresh).await.unwrap();
    // The twin: an attribute of its own can be set.
    sandbox.says("mark /etc user.note").await;
    for name in [
        "user.overlay.opaque",
        "user.overlay.redirect",
        "user.overlay.whiteout",
        "trusted.overlay.opaque",
    ] {
        // Newer kernels store one by another name; none lets it mean anything.
        let _ = sandbox.sh(&format!("mark /etc {name}")).await;
    }
    // What means something is read when a directory is looked up anew: after a sleep.
    sandbox.sleep().await;
    let woken = house.try_rent(&id, &keep, Start::KeptLayer).await.unwrap();
    assert_eq!(woken.says("cat /etc/kept /etc/release").await, "keptsmall");
    let upper = house
        .state
        .join("layers")
        .join(id.as_str())
        .join("upper/etc");
    for name in ["user.overlay.opaque", "user.overlay.redirect"] {
        let found = rustix::fs::getxattr(&upper, name, &mut [0_u8; 8][..]);
        assert!(found.is_err(), "{name}: {found:?}");
    }
    woken.end().await;
    house.backend.destroy(&id).await.unwrap();
    house.close().await;
}

#[tokio::test]
async fn many_layers_make_one_image() {
    if !is_root() {
        return;
    }
    let house = House::new().await;
    let images = Images::of(&house.state);
    let [below, _] = layers();
    let mut all = vec![below];
    for number in 0..60 {
        let (name, text) = (format!("layer-{number}"), number.to_string());
        let last: &[u8] = text.as_bytes();
        all.push(tar_of(&[(&name, last, (0, 0)), ("last", last, (0, 0))]));
    }
    let files = tempfile::tempdir().unwrap();
    saved(files.path(), "deep:1", &all, json!({}));
    import(&images, files.path(), None, &Cancel::default(), &Untold).unwrap();
    let image = house
        .backend
        .prepare(&named("deep:1"), &Untold::watcher())
        .await
        .unwrap();
    let sandbox = house.rent(&spec(image)).await;
    assert_eq!(
        sandbox.says("cat /layer-0 /layer-33 /layer-59 /last").await,
        "0335959"
    );
    sandbox.end().await;
    house.close().await;
}
