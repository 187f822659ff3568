//! A client for HTTP/1.1 over one kept-alive connection, blocking, with nothing between the socket and the clock.

use anyhow::{Context, bail};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Longest wait for an answer.
const ANSWER_SECONDS_MAX: u64 = 60;

/// How long a connection may be left alone and be used again: less than the five seconds after which servers give one up.
const IDLE_SECONDS_MAX: u64 = 4;
/// A body of at most so many bytes is sent with its head.
const TOGETHER_BYTES: usize = 16 * 1024;
/// How much of a long answer is read at once.
const DRAIN_BYTES: usize = 256 * 1024;

/// Where a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Length(u64),
    Chunked,
}

fn succeeded(method: &str, path: &str, answer: &Answer) -> anyhow::Result<()> {
    if !(200..300).contains(&answer.status) {
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        bail!("{method} {path} answered {}: {text}", answer.status);
    }
    Ok(())
}

fn connect(address: SocketAddr) -> anyhow::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect(address).context("the service does not accept")?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(ANSWER_SECONDS_MAX)))?;
    Ok(BufReader::new(stream))
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    address: SocketAddr,
    reader: BufReader<TcpStream>,
    used: Instant,
    token: String,
}

/// One answer.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The status.
    pub(crate) status: u16,
    /// The body.
    pub(crate) body: Vec<u8>,
}

impl Connection {
    /// Connects.
    pub(crate) fn open(address: SocketAddr, token: &str) -> anyhow::Result<Self> {
        Ok(Self {
            address,
            reader: connect(address)?,
            used: Instant::now(),
            token: token.to_owned(),
        })
    }

    /// Asks, and reads the whole answer.
    pub(crate) fn ask(&mut self, method: &str, path: &str, body: &str) -> anyhow::Result<Answer> {
        self.request(method, path, "application/json", body.as_bytes())?;
        self.answer().with_context(|| format!("{method} {path}"))
    }

    /// Sends bytes, and refuses an answer that is not a success.
    pub(crate) fn send(&mut self, method: &str, path: &str, body: &[u8]) -> anyhow::Result<()> {
        self.request(method, path, "application/octet-stream", body)?;
        let answer = self.answer().with_context(|| format!("{method} {path}"))?;
        succeeded(method, path, &answer)
    }

    /// Asks, counts the bytes of the answer and keeps none; refuses one that is not a success or not so long.
    pub(crate) fn drain(
        &mut self,
        method: &str,
        path: &str,
        body: &str,
        length: u64,
    ) -> anyhow::Result<()> {
        self.request(method, path, "application/json", body.as_bytes())?;
        let (status, framing) = self.answer_head()?;
        if status != 200 || framing != Framing::Length(length) {
            bail!("{method} {path} answered {status}, {framing:?}");
        }
        let room = usize::try_from(length).map_or(DRAIN_BYTES, |length| length.min(DRAIN_BYTES));
        let mut buffer = vec![0; room];
        let mut left = length;
        while left > 0 {
            let most = usize::try_from(left).map_or(room, |left| left.min(room));
            match self.reader.read(&mut buffer[..most])? {
                0 => bail!("the answer ends early"),
                got => left -= u64::try_from(got)?,
            }
        }
        Ok(())
    }

    /// Sends a request. A connection that was left alone for long may have been given up at the other end: then by a new one.
    fn request(&mut self, method: &str, path: &str, kind: &str, body: &[u8]) -> anyhow::Result<()> {
        if self.used.elapsed() > Duration::from_secs(IDLE_SECONDS_MAX) {
            self.reader = connect(self.address)?;
        }
        self.used = Instant::now();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: bench\r\nX-Sandbox-Token: {}\r\n\
             Content-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
            self.token,
            body.len()
        );
        let stream = self.reader.get_mut();
        if body.len() <= TOGETHER_BYTES {
            stream.write_all(&[head.as_bytes(), body].concat())?;
        } else {
            stream.write_all(head.as_bytes())?;
            stream.write_all(body)?;
        }
        Ok(())
    }

    /// Asks, and refuses an answer that is not a success.
    pub(crate) fn must(&mut self, method: &str, path: &str, body: &str) -> anyhow::Result<Vec<u8>> {
        let answer = self.ask(method, path, body)?;
        succeeded(method, path, &answer)?;
        Ok(answer.body)
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            bail!("the service closed the connection");
        }
        line.truncate(line.trim_end().len());
        Ok(line)
    }

    fn answer_head(&mut self) -> anyhow::Result<(u16, Framing)> {
        let first = self.line()?;
        let status = first.split(' ').nth(1).context("no status")?.parse()?;
        let mut framing = Framing::Length(0);
        loop {
            let line = self.line()?.to_ascii_lowercase();
            if line.is_empty() {
                return Ok((status, framing));
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                framing = Framing::Length(value.trim().parse()?);
            }
            if line.starts_with("transfer-encoding:") && line.ends_with("chunked") {
                framing = Framing::Chunked;
            }
        }
    }

    fn answer(&mut self) -> anyhow::Result<Answer> {
        let (status, framing) = self.answer_head()?;
        let mut body = Vec::new();
        match framing {
            Framing::Length(length) => self.take(usize::try_from(length)?, &mut body)?,
            Framing::Chunked => loop {
                let size = usize::from_str_radix(self.line()?.trim(), 16)?;
                self.take(size, &mut body)?;
                self.line()?;
                if size == 0 {
                    break;
                }
            },
        }
        Ok(Answer { status, body })
    }

    fn take(&mut self, length: usize, body: &mut Vec<u8>) -> anyhow::Result<()> {
        let wanted = u64::try_from(length)?;
        let got = self.reader.by_ref().take(wanted).read_to_end(body)?;
        if got != length {
            bail!("the answer ends early");
        }
        Ok(())
    }
}
