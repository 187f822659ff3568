//! A service made by hand: it answers what a test says, and keeps what it was asked.

use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// The service token that tests use.
pub(crate) const TOKEN: &str = "the-service-token";
/// The token of the session that the stub opens.
pub(crate) const SESSION_TOKEN: &str = "the-session-token";

/// What was asked.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) token: String,
    pub(crate) body: Vec<u8>,
}

impl Asked {
    /// `METHOD path`
    pub(crate) fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("a JSON body")
    }
}

/// What is answered.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// A status and JSON.
    Json(u16, Value),
    /// A status and bytes.
    Raw(u16, Vec<u8>),
    /// Nothing, with the connection left open.
    Silence,
    /// The end of the connection.
    HangUp,
    /// Another reply, later.
    After(Duration, Box<Reply>),
}

/// A refusal in words.
pub(crate) fn refusal(status: u16, words: &str) -> Reply {
    Reply::Json(status, json!({ "detail": words }))
}

type Answering = dyn Fn(&Asked) -> Option<Reply> + Send + Sync;

/// A service that runs until it is dropped.
pub(crate) struct Stub {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    _connections: JoinSet<()>,
}

impl Stub {
    /// One that answers by `answering`; where that says nothing, it opens sessions, has a policy, and knows nothing else.
    pub(crate) async fn start(
        answering: impl Fn(&Asked) -> Option<Reply> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let answering: Arc<Answering> = Arc::new(answering);
        let mut connections = JoinSet::new();
        let log = asked.clone();
        connections.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                open.spawn(connection(stream, answering.clone(), log.clone()));
            }
        });
        Self {
            url,
            asked,
            _connections: connections,
        }
    }

    pub(crate) fn service(&self) -> sandboxd_client::Service {
        sandboxd_client::Service::new(&self.url, TOKEN).expect("a service")
    }

    /// Everything that was asked, in order.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("not poisoned").clone()
    }

    /// What was asked on one line, `METHOD path`.
    pub(crate) fn asked_for(&self, line: &str) -> Vec<Asked> {
        let all = self.asked().into_iter();
        all.filter(|asked| asked.line() == line).collect()
    }
}

async fn connection(stream: TcpStream, answering: Arc<Answering>, log: Arc<Mutex<Vec<Asked>>>) {
    let mut stream = BufReader::new(stream);
    while let Some(asked) = request(&mut stream).await {
        log.lock().expect("not poisoned").push(asked.clone());
        let answering = answering.clone();
        let answered = tokio::task::spawn_blocking(move || {
            let own = answering(&asked);
            own.unwrap_or_else(|| usual(&asked))
        });
        let mut reply = answered.await.expect("no panic");
        while let Reply::After(pause, later) = reply {
            tokio::time::sleep(pause).await;
            reply = *later;
        }
        let (status, kind, body) = match reply {
            Reply::Json(status, body) => {
                (status, "application/json", body.to_string().into_bytes())
            }
            Reply::Raw(status, body) => (status, "application/octet-stream", body),
            Reply::HangUp => return,
            Reply::Silence | Reply::After(..) => std::future::pending().await,
        };
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status} Word\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nX-Request-Id: r-1\r\n\r\n"
        );
        let sent = [head.into_bytes(), body].concat();
        if stream.write_all(&sent).await.is_err() {
            return;
        }
    }
}

async fn request(stream: &mut BufReader<TcpStream>) -> Option<Asked> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let (mut length, mut token) = (0, String::new());
    loop {
        line.clear();
        stream.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().expect("a length"),
            "x-sandbox-token" => token = value.to_owned(),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(Asked {
        method,
        path,
        token,
        body,
    })
}

/// What a service says that works.
fn usual(asked: &Asked) -> Reply {
    match asked.line().as_str() {
        "POST /sessions" => {
            let id = asked.json()["session_id"]
                .as_str()
                .unwrap_or("s-0123456789abcdef")
                .to_owned();
            Reply::Json(
                200,
                json!({ "session": session(&id), "token": SESSION_TOKEN }),
            )
        }
        "GET /policy" => Reply::Json(200, policy(300)),
        "DELETE /sessions/a" | "DELETE /sessions/a?purge=true" => Reply::Raw(204, Vec::new()),
        _ => refusal(404, "Not Found"),
    }
}

pub(crate) fn session(id: &str) -> Value {
    json!({
        "session_id": id, "runtime": "python", "tenant": null, "alive": true, "state": "running", "created_at": 1.0,
        "last_activity": 2.0, "idle_seconds": 0.5, "usage": null,
    })
}

pub(crate) fn policy(execute_timeout: u64) -> Value {
    json!({
        "runtimes": [], "default_runtime": "python", "max_sessions": null, "max_open_sessions": null,
        "max_sessions_per_tenant": null, "evict_idle_after": null, "mem_limit": null, "memswap_limit": null, "cpus": null,
        "cpu_shares": null, "pids_limit": null, "network_mode": "none", "oci_runtime": null, "work_dir": "/workspace",
        "idle_timeout": 3600, "execute_timeout": execute_timeout, "max_read_bytes": 1000, "persist_containers": false,
        "sandbox_uid": null, "workspace_ttl": null, "container_ttl": null, "tmpfs_size": null, "prewarm": false,
        "buildkit": false, "native_files": true, "native_writes": true, "native_realpath": true,
    })
}

/// How a run ended that printed `stdout`.
pub(crate) fn finished(code: u8, stdout: &str) -> Reply {
    Reply::Json(
        200,
        json!({
            "stdout": stdout, "stderr": "", "exit_code": code, "timed_out": false, "output_limited": false,
            "output_limit": null,
        }),
    )
}
