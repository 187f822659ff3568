//! Images from a real registry: whatever they are packed with, whoever may have them.

use crate::registry::{Heard, Packed, Registry, USER, architecture, ours, settings, store, tar_of};
use sandboxd_server::runtimes::images::reference::Reference;
use sandboxd_server::runtimes::images::{self, Image, ImageError, Images, Registries, Settings};
use serde_json::json;
use std::os::unix::fs::PermissionsExt as _;

/// Pulls an image, and opens it.
async fn pull(images: &Images, settings: Settings, name: &str) -> Result<Image, ImageError> {
    let name = Reference::parse(name)?;
    let registries = Registries::new(settings)?;
    let id = images::pull(images, &registries, &name, &Heard::default()).await?;
    Ok(images.open(&id)?.expect("it is here"))
}

fn text(image: &Image, layer: usize, name: &str) -> String {
    std::fs::read_to_string(image.layers[layer].join(name)).unwrap()
}

#[tokio::test]
async fn tags_and_digests_layers_of_every_kind_each_once() {
    let Some(registry) = Registry::open().await else {
        return;
    };
    let layer = |name: &str| tar_of(&[(name, name.as_bytes(), ours())]);
    let layers = [
        Packed::Plain(layer("plain")),
        Packed::Gzip(layer("gzip")),
        Packed::Zstd(layer("zstd")),
        Packed::Gzip(layer("gzip")),
    ];
    let manifest = registry
        .push("team/app:1", &layers, json!({"Env": ["A=1"]}))
        .await;
    let (images, _home) = store();
    let image = pull(&images, settings(), &registry.name("team/app:1"))
        .await
        .unwrap();
    let read: Vec<String> = ["gzip", "zstd", "gzip", "plain"]
        .iter()
        .enumerate()
        .map(|(layer, name)| text(&image, layer, name))
        .collect();
    assert_eq!(read, ["gzip", "zstd", "gzip", "plain"]);
    assert_eq!(image.layers[0], image.layers[2]);
    assert_eq!(image.defaults.env["A"], "1");
    let by_digest = registry.name(&format!(
        "team/app@{}",
        manifest["digest"].as_str().unwrap()
    ));
    let again = pull(&images, settings(), &by_digest).await.unwrap();
    assert_eq!(again.id, image.id);
    let list = images.list().unwrap();
    assert_eq!(
        (list.len(), list[0].names.len(), list[0].layers.len()),
        (1, 2, 4)
    );
    assert_eq!(list[0].manifest.as_deref(), manifest["digest"].as_str());
    // A tag that moved is followed, and what is here is not fetched again.
    let more = [&layers[..], &[Packed::Gzip(layer("new"))]].concat();
    registry.push("team/app:1", &more, json!({})).await;
    let heard = Heard::default();
    let registries = Registries::new(settings()).unwrap();
    let name = Reference::parse(&registry.name("team/app:1")).unwrap();
    let moved = images::pull(&images, &registries, &name, &heard)
        .await
        .unwrap();
    assert_ne!(moved, image.id);
    assert_eq!(heard.all(), ["1 of 5", "from 0"]);
}

#[tokio::test]
async fn of_an_image_for_several_machines_the_one_for_this_is_taken() {
    let Some(registry) = Registry::open().await else {
        return;
    };
    let layer = |name: &str| [Packed::Gzip(tar_of(&[(name, b"x", ours())]))];
    let mut other = registry.push("app:other", &layer("other"), json!({})).await;
    let mut here = registry.push("app:here", &layer("here"), json!({})).await;
    other["platform"] = json!({"os": "linux", "architecture": "s390x"});
    here["platform"] = json!({"os": "linux", "architecture": architecture()});
    let index = |all: &[&serde_json::Value]| {
        json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": all,
        })
    };
    registry
        .manifest("app", "all", &index(&[&other, &here]))
        .await;
    registry.manifest("app", "others", &index(&[&other])).await;
    let (images, _home) = store();
    let image = pull(&images, settings(), &registry.name("app:all"))
        .await
        .unwrap();
    assert_eq!(text(&image, 0, "here"), "x");
    let why = pull(&images, settings(), &registry.name("app:others"))
        .await
        .unwrap_err();
    assert!(why.to_string().contains("linux/s390x"), "{why}");
}

#[tokio::test]
async fn a_closed_registry_opens_for_dockers_credentials_and_its_helpers() {
    let Some(registry) = Registry::closed().await else {
        return;
    };
    registry
        .push(
            "app:1",
            &[Packed::Gzip(tar_of(&[("f", b"x", ours())]))],
            json!({}),
        )
        .await;
    let (images, home) = store();
    let name = registry.name("app:1");
    let config = home.path().join("config.json");
    let with = |text: serde_json::Value| {
        std::fs::write(&config, text.to_string()).unwrap();
        Settings {
            docker_config: Some(config.clone()),
            ..settings()
        }
    };
    let host = registry.host.clone();
    for denied in [
        json!({}),
        json!({"auths": {&*host: {"username": USER.0, "password": "wrong"}}}),
    ] {
        let why = pull(&images, with(denied), &name)
            .await
            .unwrap_err()
            .to_string();
        assert!(why.contains("denied") || why.contains("password"), "{why}");
        assert!(!why.contains("wrong"), "{why}");
    }
    let plain = json!({"auths": {&*host: {"username": USER.0, "password": USER.1}}});
    pull(&images, with(plain), &name).await.unwrap();
    // A helper that is asked by the registry's name.
    let helper = home.path().join("docker-credential-testing");
    let script = format!(
        "#!/bin/sh\nread -r server\n[ \"$1 $server\" = \"get {host}\" ] || exit 1\n[ -z \"$SANDBOXD_TOKEN\" ] || exit 1\n\
         echo '{{\"Username\": \"{}\", \"Secret\": \"{}\"}}'\n",
        USER.0, USER.1
    );
    std::fs::write(&helper, script).unwrap();
    std::fs::set_permissions(&helper, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", home.path().display());
    let mut settings = with(json!({"credHelpers": {&*host: "testing"}}));
    settings.helper_env = vec![("PATH".into(), path.into())];
    pull(&images, settings.clone(), &name).await.unwrap();
    std::fs::write(&helper, "#!/bin/sh\nexit 3\n").unwrap();
    let why = pull(&images, settings, &name)
        .await
        .unwrap_err()
        .to_string();
    assert!(why.contains("docker-credential-testing"), "{why}");
}

#[tokio::test]
async fn mirrors_are_asked_first_and_the_registry_where_they_fail() {
    let (Some(mirror), Some(registry)) = (Registry::open().await, Registry::open().await) else {
        return;
    };
    let layer = |name: &str| [Packed::Gzip(tar_of(&[(name, b"x", ours())]))];
    mirror.push("both:1", &layer("mirror"), json!({})).await;
    registry.push("both:1", &layer("registry"), json!({})).await;
    registry.push("one:1", &layer("registry"), json!({})).await;
    let mut settings = settings();
    let address = format!("http://{}", mirror.host);
    settings
        .mirrors
        .insert(registry.host.clone(), vec![address]);
    let (images, _home) = store();
    let image = pull(&images, settings.clone(), &registry.name("both:1"))
        .await
        .unwrap();
    assert_eq!(text(&image, 0, "mirror"), "x");
    let image = pull(&images, settings.clone(), &registry.name("one:1"))
        .await
        .unwrap();
    assert_eq!(text(&image, 0, "registry"), "x");
    let why = pull(&images, settings, &registry.name("none:1"))
        .await
        .unwrap_err()
        .to_string();
    assert!(
        why.contains(&mirror.host) && why.contains(&registry.host),
        "{why}"
    );
}
