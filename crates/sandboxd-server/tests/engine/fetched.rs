//! Images that the engine fetches from a real registry.

use crate::home::{Gone, house};
use crate::registry::{Heard, Packed, Registry, USER, ours, settings, tar_of};
use sandboxd_server::backends::PreparedImage;
use sandboxd_server::runtimes::images::{Pull, Settings, Watcher};
use sandboxd_server::runtimes::{Runtime, Source};
use serde_json::json;
use std::sync::Arc;

fn runtime(name: &str) -> Runtime {
    Runtime::plain("x", name, Source::Image(name.to_owned()))
}

#[tokio::test]
async fn by_tag_and_by_digest_with_what_the_image_says_of_itself() {
    let Some((house, _home)) = house(settings()).await else {
        return;
    };
    let registry = Registry::open().await.unwrap();
    let layer = Packed::Gzip(tar_of(&[("file", b"content", ours())]));
    let config = json!({"Env": ["A=1"], "User": "7:8"});
    let manifest = registry.push("team/app:1", &[layer], config).await;
    let by_tag = registry.name("team/app:1");
    let digest = manifest["digest"].as_str().unwrap();
    let by_digest = registry.name(&format!("team/app@{digest}"));
    let _gone = Gone(vec![by_tag.clone(), by_digest.clone()]);
    let heard = Arc::new(Heard::default());
    let watcher: Watcher = heard.clone();
    let (backend, runtime) = (&house.backend, runtime);
    let first = backend.prepare(&runtime(&by_tag), &watcher).await.unwrap();
    let said = heard.all();
    assert!(
        said.iter().any(|line| line.contains("Pull complete")),
        "{said:?}"
    );
    let second = backend
        .prepare(&runtime(&by_digest), &watcher)
        .await
        .unwrap();
    let (PreparedImage::Engine { id, defaults, .. }, PreparedImage::Engine { id: other, .. }) =
        (first, second)
    else {
        panic!("not the engine's");
    };
    assert_eq!(id, other);
    assert_eq!(defaults.env["A"], "1");
    let user = defaults.user.unwrap().unwrap();
    assert_eq!((user.uid, user.gid), (7, 8));
    // What is there is not asked for again.
    let before = heard.all().len();
    backend.prepare(&runtime(&by_tag), &watcher).await.unwrap();
    assert_eq!(heard.all().len(), before);
    house.close().await;
}

#[tokio::test]
async fn with_the_credentials_of_this_host_and_not_without() {
    let registry = Registry::closed().await.unwrap();
    let name = registry.name("team/app:1");
    let _gone = Gone(vec![name.clone()]);
    let layer = Packed::Gzip(tar_of(&[("file", b"closed", ours())]));
    registry.push("team/app:1", &[layer], json!({})).await;
    let watcher: Watcher = Arc::new(Heard::default());
    let Some((stranger, _home)) = house(settings()).await else {
        return;
    };
    let refused = stranger.backend.prepare(&runtime(&name), &watcher).await;
    let why = refused.unwrap_err().to_string();
    assert!(why.contains("docker pull") && why.contains(&name), "{why}");
    stranger.close().await;

    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("config.json");
    let known = json!({"auths": {registry.host.clone(): {"username": USER.0, "password": USER.1}}});
    std::fs::write(&file, known.to_string()).unwrap();
    let settings = Settings {
        docker_config: Some(file),
        ..settings()
    };
    let (known, _home) = house(settings).await.unwrap();
    known
        .backend
        .prepare(&runtime(&name), &watcher)
        .await
        .unwrap();
    known.close().await;
}

#[tokio::test]
async fn nothing_where_nothing_is_to_be_fetched() {
    let never = Settings {
        pull: Pull::Never,
        ..settings()
    };
    let Some((house, _home)) = house(never).await else {
        return;
    };
    let watcher: Watcher = Arc::new(Heard::default());
    let name = "no-such.example/app:1";
    let refused = house.backend.prepare(&runtime(name), &watcher).await;
    let why = refused.unwrap_err().to_string();
    assert!(why.contains("docker pull no-such.example/app:1"), "{why}");
    for source in [Source::Host, Source::Directory("/".into())] {
        let refused = house
            .backend
            .prepare(&Runtime::plain("x", "x", source), &watcher)
            .await;
        assert!(refused.unwrap_err().to_string().contains("its own images"));
    }
    house.close().await;
}
