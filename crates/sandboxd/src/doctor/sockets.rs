//! Whether a Docker daemon answers on one of the usual sockets.

use crate::limits::DOCKER_ANSWER_MILLIS;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What was found at a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Daemon {
    /// It answers; its name and version.
    Answers(PathBuf, String),
    /// The socket is there, and this user may not use it.
    Denied(PathBuf),
    /// The socket is there, and nobody answers.
    Silent(PathBuf, String),
    /// There is no socket.
    Absent,
}

/// Asks every usual socket, the system's first.
pub(super) fn docker() -> Daemon {
    let uid = rustix::process::geteuid().as_raw();
    let paths = [
        PathBuf::from("/var/run/docker.sock"),
        PathBuf::from(format!("/run/user/{uid}/docker.sock")),
        PathBuf::from("/run/podman/podman.sock"),
        PathBuf::from(format!("/run/user/{uid}/podman/podman.sock")),
    ];
    let mut best = Daemon::Absent;
    for path in paths {
        match ask(&path) {
            Ok(name) => return Daemon::Answers(path, name),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(_) if best != Daemon::Absent => {}
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                best = Daemon::Denied(path)
            }
            Err(error) => best = Daemon::Silent(path, crate::values::system_words(&error)),
        }
    }
    best
}

fn ask(path: &Path) -> io::Result<String> {
    let mut stream = UnixStream::connect(path)?;
    let patience = Some(Duration::from_millis(DOCKER_ANSWER_MILLIS));
    stream.set_read_timeout(patience)?;
    stream.set_write_timeout(patience)?;
    stream.write_all(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")?;
    let mut answer = [0_u8; 2048];
    let count = stream.read(&mut answer)?;
    name_in(&String::from_utf8_lossy(
        answer.get(..count).unwrap_or_default(),
    ))
    .ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "it does not answer as Docker does"))
}

/// The name in an answer to `/_ping`.
fn name_in(answer: &str) -> Option<String> {
    let status = answer.lines().next()?;
    if !status.starts_with("HTTP/1.") || !status.contains(" 200 ") {
        return None;
    }
    let server = answer.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("server")
            .then(|| value.trim().to_owned())
    });
    Some(server.unwrap_or_else(|| "a daemon without a name".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_names_itself_in_its_answer() {
        let answer =
            "HTTP/1.0 200 OK\r\nApi-Version: 1.41\r\nServer: Docker/20.10.24 (linux)\r\n\r\nOK";
        assert_eq!(name_in(answer).as_deref(), Some("Docker/20.10.24 (linux)"));
        assert_eq!(name_in("HTTP/1.1 404 Not Found\r\n\r\n"), None);
        assert_eq!(name_in("SSH-2.0"), None);
    }

    #[test]
    fn a_socket_that_is_not_there_is_not_found() {
        let error = ask(Path::new("/nonexistent/docker.sock")).expect_err("nothing there");
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
}
