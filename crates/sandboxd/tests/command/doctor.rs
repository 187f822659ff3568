//! `sandboxd doctor` against what the command can really do.

use crate::support::{Place, code, everyone, mounts_with, text};
use serde_json::Value;

#[test]
fn doctor_is_right_about_whether_sandboxes_can_be_made() {
    for who in everyone() {
        let place = Place::of(who);
        let works = code(&place.run(["--", "true"])) == 0;
        let output = place.command().arg("doctor").output().expect("runs");
        assert_eq!(code(&output) == 0, works, "{who:?}: {output:?}");
        let said = text(&output.stdout);
        for name in [
            "user namespaces",
            "cgroups",
            "overlay",
            "layer marks",
            "idmapped mounts",
            "project quotas",
            "Landlock",
            "KVM",
            "Docker",
            "what survives",
            "worst case",
        ] {
            assert!(said.contains(name), "{who:?}: {name} is missing: {said}");
        }
        assert_eq!(mounts_with(place.path()), [""; 0], "{who:?}");
        assert_eq!(place.left_files(), [""; 0], "{who:?}");
    }
}

#[test]
fn the_object_has_the_same_answer_as_the_text() {
    for who in everyone() {
        let place = Place::of(who);
        let output = place
            .command()
            .args(["doctor", "--json"])
            .output()
            .expect("runs");
        let object: Value = serde_json::from_slice(&output.stdout).expect("an object");
        assert_eq!(
            object["works"] == true,
            code(&output) == 0,
            "{who:?}: {object}"
        );
        for check in object["checks"].as_array().expect("a list") {
            assert!(
                check["name"].is_string() && check["found"].is_string(),
                "{check}"
            );
            let missing = check["state"] != "yes";
            assert!(
                !missing || check["costs"] != "",
                "what is missing costs something: {check}"
            );
        }
    }
}
