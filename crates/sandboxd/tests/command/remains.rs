//! What is left when the command is gone: nothing.

use crate::support::{
    Place, Process, cgroup_dirs, code, descendants, eventually, everyone, finish, mounts_with,
    processes_with, signal, start, unique_sleep,
};
use rustix::process::Signal;
use std::path::PathBuf;

/// What a run has while it runs.
#[derive(Debug)]
struct Seen {
    processes: Vec<Process>,
    cgroups: Vec<PathBuf>,
}

/// Everything that a running command has, apart from what this test has too.
fn seen(command: u32) -> Seen {
    let ours = cgroup_dirs(std::process::id());
    let processes = descendants(command);
    let mut cgroups: Vec<PathBuf> = processes
        .iter()
        .flat_map(|process| cgroup_dirs(process.pid))
        .filter(|dir| !ours.contains(dir))
        .collect();
    cgroups.sort();
    cgroups.dedup();
    Seen { processes, cgroups }
}

fn is_gone(place: &Place, seen: &Seen) {
    eventually("every process is gone", || {
        !seen.processes.iter().any(Process::is_there)
    });
    for dir in &seen.cgroups {
        eventually(&format!("{} is gone", dir.display()), || !dir.exists());
    }
    eventually("no file is left", || place.left_files().is_empty());
    assert_eq!(mounts_with(place.path()), [""; 0]);
}

#[test]
fn an_ordinary_end_leaves_nothing() {
    for who in everyone() {
        let place = Place::of(who);
        let output = place.run([
            "--",
            "sh",
            "-c",
            "echo x > file; echo y > /tmp/file; cat file",
        ]);
        assert_eq!(
            (code(&output), output.stdout.as_slice()),
            (0, &b"x\n"[..]),
            "{who:?}: {output:?}"
        );
        assert_eq!(place.left_files(), [""; 0], "{who:?}");
        assert_eq!(mounts_with(place.path()), [""; 0], "{who:?}");
    }
}

#[test]
fn a_killed_command_leaves_nothing() {
    for who in everyone() {
        let place = Place::of(who);
        let seconds = unique_sleep();
        let mut command = place.command();
        command.args(["run", "--", "sh", "-c"]).arg(format!(
            "echo x > file; echo y > /tmp/file; sleep {seconds} & setsid sleep {seconds} & sleep {seconds}"
        ));
        let child = start(&mut command);
        eventually("the tree stands", || processes_with(&seconds).len() >= 3);
        let seen = seen(child.id());
        assert!(seen.processes.len() >= 4, "{who:?}: {seen:?}");
        signal(child.id(), Signal::KILL);
        let output = finish(child, Vec::new());
        assert_eq!(output.status.code(), None, "{who:?}");
        assert_eq!(processes_with_soon(&seconds), [0_u32; 0], "{who:?}");
        is_gone(&place, &seen);
    }
}

fn processes_with_soon(seconds: &str) -> Vec<u32> {
    eventually("nobody sleeps", || processes_with(seconds).is_empty());
    processes_with(seconds)
}

#[test]
fn a_signal_leaves_nothing() {
    for who in everyone() {
        let place = Place::of(who);
        let seconds = unique_sleep();
        let mut command = place.command();
        command.args(["run", "--", "sleep", &seconds]);
        let child = start(&mut command);
        // The command itself is one of them, and may not listen to signals yet.
        eventually("it sleeps", || processes_with(&seconds).len() > 1);
        let seen = seen(child.id());
        signal(child.id(), Signal::TERM);
        assert_eq!(code(&finish(child, Vec::new())), 143, "{who:?}");
        is_gone(&place, &seen);
    }
}

#[test]
fn what_a_kill_during_the_start_leaves_goes_with_the_next_start() {
    for who in everyone() {
        let place = Place::of(who);
        let seconds = unique_sleep();
        let mut all = Vec::new();
        for millis in [0, 2, 4, 6, 8, 12, 20, 30] {
            let mut command = place.command();
            command.args(["run", "--", "sleep", &seconds]);
            let child = start(&mut command);
            std::thread::sleep(std::time::Duration::from_millis(millis));
            all.push(seen(child.id()));
            signal(child.id(), Signal::KILL);
            finish(child, Vec::new());
        }
        eventually("nobody sleeps", || processes_with(&seconds).is_empty());
        assert_eq!(code(&place.run(["--", "true"])), 0, "{who:?}");
        for seen in &all {
            is_gone(&place, seen);
        }
    }
}

#[test]
fn what_is_left_when_everything_is_killed_at_once_goes_with_the_next_start() {
    for who in everyone() {
        let place = Place::of(who);
        let seconds = unique_sleep();
        let mut command = place.command();
        command.args(["run", "--", "sleep", &seconds]);
        let child = start(&mut command);
        eventually("it sleeps", || !processes_with(&seconds).is_empty());
        let seen = seen(child.id());
        // The launcher too, so that nobody tidies. Stopped first, so that none of them sees another's end.
        for number in [Signal::STOP, Signal::KILL] {
            signal(child.id(), number);
            for process in &seen.processes {
                signal(process.pid, number);
            }
        }
        finish(child, Vec::new());
        assert_eq!(code(&place.run(["--", "true"])), 0, "{who:?}");
        is_gone(&place, &seen);
    }
}

#[test]
fn many_commands_at_once_do_not_disturb_each_other() {
    for who in everyone() {
        let place = Place::of(who);
        let all: Vec<_> = (0..16)
            .map(|number| {
                let mut command = place.command();
                command.args([
                    "run",
                    "--",
                    "sh",
                    "-c",
                    &format!("sleep 0.2; echo {number}"),
                ]);
                start(&mut command)
            })
            .collect();
        for (number, child) in all.into_iter().enumerate() {
            let output = finish(child, Vec::new());
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(
                (code(&output), said),
                (0, format!("{number}\n")),
                "{who:?}: {output:?}"
            );
        }
        assert_eq!(place.left_files(), [""; 0], "{who:?}");
    }
}
