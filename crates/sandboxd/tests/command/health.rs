//! `sandboxd healthcheck`, as a container's probe runs it.

use crate::serve::{end, serve, started_from};
use crate::support::{PATIENCE, Place, code, everyone, finish, start, text};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Output;
use std::thread;

fn asked(place: &Place, listen: &str, words: &[&str]) -> Output {
    let mut command = place.command();
    command.arg("healthcheck").args(words);
    command
        .env("SANDBOXD_TOKEN", "a-token-of-this-test")
        .env("SANDBOXD_LISTEN", listen);
    finish(start(&mut command), Vec::new())
}

fn refused(output: &Output, part: &str) {
    let said = text(&output.stderr);
    assert_eq!(code(output), 1, "{output:?}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.starts_with("sandboxd: ") && said.contains(part),
        "{said}"
    );
    assert!(output.stdout.is_empty(), "{output:?}");
}

#[test]
fn a_service_that_lives_is_0_without_a_word_and_one_that_does_not_is_1() {
    for who in everyone() {
        let place = Place::of(who);
        let mut command = serve(&place, &["--listen", "0.0.0.0:0"]);
        command.env("SANDBOXD_TOKEN", "a-token-of-this-test");
        let service = started_from(&mut command);
        let (_, port) = service.address.rsplit_once(':').expect("a port");
        // As the container's environment has it: everywhere, which is no address to ask at.
        let everywhere = format!("0.0.0.0:{port}");
        let here = format!("127.0.0.1:{port}");
        let file = place.path().join("home/sandboxd.toml");
        std::fs::write(&file, format!("listen = \"{here}\"\n")).expect("a file");
        let file = file.to_str().expect("a plain path").to_owned();
        let lives = |output: &Output| {
            assert_eq!(code(output), 0, "{who:?}: {output:?}");
            assert!(output.stdout.is_empty() && output.stderr.is_empty());
        };
        lives(&asked(&place, &everywhere, &[]));
        lives(&asked(&place, "127.0.0.1:1", &["--listen", &here]));
        let mut by_file = place.command();
        by_file.args(["healthcheck", "--config", &file]);
        lives(&finish(start(&mut by_file), Vec::new()));
        end(service);
        refused(&asked(&place, &everywhere, &[]), &here);
    }
}

#[test]
fn another_answer_is_1_with_what_it_was() {
    let place = Place::of(everyone()[0]);
    for (answer, part) in [
        ("HTTP/1.1 503 Service Unavailable\r\n\r\n", "503"),
        ("SSH-2.0-other\r\n", "is no service"),
        ("", "is no service"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address").to_string();
        let answering = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("somebody asks");
            stream.set_read_timeout(Some(PATIENCE)).expect("a deadline");
            let mut request = [0; 1024];
            let count = stream.read(&mut request).expect("a request");
            assert!(request[..count].starts_with(b"GET /healthz HTTP/1.1\r\n"));
            stream.write_all(answer.as_bytes()).expect("write");
        });
        refused(&asked(&place, &address, &[]), part);
        answering.join().expect("asked as is right");
    }
}

#[test]
fn one_that_never_answers_is_waited_for_with_a_deadline() {
    let place = Place::of(everyone()[0]);
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("its address").to_string();
    refused(&asked(&place, &address, &[]), "no answer within");
}

#[test]
fn what_cannot_be_asked_is_said() {
    let place = Place::of(everyone()[0]);
    refused(&asked(&place, "127.0.0.1:0", &[]), "port 0");
    refused(&asked(&place, "nowhere", &[]), "SANDBOXD_LISTEN");
}
