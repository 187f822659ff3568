//! What happens while time passes.

use crate::world::{World, argv, reuse, sid, still_waits};
use sandboxd_server::sessions::{OpenError, UseError};
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn nothing_of_a_reaped_session_is_left_but_its_files() {
    let world = World::with_workspaces(|s| s.idle_timeout = 100).await;
    let first = world.open("a").await;
    world.out("a", "echo kept > f").await;
    world.pass(101);
    world.sessions.sweep().await;
    world
        .until("closed", |w| w.sessions.get(&sid("a")).is_none())
        .await;
    let (id, token) = (sid("a"), first.token.as_bytes());
    assert!(!world.sessions.check_token(&id, token));
    assert!(
        world.sessions.events(&id, 0).await.is_err(),
        "its log went too"
    );
    let gone = world.sh("a", "true").await;
    assert_eq!(gone, Err(UseError::NotFound(sid("a"))));
    // While the old one ends, its id is still somebody's.
    let again = loop {
        match world.sessions.open(reuse("a")).await {
            Err(OpenError::Opening(_)) => tokio::time::sleep(Duration::from_millis(5)).await,
            other => break other.expect("opened"),
        }
    };
    assert_ne!(again.token, first.token);
    let (rows, latest) = world.sessions.events(&id, 0).await.expect("a log");
    assert!(rows.is_empty() && latest == 0, "a log of its own");
    assert_eq!(world.out("a", "cat f").await, "kept\n");
}

#[tokio::test(start_paused = true)]
async fn directories_that_vanish_under_a_sweep_do_not_end_the_sweeps() {
    let world = World::with_workspaces(|s| {
        s.workspace_ttl = Some(60);
        s.cleanup_interval = 5;
        s.idle_timeout = u64::MAX;
    })
    .await;
    let root = world.root.as_ref().expect("a root").path();
    let root = root.join("workspaces");
    let close = async |id: &str| {
        world.open(id).await;
        let deleted = world.sessions.delete(&sid(id), false).await;
        deleted.expect("closed");
    };
    for n in 0..100 {
        close(&format!("w{n}")).await;
    }
    let left = || std::fs::read_dir(&root).expect("listed").count();
    assert_eq!(left(), 100);
    // The machine's clock stamps them, and a hundred years later they are all past their time. Somebody else removes
    // half of them while the pass is at it, from the other end.
    world.pass(100 * 365 * 24 * 3_600);
    let remover = {
        let root = root.clone();
        std::thread::spawn(move || {
            for n in (0..100).rev().step_by(2) {
                let _ = std::fs::remove_dir_all(root.join(format!("w{n}")));
            }
        })
    };
    world.sessions.sweep().await;
    remover.join().expect("joined");
    assert_eq!(left(), 0);
    // What is closed later goes with a later pass of the loop that runs by itself.
    close("late").await;
    assert_eq!(left(), 1);
    world.until("gone by itself", |_| left() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_does_not_stop_holds_up_no_other() {
    let world = World::with_workspaces(|_| {}).await;
    for n in 0..20 {
        world.open(&format!("s{n}")).await;
    }
    let gate = world.backend.switches().hold_stops();
    gate.add_permits(19);
    // One of them is never let go, and the shutdown ends all the same.
    world.sessions.shutdown().await;
    assert!(world.backend.sandbox_count() <= 1);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_healed_a_hundred_times_has_one_sandbox() {
    let world = World::with_workspaces(|_| {}).await;
    let token = world.open("a").await.token;
    for round in 0..100 {
        world.backend.kill_all();
        world.until("noticed", |w| !w.view("a").alive).await;
        assert_eq!(world.out("a", "echo on").await, "on\n", "{round}");
    }
    assert_eq!(world.backend.made_count(), 101);
    assert_eq!(world.backend.sandbox_count(), 1);
    assert!(world.sessions.check_token(&sid("a"), token.as_bytes()));
}

#[tokio::test(start_paused = true)]
async fn a_session_is_deleted_at_once_although_every_command_permit_is_taken() {
    let world = World::with_workspaces(|s| s.max_running_commands = 2).await;
    world.open("a").await;
    let runs: Vec<_> = (0..4)
        .map(|_| {
            let sessions = world.sessions.clone();
            tokio::spawn(async move { sessions.run(&sid("a"), argv(&["sleep", "200"])).await })
        })
        .collect();
    for run in &runs {
        assert!(still_waits(run).await);
    }
    let before = tokio::time::Instant::now();
    let deleted = world.sessions.delete(&sid("a"), true).await;
    deleted.expect("closed");
    assert!(before.elapsed() < Duration::from_secs(20));
    for run in runs {
        let ended = run.await.expect("no panic");
        assert!(ended.is_err(), "{ended:?}");
    }
    assert_eq!(world.backend.sandbox_count(), 0);
}
