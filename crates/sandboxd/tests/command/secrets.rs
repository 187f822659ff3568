//! Tokens, as whoever reads a log or a list of processes meets them: not at all, however much is logged.

use crate::serve::{end, serve, started_from};
use crate::support::{PATIENCE, Place, descendants, everyone};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

/// The service's own.
const OWN: &str = "own-token-of-the-service-5f1b";
/// Nobody's.
const GUESS: &str = "guess-at-a-token-93c7";

/// Sends a request with this head and body, and gives the answer.
fn ask(address: &str, head: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a deadline");
    let length = body.len();
    write!(
        stream,
        "{head}\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .expect("write");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("read");
    answer
}

fn body_of(answer: &str) -> Value {
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    serde_json::from_str(body).expect("JSON")
}

#[test]
fn no_log_and_no_list_of_processes_holds_one() {
    for who in everyone() {
        let place = Place::of(who);
        let log = place.path().join("log");
        let mut command = serve(&place, &["--workspace-root", "home/workspaces"]);
        command
            .env("SANDBOXD_TOKEN", OWN)
            .env("RUST_LOG", "trace")
            .stderr(File::create(&log).expect("a file"));
        let service = started_from(&mut command);
        let with = |token: &str, what: &str, body: &Value| {
            let head = format!("{what} HTTP/1.1\r\nX-Sandbox-Token: {token}");
            ask(&service.address, &head, &body.to_string())
        };
        let opened = body_of(&with(OWN, "POST /sessions", &json!({"session_id": "a"})));
        let theirs = opened["token"].as_str().expect("a token").to_owned();
        let run = json!({"argv": ["/bin/echo", "served"], "run_id": "0".repeat(32)});
        // The twin: with its token the session answers.
        let served = body_of(&with(&theirs, "POST /sessions/a/run", &run));
        assert_eq!(served["stdout"], "served\n", "{who:?}: {served}");
        for token in [OWN, &theirs, GUESS] {
            for what in [
                "GET /sessions",
                "GET /sessions/b",
                "PUT /policy",
                "POST /sessions/a/exec",
            ] {
                with(token, what, &json!({"command": "true", "unknown": 1}));
            }
            // Also in requests that nobody can read.
            with(token, "POST /sessions/a/run", &json!("{"));
            let bearer = format!("GET /sessions/a HTTP/1.1\r\nAuthorization: Bearer {token}");
            ask(&service.address, &bearer, "");
            let twice = format!(
                "GET /sessions HTTP/1.1\r\nX-Sandbox-Token: {token}\r\nX-Sandbox-Token: {token}"
            );
            ask(&service.address, &twice, "");
        }
        // While a program runs inside: what it, its guest and the launcher were started with.
        let mut started = 0;
        for process in descendants(service.pid()) {
            for name in ["cmdline", "environ", "comm"] {
                let Ok(text) = fs::read(format!("/proc/{}/{name}", process.pid)) else {
                    continue;
                };
                let text = String::from_utf8_lossy(&text);
                for token in [OWN, &theirs] {
                    assert!(!text.contains(token), "{who:?}: {name} of {process:?}");
                }
                started += 1;
            }
        }
        assert!(started >= 2, "{who:?}: {started}");
        end(service);
        let logged = fs::read_to_string(&log).expect("the log");
        assert!(logged.lines().count() > 20, "{who:?}: {logged}");
        for token in [OWN, &theirs, GUESS] {
            let line = logged.lines().find(|line| line.contains(token));
            assert_eq!(line, None, "{who:?}");
        }
    }
}
