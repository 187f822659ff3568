//! Whom runs are, as a caller of the built service meets it: the uid that the operator says, or a refusal that says why not.

use crate::serve::{Service, end, serve, started_from};
use crate::sessions::{ask, run};
use crate::support::{Place, Who, everyone, is_root};
use std::fs;

fn service(place: &Place, uid: &str) -> Service {
    let mut command = serve(place, &["--workspace-root"]);
    command
        .arg(place.path().join("home/workspaces"))
        .env("SANDBOXD_TOKEN", "token")
        .env("SANDBOXD_RUNTIMES", "host=host")
        .env("SANDBOXD_SANDBOX_UID", uid);
    started_from(&mut command)
}

fn open(service: &Service, id: &str) -> String {
    let body = format!("{{\"session_id\": \"{id}\"}}");
    ask(service, "POST", "/sessions", &body)
}

#[test]
fn runs_are_the_uid_and_its_workspace_is_its_own() {
    for who in everyone() {
        let place = Place::of(who);
        let service = service(&place, "1000");
        let opened = open(&service, "a");
        assert!(opened.starts_with("HTTP/1.1 200"), "{opened}");
        let script = "id -u; echo mine > file; stat -c %u file . ; cat file";
        assert_eq!(run(&service, "a", script), "1000\n1000\n1000\nmine\n");
        end(service);
    }
}

#[test]
fn a_uid_that_nobody_can_be_is_refused_when_a_session_opens() {
    if !is_root() {
        return;
    }
    let place = Place::of(Who::Root);
    let service = service(&place, "70000");
    let refused = open(&service, "a");
    assert!(refused.starts_with("HTTP/1.1 502"), "{refused}");
    assert!(
        refused.contains("uid 70000") && refused.contains("none of the 65536"),
        "{refused}"
    );
    // Nothing of the session is there.
    let sessions = ask(&service, "GET", "/sessions", "");
    assert!(!sessions.contains("\"a\""), "{sessions}");
    end(service);
}

#[test]
fn files_that_cannot_be_the_uids_are_refused_when_a_session_opens() {
    if !is_root() {
        return;
    }
    // A service without privilege gives a workspace to nobody: one that is not its user's stays somebody else's.
    let place = Place::of(Who::Ordinary);
    let stored = place.path().join("home/workspaces/a/workspace");
    fs::create_dir_all(&stored).expect("a directory");
    for path in [
        place.path().join("home/workspaces"),
        stored.parent().expect("a parent").to_owned(),
    ] {
        place.own(&path);
    }
    let service = service(&place, "1000");
    let refused = open(&service, "a");
    assert!(refused.starts_with("HTTP/1.1 502"), "{refused}");
    assert!(
        refused.contains("uid 1000") && refused.contains("belongs to uid 0"),
        "{refused}"
    );
    // The twin: one of its own.
    let opened = open(&service, "b");
    assert!(opened.starts_with("HTTP/1.1 200"), "{opened}");
    assert_eq!(run(&service, "b", "echo x > f; cat f"), "x\n");
    end(service);
}
