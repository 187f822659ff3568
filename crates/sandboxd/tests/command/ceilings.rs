//! Ceilings: in force, or refused by name, or said in one line.

use crate::support::{Place, Who, code, complaints, everyone, is_root, text};

#[test]
fn defaults_that_are_not_enforced_are_one_line_and_accepting_them_is_silent() {
    for who in everyone() {
        let place = Place::of(who);
        let output = place.run(["--", "true"]);
        let lines = text(&output.stderr).lines().count();
        assert!(lines <= 1, "{who:?}: {output:?}");
        let all = "memory,cpus,cpu_shares,pids,disk,network,oci_runtime,uid_range,workspace_owner,landlock";
        let output = place.run(["--allow-unenforced", all, "--", "true"]);
        assert_eq!(
            (code(&output), text(&output.stderr)),
            (0, String::new()),
            "{who:?}"
        );
    }
}

#[test]
fn a_ceiling_that_was_asked_for_is_in_force_or_refused_by_name() {
    for who in everyone() {
        let place = Place::of(who);
        let hog = "b = bytearray(300 << 20); print(len(b))";
        let output = place.run(["--memory", "64m", "--", "python3", "-c", hog]);
        let said = complaints(&output);
        match code(&output) {
            137 => assert_eq!(
                said,
                ["sandboxd: python3 went over its memory and was ended"]
            ),
            125 => {
                assert!(!is_root() || who == Who::Ordinary, "root can: {said:?}");
                assert_eq!(said.len(), 1, "{said:?}");
                assert!(
                    said[0].contains("memory cannot be enforced here"),
                    "{said:?}"
                );
                let accepted = place.run([
                    "--memory",
                    "64m",
                    "--allow-unenforced",
                    "memory",
                    "--",
                    "python3",
                    "-c",
                    hog,
                ]);
                assert_eq!(code(&accepted), 0, "{accepted:?}");
            }
            other => panic!("{who:?}: {other}: {output:?}"),
        }
    }
}

#[test]
fn processes_are_bounded_for_everybody() {
    for who in everyone() {
        let bomb = "for i in $(seq 60); do sleep 5 & done; echo all of them";
        let output = Place::of(who).run(["--pids", "20", "--", "sh", "-c", bomb]);
        assert_ne!(code(&output), 0, "{who:?}: {output:?}");
        assert!(
            !text(&output.stdout).contains("all of them"),
            "{who:?}: {output:?}"
        );
    }
}

#[test]
fn the_number_of_cpus_is_seen_inside() {
    if !is_root() {
        return;
    }
    let output = Place::of(Who::Root).run(["--cpus", "1", "--", "nproc"]);
    assert_eq!(text(&output.stdout), "1\n", "{output:?}");
}
