//! What a running service may still do: looked at from outside, thread by thread, and tried by using it.

use crate::images::root;
use crate::serve::{serve, started_from};
use crate::support::{Place, Who, descendants, eventually, everyone, signal, wait};
use rustix::process::Signal;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};

const TOKEN: &str = "confined-token";

fn ask(address: &str, method: &str, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: x\r\nX-Sandbox-Token: {TOKEN}\r\nConnection: close\r\nContent-Type: \
         application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .expect("write");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("read");
    answer
}

/// Opens a session, runs something in it, reads and removes its files.
fn use_it(address: &str, id: &str) {
    let opened = ask(
        address,
        "POST",
        "/sessions",
        &format!(r#"{{"session_id": "{id}"}}"#),
    );
    assert!(opened.starts_with("HTTP/1.1 200"), "{opened}");
    let body = r#"{"argv": ["/bin/sh", "-c", "echo mine > file; id -u"], "run_id": "0123456789abcdef0123456789abcdef"}"#;
    let ran = ask(address, "POST", &format!("/sessions/{id}/run"), body);
    assert!(ran.contains(r#""stdout":"0\n""#), "{ran}");
    let read = ask(
        address,
        "POST",
        &format!("/workspaces/{id}/read"),
        r#"{"path": "file"}"#,
    );
    assert!(read.contains("mine"), "{read}");
    let gone = ask(address, "DELETE", &format!("/sessions/{id}?purge=true"), "");
    assert!(gone.starts_with("HTTP/1.1 204"), "{gone}");
}

/// A tar of a root filesystem with a layer's mark in it: a directory that hides what would be below.
fn marked_image(place: &Place) -> String {
    let root = root(place);
    fs::create_dir(root.join("marked")).expect("a directory");
    for name in [".wh..wh..opq", ".wh.gone", "here"] {
        fs::write(root.join("marked").join(name), "").expect("a file");
    }
    let tar = place.path().join("home/marked.tar").display().to_string();
    let mut command = Command::new("tar");
    command.args(["-C", root.to_str().expect("a path"), "-cf", &tar, "."]);
    assert!(command.status().expect("tar").success());
    tar
}

/// Opens a session of an image that the service unpacks, and looks at it.
fn unpack_one(address: &str) {
    let opened = ask(
        address,
        "POST",
        "/sessions",
        r#"{"session_id": "unpacked", "runtime": "marked"}"#,
    );
    assert!(opened.starts_with("HTTP/1.1 200"), "{opened}");
    let body = r#"{"argv": ["/bin/sh", "-c", "cd /marked && echo *"], "run_id": "0123456789abcdef0123456789abcdef"}"#;
    let ran = ask(address, "POST", "/sessions/unpacked/run", body);
    assert!(ran.contains(r#""stdout":"here\n""#), "{ran}");
    let gone = ask(address, "DELETE", "/sessions/unpacked?purge=true", "");
    assert!(gone.starts_with("HTTP/1.1 204"), "{gone}");
}

/// chown, dac_override, fowner, fsetid, kill, net_bind_service, setfcap.
const KEPT: u64 = 1 << 0 | 1 << 1 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 10 | 1 << 31;

#[test]
fn it_keeps_only_what_it_needs_in_every_thread_and_works() {
    for who in everyone() {
        let place = Place::of(who);
        let runtimes = format!("runtimes=host=host,marked={}", marked_image(&place));
        let mut command = serve(&place, &["--set", &runtimes]);
        command
            .arg("--workspace-root")
            .arg(place.path().join("home/workspaces"));
        command.env("SANDBOXD_TOKEN", TOKEN);
        let mut service = started_from(&mut command);
        use_it(&service.address, "one");
        unpack_one(&service.address);
        let pid = service.pid();
        let mut threads = 0;
        for entry in fs::read_dir(format!("/proc/{pid}/task")).expect("its threads") {
            let path = entry.expect("a thread").path().join("status");
            // One that has just ended is none.
            let Ok(status) = fs::read_to_string(path) else {
                continue;
            };
            let field = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name));
                line.unwrap_or_default()
                    .trim_start_matches(':')
                    .trim()
                    .to_owned()
            };
            let set = |name: &str| u64::from_str_radix(&field(name), 16).expect("a set");
            let most = if who == Who::Root { KEPT } else { 0 };
            for name in ["CapEff", "CapPrm"] {
                assert_eq!(set(name) & !most, 0, "{who:?} {name}: {status}");
            }
            for name in ["CapInh", "CapAmb"] {
                assert_eq!(set(name), 0, "{who:?} {name}: {status}");
            }
            assert_eq!(field("Seccomp"), "2", "{who:?}: {status}");
            if who == Who::Ordinary {
                assert_eq!(field("NoNewPrivs"), "1", "{status}");
            }
            threads += 1;
        }
        assert!(threads > 1, "{threads}");
        let limits = fs::read_to_string(format!("/proc/{pid}/limits")).expect("its limits");
        let core = limits
            .lines()
            .find(|line| line.starts_with("Max core"))
            .expect("a line");
        assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
        // Nobody but root looks into it: what is its own in /proc belongs to root, whoever it runs as.
        use std::os::unix::fs::MetadataExt as _;
        let owner = fs::metadata(format!("/proc/{pid}/environ"))
            .expect("its environment")
            .uid();
        assert_eq!(owner, 0, "{who:?}");
        // The launcher has its power all the same, also one that is started later.
        let launcher = descendants(pid)
            .into_iter()
            .find(|process| {
                fs::read_to_string(format!("/proc/{}/comm", process.pid))
                    .is_ok_and(|name| name.trim() == "sandboxd-jail")
            })
            .expect("a launcher");
        signal(launcher.pid, Signal::KILL);
        eventually("the launcher is gone", || !launcher.is_there());
        use_it(&service.address, "two");
        signal(pid, Signal::TERM);
        assert_eq!(wait(service.child()).code(), Some(0), "{who:?}");
    }
}

#[test]
fn a_root_without_power_over_its_machine_starts_too() {
    if !crate::support::is_root() {
        return;
    }
    let place = Place::of(Who::Root);
    let inner = serve(&place, &["--set", "runtimes=host=host"]);
    let mut command = Command::new("setpriv");
    command
        .arg("--bounding-set=-sys_admin")
        .arg(inner.get_program());
    command.args(inner.get_args()).env_clear();
    for (name, value) in inner.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command.env("SANDBOXD_TOKEN", TOKEN);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut service = started_from(&mut command);
    let status = fs::read_to_string(format!("/proc/{}/status", service.pid())).expect("it runs");
    for wanted in ["NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert!(status.contains(wanted), "{status}");
    }
    signal(service.pid(), Signal::TERM);
    assert_eq!(wait(service.child()).code(), Some(0));
}
