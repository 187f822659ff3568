//! `sandboxd serve` from start to end, without its HTTP interface: that has tests of its own.

use crate::support::{PATIENCE, Place, code, everyone, finish, signal, start, text, wait};
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

pub(crate) fn serve(place: &Place, words: &[&str]) -> Command {
    let mut command = place.command();
    command
        .args(["serve", "--state-dir"])
        .arg(place.path().join("home/state"));
    if !words.contains(&"--listen") {
        command.args(["--listen", "127.0.0.1:0"]);
    }
    command.args(words);
    command
}

/// A service that says where it listens.
pub(crate) struct Service {
    child: Child,
    pub(crate) address: String,
    lines: Vec<String>,
}

impl Service {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }
}

/// A test that fails leaves no service behind.
impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn started(place: &Place, words: &[&str]) -> Service {
    started_from(&mut serve(place, words))
}

pub(crate) fn started_from(command: &mut Command) -> Service {
    let mut service = Service {
        child: start(command),
        address: String::new(),
        lines: Vec::new(),
    };
    let mut stdout = BufReader::new(service.child.stdout.take().expect("stdout"));
    loop {
        let mut line = String::new();
        let read = stdout.read_line(&mut line).expect("read");
        assert!(read > 0, "it does not start: {:?}", service.lines);
        let line = line.trim_end().to_owned();
        service.lines.push(line.clone());
        if let Some(address) = line.strip_prefix("listening on http://") {
            address.clone_into(&mut service.address);
            // Whatever it prints later has somewhere to go.
            std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
            return service;
        }
    }
}

pub(crate) fn get(address: &str, path: &str, token: Option<&str>) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a deadline");
    let token = token
        .map(|token| format!("X-Sandbox-Token: {token}\r\n"))
        .unwrap_or_default();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: x\r\n{token}Connection: close\r\n\r\n"
    )
    .expect("write");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("read");
    answer
}

fn one_line(output: &Output, wanted: i32, part: &str) {
    let said = text(&output.stderr);
    assert_eq!(code(output), wanted, "{output:?}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.starts_with("sandboxd: ") && said.contains(part),
        "{said}"
    );
}

#[test]
fn it_says_where_it_listens_and_where_its_token_is_and_ends_when_asked() {
    for who in everyone() {
        let place = Place::of(who);
        let mut service = started(&place, &[]);
        let token_file = service
            .lines
            .iter()
            .find_map(|line| line.strip_prefix("token in "))
            .unwrap_or_else(|| panic!("{who:?}: {:?}", service.lines));
        let mode = fs::metadata(token_file)
            .expect("the token file")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{who:?}");
        let token = fs::read_to_string(token_file).expect("the token");
        assert!(
            get(&service.address, "/healthz", None).starts_with("HTTP/1.1 200"),
            "{who:?}"
        );
        assert!(
            get(&service.address, "/sessions", None).starts_with("HTTP/1.1 401"),
            "{who:?}"
        );
        let listed = get(&service.address, "/sessions", Some(token.trim()));
        assert!(listed.starts_with("HTTP/1.1 200"), "{who:?}: {listed}");
        signal(service.child.id(), Signal::TERM);
        assert_eq!(wait(&mut service.child).code(), Some(0), "{who:?}");
    }
}

#[test]
fn ctrl_c_ends_it_too_and_the_token_stays_the_same() {
    let place = Place::of(everyone()[0]);
    let mut tokens = Vec::new();
    for _ in 0..2 {
        let mut service = started(&place, &[]);
        let file = service
            .lines
            .iter()
            .find_map(|line| line.strip_prefix("token in "))
            .expect("said");
        tokens.push(fs::read_to_string(file).expect("the token"));
        signal(service.child.id(), Signal::INT);
        assert_eq!(wait(&mut service.child).code(), Some(0));
    }
    assert_eq!(tokens[0], tokens[1]);
}

#[test]
fn what_stops_the_start_is_one_line_and_1() {
    let place = Place::of(everyone()[0]);
    let busy = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = busy.local_addr().expect("its address").to_string();
    let output = finish(
        start(&mut serve(&place, &["--listen", &address])),
        Vec::new(),
    );
    one_line(&output, 1, &address);

    let service = started(&place, &[]);
    let second = finish(start(&mut serve(&place, &[])), Vec::new());
    one_line(&second, 1, "in use by another sandboxd");
    end(service);

    let public = finish(
        start(&mut serve(&place, &["--listen", "0.0.0.0:0"])),
        Vec::new(),
    );
    one_line(&public, 1, "token");

    let mut empty = serve(&place, &[]);
    empty.env("SANDBOXD_TOKEN", "");
    one_line(&finish(start(&mut empty), Vec::new()), 1, "SANDBOXD_TOKEN");

    let mut bad = serve(&place, &[]);
    bad.env("SANDBOXD_MAX_SESSIONS", "many");
    one_line(
        &finish(start(&mut bad), Vec::new()),
        1,
        "SANDBOXD_MAX_SESSIONS",
    );

    let unknown = finish(
        start(&mut serve(&place, &["--set", "no_such_setting=1"])),
        Vec::new(),
    );
    one_line(&unknown, 1, "there is no such setting");
}

pub(crate) fn end(mut service: Service) {
    signal(service.child.id(), Signal::TERM);
    assert_eq!(wait(&mut service.child).code(), Some(0));
}

#[test]
fn a_state_directory_that_cannot_be_made_is_one_line() {
    let place = Place::of(everyone()[0]);
    let file = place.path().join("home/file");
    fs::write(&file, "").expect("a file");
    let mut command = place.command();
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--state-dir"])
        .arg(file.join("state"));
    one_line(&finish(start(&mut command), Vec::new()), 1, "file/state");
}

#[test]
fn the_configuration_can_be_printed_and_checked() {
    let place = Place::of(everyone()[0]);
    let mut print = serve(&place, &["--print-config"]);
    print
        .env("SANDBOXD_TOKEN", "value-of-the-token")
        .env("SANDBOXD_MAX_SESSIONS", "7");
    let output = finish(start(&mut print), Vec::new());
    let said = text(&output.stdout);
    assert_eq!(code(&output), 0, "{output:?}");
    assert!(said.contains("max_sessions = 7"), "{said}");
    assert!(!said.contains("value-of-the-token"), "{said}");

    let output = finish(start(&mut serve(&place, &["--check"])), Vec::new());
    assert_eq!(code(&output), 0, "{output:?}");
    let said = text(&output.stdout);
    assert!(said.contains("runtime host"), "{output:?}");
    assert!(
        said.contains("neither files nor installed packages survive sleep"),
        "{said}"
    );
    assert!(said.contains("at worst (20 of at most"), "{said}");
    let root = place.path().join("home/workspaces");
    let with_root = ["--check", "--workspace-root", root.to_str().expect("text")];
    let kept = [&with_root[..], &["--set", "keep_layer=1"]].concat();
    let output = finish(start(&mut serve(&place, &kept)), Vec::new());
    let said = text(&output.stdout);
    assert!(
        said.contains("files in /workspace and installed packages survive sleep"),
        "{said}"
    );
    let mut bad = serve(&place, &["--check"]);
    bad.env("SANDBOXD_CPUS", "none at all");
    one_line(&finish(start(&mut bad), Vec::new()), 1, "SANDBOXD_CPUS");
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let place = Place::of(everyone()[0]);
    let mut service = started(&place, &[]);
    // A request that is never finished keeps a connection busy.
    let mut stream = TcpStream::connect(&service.address).expect("it listens");
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\n")
        .expect("write");
    signal(service.child.id(), Signal::TERM);
    std::thread::sleep(Duration::from_millis(100));
    let asked = Instant::now();
    if service.child.try_wait().expect("wait").is_none() {
        signal(service.child.id(), Signal::TERM);
    }
    wait(&mut service.child);
    assert!(
        asked.elapsed() < Duration::from_secs(3),
        "{:?}",
        asked.elapsed()
    );
}
