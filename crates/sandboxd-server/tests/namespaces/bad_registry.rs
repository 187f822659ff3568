//! A registry that has bad days, or means ill.

use crate::registry::{Heard, Packed, architecture, ours, settings, store, tar_of};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use futures::StreamExt as _;
use sandboxd_server::runtimes::images::digest::Digest;
use sandboxd_server::runtimes::images::reference::Reference;
use sandboxd_server::runtimes::images::{self, ImageError, Images, Registries, Settings};
use serde_json::json;
use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// What the registry does to one request for something.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trick {
    /// It answers so many bytes, and cuts the connection.
    Cut(usize),
    /// It has a bad moment.
    Fails(u16),
    /// It sends more than it said.
    More,
    /// It does not go on where it was asked to.
    FromTheStart,
}

#[derive(Default)]
struct Inside {
    /// By what stands after the repository: `manifests/1`, `blobs/sha256:…`.
    content: HashMap<String, Vec<u8>>,
    tricks: HashMap<String, VecDeque<Trick>>,
    /// Whether it wants a token, and where that is to be had.
    wants_token: bool,
    /// What it was asked for, with the range.
    asked: Vec<String>,
}

/// The registry.
struct Stub {
    host: String,
    inside: Arc<Mutex<Inside>>,
    serving: tokio::task::JoinHandle<()>,
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

type Shared = (Arc<Mutex<Inside>>, String);

async fn answer(State((inside, host)): State<Shared>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let headers = request.headers().clone();
    let body = axum::body::to_bytes(request.into_body(), 10_000)
        .await
        .unwrap();
    let mut inside = inside.lock().unwrap();
    if path == "/token" {
        return token(&query, &headers, &body);
    }
    if inside.wants_token
        && headers
            .get("authorization")
            .is_none_or(|sent| sent != "Bearer good")
    {
        let challenge = format!(
            "Bearer realm=\"http://{host}/token\",service=\"stub\",scope=\"repository:app:pull\""
        );
        return (StatusCode::UNAUTHORIZED, [("www-authenticate", challenge)]).into_response();
    }
    let Some(name) = path.strip_prefix("/v2/app/").map(str::to_owned) else {
        return StatusCode::OK.into_response();
    };
    let range = headers
        .get("range")
        .map(|range| range.to_str().unwrap().to_owned());
    let from: usize = range.as_deref().map_or(0, |range| {
        range["bytes=".len()..]
            .trim_end_matches('-')
            .parse()
            .unwrap()
    });
    inside.asked.push(format!("{name} {from}"));
    let trick = inside.tricks.get_mut(&name).and_then(VecDeque::pop_front);
    let Some(content) = inside.content.get(&name).cloned() else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let from = if trick == Some(Trick::FromTheStart) {
        0
    } else {
        from
    };
    let rest = content[from..].to_vec();
    let (sent, said) = match trick {
        Some(Trick::Fails(status)) => {
            return StatusCode::from_u16(status).unwrap().into_response();
        }
        Some(Trick::Cut(bytes)) => (rest[..bytes].to_vec(), Some(rest.len())),
        Some(Trick::More) => ([rest, vec![0; 100]].concat(), None),
        _ => (rest.clone(), Some(rest.len())),
    };
    let mut response = Response::builder();
    if from > 0 {
        let all = content.len();
        response = response
            .status(StatusCode::PARTIAL_CONTENT)
            .header("content-range", format!("bytes {from}-{}/{all}", all - 1));
    }
    if let Some(said) = said {
        response = response.header("content-length", said);
    }
    let cut = matches!(trick, Some(Trick::Cut(_)));
    let first = futures::stream::once(async { Ok(Bytes::from(sent)) });
    let end = futures::stream::iter(cut.then_some(())).then(|()| async {
        // What was sent before is on its way by then.
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        Err(std::io::Error::other("cut"))
    });
    let stream = first.chain(end);
    response.body(Body::from_stream(stream)).unwrap()
}

fn token(query: &str, headers: &HeaderMap, body: &Bytes) -> Response {
    let right = "service=stub&scope=repository%3Aapp%3Apull";
    let basic = headers
        .get("authorization")
        .is_some_and(|sent| sent == "Basic YWdlbnQ6c2VjcmV0");
    let body = String::from_utf8_lossy(body);
    let refresh = body.starts_with(right)
        && body.contains("grant_type=refresh_token")
        && body.contains("refresh_token=refresh");
    match query == right && basic || refresh {
        true => json!({"access_token": "good"}).to_string().into_response(),
        false => StatusCode::UNAUTHORIZED.into_response(),
    }
}

impl Stub {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let inside = Arc::new(Mutex::new(Inside::default()));
        let app = Router::new()
            .fallback(answer)
            .with_state((Arc::clone(&inside), host.clone()));
        let serving = tokio::spawn(async move {
            axum::serve(listener, app).await.unwrap();
        });
        Self {
            host,
            inside,
            serving,
        }
    }

    fn with<T>(&self, change: impl FnOnce(&mut Inside) -> T) -> T {
        change(&mut self.inside.lock().unwrap())
    }

    fn put(&self, name: &str, content: Vec<u8>) {
        self.with(|inside| inside.content.insert(name.to_owned(), content));
    }

    fn play(&self, name: &str, tricks: &[Trick]) {
        let tricks = tricks.iter().copied().collect();
        self.with(|inside| inside.tricks.insert(name.to_owned(), tricks));
    }

    /// An image of one layer under the tag `1`; what its layer is asked for by.
    fn image(&self, layer: &Packed, tar: &[u8]) -> String {
        let config = json!({
            "architecture": architecture(),
            "os": "linux",
            "rootfs": {"type": "layers", "diff_ids": [Digest::of(tar).to_string()]},
        });
        let described = |content: &[u8]| {
            let digest = Digest::of(content).to_string();
            self.put(&format!("blobs/{digest}"), content.to_vec());
            json!({"digest": digest, "size": content.len()})
        };
        let layer = described(&layer.bytes());
        let manifest = json!({"schemaVersion": 2, "config": described(config.to_string().as_bytes()), "layers": [layer]});
        self.put("manifests/1", manifest.to_string().into_bytes());
        format!("blobs/{}", layer["digest"].as_str().unwrap())
    }

    fn asked(&self, name: &str) -> Vec<String> {
        self.with(|inside| {
            let asked = inside
                .asked
                .iter()
                .filter_map(|asked| asked.strip_prefix(name));
            asked.map(|from| from.trim().to_owned()).collect()
        })
    }

    async fn pull(&self, images: &Images, settings: Settings) -> Result<Vec<String>, ImageError> {
        let registries = Registries::new(settings)?;
        let name = Reference::parse(&format!("{}/app:1", self.host))?;
        let heard = Heard::default();
        images::pull(images, &registries, &name, &heard).await?;
        Ok(heard.all())
    }
}

/// Bytes that no packing makes fewer.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        u8::try_from(state >> 56).unwrap()
    };
    (0..bytes).map(|_| next()).collect()
}

/// Nothing but empty directories and locks is in a store.
fn nothing_left(home: &Path) {
    for part in ["layers", "images", "names", "blobs", "making"] {
        let left: Vec<_> = std::fs::read_dir(home.join("images").join(part))
            .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
            .unwrap_or_default();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[tokio::test]
async fn a_layer_that_is_cut_off_goes_on_where_it_was() {
    let stub = Stub::start().await;
    let tar = tar_of(&[("noise", &noise(3_000_000), ours())]);
    let layer = Packed::Gzip(tar.clone());
    let size = layer.bytes().len();
    let blob = stub.image(&layer, &tar);
    // Each went on by more than a mebibyte or so, so none of them counts as the last attempt.
    stub.play(
        &blob,
        &[
            Trick::Cut(1_200_000),
            Trick::Cut(1_100_000),
            Trick::Fails(503),
        ],
    );
    let (images, home) = store();
    let heard = stub.pull(&images, settings()).await.unwrap();
    assert_eq!(stub.asked(&blob), ["0", "1200000", "2300000", "2300000"]);
    assert!(heard.iter().any(|line| line == "from 2300000"), "{heard:?}");
    assert!(size > 2_300_000);
    let left = std::fs::read_dir(home.path().join("images/blobs"))
        .unwrap()
        .count();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn a_pull_that_gave_up_is_gone_on_with_by_the_next() {
    let stub = Stub::start().await;
    let tar = tar_of(&[("noise", &noise(200_000), ours())]);
    let blob = stub.image(&Packed::Plain(tar.clone()), &tar);
    stub.play(
        &blob,
        &[
            Trick::Cut(1_000),
            Trick::Cut(1_000),
            Trick::Cut(1_000),
            Trick::Cut(1_000),
        ],
    );
    let (images, _home) = store();
    let why = stub.pull(&images, settings()).await.unwrap_err();
    assert!(matches!(why, ImageError::Registry(_)), "{why}");
    assert!(images.list().unwrap().is_empty());
    // From the start, since this registry has forgotten how to go on; then it is whole all the same.
    stub.play(&blob, &[Trick::FromTheStart]);
    stub.pull(&images, settings()).await.unwrap();
    assert_eq!(stub.asked(&blob), ["0", "1000", "2000", "3000", "4000"]);
}

#[tokio::test]
async fn what_is_not_what_it_says_is_never_an_image() {
    let stub = Stub::start().await;
    let tar = tar_of(&[("file", b"x", ours())]);
    let (images, home) = store();
    let wrong_layer = stub.image(&Packed::Plain(tar.clone()), &tar);
    let mut other = tar.clone();
    other[0] ^= 1;
    stub.put(&wrong_layer, other);
    let why = stub.pull(&images, settings()).await.unwrap_err();
    assert!(matches!(why, ImageError::Digest { .. }), "{why}");
    nothing_left(home.path());
    // The layer as it was sent is right, and what it unpacks to is not.
    stub.image(&Packed::Plain(tar.clone()), b"another");
    let why = stub.pull(&images, settings()).await.unwrap_err();
    assert!(matches!(why, ImageError::Digest { .. }), "{why}");
    nothing_left(home.path());
    let more = stub.image(&Packed::Plain(tar.clone()), &tar);
    stub.play(&more, &[Trick::More]);
    let why = stub
        .pull(&images, settings())
        .await
        .unwrap_err()
        .to_string();
    assert!(why.contains("more than it said"), "{why}");
    // A manifest that is asked for by its digest.
    let registries = Registries::new(settings()).unwrap();
    let asked = Digest::of(b"what was asked for");
    stub.put(&format!("manifests/{asked}"), b"{}".to_vec());
    let name = Reference::parse(&format!("{}/app@{asked}", stub.host)).unwrap();
    let why = images::pull(&images, &registries, &name, &Heard::default())
        .await
        .unwrap_err();
    assert!(matches!(why, ImageError::Digest { .. }), "{why}");
    for manifest in [&b"no json"[..], b"{}", &vec![b' '; 9 << 20]] {
        stub.put("manifests/1", manifest.to_vec());
        assert!(stub.pull(&images, settings()).await.is_err());
    }
    assert!(images.list().unwrap().is_empty());
}

#[tokio::test]
async fn a_hostile_layer_leaves_nothing_of_its_image() {
    let stub = Stub::start().await;
    let (images, home) = store();
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.as_mut_bytes()[..7].copy_from_slice(b"../evil");
    header.set_size(0);
    header.set_mode(0o644);
    header.set_mtime(0);
    header.set_uid(ours().0);
    header.set_gid(ours().1);
    header.set_cksum();
    archive.append(&header, &b""[..]).unwrap();
    let escape = archive.into_inner().unwrap();
    stub.image(&Packed::Gzip(escape.clone()), &escape);
    let why = stub
        .pull(&images, settings())
        .await
        .unwrap_err()
        .to_string();
    assert!(why.contains("../evil") && why.contains("outside"), "{why}");
    nothing_left(home.path());
    assert!(!home.path().join("evil").exists());
}

#[tokio::test]
async fn bad_moments_pass_and_what_is_not_there_is_said_at_once() {
    let stub = Stub::start().await;
    let tar = tar_of(&[("file", b"x", ours())]);
    stub.image(&Packed::Plain(tar.clone()), &tar);
    let (images, _home) = store();
    stub.play("manifests/1", &[Trick::Fails(503), Trick::Fails(429)]);
    let heard = stub.pull(&images, settings()).await.unwrap();
    let again = heard.iter().filter(|line| line.starts_with("again: "));
    assert_eq!(again.count(), 2, "{heard:?}");
    stub.with(|inside| inside.content.clear());
    let before = stub.asked("manifests/1").len();
    let why = stub
        .pull(&images, settings())
        .await
        .unwrap_err()
        .to_string();
    assert!(why.contains("it has no"), "{why}");
    assert_eq!(stub.asked("manifests/1").len(), before + 1);
}

#[tokio::test]
async fn tokens_are_got_with_a_password_or_with_what_a_login_left() {
    let stub = Stub::start().await;
    let tar = tar_of(&[("file", b"x", ours())]);
    stub.image(&Packed::Plain(tar.clone()), &tar);
    stub.with(|inside| inside.wants_token = true);
    let home = tempfile::tempdir().unwrap();
    let config = home.path().join("config.json");
    for (auth, good) in [
        (json!({"auth": "YWdlbnQ6c2VjcmV0"}), true),
        (json!({"identitytoken": "refresh"}), true),
        (json!({"username": "agent", "password": "wrong"}), false),
        (json!({}), false),
    ] {
        std::fs::write(&config, json!({"auths": {&*stub.host: auth}}).to_string()).unwrap();
        let settings = Settings {
            docker_config: Some(config.clone()),
            ..settings()
        };
        let (images, _home) = store();
        let pulled = stub.pull(&images, settings).await;
        assert_eq!(pulled.is_ok(), good, "{pulled:?}");
    }
}

#[tokio::test]
async fn a_proxy_is_used_where_one_is_set_and_not_for_its_exceptions() {
    // What is asked for has no such host; only the proxy knows it.
    let stub = Stub::start().await;
    let tar = tar_of(&[("file", b"x", ours())]);
    stub.image(&Packed::Plain(tar.clone()), &tar);
    let mut settings = settings();
    settings.http_proxy = Some(format!("http://{}", stub.host));
    settings.mirrors.insert(
        "registry.test".to_owned(),
        vec!["http://registry.test".to_owned()],
    );
    let name = Reference::parse("registry.test/app:1").unwrap();
    let (images, _home) = store();
    let registries = Registries::new(settings.clone()).unwrap();
    images::pull(&images, &registries, &name, &Heard::default())
        .await
        .unwrap();
    let before = stub.asked("manifests/1").len();
    settings.no_proxy = Some("registry.test".to_owned());
    // Another place without anybody, so that nothing is asked of the real network.
    settings.https_proxy = Some("http://127.0.0.1:9".to_owned());
    settings.mirrors.clear();
    let registries = Registries::new(settings).unwrap();
    assert!(
        images::pull(&images, &registries, &name, &Heard::default())
            .await
            .is_err()
    );
    assert_eq!(stub.asked("manifests/1").len(), before);
}
