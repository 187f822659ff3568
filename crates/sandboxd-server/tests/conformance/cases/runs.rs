//! Programs.

use crate::place::{Kind, Place, ask, shown, sid};
use sandboxd_server::id::RunId;
use sandboxd_server::sessions::{NativeFile, RunAsk, RunDone, UseError};
use std::time::{Duration, Instant};

fn finished(code: u8, stdout: &str, stderr: &str) -> RunDone {
    RunDone::Finished {
        code,
        stdout: stdout.into(),
        stderr: stderr.into(),
    }
}

fn run_id(n: u8) -> RunId {
    RunId::parse(&format!("{n:032x}")).unwrap()
}

pub(crate) async fn a_program_runs_and_its_output_comes_back(kind: Kind) {
    let place = Place::open(kind).await;
    place.session("a").await;
    let done = place.run("a", &["echo", "hello", "world"]).await.unwrap();
    assert_eq!(done, finished(0, "hello world\n", ""));
    let done = place.run("a", &["/bin/sh", "-c", "echo $0"]).await.unwrap();
    assert!(matches!(done, RunDone::Finished { code: 0, .. }));
    place.close().await;
}

pub(crate) async fn exit_codes_are_the_programs_own(kind: Kind) {
    let place = Place::open(kind).await;
    place.session("a").await;
    for code in [0, 1, 113, 124, 255] {
        let done = place.sh("a", &format!("exit {code}")).await;
        assert_eq!(done, finished(code, "", ""));
    }
    let done = place.run("a", &["no-such-program"]).await.unwrap();
    assert!(
        matches!(done, RunDone::Finished { code: 127, .. }),
        "{}",
        shown(&done)
    );
    let write = NativeFile::Write("just text".into());
    place
        .sessions
        .native(&sid("a"), "/workspace/text", write)
        .await
        .unwrap();
    let done = place.run("a", &["/workspace/text"]).await.unwrap();
    assert!(
        matches!(done, RunDone::Finished { code: 126, .. }),
        "{}",
        shown(&done)
    );
    if place.has_processes() {
        let done = place.sh("a", "kill -9 $$").await;
        assert!(
            matches!(done, RunDone::Finished { code: 137, .. }),
            "{}",
            shown(&done)
        );
    }
    place.close().await;
}

pub(crate) async fn streams_are_kept_apart(kind: Kind) {
    let place = Place::open(kind).await;
    place.session("a").await;
    let done = place.sh("a", "echo out; echo err >&2; echo out2").await;
    assert_eq!(done, finished(0, "out\nout2\n", "err\n"));
    place.close().await;
}

pub(crate) async fn stdin_is_empty(kind: Kind) {
    let place = Place::open(kind).await;
    place.session("a").await;
    assert_eq!(place.run("a", &["cat"]).await.unwrap(), finished(0, "", ""));
    place.close().await;
}

pub(crate) async fn the_environment_is_the_specs_and_the_callers(kind: Kind) {
    let place = Place::open(kind).await;
    place.session("a").await;
    assert_eq!(place.out("a", "printenv NO_COLOR").await, "1\n");
    assert_eq!(
        place.out("a", "printenv GIT_CONFIG_VALUE_1").await,
        "Agent\n"
    );
    let mine = RunAsk {
        env: vec![
            ("NO_COLOR".into(), "mine".into()),
            ("WITH_SPACE".into(), "a b=c".into()),
        ],
        ..ask(&["/bin/sh", "-c", "printenv NO_COLOR; printenv WITH_SPACE"])
    };
    let done = place.sessions.run(&sid("a"), mine).await.unwrap();
    assert_eq!(done, finished(0, "mine\na b=c\n", ""));
    // Of the daemon's own environment nothing is left.
    let all = place.out("a", "env").await;
    let own = ["NEXTEST", "CARGO", "RUST_BACKTRACE", "TMPDIR"];
    for line in all.lines() {
        assert!(!own.iter().any(|name| line.starts_with(name)), "{line}");
    }
    place.close().await;
}

pub(crate) async fn the_work_directory_is_where_programs_start(kind: Kind) {
    let place = Place::open(kind).await;
    place.session("a").await;
    assert_eq!(
        place.run("a", &["pwd"]).await.unwrap(),
        finished(0, "/workspace\n", "")
    );
    place.close().await;
}

/// Whether a process inside has this in its command line.
async fn runs_inside(place: &Place, id: &str, mark: &str) -> bool {
    let script = "for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $f 2>/dev/null; echo; done";
    let all = place.out(id, script).await;
    all.lines()
        .any(|line| line.contains(mark) && !line.contains("/proc/["))
}

pub(crate) async fn a_deadline_ends_the_whole_tree_and_keeps_what_was_printed(kind: Kind) {
    let place = Place::open(kind).await;
    place.session("a").await;
    let began = Instant::now();
    let script = if place.has_processes() {
        "echo before; sleep 98761 & setsid sleep 98761 & (setsid sh -c 'sleep 98761; :' &) ; sleep 98761"
    } else {
        "echo before; sleep 98761"
    };
    let run = RunAsk {
        timeout: Some(Duration::from_millis(700)),
        ..ask(&["/bin/sh", "-c", script])
    };
    let done = place.sessions.run(&sid("a"), run).await.unwrap();
    let expected = RunDone::TimedOut {
        stdout: b"before\n".to_vec(),
        stderr: Vec::new(),
    };
    assert_eq!(done, expected);
    let took = began.elapsed();
    assert!(
        took >= Duration::from_millis(690) && took < Duration::from_secs(6),
        "{took:?}"
    );
    if place.has_processes() {
        assert!(
            !runs_inside(&place, "a", "98761").await,
            "something outlived its run"
        );
    }
    assert_eq!(place.out("a", "echo on").await, "on\n");
    place.close().await;
}

/// Waits until a run has made this file, so that it is known to have come so far.
async fn made(place: &Place, id: &str, path: &str) {
    for _ in 0..6_000 {
        let id = sid(id);
        let asked = place.sessions.native(&id, path, NativeFile::Stat);
        if asked.await.is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never made: {path}");
}

pub(crate) async fn a_stop_ends_the_whole_tree(kind: Kind) {
    let place = Place::open(kind).await;
    place.session("a").await;
    let script = if place.has_processes() {
        "echo begun; setsid sleep 98762 & : > begun; sleep 98762"
    } else {
        "echo begun; echo > begun; sleep 98762"
    };
    let run = RunAsk {
        id: Some(run_id(1)),
        ..ask(&["/bin/sh", "-c", script])
    };
    let sessions = place.sessions.clone();
    let running = tokio::spawn(async move { sessions.run(&sid("a"), run).await });
    made(&place, "a", "/workspace/begun").await;
    place
        .sessions
        .stop_run(&sid("a"), &run_id(1))
        .await
        .unwrap();
    let done = running.await.unwrap().unwrap();
    assert_eq!(done, finished(143, "begun\n", ""));
    if place.has_processes() {
        assert!(
            !runs_inside(&place, "a", "98762").await,
            "something outlived the stop"
        );
        // One that ignores TERM goes by KILL.
        let stubborn = RunAsk {
            id: Some(run_id(2)),
            ..ask(&[
                "/bin/sh",
                "-c",
                "trap '' TERM; echo > deaf; sleep 98763; sleep 98763",
            ])
        };
        let sessions = place.sessions.clone();
        let running = tokio::spawn(async move { sessions.run(&sid("a"), stubborn).await });
        made(&place, "a", "/workspace/deaf").await;
        place
            .sessions
            .stop_run(&sid("a"), &run_id(2))
            .await
            .unwrap();
        let done = running.await.unwrap().unwrap();
        assert!(
            matches!(done, RunDone::Finished { code: 143, .. }),
            "{}",
            shown(&done)
        );
        assert!(!runs_inside(&place, "a", "98763").await);
    }
    place.close().await;
}

pub(crate) async fn output_without_end_is_ended(kind: Kind) {
    let place = Place::open(kind).await;
    place.session("a").await;
    let done = place.run("a", &["yes", "spam"]).await.unwrap();
    let RunDone::OutputLimited { stdout, limit, .. } = &done else {
        panic!("{}", shown(&done));
    };
    assert_eq!((stdout.len(), *limit), (65_536, 10_485_760));
    assert_eq!(place.out("a", "echo on").await, "on\n");
    place.close().await;
}

pub(crate) async fn output_is_bytes(kind: Kind) {
    let place = Place::open(kind).await;
    place.session("a").await;
    let done = place
        .run("a", &["printf", "\\377\\000\\001\\200end"])
        .await
        .unwrap();
    let expected = RunDone::Finished {
        code: 0,
        stdout: b"\xff\x00\x01\x80end".to_vec(),
        stderr: Vec::new(),
    };
    assert_eq!(done, expected, "{}", shown(&done));
    place.close().await;
}

pub(crate) async fn what_the_kernel_would_refuse_is_named(kind: Kind) {
    let place = Place::open(kind).await;
    place.session("a").await;
    let long = "x".repeat(140_000);
    let refused = place.run("a", &["echo", &long]).await.unwrap_err();
    let text = refused.to_string();
    assert!(text.contains("14000") && text.contains("limit"), "{text}");
    let many: Vec<String> = (0..60).map(|_| "y".repeat(120_000)).collect();
    let mut argv = vec!["echo"];
    argv.extend(many.iter().map(String::as_str));
    let refused = place.run("a", &argv).await;
    assert!(matches!(refused, Err(UseError::Invalid(_))), "{refused:?}");
    let nul = place.run("a", &["echo", "a\0b"]).await;
    assert!(matches!(nul, Err(UseError::Invalid(_))), "{nul:?}");
    // 64 KiB in one argument is what clients send.
    let most = "z".repeat(100_000);
    let done = place.run("a", &["echo", &most]).await.unwrap();
    assert!(
        matches!(done, RunDone::Finished { code: 0, .. }),
        "{}",
        shown(&done)
    );
    place.close().await;
}

pub(crate) async fn a_background_child_does_not_hold_the_answer_back(kind: Kind) {
    let place = Place::open(kind).await;
    if !place.has_processes() {
        return;
    }
    place.session("a").await;
    let began = Instant::now();
    let done = place.sh("a", "sleep 98764 & echo done").await;
    assert_eq!(done, finished(0, "done\n", ""));
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    assert!(
        runs_inside(&place, "a", "98764").await,
        "it lives on until the session sleeps"
    );
    place.close().await;
}

pub(crate) async fn many_sessions_run_at_once(kind: Kind) {
    let place = Place::open(kind).await;
    let each: Vec<_> = (0..8)
        .map(|n| {
            let sessions = place.sessions.clone();
            tokio::spawn(async move {
                let id = sid(&format!("s{n}"));
                let open = sandboxd_server::sessions::Open {
                    id: Some(id.clone()),
                    ..Default::default()
                };
                sessions.open(open).await.unwrap();
                for round in 0..5 {
                    let word = format!("{n}-{round}");
                    let done = sessions.run(&id, ask(&["echo", &word])).await.unwrap();
                    assert_eq!(done, finished(0, &format!("{word}\n"), ""));
                }
            })
        })
        .collect();
    for one in each {
        one.await.unwrap();
    }
    assert_eq!(place.sessions.counts().resident, 8);
    place.close().await;
}

pub(crate) async fn exec_merges_the_streams(kind: Kind) {
    let place = Place::open(kind).await;
    place.session("a").await;
    let exec = async |command: &str, seconds| {
        let done = place
            .sessions
            .exec(&sid("a"), command.to_owned(), seconds)
            .await;
        done.unwrap()
    };
    let done = exec("echo a; echo b >&2; exit 3", None).await;
    let mut lines: Vec<&[u8]> = done.output.split(|b| *b == b'\n').collect();
    lines.sort_unstable();
    assert_eq!(lines, [b"".as_slice(), b"a", b"b"]);
    assert_eq!((done.code, done.truncated), (3, false));
    // A slow machine does not come so far in a second: it has longer then, and is ended all the same.
    let ended = async |command: &str, bytes: usize| {
        for seconds in [1, 5, 30] {
            let done = exec(command, Some(seconds)).await;
            assert_eq!(done.code, 124, "{command}");
            if done.output.len() == bytes {
                return done;
            }
        }
        panic!("{command}: never {bytes} bytes");
    };
    assert!(ended("yes", 100_000).await.truncated);
    let done = ended("echo before; sleep 98", 7).await;
    assert_eq!(done.output.as_slice(), b"before\n");
    place.close().await;
}
