//! A service on a free port, and a client that says exactly what a test wants on the wire.

use sandboxd_server::backends::Backend;
use sandboxd_server::backends::in_memory::{InMemory, Switches};
use sandboxd_server::config::{Flags, Layers};
use sandboxd_server::server::Server;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The service token of every test.
pub(crate) const TOKEN: &str = "the-service-token";
/// No answer may take longer than this.
const PATIENCE: Duration = Duration::from_secs(60);

/// A service that runs, and ends with the test.
pub(crate) struct Service {
    pub(crate) addr: SocketAddr,
    pub(crate) backend: Arc<InMemory>,
    pub(crate) root: PathBuf,
    stop: Option<oneshot::Sender<()>>,
    running: Option<JoinHandle<()>>,
    _dir: TempDir,
}

impl Service {
    /// One with a workspace root, two runtimes (`python`, the default, and `node`), and these variables.
    pub(crate) async fn start(env: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().join("workspaces");
        let state = dir.path().join("state");
        let fixed = [
            ("SANDBOXD_PORT", "0".to_owned()),
            ("SANDBOXD_TOKEN", TOKEN.to_owned()),
            ("SANDBOXD_BACKEND", "in_memory".to_owned()),
            ("SANDBOXD_STATE_DIR", state.display().to_string()),
            ("SANDBOXD_WORKSPACE_ROOT", root.display().to_string()),
            (
                "SANDBOXD_RUNTIMES",
                "python=python:3.12-slim,node=node:20-slim".to_owned(),
            ),
            ("SANDBOXD_EXECUTE_TIMEOUT", "20".to_owned()),
        ];
        let kept = fixed
            .iter()
            .filter(|(name, _)| !env.iter().any(|(other, _)| other == name))
            .map(|(name, value)| ((*name).into(), value.into()));
        let own = env
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()));
        let layers = Layers {
            flags: Flags::default(),
            env: kept.chain(own).collect(),
            file: None,
            root: false,
        };
        let (config, warnings) = layers.read().expect("a configuration");
        assert_eq!(warnings, []);
        let backend = InMemory::new();
        let shared: Arc<dyn Backend> = backend.clone();
        let server = Server::start(config, shared).await.expect("started");
        let addr = server.local_addr();
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        Self {
            addr,
            backend,
            root,
            stop: Some(stop),
            running: Some(running),
            _dir: dir,
        }
    }

    /// What makes the backend misbehave.
    pub(crate) fn switches(&self) -> Arc<Switches> {
        self.backend.switches()
    }

    /// Shuts down and waits for the end.
    pub(crate) async fn shut_down(mut self) {
        drop(self.stop.take());
        let running = self.running.take().expect("runs");
        timeout(PATIENCE, running)
            .await
            .expect("ends in time")
            .expect("no panic");
    }

    /// A request with the service token.
    pub(crate) fn request(&self, method: &str, path: &str) -> Request {
        Request::new(self.addr, method, path).header("X-Sandbox-Token", TOKEN)
    }

    /// A request without a token.
    pub(crate) fn bare(&self, method: &str, path: &str) -> Request {
        Request::new(self.addr, method, path)
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.request("GET", path).send().await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Reply {
        self.request("POST", path).json(&body).send().await
    }

    /// Opens a session; gives its token.
    pub(crate) async fn open(&self, id: &str) -> String {
        let reply = self.post("/sessions", json!({ "session_id": id })).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()["token"].as_str().expect("a token").to_owned()
    }
}

/// One request, on a connection of its own.
pub(crate) struct Request {
    addr: SocketAddr,
    head: String,
    body: Vec<u8>,
    has_body: bool,
}

impl Request {
    pub(crate) fn new(addr: SocketAddr, method: &str, path: &str) -> Self {
        Self {
            addr,
            head: format!("{method} {path} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n"),
            body: Vec::new(),
            has_body: false,
        }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        let _ = write!(self.head, "{name}: {value}\r\n");
        self
    }

    pub(crate) fn token(self, token: &str) -> Self {
        self.header("X-Sandbox-Token", token)
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        self.header("Content-Type", "application/json")
            .body(body.to_string().as_bytes())
    }

    pub(crate) fn body(mut self, body: &[u8]) -> Self {
        self.body = body.to_vec();
        self.has_body = true;
        self
    }

    pub(crate) async fn send(self) -> Reply {
        let mut wire = self.head.into_bytes();
        if self.has_body {
            let length = format!("Content-Length: {}\r\n", self.body.len());
            wire.extend_from_slice(length.as_bytes());
        }
        wire.extend_from_slice(b"\r\n");
        wire.extend_from_slice(&self.body);
        raw(self.addr, &wire).await
    }
}

/// Sends bytes as they are and reads until the other side closes.
pub(crate) async fn raw(addr: SocketAddr, wire: &[u8]) -> Reply {
    let exchange = async {
        let mut stream = TcpStream::connect(addr).await.expect("connected");
        // A refusal may come, and the connection end, while this is still sending.
        let _ = stream.write_all(wire).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        Reply::parse(&answer)
    };
    timeout(PATIENCE, exchange).await.expect("answered in time")
}

/// An answer. Status 0 stands for a connection that was closed without one.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn parse(answer: &[u8]) -> Self {
        let Some(at) = answer.windows(4).position(|four| four == b"\r\n\r\n") else {
            return Self {
                status: 0,
                headers: Vec::new(),
                body: answer.to_vec(),
            };
        };
        let head = String::from_utf8_lossy(&answer[..at]);
        let mut lines = head.split("\r\n");
        let status = lines
            .next()
            .and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let headers = lines.filter_map(|line| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_ascii_lowercase(), value.trim().to_owned()))
        });
        Self {
            status: status.expect("a status line"),
            headers: headers.collect(),
            body: answer[at + 4..].to_vec(),
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(found, _)| found == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {}", self.text()))
    }

    /// Asserts the status and gives `detail` as text.
    #[track_caller]
    pub(crate) fn refused(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{}", self.text());
        match &self.json()["detail"] {
            Value::String(words) => words.clone(),
            other => other.to_string(),
        }
    }

    /// Asserts status 200 and gives the body.
    #[track_caller]
    pub(crate) fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text());
        self.json()
    }

    /// Asserts status 204 and an empty body.
    #[track_caller]
    pub(crate) fn nothing(&self) {
        assert_eq!(self.status, 204, "{}", self.text());
        assert_eq!(self.text(), "");
    }
}

/// A run's id.
pub(crate) fn run_id(number: u32) -> String {
    format!("{number:032x}")
}
