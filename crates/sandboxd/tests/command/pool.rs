//! A pool of ready sandboxes, as a caller of the built service meets it: what has changed meanwhile holds for the very next
//! session, whatever was made before.

use crate::images::root;
use crate::serve::{Service, end, get, serve, started_from};
use crate::sessions::{ask, run};
use crate::support::{Place, Who, code, eventually, everyone, finish, is_root, start, text};
use std::fs;
use std::path::Path;

/// A service that keeps two sandboxes ready.
fn service(place: &Place, runtimes: &str) -> Service {
    let mut command = serve(place, &[]);
    command
        .env("SANDBOXD_TOKEN", "token")
        .env("SANDBOXD_POOL", "2")
        .env("SANDBOXD_RUNTIMES", runtimes);
    let service = started_from(&mut command);
    ready(&service);
    service
}

/// A figure of the service, over all its labels.
fn figure(service: &Service, name: &str) -> u64 {
    let text = get(&service.address, "/metrics", Some("token"));
    let lines = text.lines().filter(|line| line.starts_with(name));
    lines
        .filter_map(|line| line.rsplit(' ').next()?.trim().parse::<u64>().ok())
        .sum()
}

fn hits(service: &Service) -> u64 {
    figure(service, "sandboxd_pool_hits_total")
}

fn ready(service: &Service) {
    eventually("two are ready", || {
        figure(service, "sandboxd_pool_ready") == 2
    });
}

fn open(service: &Service, id: &str) {
    let body = format!("{{\"session_id\": \"{id}\"}}");
    let answer = ask(service, "POST", "/sessions", &body);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// Opens one session after the other until one has come from the pool; each has to be as it is to be now.
fn until_one_comes_from_the_pool(service: &Service, check: impl Fn(&str)) {
    let before = hits(service);
    let mut number = 0;
    eventually("one comes from the pool", || {
        number += 1;
        let id = format!("later-{number}");
        open(service, &id);
        check(&id);
        ask(service, "DELETE", &format!("/sessions/{id}?purge=true"), "");
        hits(service) > before
    });
}

#[test]
fn a_changed_ceiling_holds_for_the_very_next_session() {
    if !is_root() {
        return;
    }
    let place = Place::of(Who::Root);
    let service = service(&place, "host=host");
    // Says whether so many processes may run.
    let many = "(i=0; while [ $i -lt 40 ]; do sleep 5 >/dev/null 2>&1 & i=$((i+1)); done; echo all) 2>/dev/null; true";
    open(&service, "before");
    assert_eq!(hits(&service), 1);
    assert_eq!(run(&service, "before", many), "all\n");
    ready(&service);
    let policy = r#"{"runtimes": {"host": {"pids_limit": 16}}}"#;
    let answer = ask(&service, "PUT", "/policy", policy);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    open(&service, "after");
    assert_eq!(run(&service, "after", many), "");
    until_one_comes_from_the_pool(&service, |id| {
        assert_eq!(run(&service, id, many), "", "{id}");
    });
    // Whoever had one keeps what was promised.
    assert_eq!(run(&service, "before", "echo here"), "here\n");
    end(service);
}

fn import(place: &Place, from: &Path) {
    let mut command = place.command();
    command
        .args(["image", "import"])
        .arg(from)
        .args(["--name", "app:1", "--state-dir"])
        .arg(place.path().join("home/state"));
    let output = finish(start(&mut command), Vec::new());
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
}

#[test]
fn a_name_that_has_moved_on_holds_for_the_very_next_session() {
    for who in everyone() {
        let place = Place::of(who);
        let root = root(&place);
        import(&place, &root);
        let service = service(&place, "app=app:1");
        let look = "read -r line < /etc/release; echo $line";
        open(&service, "before");
        assert_eq!(hits(&service), 1);
        assert_eq!(run(&service, "before", look), "made\n");
        ready(&service);
        fs::write(root.join("etc/release"), "moved\n").expect("a file");
        import(&place, &root);
        open(&service, "after");
        assert_eq!(run(&service, "after", look), "moved\n");
        until_one_comes_from_the_pool(&service, |id| {
            assert_eq!(run(&service, id, look), "moved\n", "{id}");
        });
        assert_eq!(run(&service, "before", look), "made\n");
        end(service);
    }
}
