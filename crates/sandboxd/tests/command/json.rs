//! `--json`: one object, whatever happened.

use crate::support::{Place, code, everyone, text};
use serde_json::Value;
use std::process::Output;

fn object(output: &Output) -> Value {
    let said = text(&output.stdout);
    assert_eq!(said.lines().count(), 1, "{output:?}");
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

#[test]
fn a_run_is_one_object_and_the_exit_code_stays_the_programs() {
    for who in everyone() {
        let place = Place::of(who);
        let output = place.run([
            "--json",
            "--",
            "sh",
            "-c",
            "printf 'a\\377b'; echo err >&2; exit 3",
        ]);
        assert_eq!(code(&output), 3, "{who:?}: {output:?}");
        let object = object(&output);
        assert_eq!(object["exit_code"], 3);
        assert_eq!(object["signal"], Value::Null);
        assert_eq!(object["timed_out"], false);
        assert_eq!(object["stdout"], "a\u{fffd}b");
        assert_eq!(object["stderr"], "err\n");
        assert!(object["duration_ms"].is_u64());
        assert!(
            object["enforced"]["network"]["enforced"].is_boolean(),
            "{object}"
        );
        assert_eq!(object["error"], Value::Null);
    }
}

#[test]
fn a_deadline_and_a_missing_program_are_objects_too() {
    let place = Place::of(everyone()[0]);
    let output = place.run([
        "--json",
        "--timeout",
        "300ms",
        "--",
        "sh",
        "-c",
        "echo x; sleep 60",
    ]);
    assert_eq!(code(&output), 124, "{output:?}");
    let late = object(&output);
    assert_eq!(
        (&late["timed_out"], &late["stdout"]),
        (&Value::Bool(true), &Value::from("x\n"))
    );
    let output = place.run(["--json", "--", "no-such-program"]);
    assert_eq!(code(&output), 127, "{output:?}");
    assert_eq!(object(&output)["error"], "no-such-program: not found");
    let output = place.run(["--json", "--runtime", "nonesuch", "--", "true"]);
    assert_eq!(code(&output), 125, "{output:?}");
    assert_eq!(object(&output)["exit_code"], 125);
}

#[test]
fn output_without_end_is_kept_to_a_bound() {
    let place = Place::of(everyone()[0]);
    let output = place.run(["--json", "--", "sh", "-c", "yes | head -c 3000000"]);
    assert_eq!(code(&output), 0, "{output:?}");
    let object = object(&output);
    assert_eq!(object["stdout"].as_str().map(str::len), Some(1024 * 1024));
    assert_eq!(object["stdout_truncated"], true);
}
