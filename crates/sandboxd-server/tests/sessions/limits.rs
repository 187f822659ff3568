//! Which limit a run ran into, where the double's meter says that one has bitten.

use crate::support::{World, argv, sh, sid, still_waits};
use sandboxd_server::id::RunId;
use sandboxd_server::sessions::{FollowFile, Limit, Ran, RunAsk, RunDone};
use std::time::Duration;
use tokio::task::JoinHandle;

/// A run that goes on, and has begun.
async fn begun(world: &World, id: &'static str, ask: RunAsk) -> JoinHandle<Ran> {
    let sessions = world.sessions.clone();
    let run = tokio::spawn(async move { sessions.run_told(&sid(id), ask).await.unwrap() });
    tokio::time::sleep(Duration::from_millis(50)).await;
    run
}

async fn details(world: &World, id: &str) -> Vec<String> {
    let (rows, _) = world.sessions.events(&sid(id), 0).await.unwrap();
    rows.into_iter().map(|row| row.detail).collect()
}

#[tokio::test(start_paused = true)]
async fn a_run_that_fails_while_a_ceiling_bites_says_which() {
    let world = World::start(|_| {}).await;
    world.open("a").await;
    let run = begun(&world, "a", sh("sleep 1; exit 137")).await;
    world.backend.switches().count_memory_kill();
    let ran = run.await.unwrap();
    assert_eq!(ran.limited.killed_for, Some(Limit::Memory));
    let run = begun(&world, "a", sh("sleep 1; exit 1")).await;
    world.backend.switches().count_process_refusal();
    let ran = run.await.unwrap();
    assert_eq!(ran.limited.killed_for, Some(Limit::Pids));
    // What bit an earlier run is not held against a later one.
    let ran = world
        .sessions
        .run_told(&sid("a"), sh("exit 1"))
        .await
        .unwrap();
    assert_eq!(ran.limited.killed_for, None);
    assert!(ran.limited.reached.is_empty());
    assert_eq!(
        details(&world, "a").await,
        [
            "exit 137, ended for memory",
            "exit 1, ended for pids",
            "exit 1"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_that_does_well_only_says_what_was_reached() {
    let world = World::start(|_| {}).await;
    world.open("a").await;
    let run = begun(&world, "a", sh("sleep 1; true")).await;
    world.backend.switches().count_memory_kill();
    let ran = run.await.unwrap();
    assert_eq!(ran.limited.killed_for, None);
    assert_eq!(ran.limited.reached, [Limit::Memory]);
}

#[tokio::test(start_paused = true)]
async fn runs_of_a_session_that_stores_too_much_are_ended_and_later_ones_are_not() {
    let world = World::start(|_| {}).await;
    world.open("a").await;
    let run = begun(&world, "a", argv(&["sleep", "99"])).await;
    world.backend.switches().overfill();
    let ran = run.await.unwrap();
    assert!(
        matches!(ran.done, RunDone::Finished { code: 137, .. }),
        "{ran:?}"
    );
    assert_eq!(ran.limited.killed_for, Some(Limit::Disk));
    assert_eq!(world.out("a", "echo here").await, "here\n");
    let done = world
        .sessions
        .exec(&sid("a"), "exit 3".into(), None)
        .await
        .unwrap();
    assert_eq!((done.code, done.limited.killed_for), (3, None));
    let sessions = world.sessions.clone();
    let exec = tokio::spawn(async move {
        let done = sessions.exec(&sid("a"), "sleep 99".into(), None).await;
        done.unwrap()
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    world.backend.switches().overfill();
    let done = exec.await.unwrap();
    assert_eq!(
        (done.code, done.limited.killed_for),
        (137, Some(Limit::Disk))
    );
}

#[tokio::test(start_paused = true)]
async fn time_and_output_are_named_too() {
    let world = World::start(|s| s.execute_timeout = 60).await;
    world.open("a").await;
    let slow = RunAsk {
        timeout: Some(Duration::from_secs(1)),
        ..argv(&["sleep", "9"])
    };
    let late = world.sessions.run_told(&sid("a"), slow).await.unwrap();
    assert_eq!(late.limited.killed_for, Some(Limit::Time));
    let loud = world
        .sessions
        .run_told(&sid("a"), argv(&["yes"]))
        .await
        .unwrap();
    assert_eq!(loud.limited.killed_for, Some(Limit::Output));
    let done = world
        .sessions
        .exec(&sid("a"), "sleep 9".into(), Some(1))
        .await
        .unwrap();
    assert_eq!(
        (done.code, done.limited.killed_for),
        (124, Some(Limit::Time))
    );
}

/// A session whose output is large, and one whose is too, where there is room for one.
async fn two_that_print_much() -> World {
    let world = World::start(|s| s.max_outputs_bytes = 16 << 20).await;
    for id in ["a", "b"] {
        world.open(id).await;
        let content = vec![b'x'; 1 << 20];
        let write = FollowFile::Write(content.into());
        world.sessions.follow(&sid(id), "big", write).await.unwrap();
    }
    world
}

#[tokio::test(start_paused = true)]
async fn what_runs_print_together_is_bounded_and_waits_for_room() {
    let world = two_that_print_much().await;
    let first = begun(&world, "a", sh("cat big; sleep 30")).await;
    let second = begun(&world, "b", sh("cat big")).await;
    assert!(still_waits(&second).await);
    // A little is not asked of anybody.
    assert_eq!(world.out("b", "echo small").await, "small\n");
    let first = first.await.unwrap();
    assert!(
        matches!(&first.done, RunDone::Finished { code: 0, stdout, .. } if stdout.len() == 1 << 20)
    );
    assert!(
        still_waits(&second).await,
        "the first answer is not sent yet"
    );
    drop(first);
    let second = second.await.unwrap();
    assert!(
        matches!(&second.done, RunDone::Finished { code: 0, stdout, .. } if stdout.len() == 1 << 20)
    );
}

#[tokio::test(start_paused = true)]
async fn waiting_for_room_keeps_neither_a_deadline_nor_a_stop() {
    let world = two_that_print_much().await;
    let _first = begun(&world, "a", sh("cat big; sleep 300")).await;
    let late = RunAsk {
        timeout: Some(Duration::from_secs(2)),
        ..sh("cat big; sleep 60")
    };
    let late = begun(&world, "b", late).await.await.unwrap();
    assert!(
        matches!(&late.done, RunDone::TimedOut { stdout, .. } if stdout.len() == 65_536),
        "{late:?}"
    );
    assert_eq!(late.limited.killed_for, Some(Limit::Time));
    let id = RunId::parse(&"5".repeat(32)).unwrap();
    let stopped = RunAsk {
        id: Some(id.clone()),
        ..sh("cat big; sleep 60")
    };
    let run = begun(&world, "b", stopped).await;
    assert!(still_waits(&run).await);
    world.sessions.stop_run(&sid("b"), &id).await.unwrap();
    let stopped = run.await.unwrap();
    // Not all that it printed was kept, and so it is said.
    assert!(
        matches!(stopped.done, RunDone::OutputLimited { .. }),
        "{stopped:?}"
    );
    assert_eq!(world.out("b", "echo on").await, "on\n");
}
