//! `sandboxd serve` under a supervisor that listens as systemd does.

use crate::serve::{end, serve, started_from};
use crate::support::{PATIENCE, Place, everyone};
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
