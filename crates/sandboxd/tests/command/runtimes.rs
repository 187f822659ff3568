//! `sandboxd runtime`: what is allowed is listed, shown, and made ready; and nothing else.

use crate::images::root;
use crate::support::{Place, code, complaints, everyone, finish, start, text};
use serde_json::Value;
use std::process::{Command, Output};

/// A recipe that can be built without a network, one that fails, and an image that is not here.
const RUNTIMES: &str = r#"{
    "good": {"description": "words", "runtime": {"name": "good", "base_image": "base:1",
             "setup_commands": ["echo built >/etc/built", "read -r line </etc/built; echo $line"]}},
    "bad": {"runtime": {"name": "bad", "base_image": "base:1", "setup_commands": ["echo why >&2; exit 3"]}},
    "absent": "absent:1",
    "own": "host"
}"#;

fn sandboxd(place: &Place, state: &str, words: &[&str]) -> Output {
    let mut command: Command = place.command();
    command
        .env("SANDBOXD_RUNTIMES", RUNTIMES)
        .env("SANDBOXD_BUILD_NETWORK", "none")
        .env("SANDBOXD_IMAGE_PULL", "never")
        .env("SANDBOXD_STATE_DIR", state)
        .args(words);
    finish(start(&mut command), Vec::new())
}

fn ready(place: &Place, state: &str) -> Vec<(String, bool)> {
    let output = sandboxd(place, state, &["runtime", "ls", "--json"]);
    assert_eq!(code(&output), 0, "{output:?}");
    let rows: Value = serde_json::from_str(&text(&output.stdout)).expect("JSON");
    let rows = rows.as_array().expect("rows").iter();
    let row = |row: &Value| {
        let alias = row["alias"].as_str().expect("a text").to_owned();
        (alias, row["ready"].as_bool().expect("a truth"))
    };
    rows.map(row).collect()
}

#[test]
fn what_is_allowed_is_made_ready_and_what_is_not_ready_is_said_by_the_exit_code() {
    for who in everyone() {
        let place = Place::of(who);
        let state = place.make_dir("state").display().to_string();
        let base = root(&place).display().to_string();
        let imported = sandboxd(
            &place,
            &state,
            &["image", "import", &base, "--name", "base:1"],
        );
        assert_eq!(code(&imported), 0, "{imported:?}");
        let all = |good: bool| {
            [
                ("absent", false),
                ("bad", false),
                ("good", good),
                ("own", true),
            ]
            .map(|(alias, ready)| (alias.to_owned(), ready))
            .to_vec()
        };
        assert_eq!(ready(&place, &state), all(false));
        let output = sandboxd(&place, &state, &["runtime", "prepare", "good"]);
        assert_eq!(code(&output), 0, "{output:?}");
        assert_eq!(text(&output.stdout), "good  ready\n");
        let lines = complaints(&output);
        assert!(
            lines
                .iter()
                .any(|line| line.contains("step 2 of 2: set-up command 2 of 2")),
            "{lines:?}"
        );
        assert!(
            lines.iter().any(|line| line.ends_with("| built")),
            "{lines:?}"
        );
        assert_eq!(ready(&place, &state), all(true));
        // Each has its turn, whatever becomes of the others.
        let output = sandboxd(&place, &state, &["runtime", "prepare"]);
        assert_eq!(code(&output), 1, "{output:?}");
        assert_eq!(text(&output.stdout), "good  ready\nown  ready\n");
        let lines = complaints(&output);
        assert!(
            lines.iter().any(|line| line.contains("exit code 3: why")),
            "{lines:?}"
        );
        assert!(
            lines
                .last()
                .expect("a line")
                .ends_with("not ready: absent, bad"),
            "{lines:?}"
        );
        let output = sandboxd(&place, &state, &["runtime", "prepare", "nobodys"]);
        assert_eq!(code(&output), 2, "{output:?}");
        let output = sandboxd(&place, &state, &["runtime", "show", "good"]);
        let shown: Value = serde_json::from_str(&text(&output.stdout)).expect("JSON");
        assert_eq!(shown["ready"], true);
        assert_eq!(
            shown["made_from"]["steps"][0]["argv"][2],
            "echo built >/etc/built"
        );
        let list = sandboxd(&place, &state, &["runtime", "ls"]);
        let list = text(&list.stdout);
        assert!(list.starts_with("NAME    IMAGE     MADE FROM"), "{list}");
        assert!(
            list.contains("good *  ready     base:1 + 0 packages  words"),
            "{list}"
        );
        // And it runs.
        let output = sandboxd(
            &place,
            &state,
            &[
                "run",
                "--runtime",
                "good",
                "--",
                "sh",
                "-c",
                "read -r line </etc/built; echo $line",
            ],
        );
        assert_eq!(
            (code(&output), &*text(&output.stdout)),
            (0, "built\n"),
            "{output:?}"
        );
        assert_eq!(place.left_files(), Vec::<String>::new(), "{who:?}");
    }
}

#[test]
fn package_caches_go_with_their_recipes_and_not_before() {
    for who in everyone() {
        let place = Place::of(who);
        let state = place.make_dir("state").display().to_string();
        let base = root(&place).display().to_string();
        let import = ["image", "import", &base, "--name", "base:1"];
        let imported = sandboxd(&place, &state, &import);
        assert_eq!(code(&imported), 0, "{imported:?}");
        let prepared = sandboxd(&place, &state, &["runtime", "prepare", "good"]);
        assert_eq!(code(&prepared), 0, "{prepared:?}");
        let collected = |runtimes: &str| {
            let mut command = place.command();
            command
                .env("SANDBOXD_RUNTIMES", runtimes)
                .args(["image", "gc", "--state-dir", &state]);
            let output = finish(start(&mut command), Vec::new());
            assert_eq!(code(&output), 0, "{output:?}");
            text(&output.stdout)
        };
        let said = collected(RUNTIMES);
        assert!(said.ends_with(", 0 package caches (0 B)\n"), "{said}");
        let said = collected("own=host");
        assert!(said.contains(", 1 package cache ("), "{who:?}: {said}");
        let said = collected("own=host");
        assert!(said.ends_with(", 0 package caches (0 B)\n"), "{said}");
        // It is only what can be fetched again.
        assert!(ready(&place, &state).contains(&("good".to_owned(), true)));
    }
}

/// What `docker save` writes of an image with one layer and these variables.
fn saved(place: &Place, env: &[&str]) -> String {
    let base = root(place);
    let dir = place.make_dir("saved");
    let layer = dir.join("layer.tar");
    let made = Command::new("tar")
        .arg("-C")
        .arg(&base)
        .arg("-cf")
        .arg(&layer)
        .arg(".")
        .status();
    assert!(made.expect("tar").success());
    let sum = Command::new("sha256sum")
        .arg(&layer)
        .output()
        .expect("sha256sum");
    let digest = text(&sum.stdout);
    let digest = digest
        .split_whitespace()
        .next()
        .expect("a digest")
        .to_owned();
    let config = serde_json::json!({
        "config": {"Env": env},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]},
    });
    let manifest =
        serde_json::json!([{"Config": "config", "RepoTags": ["set:1"], "Layers": ["layer.tar"]}]);
    std::fs::write(dir.join("config"), config.to_string()).expect("a file");
    std::fs::write(dir.join("manifest.json"), manifest.to_string()).expect("a file");
    dir.display().to_string()
}

#[test]
fn a_program_has_the_variables_of_its_image() {
    for who in everyone() {
        let place = Place::of(who);
        let state = place.make_dir("state").display().to_string();
        let saved = saved(&place, &["OWN=image", "PATH=/opt/first:/usr/bin"]);
        let imported = sandboxd(&place, &state, &["image", "import", &saved]);
        assert_eq!(code(&imported), 0, "{imported:?}");
        let mut command = place.command();
        command
            .env("SANDBOXD_RUNTIMES", "set=set:1")
            .env("SANDBOXD_STATE_DIR", &state)
            .args(["run", "--", "sh", "-c", "echo $OWN $PATH"]);
        let output = finish(start(&mut command), Vec::new());
        assert_eq!(
            text(&output.stdout),
            "image /opt/first:/usr/bin\n",
            "{output:?}"
        );
    }
}
