//! Many requests over one connection, for attacks that need to be repeated until they hit.

use crate::wire::{Reply, TOKEN};
use serde_json::Value;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A connection that is kept.
pub(crate) struct Fast {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Fast {
    pub(crate) async fn connect(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    /// A request with the service token and a JSON body.
    pub(crate) async fn post(&mut self, path: &str, body: &Value) -> Reply {
        let body = body.to_string();
        self.send("POST", path, "application/json", body.as_bytes())
            .await
    }

    pub(crate) async fn send(
        &mut self,
        method: &str,
        path: &str,
        kind: &str,
        body: &[u8],
    ) -> Reply {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nX-Sandbox-Token: {TOKEN}\r\nContent-Type: {kind}\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        self.stream.write_all(head.as_bytes()).await.unwrap();
        self.stream.write_all(body).await.unwrap();
        self.answer().await
    }

    /// Asks for all of these before it reads the first answer; gives their statuses.
    pub(crate) async fn get_all(&mut self, paths: impl Iterator<Item = String>) -> Vec<u16> {
        let mut wire = String::new();
        let mut asked = 0;
        for path in paths {
            let head =
                format!("GET {path} HTTP/1.1\r\nHost: x\r\nX-Sandbox-Token: {TOKEN}\r\n\r\n");
            wire.push_str(&head);
            asked += 1;
        }
        self.stream.write_all(wire.as_bytes()).await.unwrap();
        let mut statuses = Vec::with_capacity(asked);
        for _ in 0..asked {
            statuses.push(self.answer().await.status);
        }
        statuses
    }

    async fn answer(&mut self) -> Reply {
        loop {
            if let Some(whole) = whole(&self.buffer) {
                let answer: Vec<u8> = self.buffer.drain(..whole).collect();
                return Reply::parse(&answer);
            }
            let read = self.stream.read_buf(&mut self.buffer).await.unwrap();
            assert_ne!(read, 0, "the connection was closed");
        }
    }
}

/// The length of the first answer in a buffer, if all of it is there.
fn whole(buffer: &[u8]) -> Option<usize> {
    let head = buffer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let text = String::from_utf8_lossy(&buffer[..head]).to_ascii_lowercase();
    let length = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"))
        .map_or(0, |value| value.trim().parse().expect("a number"));
    (buffer.len() >= head + 4 + length).then_some(head + 4 + length)
}
