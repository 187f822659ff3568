//! `sandboxd session`: what is on disk is shown and measured beside a running service and without one, and goes by the
//! service or in its place.

use crate::serve::{Service, end, serve, started_from};
use crate::support::{PATIENCE, Place, code, complaints, everyone, finish, start, text};
use serde_json::Value;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Output;

const MIB: u64 = 1024 * 1024;

struct Home {
    place: Place,
    workspaces: PathBuf,
}

impl Home {
    fn service(&self) -> Service {
        let mut command = serve(&self.place, &["--workspace-root"]);
        command
            .arg(&self.workspaces)
            .env("SANDBOXD_TOKEN", "token")
            .env("SANDBOXD_KEEP_LAYER", "1");
        started_from(&mut command)
    }

    fn session(&self, words: &[&str]) -> Output {
        let mut command = self.place.command();
        let state = self.place.path().join("home/state");
        command
            .arg("session")
            .args(words)
            .arg("--state-dir")
            .arg(state)
            .env("SANDBOXD_TOKEN", "token");
        finish(start(&mut command), Vec::new())
    }

    fn says(&self, words: &[&str]) -> String {
        let output = self.session(words);
        assert_eq!(code(&output), 0, "{words:?}: {output:?}");
        text(&output.stdout)
    }

    fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.says(words)).expect("JSON")
    }

    /// What is said on stderr, in one line, where it fails.
    fn refusal(&self, words: &[&str]) -> String {
        let output = self.session(words);
        assert_eq!(code(&output), 1, "{words:?}: {output:?}");
        let lines = complaints(&output);
        assert_eq!(lines.len(), 1, "{words:?}: {lines:?}");
        lines[0].clone()
    }

    /// Each session and its state.
    fn states(&self) -> Vec<(String, String)> {
        let all = self.json(&["ls", "--json"]);
        let all = all.as_array().expect("a list");
        let word = |one: &Value, name: &str| one[name].as_str().expect("a word").to_owned();
        all.iter()
            .map(|one| (word(one, "session_id"), word(one, "state")))
            .collect()
    }
}

/// A request whose answer may be read.
pub(crate) fn send(service: &Service, method: &str, path: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(&service.address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a deadline");
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: x\r\nX-Sandbox-Token: token\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
    .expect("write");
    stream
}

pub(crate) fn ask(service: &Service, method: &str, path: &str, body: &str) -> String {
    let mut stream = send(service, method, path, body);
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("read");
    answer
}

fn open(service: &Service, id: &str) {
    let body = format!("{{\"session_id\": \"{id}\"}}");
    let answer = ask(service, "POST", "/sessions", &body);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// What a script prints that ends well.
pub(crate) fn run(service: &Service, id: &str, script: &str) -> String {
    let body = serde_json::json!({ "argv": ["sh", "-c", script], "run_id": "0".repeat(32) });
    let path = format!("/sessions/{id}/run");
    let answer = ask(service, "POST", &path, &body.to_string());
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    let body: Value = serde_json::from_str(body).expect("JSON");
    assert_eq!(body["exit_code"], 0, "{body}");
    body["stdout"].as_str().expect("text").to_owned()
}

fn pairs(states: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = states.iter();
    owned
        .map(|(id, state)| ((*id).to_owned(), (*state).to_owned()))
        .collect()
}

#[test]
fn sessions_are_shown_measured_and_removed_with_a_service_and_without() {
    for who in everyone() {
        let place = Place::of(who);
        let home = Home {
            workspaces: place.make_dir("workspaces"),
            place,
        };
        assert!(home.refusal(&["ls"]).contains("home/state"));
        let service = home.service();
        assert_eq!(home.states(), []);
        for id in ["a", "b"] {
            open(&service, id);
        }
        let script = "head -c 3145728 /dev/urandom > big; ln big again; ln -s /usr out; \
                      mkdir -p /opt; head -c 2097152 /dev/urandom > /opt/installed";
        run(&service, "a", script);
        assert_eq!(home.states(), pairs(&[("a", "running"), ("b", "running")]));
        assert!(home.says(&["ls"]).starts_with("SESSION  STATE    RUNTIME"));
        let measured = home.json(&["du", "--json"]);
        let a = &measured["sessions"][0];
        let bytes = |part: &str| a[part]["bytes"].as_u64().expect("a number");
        // The second name counts nothing, and where the link leads nothing either.
        assert!((3 * MIB..4 * MIB).contains(&bytes("workspace")), "{a}");
        assert!((2 * MIB..3 * MIB).contains(&bytes("layer")), "{a}");
        assert_eq!(a["layer"]["kept"], true);
        assert_eq!(a["image"]["id"], "host");
        assert_eq!(home.json(&["du", "a", "--json"])["sessions"][0], *a);
        assert!(home.refusal(&["du", "nobody"]).contains("nobody"));
        let table = home.says(&["du"]);
        assert!(table.contains("total") && table.contains("MiB"), "{table}");

        // By the service, which is found without being told where it is.
        assert_eq!(home.says(&["rm", "b"]), "b  removed\n");
        let answer = ask(&service, "GET", "/sessions/b", "");
        assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
        assert_eq!(home.states(), pairs(&[("a", "running"), ("b", "closed")]));
        assert!(home.refusal(&["rm", "b"]).contains("--purge"));
        assert!(
            home.refusal(&["rm", "--purge", "c"])
                .contains("nothing is stored")
        );
        let wrong = home.place.path().join("tmp/wrong");
        fs::write(&wrong, "wrong\n").expect("a file");
        let mut command = home.place.command();
        command
            .args(["session", "rm", "--purge", "a", "--token-file"])
            .arg(&wrong)
            .arg("--state-dir")
            .arg(home.place.path().join("home/state"));
        let refused = finish(start(&mut command), Vec::new());
        assert_eq!(code(&refused), 1);
        assert!(text(&refused.stderr).contains("nothing was removed"));
        let nobody = ["rm", "--purge", "a", "--url", "http://127.0.0.1:9"];
        assert!(home.refusal(&nobody).contains("nothing was removed"));
        assert!(home.workspaces.join("a/workspace/big").exists());

        // And without it, in its place: its directories are known from what it said.
        end(service);
        assert_eq!(
            home.states(),
            pairs(&[("a", "hibernated"), ("b", "closed")])
        );
        let later = home.json(&["du", "--json"]);
        assert_eq!(later["sessions"][0]["workspace"], a["workspace"]);
        let layers = home.place.path().join("home/state/layers");
        let kept = || fs::read_dir(&layers).expect("a directory").count();
        assert_eq!(kept(), 1);
        assert_eq!(home.says(&["rm", "a"]), "a  removed\n");
        assert_eq!(kept(), 0);
        assert_eq!(home.states(), pairs(&[("a", "closed"), ("b", "closed")]));
        assert!(home.refusal(&["rm", "a"]).contains("--purge"));
        assert_eq!(
            home.says(&["rm", "--purge", "a", "b"]),
            "a  removed, with its files\nb  removed, with its files\n"
        );
        assert_eq!(
            fs::read_dir(&home.workspaces).expect("a directory").count(),
            0
        );
        assert!(
            home.refusal(&["rm", "--purge", "a"])
                .contains("nothing is stored")
        );
        let service = home.service();
        let answer = ask(&service, "GET", "/sessions", "");
        assert!(answer.contains("\"sessions\":[]"), "{answer}");
        end(service);
    }
}
