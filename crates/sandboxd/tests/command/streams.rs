//! Bytes in, bytes out, unchanged and kept apart.

use crate::support::{PATIENCE, Place, code, everyone, finish, signal, start, text, wait};
use rustix::process::Signal;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::Stdio;
use std::time::{Duration, Instant};

#[test]
fn every_byte_value_goes_in_and_comes_out() {
    let all: Vec<u8> = (0..=255).collect();
    for who in everyone() {
        let output = Place::of(who).run_with_input(["--", "cat"], &all);
        assert_eq!(code(&output), 0, "{who:?}: {output:?}");
        assert_eq!(output.stdout, all, "{who:?}");
    }
}

#[test]
fn ten_mebibytes_go_through_a_program() {
    // Not one repeated block: a lost or doubled piece would show.
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let bytes: Vec<u8> = (0..10 * 1024 * 1024)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[0]
        })
        .collect();
    for who in everyone() {
        let output = Place::of(who).run_with_input(["--", "cat"], &bytes);
        assert_eq!(code(&output), 0, "{who:?}: {:?}", text(&output.stderr));
        assert!(
            output.stdout == bytes,
            "{who:?}: {} bytes came back",
            output.stdout.len()
        );
    }
}

#[test]
fn stdout_and_stderr_stay_apart() {
    for who in everyone() {
        let output = Place::of(who).run(["--", "sh", "-c", "echo out; echo err >&2"]);
        assert_eq!(text(&output.stdout), "out\n", "{who:?}");
        assert!(
            text(&output.stderr).lines().any(|line| line == "err"),
            "{who:?}: {output:?}"
        );
    }
}

#[test]
fn output_comes_while_the_program_runs_and_input_goes_while_it_runs() {
    for who in everyone() {
        let place = Place::of(who);
        let mut command = place.command();
        command
            .args([
                "run",
                "--",
                "sh",
                "-c",
                "while read line; do echo \"got $line\"; done",
            ])
            .stdin(Stdio::piped());
        let mut child = start(&mut command);
        let mut stdin = child.stdin.take().expect("stdin");
        let mut stdout = BufReader::new(child.stdout.take().expect("stdout"));
        for word in ["one", "two"] {
            writeln!(stdin, "{word}").expect("write");
            let mut line = String::new();
            stdout.read_line(&mut line).expect("read");
            assert_eq!(line, format!("got {word}\n"), "{who:?}");
        }
        drop(stdin);
        assert_eq!(wait(&mut child).code(), Some(0), "{who:?}");
    }
}

#[test]
fn without_input_a_program_that_reads_ends() {
    for who in everyone() {
        let output = Place::of(who).run(["--", "cat"]);
        assert_eq!(
            (code(&output), output.stdout.len()),
            (0, 0),
            "{who:?}: {output:?}"
        );
    }
}

#[test]
fn input_that_nobody_reads_does_not_hold_the_end() {
    for who in everyone() {
        let output = Place::of(who).run_with_input(["--", "true"], &vec![b'x'; 4 * 1024 * 1024]);
        assert_eq!(code(&output), 0, "{who:?}: {output:?}");
    }
}

#[test]
fn a_reader_that_goes_away_ends_the_run() {
    for who in everyone() {
        let place = Place::of(who);
        let mut command = place.command();
        command.args(["run", "--", "yes"]);
        let started = Instant::now();
        let mut child = start(&mut command);
        let mut first = [0_u8; 4];
        let mut stdout = child.stdout.take().expect("stdout");
        stdout.read_exact(&mut first).expect("read");
        assert_eq!(&first, b"y\ny\n");
        drop(stdout);
        let output = finish(child, Vec::new());
        assert_eq!(output.status.code(), Some(141), "{who:?}: {output:?}");
        assert!(started.elapsed() < PATIENCE);
    }
}

#[test]
fn a_reader_that_does_not_read_holds_neither_the_deadline_nor_a_signal() {
    for who in everyone() {
        let place = Place::of(who);
        let mut late = place.command();
        late.args(["run", "--timeout", "500ms", "--", "yes"]);
        let mut late = start(&mut late);
        let mut asked = place.command();
        asked.args(["run", "--", "yes"]);
        let mut asked = start(&mut asked);
        std::thread::sleep(Duration::from_millis(800));
        for _ in 0..3 {
            signal(asked.id(), Signal::TERM);
            std::thread::sleep(Duration::from_millis(100));
        }
        // Nobody has read anything until here, and `wait` reads nothing either.
        assert_eq!(wait(&mut asked).code(), Some(143), "{who:?}");
        assert_eq!(wait(&mut late).code(), Some(124), "{who:?}");
    }
}

#[test]
fn output_that_cannot_be_written_is_our_failure() {
    let place = Place::of(everyone()[0]);
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .expect("/dev/full");
    let mut command = place.command();
    command.args(["run", "--", "echo", "x"]).stdout(full);
    let output = finish(start(&mut command), Vec::new());
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(
        text(&output.stderr).contains("cannot write to stdout"),
        "{output:?}"
    );
}

#[test]
fn closed_descriptors_are_no_matter() {
    let place = Place::of(everyone()[0]);
    let binary = place.path().join("sandboxd");
    let mut command = std::process::Command::new("/bin/sh");
    command
        .arg("-c")
        .arg(format!(
            "{} run -- sh -c 'cat; echo ok' <&- 2>&-; echo $?; {} run -- true <&- >&- 2>&-; echo $?",
            binary.display(),
            binary.display()
        ))
        .env("HOME", place.path().join("home"))
        .env("TMPDIR", place.path().join("tmp"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let output = finish(start(&mut command), Vec::new());
    assert_eq!(text(&output.stdout), "ok\n0\n0\n", "{output:?}");
}

#[test]
fn nothing_of_our_environment_gets_in_and_what_is_asked_does() {
    for who in everyone() {
        let place = Place::of(who);
        let mut command = place.command();
        command
            .args(["run", "-e", "ASKED=a=b", "-e", "EMPTY=", "--", "env"])
            .env("SECRET", "value-of-secret");
        let output = finish(start(&mut command), Vec::new());
        let said = text(&output.stdout);
        assert!(!said.contains("value-of-secret"), "{who:?}: {said}");
        assert!(
            said.lines().any(|line| line == "ASKED=a=b"),
            "{who:?}: {said}"
        );
        assert!(said.lines().any(|line| line == "EMPTY="), "{who:?}: {said}");
    }
}
