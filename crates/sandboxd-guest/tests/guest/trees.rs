//! The whole tree of a run: what ends it, what may outlive it, and who tries to leave it.

use crate::house::{House, SOON, cgroup_house, house, outcome, run, sh};
use sandboxd_protocol::client::{LinkError, Output, RunEvents, RunInput};
use sandboxd_protocol::message::{Ended, OutputLimit, Run};
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// Programs that write to `alive` for ever, each in another way out of reach.
const ESCAPES: [(&str, &str); 5] = [
    ("a child", "W & sleep 60"),
    ("a session of its own", "setsid sh -c 'W' & sleep 60"),
    (
        "a double fork into a session of its own",
        "(setsid sh -c '(W) & exit' &) ; sleep 60",
    ),
    (
        "deaf to every polite signal",
        "setsid sh -c 'trap \"\" TERM HUP INT; W' & trap '' TERM; sleep 60 & while :; do wait; done",
    ),
    (
        "a chain that forks and leaves its parent for ever",
        "cat > chain <<'E'\necho >> alive\nsleep 0.01\nsetsid sh chain &\nE\nsh chain; sleep 60",
    ),
];

fn escape(script: &str) -> Run {
    sh(&script.replace('W', "while :; do echo >> alive; sleep 0.01; done"))
}

async fn started(house: &House, run: Run) -> (RunInput, RunEvents) {
    let (input, mut events) = house.client.run(run).await.expect("asked");
    assert_eq!(events.next().await, Ok(Some(Output::Started)));
    house.appears("alive").await;
    (input, events)
}

#[tokio::test]
async fn a_kill_ends_every_escape() {
    for (what, script) in ESCAPES {
        kill_ends(what, script, &house().await).await;
        if let Some(house) = cgroup_house().await {
            kill_ends(what, script, &house).await;
        }
    }
}

async fn kill_ends(what: &str, script: &str, house: &House) {
    {
        let (mut input, mut events) = started(house, escape(script)).await;
        assert!(house.grows("alive").await, "{what} does not run");
        let begun = Instant::now();
        input.kill().await.expect("sent");
        let ended = outcome(&mut events).await.exit;
        assert_eq!(
            (ended.ended, ended.signal),
            (Ended::Stopped, Some(9)),
            "{what}"
        );
        assert!(begun.elapsed() < Duration::from_secs(5), "{what}");
        assert!(!house.grows("alive").await, "{what} survived");
        assert_eq!(house.run(run(&["echo", "well"])).await.out(), "well\n");
    }
}

#[tokio::test]
async fn a_deadline_ends_every_escape() {
    for (what, script) in ESCAPES {
        let house = house().await;
        let mut asked = escape(script);
        asked.timeout_millis = Some(500);
        let (_input, mut events) = started(&house, asked).await;
        assert_eq!(
            outcome(&mut events).await.exit.ended,
            Ended::Timeout,
            "{what}"
        );
        assert!(!house.grows("alive").await, "{what} survived");
    }
}

#[tokio::test]
async fn dropping_a_run_ends_every_escape() {
    for (what, script) in ESCAPES {
        let house = house().await;
        let (_input, events) = started(&house, escape(script)).await;
        drop(events);
        let mut ended = false;
        for _ in 0..10 {
            ended = ended || !house.grows("alive").await;
        }
        assert!(ended, "{what} survived");
    }
}

#[tokio::test]
async fn a_stop_is_polite_first_and_leaves_nothing() {
    let house = house().await;
    let script = "trap 'echo bye; exit 5' TERM; setsid sh -c 'W' & while :; do sleep 0.01; done";
    let (mut input, mut events) = started(&house, escape(script)).await;
    input.stop().await.expect("sent");
    let ended = outcome(&mut events).await;
    assert_eq!(
        (ended.out(), ended.exit.code, ended.exit.ended),
        ("bye\n", 5, Ended::Stopped)
    );
    assert!(!house.grows("alive").await);
}

#[tokio::test]
async fn a_stop_that_is_not_heard_is_a_kill_after_two_seconds() {
    let house = house().await;
    let begun = Instant::now();
    let script = "trap '' TERM; echo > alive; while :; do sleep 0.05; done";
    let (mut input, mut events) = started(&house, sh(script)).await;
    input.stop().await.expect("sent");
    let ended = outcome(&mut events).await.exit;
    assert_eq!((ended.ended, ended.signal), (Ended::Stopped, Some(9)));
    assert!(begun.elapsed() > Duration::from_secs(2));
    let (mut input, mut events) = started(&house, sh("echo > alive; sleep 60")).await;
    let begun = Instant::now();
    input.stop().await.expect("sent");
    let ended = outcome(&mut events).await.exit;
    assert_eq!((ended.ended, ended.code), (Ended::Stopped, 143));
    assert!(begun.elapsed() < Duration::from_millis(1500));
}

#[tokio::test]
async fn a_fork_bomb_is_ended() {
    let house = house().await;
    // Grows without end within the ceiling, and no process of it lives long.
    let bomb = "ulimit -u 100000; echo > alive; b() { [ $1 -gt 0 ] && { b $(($1-1)) & b $(($1-1)) & }; }; \
                while :; do b 6; done";
    let (mut input, mut events) = started(&house, sh(bomb)).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    input.kill().await.expect("sent");
    assert_eq!(outcome(&mut events).await.exit.ended, Ended::Stopped);
    assert_eq!(house.run(run(&["echo", "well"])).await.out(), "well\n");
}

#[tokio::test]
async fn a_background_child_does_not_hold_the_answer_back_and_lives_on() {
    let house = house().await;
    let begun = Instant::now();
    // It holds the streams open, and writes to them after the answer.
    let script =
        "sh -c 'while :; do echo still here; echo >> alive; sleep 0.01; done' & echo started";
    let first = house.run(sh(script)).await;
    assert!(begun.elapsed() < Duration::from_secs(2));
    assert_eq!((first.exit.code, first.exit.ended), (0, Ended::Itself));
    assert!(first.out().contains("started\n"));
    house.appears("alive").await;
    assert!(house.grows("alive").await);
    // Nor does ending another run touch it.
    let mut other = sh("sleep 60");
    other.timeout_millis = Some(100);
    assert_eq!(house.run(other).await.exit.ended, Ended::Timeout);
    assert!(house.grows("alive").await);
}

#[tokio::test]
async fn orphans_are_reaped() {
    let house = house().await;
    let script = "i=0; while [ $i -lt 200 ]; do (true &) ; i=$((i+1)); done";
    assert_eq!(house.run(sh(script)).await.exit.code, 0);
    let guest = house.process.id();
    for _ in 0..200 {
        let path = format!("/proc/{guest}/task/{guest}/children");
        if std::fs::read_to_string(path)
            .expect("read")
            .trim()
            .is_empty()
        {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("children are left");
}

/// Ends of a run, by their numbers: by itself, by its deadline, by too much output, by a kill, by nobody who looks any more.
const ENDS: u32 = 5;

#[tokio::test]
async fn no_keeper_no_zombie_and_no_descriptor_is_left_whatever_ended_fifty_runs() {
    let house = house().await;
    let guest = house.process.id();
    let children = || {
        let path = format!("/proc/{guest}/task/{guest}/children");
        std::fs::read_to_string(path)
            .expect("read")
            .split_whitespace()
            .count()
    };
    // Only root may count what does not let itself be looked at.
    let open = || {
        let entries = std::fs::read_dir(format!("/proc/{guest}/fd"));
        entries.map_or(0, Iterator::count)
    };
    assert_eq!(house.run(run(&["true"])).await.exit.code, 0);
    let base = open();
    assert_eq!(base > 0, rustix::process::geteuid().is_root());
    for number in 0..50 {
        let mut asked = sh("setsid sleep 60 & (sleep 60 &) ; echo > alive; sleep 60");
        let expected = match number % ENDS {
            0 => {
                asked = sh("echo > alive");
                Some(Ended::Itself)
            }
            1 => {
                asked.timeout_millis = Some(50);
                Some(Ended::Timeout)
            }
            2 => {
                asked = sh("echo > alive; setsid sleep 60 & yes");
                asked.output = OutputLimit::Stop(4096);
                Some(Ended::Output)
            }
            3 => Some(Ended::Stopped),
            _ => None,
        };
        let (mut input, mut events) = house.client.run(asked).await.expect("asked");
        house.appears("alive").await;
        match expected {
            None => drop((input, events)),
            Some(expected) => {
                // It stood: there was something to end.
                if expected == Ended::Stopped {
                    assert!(children() > 0);
                    input.kill().await.expect("sent");
                }
                assert_eq!(outcome(&mut events).await.exit.ended, expected, "{number}");
            }
        }
        let mut left = (0, 0);
        for _ in 0..500 {
            left = (children(), open());
            if left == (0, base) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(left, (0, base), "after run {number}, {expected:?}");
        std::fs::remove_file(house.dir.path().join("alive")).expect("removed");
    }
}

#[tokio::test]
async fn a_run_that_kills_its_keeper_costs_the_sandbox() {
    let mut house = house().await;
    let script =
        "setsid sh -c 'while :; do echo >> alive; sleep 0.01; done' & kill -9 $PPID; sleep 60";
    let (_input, mut events) = house.client.run(sh(script)).await.expect("asked");
    let error = loop {
        match timeout(SOON, events.next()).await.expect("no hang") {
            Ok(Some(_)) => {}
            Ok(None) => panic!("ended well"),
            Err(error) => break error,
        }
    };
    assert_eq!(error, LinkError::Gone);
    timeout(SOON, house.client.closed()).await.expect("closed");
    let status = house.process.wait().expect("ends");
    assert_eq!(status.code(), Some(1));
    assert!(!house.grows("alive").await);
}

#[tokio::test]
async fn nothing_inside_can_read_or_trace_the_guest_or_a_keeper() {
    let house = house().await;
    // With what a root run keeps in a sandbox: as the same user, without the right to trace or watch others.
    let script = "look() { setpriv --inh-caps -all --bounding-set -all,+kill,+dac_override,+setuid \
                  head -c 1 /proc/$1 >/dev/null 2>&1 && echo read $2; }; \
                  for p in $PPID $(cut -d' ' -f4 /proc/$PPID/stat); do \
                  for f in mem environ maps fd/3 exe; do look $p/$f $f; done; done; \
                  look self/environ control";
    let seen = house.run(sh(script)).await;
    assert_eq!(seen.out(), "read control\n");
}

#[tokio::test]
async fn leaves_go_with_their_runs_and_stay_with_what_lives_in_them() {
    let Some(house) = cgroup_house().await else {
        return;
    };
    let leaves = || {
        let cgroup = house.cgroup.as_ref().expect("given");
        let entries = std::fs::read_dir(cgroup).expect("read").flatten();
        entries.filter(|entry| entry.path().is_dir()).count()
    };
    // It is tidied up after the answer.
    let come_to = async |count| {
        for _ in 0..200 {
            if leaves() == count {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        false
    };
    // One is ready for the run that comes next.
    assert!(come_to(1).await);
    for _ in 0..5 {
        assert_eq!(house.run(run(&["true"])).await.exit.code, 0);
    }
    assert!(come_to(1).await);
    let missing = house.client.run(run(&["no-such-program"])).await;
    let (_input, mut events) = missing.expect("asked");
    assert!(matches!(
        events.next().await,
        Ok(Some(Output::NotStarted(_)))
    ));
    assert!(come_to(0).await);
    let first = house
        .run(sh(
            "sh -c 'while [ ! -e stop ]; do echo >> alive; sleep 0.01; done' & echo up",
        ))
        .await;
    assert_eq!(first.out(), "up\n");
    assert!(come_to(2).await);
    assert!(house.grows("alive").await);
    std::fs::write(house.dir.path().join("stop"), "").expect("written");
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(house.run(run(&["true"])).await.exit.code, 0);
        if leaves() == 1 && come_to(1).await {
            return;
        }
    }
    panic!("a leaf stayed");
}

/// Two runs at once cannot have the leaf that is ready.
#[tokio::test]
async fn every_run_has_a_leaf_of_its_own() {
    let Some(house) = cgroup_house().await else {
        return;
    };
    let place = || sh("sed -n 's/^0:://p' /proc/self/cgroup; sleep 0.2");
    for _ in 0..3 {
        let (first, second, third) =
            tokio::join!(house.run(place()), house.run(place()), house.run(place()));
        let places = [first.out(), second.out(), third.out()];
        for place in places {
            assert!(place.contains("/run-"), "{place}");
            assert_eq!(places.iter().filter(|other| **other == place).count(), 1);
        }
    }
}

#[tokio::test]
async fn clone3_does_not_exist_for_runs_that_could_use_it() {
    let Some(house) = cgroup_house().await else {
        return;
    };
    // clone3 has number 435 on every architecture; ENOSYS is 38.
    let script = "import ctypes; libc = ctypes.CDLL(None, use_errno=True); \
                  print(libc.syscall(435, 0, 0), ctypes.get_errno())";
    assert_eq!(
        house.run(run(&["python3", "-c", script])).await.out(),
        "-1 38\n"
    );
    // Threads do without it.
    let script =
        "import threading; t = threading.Thread(target=print, args=('ran',)); t.start(); t.join()";
    assert_eq!(
        house.run(run(&["python3", "-c", script])).await.out(),
        "ran\n"
    );
}
