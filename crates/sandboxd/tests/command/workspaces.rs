//! Directories of this machine as work directories.

use crate::support::{Place, code, everyone, text};
use std::fs;
use std::os::unix::fs::MetadataExt as _;

#[test]
fn files_persist_and_belong_to_the_directorys_owner() {
    for who in everyone() {
        let place = Place::of(who);
        let work = place.make_dir("work");
        fs::write(work.join("given"), "from outside").expect("a file");
        place.own(&work.join("given"));
        let output = place.run([
            "--workspace",
            "work",
            "--",
            "sh",
            "-c",
            "cat given; mkdir -p sub; echo made > sub/made; echo changed > given; pwd",
        ]);
        assert_eq!(code(&output), 0, "{who:?}: {output:?}");
        assert_eq!(text(&output.stdout), "from outside/workspace\n", "{who:?}");
        assert_eq!(
            fs::read_to_string(work.join("sub/made")).expect("made"),
            "made\n"
        );
        assert_eq!(
            fs::read_to_string(work.join("given")).expect("given"),
            "changed\n"
        );
        for name in ["sub", "sub/made", "given"] {
            let made = fs::metadata(work.join(name)).expect("metadata");
            assert_eq!(made.uid(), place.uid(), "{who:?}: {name}");
        }
        // A second run finds what the first one made.
        let output = place.run(["--workspace", "work", "-w", "sub", "--", "cat", "made"]);
        assert_eq!(text(&output.stdout), "made\n", "{who:?}: {output:?}");
    }
}

#[test]
fn without_a_workspace_nothing_persists() {
    for who in everyone() {
        let place = Place::of(who);
        let first = place.run(["--", "sh", "-c", "echo x > file && ls"]);
        assert_eq!(text(&first.stdout), "file\n", "{who:?}: {first:?}");
        let second = place.run(["--", "ls", "-A"]);
        assert_eq!(
            (code(&second), text(&second.stdout)),
            (0, String::new()),
            "{who:?}: {second:?}"
        );
    }
}
