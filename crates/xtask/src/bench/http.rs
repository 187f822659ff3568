//! A client for HTTP/1.1 over one kept-alive connection, blocking, with nothing between the socket and the clock.

use anyhow::{Context, bail};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longest wait for an answer.
const ANSWER_SECONDS_MAX: u64 = 60;

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    reader: BufReader<TcpStream>,
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
        let stream = TcpStream::connect(address).context("the service does not accept")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(ANSWER_SECONDS_MAX)))?;
        Ok(Self {
            reader: BufReader::new(stream),
            token: token.to_owned(),
        })
    }

    /// Asks, and reads the whole answer.
    pub(crate) fn ask(&mut self, method: &str, path: &str, body: &str) -> anyhow::Result<Answer> {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: bench\r\nX-Sandbox-Token: {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.token,
            body.len()
        );
        self.reader.get_mut().write_all(request.as_bytes())?;
        self.answer().with_context(|| format!("{method} {path}"))
    }

    /// Asks, and refuses an answer that is not a success.
    pub(crate) fn must(&mut self, method: &str, path: &str, body: &str) -> anyhow::Result<Vec<u8>> {
        let answer = self.ask(method, path, body)?;
        if !(200..300).contains(&answer.status) {
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            bail!("{method} {path} answered {}: {text}", answer.status);
        }
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

    fn answer(&mut self) -> anyhow::Result<Answer> {
        let first = self.line()?;
        let status = first.split(' ').nth(1).context("no status")?.parse()?;
        let (mut length, mut chunked) = (0, false);
        loop {
            let line = self.line()?.to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
            chunked |= line.starts_with("transfer-encoding:") && line.ends_with("chunked");
        }
        let mut body = Vec::new();
        if chunked {
            loop {
                let size = usize::from_str_radix(self.line()?.trim(), 16)?;
                self.take(size, &mut body)?;
                self.line()?;
                if size == 0 {
                    break;
                }
            }
        } else {
            self.take(length, &mut body)?;
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
