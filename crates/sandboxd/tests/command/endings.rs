//! However a run ends, everything that it started ends with it.

use crate::support::{
    PATIENCE, Place, Who, code, eventually, everyone, finish, processes_with, signal, start,
    unique_sleep,
};
use rustix::process::Signal;
use std::process::Child;
use std::time::Instant;

/// A program with children of every kind: in the background, in a session of its own, twice forked.
fn tree(seconds: &str) -> String {
    format!(
        "sleep {seconds} & setsid sleep {seconds} & (setsid sh -c 'sleep {seconds} & sleep {seconds}' &) ; sleep {seconds}"
    )
}

fn started(place: &Place, seconds: &str, program: &str) -> Child {
    let mut command = place.command();
    command.args(["run", "--", "sh", "-c", program]);
    let child = start(&mut command);
    eventually("the tree stands", || processes_with(seconds).len() >= 5);
    child
}

fn nobody_is_left(who: Who, seconds: &str) {
    eventually(&format!("{who:?}: nobody sleeps {seconds}"), || {
        processes_with(seconds).is_empty()
    });
}

#[test]
fn a_deadline_ends_the_whole_tree() {
    for who in everyone() {
        let seconds = unique_sleep();
        let output = Place::of(who).run(["--timeout", "1s", "--", "sh", "-c", &tree(&seconds)]);
        assert_eq!(code(&output), 124, "{who:?}: {output:?}");
        nobody_is_left(who, &seconds);
    }
}

#[test]
fn signals_end_the_whole_tree() {
    for who in everyone() {
        for (number, wanted) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 143)] {
            let seconds = unique_sleep();
            let child = started(&Place::of(who), &seconds, &tree(&seconds));
            signal(child.id(), number);
            let output = finish(child, Vec::new());
            assert_eq!(code(&output), wanted, "{who:?} {number:?}: {output:?}");
            nobody_is_left(who, &seconds);
        }
    }
}

#[test]
fn a_program_may_tidy_up_on_ctrl_c_and_its_code_counts() {
    for who in everyone() {
        let seconds = unique_sleep();
        let place = Place::of(who);
        let program = format!("trap 'echo tidy; exit 7' INT; {} & wait", tree(&seconds));
        let child = started(&place, &seconds, &program);
        signal(child.id(), Signal::INT);
        let output = finish(child, Vec::new());
        assert_eq!(code(&output), 7, "{who:?}: {output:?}");
        assert_eq!(output.stdout, b"tidy\n", "{who:?}");
        nobody_is_left(who, &seconds);
    }
}

#[test]
fn a_second_signal_does_not_wait_for_a_program_that_does_not_heed_the_first() {
    for who in everyone() {
        let seconds = unique_sleep();
        let place = Place::of(who);
        let program = format!("trap '' INT TERM HUP; {}", tree(&seconds));
        let child = started(&place, &seconds, &program);
        let asked = Instant::now();
        signal(child.id(), Signal::INT);
        std::thread::sleep(std::time::Duration::from_millis(300));
        signal(child.id(), Signal::INT);
        let output = finish(child, Vec::new());
        assert!(matches!(code(&output), 130 | 137), "{who:?}: {output:?}");
        assert!(
            asked.elapsed().as_secs() < 4,
            "{who:?}: {:?}",
            asked.elapsed()
        );
        nobody_is_left(who, &seconds);
    }
}

#[test]
fn one_ctrl_c_is_enough_for_a_program_that_heeds_nothing() {
    for who in everyone() {
        let seconds = unique_sleep();
        let place = Place::of(who);
        let program = format!("trap '' INT TERM HUP; {}", tree(&seconds));
        let child = started(&place, &seconds, &program);
        let asked = Instant::now();
        signal(child.id(), Signal::INT);
        let output = finish(child, Vec::new());
        assert!(matches!(code(&output), 130 | 137), "{who:?}: {output:?}");
        assert!(asked.elapsed() < PATIENCE / 2);
        nobody_is_left(who, &seconds);
    }
}

#[test]
fn background_children_do_not_hold_the_end_and_do_not_outlive_it() {
    for who in everyone() {
        let seconds = unique_sleep();
        let begun = Instant::now();
        let output = Place::of(who).run([
            "--",
            "sh",
            "-c",
            &format!("sleep {seconds} & setsid sleep {seconds} & echo done"),
        ]);
        assert_eq!(
            (code(&output), output.stdout.as_slice()),
            (0, &b"done\n"[..]),
            "{who:?}"
        );
        assert!(begun.elapsed() < PATIENCE / 2);
        nobody_is_left(who, &seconds);
    }
}
