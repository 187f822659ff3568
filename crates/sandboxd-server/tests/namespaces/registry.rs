//! A real registry on a loopback address, with images that these tests make.

use sandboxd_server::runtimes::images::digest::Digest;
use sandboxd_server::runtimes::images::{Event, Images, Progress, Settings};
use serde_json::{Value, json};
use std::io::Write as _;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long the registry may take to answer for the first time.
const START_MAX: Duration = Duration::from_secs(30);
/// The user that a closed registry knows, with the password `secret`.
pub(crate) const USER: (&str, &str) = ("agent", "secret");
const HASH: &str = "$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a";

/// A registry that runs.
pub(crate) struct Registry {
    child: Child,
    pub(crate) host: String,
    closed: bool,
    _home: tempfile::TempDir,
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Registry {
    /// One that asks nobody who they are. Nothing where there is no registry to start, which as root is a failure.
    pub(crate) async fn open() -> Option<Self> {
        Self::start(false).await
    }

    /// One that wants a name and a password.
    pub(crate) async fn closed() -> Option<Self> {
        Self::start(true).await
    }

    async fn start(closed: bool) -> Option<Self> {
        let there = Command::new("docker-registry").arg("--version").output();
        if there.is_err() {
            assert!(
                !rustix::process::geteuid().is_root(),
                "docker-registry is missing; cargo xtask test installs it"
            );
            println!("needs docker-registry");
            return None;
        }
        let home = tempfile::tempdir().unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = free.local_addr().unwrap().to_string();
        drop(free);
        let users = home.path().join("users");
        std::fs::write(&users, format!("{}:{HASH}\n", USER.0)).unwrap();
        let auth = match closed {
            true => json!({"htpasswd": {"realm": "test", "path": users}}),
            false => json!({}),
        };
        let config = json!({
            "version": 0.1,
            "log": {"level": "error"},
            "storage": {"filesystem": {"rootdirectory": home.path().join("data")}},
            "http": {"addr": host},
            "auth": auth,
        });
        let file = home.path().join("config.yml");
        std::fs::write(&file, config.to_string()).unwrap();
        let child = Command::new("docker-registry")
            .arg("serve")
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let registry = Self {
            child,
            host,
            closed,
            _home: home,
        };
        let began = Instant::now();
        while http().get(registry.url("")).send().await.is_err() {
            assert!(began.elapsed() < START_MAX, "the registry does not answer");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Some(registry)
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}/v2/{path}", self.host)
    }

    /// The name of an image in it.
    pub(crate) fn name(&self, image: &str) -> String {
        format!("{}/{image}", self.host)
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> reqwest::Response {
        use base64::Engine as _;
        let basic =
            base64::engine::general_purpose::STANDARD.encode(format!("{}:{}", USER.0, USER.1));
        let request = match self.closed {
            true => request.header("authorization", format!("Basic {basic}")),
            false => request,
        };
        let response = request.send().await.unwrap();
        assert!(response.status().is_success(), "{response:?}");
        response
    }

    /// Puts a blob into a repository; what describes it.
    pub(crate) async fn blob(&self, repository: &str, content: &[u8]) -> Value {
        let client = http();
        let begin = client.post(self.url(&format!("{repository}/blobs/uploads/")));
        let begun = self.send(begin).await;
        let place = begun.headers()["location"].to_str().unwrap().to_owned();
        let digest = Digest::of(content);
        let end = client
            .put(format!("{place}&digest={digest}"))
            .header("content-type", "application/octet-stream")
            .body(content.to_vec());
        self.send(end).await;
        json!({"mediaType": "application/octet-stream", "digest": digest.to_string(), "size": content.len()})
    }

    /// Puts a manifest under a tag; what describes it.
    pub(crate) async fn manifest(&self, repository: &str, tag: &str, manifest: &Value) -> Value {
        let text = manifest.to_string();
        let kind = manifest["mediaType"].as_str().unwrap();
        let put = http()
            .put(self.url(&format!("{repository}/manifests/{tag}")))
            .header("content-type", kind)
            .body(text.clone());
        self.send(put).await;
        json!({"mediaType": kind, "digest": Digest::of(text.as_bytes()).to_string(), "size": text.len()})
    }

    /// Puts an image of these layers (tars, the lowest first) under a tag, each packed in its own way; what describes it.
    pub(crate) async fn push(&self, image: &str, layers: &[Packed], config: Value) -> Value {
        let (repository, tag) = image.rsplit_once(':').unwrap();
        let mut described = Vec::new();
        for layer in layers {
            let mut one = self.blob(repository, &layer.bytes()).await;
            one["mediaType"] = json!(layer.media_type());
            described.push(one);
        }
        let digests: Vec<String> = layers
            .iter()
            .map(|layer| Digest::of(layer.tar()).to_string())
            .collect();
        let config = json!({
            "architecture": architecture(),
            "os": "linux",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": digests},
        });
        let mut config = self.blob(repository, config.to_string().as_bytes()).await;
        config["mediaType"] = json!("application/vnd.oci.image.config.v1+json");
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": config,
            "layers": described,
        });
        self.manifest(repository, tag, &manifest).await
    }
}

/// A client of this test's own.
pub(crate) fn http() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}

/// This machine, as registries call it.
pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// A layer, and how it travels.
#[derive(Clone)]
pub(crate) enum Packed {
    Plain(Vec<u8>),
    Gzip(Vec<u8>),
    Zstd(Vec<u8>),
}

impl Packed {
    fn tar(&self) -> &[u8] {
        match self {
            Self::Plain(tar) | Self::Gzip(tar) | Self::Zstd(tar) => tar,
        }
    }

    /// As it travels.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Plain(tar) => tar.clone(),
            Self::Gzip(tar) => {
                let mut packer =
                    flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                packer.write_all(tar).unwrap();
                packer.finish().unwrap()
            }
            Self::Zstd(tar) => {
                let level = ruzstd::encoding::CompressionLevel::Fastest;
                ruzstd::encoding::compress_to_vec(&**tar, level)
            }
        }
    }

    fn media_type(&self) -> &'static str {
        match self {
            Self::Plain(_) => "application/vnd.oci.image.layer.v1.tar",
            Self::Gzip(_) => "application/vnd.oci.image.layer.v1.tar+gzip",
            Self::Zstd(_) => "application/vnd.oci.image.layer.v1.tar+zstd",
        }
    }
}

/// A tar of small files, each with its owner.
pub(crate) fn tar_of(files: &[(&str, &[u8], (u64, u64))]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content, (uid, gid)) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_uid(*uid);
        header.set_gid(*gid);
        builder.append_data(&mut header, name, *content).unwrap();
    }
    builder.into_inner().unwrap()
}

/// Our own ids, for an ordinary user to unpack.
pub(crate) fn ours() -> (u64, u64) {
    let uid = rustix::process::geteuid().as_raw();
    (uid.into(), rustix::process::getegid().as_raw().into())
}

/// A tar of a directory.
pub(crate) fn tar_of_directory(directory: &Path) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    archive.follow_symlinks(false);
    archive.append_dir_all(".", directory).unwrap();
    archive.into_inner().unwrap()
}

/// Settings that do not look at this machine's own.
pub(crate) fn settings() -> Settings {
    Settings::default()
}

/// A fresh store, and its home.
pub(crate) fn store() -> (Images, tempfile::TempDir) {
    let home = tempfile::tempdir().unwrap();
    (Images::of(home.path()), home)
}

/// Remembers what was told.
#[derive(Default)]
pub(crate) struct Heard(Mutex<Vec<String>>);

impl Heard {
    /// What was told, but for single steps of bytes.
    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl Progress for Heard {
    fn event(&self, event: Event<'_>) {
        let text = match event {
            Event::Layers { all, missing, .. } => format!("{missing} of {all}"),
            Event::Fetching { had, .. } => format!("from {had}"),
            Event::Again { why, .. } => format!("again: {why}"),
            Event::Step {
                number,
                label,
                done,
                ..
            } => format!(
                "{number}: {label}{}",
                if done { ", done before" } else { "" }
            ),
            Event::Said { line } => format!("| {line}"),
            Event::Storing { .. }
            | Event::Unpacking { .. }
            | Event::Ready { .. }
            | Event::Fetched { .. }
            | Event::Reading { .. }
            | Event::Read { .. } => return,
        };
        self.0.lock().unwrap().push(text);
    }
}
