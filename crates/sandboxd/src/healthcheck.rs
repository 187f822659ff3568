//! `sandboxd healthcheck`: whether the service lives, for a container's probe, whose image has no other program to ask with.

use crate::arguments::HealthcheckArguments;
use crate::failure::{FAILED, Failure};
use crate::limits::{HEALTH_ANSWER_BYTES_MAX, HEALTH_SECONDS_MAX};
use crate::sandbox::configuration;
use crate::values::system_words;
use sandboxd_server::config::Flags;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Asks, and says nothing where all is well.
pub(crate) fn healthcheck(arguments: &HealthcheckArguments) -> ExitCode {
    match attempt(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.tell(),
    }
}

fn attempt(arguments: &HealthcheckArguments) -> Result<(), Failure> {
    let flags = Flags {
        listen: arguments.listen,
        ..Flags::default()
    };
    let config = configuration(flags, arguments.config.clone())
        .map_err(|failure| Failure::new(FAILED, failure.text))?;
    let failed = |what: String| Failure::new(FAILED, what);
    let address = reached_at(config.listen);
    if address.port() == 0 {
        let what = "with port 0 the service listens on any free port, and which is not known here: --listen says it";
        return Err(failed(what.to_owned()));
    }
    let deadline = Instant::now() + Duration::from_secs(HEALTH_SECONDS_MAX);
    let answer = ask(address, deadline).map_err(|error| {
        let why = match error.kind() {
            ErrorKind::TimedOut | ErrorKind::WouldBlock => {
                format!("no answer within {HEALTH_SECONDS_MAX} s")
            }
            _ => system_words(&error),
        };
        failed(format!("the service at {address}: {why}"))
    })?;
    match status(&answer) {
        Some(200) => Ok(()),
        Some(status) => Err(failed(format!(
            "what listens at {address} answers /healthz with {status}"
        ))),
        None => Err(failed(format!("what listens at {address} is no service"))),
    }
}

/// Where one on the same host reaches a service that listens there.
fn reached_at(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

/// The first line of the answer, or as much of it as there is.
fn ask(address: SocketAddr, deadline: Instant) -> io::Result<Vec<u8>> {
    let left = || {
        let left = deadline.saturating_duration_since(Instant::now());
        // No time at all would be no limit to the system.
        (!left.is_zero())
            .then_some(left)
            .ok_or_else(|| io::Error::from(ErrorKind::TimedOut))
    };
    let mut stream = TcpStream::connect_timeout(&address, left()?)?;
    stream.set_write_timeout(Some(left()?))?;
    let request = format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    let mut piece = [0; HEALTH_ANSWER_BYTES_MAX];
    while answer.len() < HEALTH_ANSWER_BYTES_MAX && !answer.contains(&b'\n') {
        stream.set_read_timeout(Some(left()?))?;
        let count = stream.read(&mut piece)?;
        if count == 0 {
            break;
        }
        answer.extend_from_slice(piece.get(..count).unwrap_or_default());
    }
    Ok(answer)
}

/// The status in an answer's first line.
fn status(answer: &[u8]) -> Option<u16> {
    let text = String::from_utf8_lossy(answer);
    let mut words = text.lines().next()?.split(' ');
    words.next()?.starts_with("HTTP/1.").then_some(())?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_listens_everywhere_is_asked_on_loopback() {
        for (listen, asked) in [
            ("0.0.0.0:8080", "127.0.0.1:8080"),
            ("[::]:8080", "[::1]:8080"),
            ("127.0.0.1:1", "127.0.0.1:1"),
            ("192.0.2.7:80", "192.0.2.7:80"),
        ] {
            let listen: SocketAddr = listen.parse().expect("an address");
            assert_eq!(reached_at(listen).to_string(), asked);
        }
    }

    #[test]
    fn the_status_is_the_first_lines() {
        assert_eq!(status(b"HTTP/1.1 200 OK\r\nx: y\r\n\r\n"), Some(200));
        assert_eq!(status(b"HTTP/1.1 503 Service Unavailable\r\n"), Some(503));
        for other in [&b""[..], b"SSH-2.0-x\r\n", b"HTTP/1.1\r\n", b"\xff 200"] {
            assert_eq!(status(other), None);
        }
    }
}
