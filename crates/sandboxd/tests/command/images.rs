//! `sandboxd image`: what goes in, what is shown, what comes out, and that a sandbox runs from it.

use crate::serve::{Service, end, serve, started_from};
use crate::sessions::{ask, run};
use crate::support::{
    PATIENCE, Place, Who, code, complaints, eventually, everyone, finish, is_root, start, text,
};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A root filesystem with a shell in a directory of the place.
pub(crate) fn root(place: &Place) -> PathBuf {
    let root = place.make_dir("root");
    let shell = Path::new("/bin/sh").canonicalize().expect("a shell");
    fs::create_dir_all(root.join("usr/bin")).expect("a directory");
    fs::copy(&shell, root.join("usr/bin/sh")).expect("a copy");
    let libraries = Command::new("ldd").arg(&shell).output().expect("ldd");
    for word in text(&libraries.stdout).split_whitespace() {
        if let Some(inside) = word.strip_prefix('/').map(|word| root.join(word)) {
            fs::create_dir_all(inside.parent().expect("a parent")).expect("a directory");
            fs::copy(word, inside).expect("a library");
        }
    }
    symlink("usr/bin", root.join("bin")).expect("a link");
    fs::create_dir(root.join("etc")).expect("a directory");
    fs::write(root.join("etc/release"), "made\n").expect("a file");
    root
}

struct Store {
    place: Place,
    state: String,
}

impl Store {
    fn of(who: Who) -> Self {
        let place = Place::of(who);
        let state = place.make_dir("state").display().to_string();
        Self { place, state }
    }

    fn image(&self, words: &[&str]) -> Output {
        let mut command = self.place.command();
        command
            .arg("image")
            .args(words)
            .args(["--state-dir", &self.state]);
        finish(start(&mut command), Vec::new())
    }

    fn says(&self, words: &[&str]) -> String {
        let output = self.image(words);
        assert_eq!(code(&output), 0, "{words:?}: {output:?}");
        text(&output.stdout)
    }

    /// What is said on stderr, in one line, where it fails.
    fn refusal(&self, words: &[&str]) -> String {
        let output = self.image(words);
        assert_eq!(code(&output), 1, "{words:?}: {output:?}");
        let lines = complaints(&output);
        assert_eq!(lines.len(), 1, "{words:?}: {lines:?}");
        lines[0].clone()
    }
}

#[test]
fn a_root_filesystem_is_imported_shown_run_and_removed() {
    for who in everyone() {
        let store = Store::of(who);
        let root = root(&store.place);
        let root = root.to_str().expect("a path");
        assert_eq!(store.says(&["ls"]), "NAME  ID  LAYERS  SIZE\n");
        assert!(store.refusal(&["import", root]).contains("--name"));
        let imported = store.says(&["import", root, "--name", "mine:1"]);
        let id = imported
            .trim()
            .strip_prefix("mine:1  sha256:")
            .expect("a digest");
        let list = store.says(&["ls"]);
        assert!(
            list.contains("mine:1") && list.contains(&id[..12]),
            "{list}"
        );
        let json: serde_json::Value =
            serde_json::from_str(&store.says(&["ls", "--json"])).expect("JSON");
        assert_eq!(json[0]["names"][0], "mine:1");
        let shown = store.says(&["inspect", "mine:1"]);
        let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
        assert_eq!(shown["config"]["os"], "linux");
        let layer = shown["layers"][0]["path"].as_str().expect("a path");
        assert_eq!(
            fs::read_to_string(Path::new(layer).join("etc/release")).expect("a file"),
            "made\n"
        );
        // A sandbox of it.
        let mut run = store.place.command();
        run.env("SANDBOXD_RUNTIMES", "mine=mine:1");
        run.args([
            "run",
            "--state-dir",
            &store.state,
            "--",
            "sh",
            "-c",
            "read -r line < /etc/release; echo $line",
        ]);
        let output = finish(start(&mut run), Vec::new());
        assert_eq!(text(&output.stdout), "made\n", "{output:?}");
        assert!(store.says(&["rm", &id[..8]]).contains("removed, 1 layer"));
        assert!(
            store
                .refusal(&["rm", "mine:1"])
                .contains("no image mine:1 here")
        );
        assert_eq!(
            store.says(&["gc"]),
            "removed 0 images, 0 layers (0 B), 0 leftovers, 0 package caches (0 B)\n"
        );
    }
}

#[test]
fn an_archive_comes_by_standard_input_and_a_bad_one_leaves_nothing() {
    for who in everyone() {
        let store = Store::of(who);
        let root = root(&store.place);
        let tar = Command::new("tar")
            .arg("-C")
            .arg(&root)
            .args(["-czf", "-", "."])
            .output()
            .expect("tar");
        let import = |input: Vec<u8>| {
            let mut command = store.place.command();
            command
                .stdin(Stdio::piped())
                .args(["image", "import", "-", "--name", "piped:1"]);
            command.args(["--state-dir", &store.state]);
            finish(start(&mut command), input)
        };
        let cut = tar.stdout[..tar.stdout.len() / 2].to_vec();
        let output = import(cut);
        assert_eq!(code(&output), 1, "{output:?}");
        assert_eq!(store.says(&["ls"]).lines().count(), 1);
        let output = import(tar.stdout);
        assert_eq!(code(&output), 0, "{output:?}");
        assert!(store.says(&["ls"]).contains("piped:1"));
    }
}

#[test]
fn what_cannot_be_is_said_in_one_line() {
    let store = Store::of(everyone()[0]);
    assert!(
        store
            .refusal(&["pull", "No Name"])
            .contains("no name of an image")
    );
    assert!(
        store
            .refusal(&["inspect", "none:1"])
            .contains("sandboxd image ls")
    );
    assert!(
        store
            .refusal(&["import", "/nowhere", "--name", "a:1"])
            .contains("/nowhere")
    );
    let output = store
        .place
        .command()
        .args(["image", "pull"])
        .output()
        .expect("runs");
    assert_eq!(code(&output), 2);
    // Nobody answers there.
    let refused = store.image(&["pull", "127.0.0.1:9/app:1"]);
    assert_eq!(code(&refused), 1);
    let lines = complaints(&refused);
    assert!(
        lines
            .last()
            .is_some_and(|line| line.contains("127.0.0.1:9/app:1: 127.0.0.1:9: ")),
        "{lines:?}"
    );
    assert!(lines[0].contains("again in"), "{lines:?}");
}

#[test]
fn a_full_disk_is_said_and_leaves_no_part_of_an_image() {
    if !is_root() {
        return;
    }
    let store = Store::of(Who::Root);
    let root = root(&store.place);
    fs::write(root.join("large"), vec![1; 8 << 20]).expect("a file");
    let binary = store.place.path().join("sandboxd");
    // A file system of its own with too little room, which goes with the process that mounts it.
    let script = format!(
        "mount -t tmpfs -o size=6m none {state} && {binary} image import {root} --name full:1 --state-dir {state}; \
         echo code $?; {binary} image ls --state-dir {state}; ls {state}/images/layers {state}/images/making",
        state = store.state,
        binary = binary.display(),
        root = root.display(),
    );
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", &script])
        .output()
        .expect("unshare");
    let said = text(&output.stdout);
    assert!(said.starts_with("code 1\nNAME  ID"), "{said}");
    assert!(
        !said.contains("full:1") && !said.contains("layer-"),
        "{said}"
    );
    let why = text(&output.stderr);
    assert!(
        why.contains("No space left") || why.contains("the disk is nearly full"),
        "{why}"
    );
}

#[test]
fn without_idmapped_mounts_an_image_is_copied_for_one_range_and_that_is_said() {
    if !is_root() {
        println!("needs root");
        return;
    }
    let store = Store::of(Who::Root);
    let root = root(&store.place);
    let disk = store.place.path().join("disk");
    let file = fs::File::create(&disk).expect("a file");
    file.set_len(128 << 20).expect("a size");
    // Linux has no idmapped mounts of what is mounted as ext3, and all else that layers need.
    let made = Command::new("/sbin/mkfs.ext3")
        .args(["-q", "-F"])
        .arg(&disk)
        .status();
    assert!(made.expect("mkfs.ext3").success());
    let script = format!(
        "mount -t ext3 -o loop {disk} {state} && {binary} image import {root} --name small:1 --state-dir {state}/s \
         >/dev/null && exec {binary} serve --listen 127.0.0.1:0 --state-dir {state}/s --workspace-root {state}/w",
        disk = disk.display(),
        state = store.state,
        binary = store.place.path().join("sandboxd").display(),
        root = root.display(),
    );
    // The mount is this process's own, and goes with it.
    let mut command = Command::new("unshare");
    command
        .args(["-m", "sh", "-c", &script])
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("SANDBOXD_TOKEN", "token")
        .env("SANDBOXD_RUNTIMES", "small=small:1")
        .env("SANDBOXD_KEEP_LAYER", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let service = started_from(&mut command);
    let look = "read inside outside count < /proc/self/uid_map; read release < /etc/release; \
                test -O /etc/release && echo $outside $release";
    for id in ["one", "two"] {
        let body = format!("{{\"session_id\": \"{id}\"}}");
        let opened = ask(&service, "POST", "/sessions", &body);
        assert!(opened.starts_with("HTTP/1.1 200"), "{opened}");
        let (_, opened) = opened.split_once("\r\n\r\n").expect("a body");
        let opened: serde_json::Value = serde_json::from_str(opened).expect("JSON");
        let enforced = &opened["session"]["enforced"];
        for (ceiling, word) in [
            ("uid_range", "same user ids"),
            ("workspace_owner", "own range"),
        ] {
            assert_eq!(enforced[ceiling]["enforced"], false, "{enforced}");
            let why = enforced[ceiling]["reason"].as_str().expect("a reason");
            assert!(
                why.contains("no idmapped mounts") && why.contains(word),
                "{why}"
            );
        }
        // All of them have one range of users, and each its own files.
        assert_eq!(run(&service, id, look), "2147418112 made\n");
        run(
            &service,
            id,
            &format!("echo {id} > /etc/release; echo {id} > mine"),
        );
    }
    for id in ["one", "two"] {
        let slept = ask(&service, "POST", &format!("/sessions/{id}/hibernate"), "");
        assert!(slept.starts_with("HTTP/1.1 200"), "{slept}");
        assert_eq!(run(&service, id, look), format!("2147418112 {id}\n"));
        assert_eq!(
            run(&service, id, "read mine < mine; echo $mine"),
            format!("{id}\n")
        );
    }
    end(service);
}

/// A service whose `docker.io` is a mirror at this address; it knows one token.
fn service(place: &Place, mirror: &TcpListener, env: &[(&str, &str)]) -> Service {
    let address = mirror.local_addr().expect("an address");
    let mut command = serve(place, &[]);
    command
        .env("SANDBOXD_TOKEN", "token")
        .env(
            "SANDBOXD_REGISTRY_MIRRORS",
            format!("docker.io=http://{address}"),
        )
        .envs(env.iter().copied());
    started_from(&mut command)
}

/// The answer to opening a session of a runtime.
fn open(service: &Service, runtime: &str) -> String {
    let body = format!("{{\"session_id\": \"{runtime}\", \"runtime\": \"{runtime}\"}}");
    let mut stream = TcpStream::connect(&service.address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a deadline");
    let length = body.len();
    write!(
        stream,
        "POST /sessions HTTP/1.1\r\nHost: x\r\nX-Sandbox-Token: token\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
    .expect("write");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("read");
    answer
}

#[test]
fn a_registry_is_asked_at_the_start_only_for_a_list_that_somebody_wrote() {
    let who = everyone()[0];
    let mirror = TcpListener::bind("127.0.0.1:0").expect("a port");
    mirror.set_nonblocking(true).expect("no waiting");
    let place = Place::of(who);
    let unwritten = service(&place, &mirror, &[]);
    // By the time that a session runs, the start's own work has long begun.
    assert!(open(&unwritten, "host").starts_with("HTTP/1.1 200"));
    assert!(mirror.accept().is_err(), "a registry was asked");
    drop(unwritten);
    let place = Place::of(who);
    let _written = service(
        &place,
        &mirror,
        &[("SANDBOXD_RUNTIMES", "host=host,py=python:3")],
    );
    eventually("the registry is asked", || mirror.accept().is_ok());
}

#[test]
fn what_may_not_be_fetched_is_refused_with_the_command_that_fetches_it() {
    let mirror = TcpListener::bind("127.0.0.1:0").expect("a port");
    mirror.set_nonblocking(true).expect("no waiting");
    let place = Place::of(everyone()[0]);
    let env = [
        ("SANDBOXD_RUNTIMES", "py=python:3"),
        ("SANDBOXD_IMAGE_PULL", "never"),
    ];
    let service = service(&place, &mirror, &env);
    let answer = open(&service, "py");
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    assert!(
        answer.contains("sandboxd image pull python:3 fetches it"),
        "{answer}"
    );
    assert!(mirror.accept().is_err(), "a registry was asked");
}
