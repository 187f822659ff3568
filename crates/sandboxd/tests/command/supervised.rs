//! `sandboxd serve` under a supervisor that listens as systemd does.

use crate::serve::{end, get, serve, started_from};
use crate::support::{PATIENCE, Place, eventually, everyone};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;

/// What the service says next.
fn heard(socket: &UnixDatagram) -> String {
    let mut buffer = [0; 4096];
    let size = socket.recv(&mut buffer).expect("it says something");
    String::from_utf8_lossy(&buffer[..size]).into_owned()
}

fn says(socket: &UnixDatagram, wanted: &str) -> String {
    loop {
        let said = heard(socket);
        if said.lines().any(|line| line == wanted) {
            return said;
        }
    }
}

#[test]
fn a_supervisor_hears_that_it_is_ready_that_it_lives_and_that_it_ends() {
    let place = Place::of(everyone()[0]);
    let path = place.path().join("home/notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    place.own(&path);
    socket.set_read_timeout(Some(PATIENCE)).expect("a deadline");
    let mut command = serve(&place, &["--set", "drain_timeout=7"]);
    command
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "200000");
    let service = started_from(&mut command);
    let ready = says(&socket, "READY=1");
    let status = format!("STATUS=listening on {}", service.address);
    assert!(ready.lines().any(|line| line == status), "{ready}");
    for _ in 0..3 {
        says(&socket, "WATCHDOG=1");
    }
    end(service);
    let ending = says(&socket, "STOPPING=1");
    assert!(
        ending
            .lines()
            .any(|line| line == "EXTEND_TIMEOUT_USEC=37000000"),
        "the patience of the drain and of the end: {ending}"
    );
}

#[test]
fn without_a_supervisor_nothing_is_missing() {
    let place = Place::of(everyone()[0]);
    let mut command = serve(&place, &[]);
    command.env("NOTIFY_SOCKET", place.path().join("home/nobody"));
    end(started_from(&mut command));
}

/// A request with the service's token and a JSON body; the answer, head and all.
fn post(address: &str, token: &str, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a deadline");
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: x\r\nX-Sandbox-Token: {token}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .expect("write");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("read");
    answer
}

#[test]
fn a_run_finishes_before_the_service_ends_and_the_next_one_goes_on() {
    for who in everyone() {
        let place = Place::of(who);
        let root = place.path().join("home/workspaces");
        let root = root.to_str().expect("text");
        let words = ["--workspace-root", root, "--set", "drain_timeout=60"];
        let serve = || {
            let mut command = serve(&place, &words);
            command.env("SANDBOXD_TOKEN", "service-token");
            started_from(&mut command)
        };
        let run = |address: &str, script: &str| {
            let id = "0123456789abcdef0123456789abcdef";
            let body = format!(r#"{{"argv": ["/bin/sh", "-c", "{script}"], "run_id": "{id}"}}"#);
            post(address, "service-token", "/sessions/a/run", &body)
        };
        let service = serve();
        let opened = post(
            &service.address,
            "service-token",
            "/sessions",
            r#"{"session_id": "a", "labels": {"user": "42"}}"#,
        );
        assert!(opened.starts_with("HTTP/1.1 200"), "{who:?}: {opened}");
        let address = service.address.clone();
        std::thread::scope(|scope| {
            let begun =
                scope.spawn(|| run(&address, "echo begun > f; sleep 2; echo ended >> f; cat f"));
            let file = place.path().join("home/workspaces/a/workspace/f");
            eventually("it runs", || file.exists());
            end(service);
            let answer = begun.join().expect("answered");
            assert!(answer.starts_with("HTTP/1.1 200"), "{who:?}: {answer}");
            assert!(answer.contains(r#""stdout":"begun\nended\n""#), "{answer}");
        });

        let service = serve();
        let shown = get(
            &service.address,
            "/sessions?label=user%3D42",
            Some("service-token"),
        );
        assert!(
            shown.contains(r#""state":"hibernated""#),
            "{who:?}: {shown}"
        );
        let answer = run(&service.address, "cat f");
        assert!(answer.contains(r#""stdout":"begun\nended\n""#), "{answer}");
        end(service);
    }
}
