//! Programs: streams, deadlines, limits, stops.

use crate::support::{World, argv, run_id, sh, sid, still_waits};
use sandboxd_server::sessions::{ExecDone, Limited, RunAsk, RunDone, UseError};
use std::time::Duration;
use tokio::time::Instant;

fn finished(code: u8, stdout: &str, stderr: &str) -> RunDone {
    RunDone::Finished {
        code,
        stdout: stdout.into(),
        stderr: stderr.into(),
    }
}

#[tokio::test(start_paused = true)]
async fn streams_are_apart_and_exit_codes_come_back() {
    let world = World::start(|_| {}).await;
    world.open("a").await;
    let done = world.sh("a", "echo out; echo err >&2; exit 113").await;
    assert_eq!(done.unwrap(), finished(113, "out\n", "err\n"));
    let missing = world.sessions.run(&sid("a"), argv(&["nope"])).await;
    let Ok(RunDone::Finished {
        code: 127, stderr, ..
    }) = missing
    else {
        panic!("{missing:?}");
    };
    assert!(!stderr.is_empty());
    let cat = world.sessions.run(&sid("a"), argv(&["cat"])).await;
    assert_eq!(cat.unwrap(), finished(0, "", ""), "stdin is empty");
    let env = RunAsk {
        env: vec![("NO_COLOR".into(), "mine".into())],
        ..argv(&["printenv", "NO_COLOR"])
    };
    let done = world.sessions.run(&sid("a"), env).await;
    assert_eq!(done.unwrap(), finished(0, "mine\n", ""));
    assert_eq!(world.out("a", "pwd").await, "/workspace\n");
}

#[tokio::test(start_paused = true)]
async fn a_deadline_keeps_what_was_printed() {
    let world = World::start(|s| s.execute_timeout = 300).await;
    world.open("a").await;
    let began = Instant::now();
    let asked = RunAsk {
        timeout: Some(Duration::from_millis(1_500)),
        ..sh("echo before; sleep 1000")
    };
    let done = world.sessions.run(&sid("a"), asked).await.unwrap();
    let expected = RunDone::TimedOut {
        stdout: b"before\n".to_vec(),
        stderr: Vec::new(),
    };
    assert_eq!(done, expected);
    assert!(began.elapsed() < Duration::from_secs(2));

    // The service's ceiling is the default, and the most.
    for asked in [None, Some(Duration::from_secs(9_999))] {
        let began = Instant::now();
        let run = RunAsk {
            timeout: asked,
            ..sh("sleep 1000")
        };
        let done = world.sessions.run(&sid("a"), run).await.unwrap();
        assert!(matches!(done, RunDone::TimedOut { .. }));
        assert_eq!(began.elapsed().as_secs(), 300);
    }
    // A program's own 124 is a plain result.
    assert_eq!(
        world.sh("a", "exit 124").await.unwrap(),
        finished(124, "", "")
    );
}

#[tokio::test(start_paused = true)]
async fn output_without_end_is_ended() {
    let world = World::start(|_| {}).await;
    world.open("a").await;
    let done = world.sessions.run(&sid("a"), argv(&["yes"])).await.unwrap();
    let RunDone::OutputLimited {
        stdout,
        stderr,
        limit,
    } = done
    else {
        panic!("{done:?}");
    };
    assert_eq!((stdout.len(), stderr.len(), limit), (65_536, 0, 10_485_760));
    assert_eq!(world.out("a", "echo on").await, "on\n");
}

#[tokio::test(start_paused = true)]
async fn a_run_is_stopped_by_its_id_even_before_it_appears() {
    let world = World::start(|_| {}).await;
    world.open("a").await;
    let ask = |n| RunAsk {
        id: Some(run_id(n)),
        ..sh("echo begun; sleep 1000")
    };
    let sessions = world.sessions.clone();
    let run = tokio::spawn(async move { sessions.run(&sid("a"), ask(1)).await });
    assert!(still_waits(&run).await);
    world
        .sessions
        .stop_run(&sid("a"), &run_id(1))
        .await
        .unwrap();
    assert_eq!(run.await.unwrap().unwrap(), finished(143, "begun\n", ""));

    let sessions = world.sessions.clone();
    let stop = tokio::spawn(async move { sessions.stop_run(&sid("a"), &run_id(2)).await });
    assert!(still_waits(&stop).await);
    let done = world.sessions.run(&sid("a"), ask(2)).await.unwrap();
    assert!(
        matches!(done, RunDone::Finished { code: 143, .. }),
        "{done:?}"
    );
    stop.await.unwrap().unwrap();

    let began = Instant::now();
    world
        .sessions
        .stop_run(&sid("a"), &run_id(3))
        .await
        .unwrap();
    assert!(
        began.elapsed() <= Duration::from_millis(1_100),
        "an unknown run is waited for"
    );
    let nobody = world.sessions.stop_run(&sid("nobody"), &run_id(3)).await;
    assert_eq!(nobody, Err(UseError::NotFound(sid("nobody"))));
}

#[tokio::test(start_paused = true)]
async fn a_stop_reaches_both_of_two_runs_with_one_id() {
    let world = World::start(|_| {}).await;
    world.open("a").await;
    let runs: Vec<_> = (0..2)
        .map(|_| {
            let sessions = world.sessions.clone();
            let ask = RunAsk {
                id: Some(run_id(1)),
                ..argv(&["sleep", "1000"])
            };
            tokio::spawn(async move { sessions.run(&sid("a"), ask).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(50)).await;
    world
        .sessions
        .stop_run(&sid("a"), &run_id(1))
        .await
        .unwrap();
    for run in runs {
        assert_eq!(run.await.unwrap().unwrap(), finished(143, "", ""));
    }
}

#[tokio::test(start_paused = true)]
async fn commands_wait_for_a_permit_within_their_own_time_and_a_stop_does_not() {
    let world = World::start(|s| s.max_running_commands = 1).await;
    world.open("a").await;
    world.open("b").await;
    let sessions = world.sessions.clone();
    let first = tokio::spawn(async move {
        let ask = RunAsk {
            id: Some(run_id(1)),
            ..argv(&["sleep", "100"])
        };
        sessions.run(&sid("a"), ask).await
    });
    assert!(still_waits(&first).await);
    let late = RunAsk {
        timeout: Some(Duration::from_secs(2)),
        ..argv(&["echo", "late"])
    };
    let done = world.sessions.run(&sid("b"), late).await.unwrap();
    assert!(matches!(done, RunDone::TimedOut { .. }), "{done:?}");

    let sessions = world.sessions.clone();
    let waiting = tokio::spawn(async move {
        let ask = RunAsk {
            id: Some(run_id(2)),
            ..argv(&["echo", "x"])
        };
        sessions.run(&sid("b"), ask).await
    });
    assert!(still_waits(&waiting).await);
    let began = Instant::now();
    world
        .sessions
        .stop_run(&sid("b"), &run_id(2))
        .await
        .unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), finished(143, "", ""));
    world
        .sessions
        .stop_run(&sid("a"), &run_id(1))
        .await
        .unwrap();
    assert!(began.elapsed() < Duration::from_secs(1));
    assert_eq!(first.await.unwrap().unwrap(), finished(143, "", ""));

    // The queue has an end too.
    let runs: Vec<_> = (0..6)
        .map(|_| {
            let sessions = world.sessions.clone();
            tokio::spawn(async move { sessions.run(&sid("a"), argv(&["sleep", "5"])).await })
        })
        .collect();
    let mut busy = 0;
    for run in runs {
        busy += usize::from(run.await.unwrap() == Err(UseError::Busy(1)));
    }
    assert_eq!(busy, 3, "one runs, two wait");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_does_not_end_its_run() {
    let world = World::with_workspaces(|_| {}).await;
    world.open("a").await;
    let sessions = world.sessions.clone();
    let run =
        tokio::spawn(async move { sessions.run(&sid("a"), sh("sleep 3; echo done > f")).await });
    assert!(still_waits(&run).await);
    run.abort();
    let _ = run.await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(world.out("a", "cat f").await, "done\n");
}

#[tokio::test(start_paused = true)]
async fn exec_has_one_stream_cut_at_its_size() {
    let world = World::start(|s| s.execute_timeout = 60).await;
    world.open("a").await;
    let a = sid("a");
    let exec = |command: &str, seconds| world.sessions.exec(&a, command.to_owned(), seconds);
    let done = exec("echo a; echo b >&2; echo c; exit 3", None)
        .await
        .unwrap();
    let expected = ExecDone {
        output: b"a\nb\nc\n".to_vec(),
        code: 3,
        truncated: false,
        limited: Limited::default(),
    };
    assert_eq!(done, expected);
    // The command runs on, and its own exit code comes back.
    let long = format!("echo {}; exit 3", "x".repeat(120_000));
    let done = exec(&long, None).await.unwrap();
    assert_eq!(
        (done.code, done.output.len(), done.truncated),
        (3, 100_000, true)
    );
    let done = exec("echo before; sleep 99", Some(1)).await.unwrap();
    assert_eq!(
        (done.code, done.output.as_slice()),
        (124, b"before\n".as_slice())
    );
    assert_eq!(exec("", None).await.unwrap().code, 0);
    assert_eq!(exec("echo x", Some(-1)).await.unwrap().code, 125);
    let began = Instant::now();
    assert_eq!(exec("sleep 999", Some(0)).await.unwrap().code, 124);
    assert_eq!(began.elapsed().as_secs(), 60, "0 means the ceiling");
}

#[tokio::test(start_paused = true)]
async fn what_the_kernel_would_refuse_is_said_with_its_size() {
    let world = World::start(|_| {}).await;
    world.open("a").await;
    let long = "x".repeat(200_000);
    let refused = world.sessions.run(&sid("a"), argv(&["echo", &long])).await;
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("200000") && text.contains("131072"), "{text}");
    let nul = world.sessions.run(&sid("a"), argv(&["echo", "a\0b"])).await;
    assert!(matches!(nul, Err(UseError::Invalid(_))));
}

#[tokio::test(start_paused = true)]
async fn the_activity_log_tells_what_was_done_and_nothing_more() {
    let world = World::start(|_| {}).await;
    world.open("a").await;
    world.sh("a", "echo secret-output").await.unwrap();
    world.sh("a", "exit 7").await.unwrap();
    world
        .sessions
        .exec(&sid("a"), "echo x".into(), None)
        .await
        .unwrap();
    let slow = RunAsk {
        timeout: Some(Duration::from_secs(1)),
        ..argv(&["sleep", "9"])
    };
    world.sessions.run(&sid("a"), slow).await.unwrap();
    world
        .sessions
        .search(&sid("a"), vec!["true".into()], Duration::from_secs(1))
        .await
        .unwrap();
    let (rows, latest) = world.sessions.events(&sid("a"), 0).await.unwrap();
    let told: Vec<(u64, &str, &str, bool, &str)> = rows
        .iter()
        .map(|e| {
            (
                e.seq,
                e.op.as_ref(),
                e.target.as_str(),
                e.ok,
                e.detail.as_str(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            (1, "run", "/bin/sh -c 'echo secret-output'", true, "exit 0"),
            (2, "run", "/bin/sh -c 'exit 7'", false, "exit 7"),
            (3, "exec", "echo x", true, "exit 0"),
            (4, "run", "sleep 9", false, "timed out"),
        ]
    );
    assert_eq!(latest, 4);
    assert!(rows[3].took >= Duration::from_secs(1));
    assert_eq!(
        world.sessions.events(&sid("a"), 3).await.unwrap().0.len(),
        1
    );
    assert!(world.sessions.events(&sid("nobody"), 0).await.is_err());
}
