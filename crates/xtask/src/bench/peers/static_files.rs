//! The HTTP stack of the service, with nothing behind it but files: what a transfer, a look and a listing cost at least over
//! HTTP.
//!
//! A process of its own, like the service, from this program: `cargo xtask serve-files`.

use crate::bench::http::Connection;
use anyhow::{Context, bail};
use axum::body::Body;
use axum::extract::{Path as InPath, State};
use axum::http::StatusCode;
use axum::routing::{get, put};
use axum::{Json, Router};
use futures::StreamExt;
use serde_json::{Value, json};
use std::fs::{DirEntry, Metadata};
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use tokio::io::AsyncWriteExt;

use tower_http::services::ServeDir;

/// What rows with it are called.
pub(crate) const STATIC: &str = "static file, same HTTP stack";

/// The process.
pub(crate) struct StaticFiles {
    process: Child,
    address: SocketAddr,
}

impl StaticFiles {
    /// Serves what is in `folder` under `/files`, takes files there by `PUT`, and says what is there under `/stat` and
    /// `/list`.
    pub(crate) fn start(folder: &Path) -> anyhow::Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg("serve-files")
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = process.stdout.take().context("no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let address = line.trim().parse().context("it does not start")?;
        Ok(Self { process, address })
    }

    /// A connection.
    pub(crate) fn connect(&self) -> anyhow::Result<Connection> {
        Connection::open(self.address, "")
    }
}

impl Drop for StaticFiles {
    fn drop(&mut self) {
        // It ends with its input.
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// What `cargo xtask serve-files` does, until its input ends.
pub(crate) fn serve(folder: PathBuf) -> ExitCode {
    match serve_until_the_end(folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            crate::report::say(&format!("serve-files: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn serve_until_the_end(folder: PathBuf) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        crate::report::say(&listener.local_addr()?.to_string());
        let routes = Router::new()
            .route("/upload/{name}", put(upload))
            .route("/stat/{name}", get(stat))
            .route("/list/{name}", get(list))
            .with_state(folder.clone())
            .nest_service("/files", ServeDir::new(folder));
        let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
            // As the service does; without it small answers wait for what comes after them.
            let _ = stream.set_nodelay(true);
        });
        tokio::spawn(async move { axum::serve(listener, routes).await });
        tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
        anyhow::Ok(())
    })?;
    runtime.shutdown_background();
    Ok(())
}

/// Takes a file as it comes, and puts it in its place when it is whole.
async fn upload(
    State(folder): State<PathBuf>,
    InPath(name): InPath<String>,
    body: Body,
) -> StatusCode {
    match take(&folder, &name, body).await {
        Ok(()) => StatusCode::NO_CONTENT,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

async fn take(folder: &Path, name: &str, body: Body) -> anyhow::Result<()> {
    if name.contains('/') {
        bail!("not a name");
    }
    let unfinished = folder.join(format!(".{name}.unfinished"));
    let mut file = tokio::fs::File::create(&unfinished).await?;
    let mut parts = body.into_data_stream();
    while let Some(part) = parts.next().await {
        file.write_all(&part?).await?;
    }
    file.flush().await?;
    tokio::fs::rename(unfinished, folder.join(name)).await?;
    Ok(())
}

/// What the service says of a file, as far as plain files have it.
fn entry(name: &str, seen: &Metadata) -> Value {
    json!({ "name": name, "path": format!("/{name}"), "is_dir": seen.is_dir(), "size": seen.len() })
}

async fn stat(
    State(folder): State<PathBuf>,
    InPath(name): InPath<String>,
) -> Result<Json<Value>, StatusCode> {
    let seen = tokio::fs::symlink_metadata(folder.join(&name)).await;
    seen.map(|seen| Json(entry(&name, &seen)))
        .map_err(|_| StatusCode::NOT_FOUND)
}

/// Sorted by name, as the service's are.
async fn list(
    State(folder): State<PathBuf>,
    InPath(name): InPath<String>,
) -> Result<Json<Vec<Value>>, StatusCode> {
    let listed = tokio::task::spawn_blocking(move || {
        let entries: Result<Vec<DirEntry>, _> = std::fs::read_dir(folder.join(name))?.collect();
        let mut entries = entries?;
        entries.sort_by_key(DirEntry::file_name);
        let rows = entries.iter().map(|found| {
            let name = found.file_name();
            Ok(entry(&name.to_string_lossy(), &found.metadata()?))
        });
        rows.collect::<std::io::Result<Vec<Value>>>()
    });
    match listed.await {
        Ok(Ok(rows)) => Ok(Json(rows)),
        _ => Err(StatusCode::NOT_FOUND),
    }
}
