//! A build whose service is killed in the middle, by a start that makes images ready and by an open: nothing half made
//! stays, and the next service goes on behind the last step that was done.

use crate::images::root;
use crate::serve::{Service, end, serve, started_from};
use crate::sessions::{ask, run, send};
use crate::support::{Place, code, eventually, everyone, finish, start, text};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The second step writes, and then does not go on; but for the second time. What it knows that by is in the package caches,
/// which are no part of the image and outlive a build.
fn runtimes() -> String {
    let commands = [
        "echo first >>/var/cache/sandboxd/steps; echo one >/etc/one",
        "echo second >>/var/cache/sandboxd/steps; echo half >/etc/half; if test -e /var/cache/sandboxd/begun; then echo two \
         >/etc/two; else echo >/var/cache/sandboxd/begun; kill -STOP $$; fi",
    ];
    let recipe = json!({"name": "slow", "base_image": "base:1", "setup_commands": commands});
    json!({"slow": {"runtime": recipe}}).to_string()
}

fn with_settings(command: &mut Command, prewarm: bool) -> &mut Command {
    command
        .env("SANDBOXD_RUNTIMES", runtimes())
        .env("SANDBOXD_BUILD_NETWORK", "none")
        .env("SANDBOXD_IMAGE_PULL", "never")
        .env("SANDBOXD_TOKEN", "token")
        .env("SANDBOXD_PREWARM", if prewarm { "1" } else { "0" })
}

fn service(place: &Place, prewarm: bool) -> Service {
    started_from(with_settings(&mut serve(place, &[]), prewarm))
}

fn says(place: &Place, state: &Path, words: &[&str]) -> String {
    let mut command = place.command();
    with_settings(&mut command, false)
        .args(words)
        .arg("--state-dir")
        .arg(state);
    let output = finish(start(&mut command), Vec::new());
    assert_eq!(code(&output), 0, "{words:?}: {output:?}");
    text(&output.stdout)
}

/// The states of the build that are in the store.
fn built(place: &Place, state: &Path) -> usize {
    let all: Value =
        serde_json::from_str(&says(place, state, &["image", "ls", "--json"])).expect("JSON");
    let names = all.as_array().expect("images").iter();
    let names = names.flat_map(|image| image["names"].as_array().expect("names"));
    names
        .filter(|name| name.as_str().expect("a name").starts_with("localhost/"))
        .count()
}

fn is_ready(place: &Place, state: &Path) -> bool {
    let all: Value =
        serde_json::from_str(&says(place, state, &["runtime", "ls", "--json"])).expect("JSON");
    all[0]["ready"].as_bool().expect("a truth")
}

/// A file of the build's package caches, if it is there.
fn cached(state: &Path, name: &str) -> Option<String> {
    let caches = fs::read_dir(state.join("build-caches")).ok()?;
    let mut found = caches
        .flatten()
        .map(|cache| cache.path().join("workspace").join(name));
    found.find_map(|path| fs::read_to_string(path).ok())
}

fn entries(directory: PathBuf) -> usize {
    fs::read_dir(directory).map_or(0, Iterator::count)
}

#[test]
fn a_build_whose_service_is_killed_leaves_nothing_half_made_and_goes_on_where_it_was() {
    for who in everyone() {
        for prewarm in [true, false] {
            let place = Place::of(who);
            let state = place.path().join("home/state");
            let base = root(&place).display().to_string();
            says(
                &place,
                &state,
                &["image", "import", &base, "--name", "base:1"],
            );
            let mut first = service(&place, prewarm);
            let open = r#"{"session_id": "a"}"#;
            let waiting = (!prewarm).then(|| send(&first, "POST", "/sessions", open));
            eventually("the second step has begun", || {
                cached(&state, "begun").is_some()
            });
            first.child().kill().expect("kill");
            first.child().wait().expect("its end");
            drop(waiting);
            // The first step is whole, and there is no other one.
            assert_eq!(built(&place, &state), 1);
            assert!(!is_ready(&place, &state));
            let second = service(&place, prewarm);
            if prewarm {
                eventually("the image is ready", || is_ready(&place, &state));
            }
            // Nobody has it: whoever asked for it was told nothing.
            let answer = ask(&second, "POST", "/sessions", open);
            assert!(
                answer.starts_with("HTTP/1.1 200"),
                "{who:?} {prewarm}: {answer}"
            );
            let script =
                "read -r a </etc/one; read -r b </etc/half; read -r c </etc/two; echo $a $b $c";
            assert_eq!(run(&second, "a", script), "one half two\n");
            assert_eq!(built(&place, &state), 2);
            let steps = cached(&state, "steps").expect("steps");
            assert_eq!(steps, "first\nsecond\nsecond\n", "{who:?} {prewarm}");
            end(second);
            let left = ["images/making", "instances", "layers"];
            let left = left.map(|name| entries(state.join(name)));
            assert_eq!(left, [0, 0, 0], "{who:?} {prewarm}");
        }
    }
}
