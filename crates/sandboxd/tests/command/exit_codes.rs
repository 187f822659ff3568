//! What a run's exit code says.

use crate::support::{Place, code, complaints, everyone, text};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;

#[test]
fn the_programs_own_code_comes_through() {
    for who in everyone() {
        let place = Place::of(who);
        for wanted in [0, 1, 42, 255] {
            let output = place.run(["--", "sh", "-c", &format!("exit {wanted}")]);
            assert_eq!(code(&output), wanted, "{who:?}: {output:?}");
            assert_eq!(complaints(&output), [""; 0], "{who:?}");
        }
    }
}

#[test]
fn the_first_command_of_the_readme_prints_2() {
    for who in everyone() {
        let output = Place::of(who).run(["--", "python3", "-c", "print(1+1)"]);
        assert_eq!(
            (code(&output), text(&output.stdout)),
            (0, "2\n".to_owned()),
            "{who:?}: {output:?}"
        );
    }
}

#[test]
fn a_signal_is_128_and_its_number() {
    for who in everyone() {
        let place = Place::of(who);
        for (name, wanted) in [("TERM", 143), ("KILL", 137), ("SEGV", 139)] {
            let output = place.run(["--", "sh", "-c", &format!("kill -{name} $$")]);
            assert_eq!(code(&output), wanted, "{who:?}: {output:?}");
        }
    }
}

#[test]
fn a_missing_program_is_127_and_named() {
    for who in everyone() {
        let place = Place::of(who);
        for program in ["no-such-program", "/no/such/program"] {
            let output = place.run(["--", program]);
            assert_eq!(code(&output), 127, "{who:?}: {output:?}");
            assert_eq!(
                complaints(&output),
                [format!("sandboxd: {program}: not found")]
            );
        }
    }
}

#[test]
fn what_cannot_be_executed_is_126_and_named() {
    for who in everyone() {
        let place = Place::of(who);
        let workspace = place.make_dir("work");
        let script = workspace.join("script");
        fs::write(&script, "#!/bin/sh\n").expect("a file");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o644)).expect("chmod");
        place.own(&script);
        for program in ["./script", "/etc", "/etc/passwd"] {
            let output = place.run(["--workspace", "work", "--", program]);
            assert_eq!(code(&output), 126, "{who:?} {program}: {output:?}");
            let said = complaints(&output);
            assert_eq!(said.len(), 1, "{said:?}");
            assert!(said[0].contains(program), "{said:?}");
        }
    }
}

#[test]
fn a_missing_work_directory_is_ours_and_named() {
    for who in everyone() {
        let output = Place::of(who).run(["-w", "/no/such/place", "--", "true"]);
        assert_eq!(code(&output), 125, "{who:?}: {output:?}");
        let said = complaints(&output);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("/no/such/place"), "{said:?}");
    }
}

#[test]
fn arguments_over_the_kernels_limit_are_named_with_their_size() {
    // What just fits for us does not fit any more with the sandbox's environment on top.
    const STEP: usize = 200;
    for who in everyone() {
        let place = Place::of(who);
        let many = vec!["x".repeat(100_000); 20];
        let mut last = 131_000;
        let output = loop {
            let mut command = place.command();
            command
                .args(["run", "--", "true"])
                .args(&many)
                .arg("x".repeat(last));
            match command.output() {
                Err(error) if error.kind() == ErrorKind::ArgumentListTooLong => last -= STEP,
                // The program that changes the user was given more than it may pass on.
                Ok(output) if text(&output.stderr).starts_with("setpriv") => last -= STEP,
                ran => break ran.expect("runs"),
            }
        };
        assert_eq!(code(&output), 126, "{who:?}: {:?}", text(&output.stderr));
        let said = complaints(&output);
        assert_eq!(said.len(), 1, "{who:?}: {said:?}");
        assert!(
            said[0].contains("true: arguments and environment are 2"),
            "{}",
            said[0]
        );
        assert!(
            said[0].contains("over the kernel's limit of 2"),
            "{}",
            said[0]
        );
    }
}

#[test]
fn a_deadline_is_124_and_said() {
    for who in everyone() {
        let output = Place::of(who).run([
            "--timeout",
            "300ms",
            "--",
            "sh",
            "-c",
            "echo early; sleep 60",
        ]);
        assert_eq!(code(&output), 124, "{who:?}: {output:?}");
        assert_eq!(text(&output.stdout), "early\n");
        assert_eq!(complaints(&output), ["sandboxd: sh timed out after 300ms"]);
    }
}
