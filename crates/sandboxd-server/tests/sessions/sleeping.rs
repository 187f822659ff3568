//! Hibernation, eviction, reaping.

use crate::support::{World, argv, ask, attach, reuse, sid, still_waits};
use sandboxd_server::sessions::{NativeDone, NativeFile, OpenError, Standing, UseError};
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn a_full_pool_puts_the_longest_idle_to_sleep_and_wakes_it_again() {
    let world = World::with_workspaces(|s| {
        s.max_sessions = Some(2);
        s.evict_idle_after = Some(10);
    })
    .await;
    let token = world.open("a").await.token;
    world.out("a", "echo from-a > f").await;
    world.pass(5);
    world.open("b").await;
    assert_eq!(
        world.try_open("c").await.unwrap_err(),
        OpenError::ResidentLimit(2),
        "nobody has been idle long enough"
    );
    world.pass(6);
    world.open("c").await;
    let a = world.view("a");
    assert!(a.hibernated && a.alive);
    assert!(!world.view("b").hibernated);
    assert_eq!(world.backend.sandbox_count(), 2);

    world.pass(20);
    assert_eq!(world.out("a", "cat f").await, "from-a\n");
    assert!(world.sessions.check_token(&sid("a"), token.as_bytes()));
    assert!(world.view("b").hibernated, "b was idle longest");
    let (rows, _) = world.sessions.events(&sid("a"), 0).await.unwrap();
    let ops: Vec<&str> = rows.iter().map(|row| &*row.op).collect();
    assert_eq!(ops, ["run", "evict", "wake", "run"], "the log went on");
    assert_eq!(world.backend.sandbox_count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_busy_session_is_nobodys_victim() {
    let world = World::with_workspaces(|s| {
        s.max_sessions = Some(1);
        s.evict_idle_after = Some(0);
    })
    .await;
    world.open("a").await;
    let sessions = world.sessions.clone();
    let run = tokio::spawn(async move { sessions.run(&sid("a"), argv(&["sleep", "30"])).await });
    assert!(still_waits(&run).await);
    world.pass(1_000);
    let refused = world.try_open("b").await.unwrap_err();
    assert!(refused.to_string().contains("Session limit"), "{refused}");
    run.await.unwrap().unwrap();
    world.open("b").await;
    assert!(world.view("a").hibernated);

    // Now `b` is busy, and `a` cannot be woken.
    let sessions = world.sessions.clone();
    let run = tokio::spawn(async move { sessions.run(&sid("b"), argv(&["sleep", "30"])).await });
    assert!(still_waits(&run).await);
    let limit = 1;
    let refused = world.sh("a", "true").await.unwrap_err();
    assert_eq!(
        refused,
        UseError::CannotWake {
            id: sid("a"),
            limit
        }
    );
    assert!(refused.to_string().contains("Cannot wake session a"));
    let refused = world.sessions.open(reuse("a")).await.unwrap_err();
    assert_eq!(
        refused,
        OpenError::CannotWake {
            id: sid("a"),
            limit
        }
    );
    run.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_idle_goes_to_sleep_by_itself_where_that_is_wanted() {
    let world = World::with_workspaces(|s| s.hibernate_after = Some(60)).await;
    world.open("a").await;
    world.out("a", "echo kept > f").await;
    world.pass(59);
    world.sessions.sweep().await;
    assert!(!world.view("a").hibernated);
    world.pass(1);
    world.sessions.sweep().await;
    world
        .until("asleep", |w| w.sessions.is_hibernated(&sid("a")))
        .await;
    assert_eq!(world.backend.sandbox_count(), 0);
    assert_eq!(world.out("a", "cat f").await, "kept\n");

    // A busy one is not idle, however long ago its run began.
    let sessions = world.sessions.clone();
    let run = tokio::spawn(async move { sessions.run(&sid("a"), argv(&["sleep", "30"])).await });
    assert!(still_waits(&run).await);
    world.pass(1_000);
    world.sessions.sweep().await;
    run.await.unwrap().unwrap();
    assert_eq!(world.backend.sandbox_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn many_at_once_wake_a_session_once() {
    let world = World::with_workspaces(|_| {}).await;
    world.open("a").await;
    world.sessions.hibernate(&sid("a")).await.unwrap();
    world
        .until("asleep", |w| w.sessions.is_hibernated(&sid("a")))
        .await;
    assert_eq!(world.backend.sandbox_count(), 0);
    let runs: Vec<_> = (0..50)
        .map(|_| {
            let sessions = world.sessions.clone();
            tokio::spawn(async move { sessions.run(&sid("a"), argv(&["true"])).await })
        })
        .collect();
    for run in runs {
        run.await.unwrap().unwrap();
    }
    assert_eq!(world.backend.made_count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_session_going_to_sleep_is_woken_when_it_sleeps() {
    let world = World::with_workspaces(|_| {}).await;
    world.open("a").await;
    let gate = world.backend.switches().hold_stops();
    let sessions = world.sessions.clone();
    let asleep = tokio::spawn(async move { sessions.hibernate(&sid("a")).await });
    assert!(still_waits(&asleep).await);
    let sessions = world.sessions.clone();
    let run = tokio::spawn(async move { sessions.run(&sid("a"), argv(&["true"])).await });
    assert!(still_waits(&run).await);
    gate.add_permits(10);
    run.await.unwrap().unwrap();
    asleep.await.unwrap().unwrap();
    assert_eq!(world.backend.sandbox_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_kept_layer_comes_back() {
    let world = World::with_workspaces(|s| s.persist_containers = true).await;
    world.open("a").await;
    world.out("a", "echo installed > /etc/package").await;
    world.sessions.hibernate(&sid("a")).await.unwrap();
    world
        .until("asleep", |w| w.sessions.is_hibernated(&sid("a")))
        .await;
    assert_eq!(world.out("a", "cat /etc/package").await, "installed\n");
    // Without it, what lies outside the work directory goes.
    let mut service = (*world.sessions.service()).clone();
    service.persist_containers = false;
    world.sessions.update_service(service).unwrap();
    world.sessions.hibernate(&sid("a")).await.unwrap();
    world
        .until("asleep", |w| w.sessions.is_hibernated(&sid("a")))
        .await;
    let done = world.sh("a", "cat /etc/package").await.unwrap();
    assert!(format!("{done:?}").contains("code: 1"), "{done:?}");
}

#[tokio::test(start_paused = true)]
async fn the_open_ceiling_closes_the_longest_asleep_for_good() {
    let world = World::with_workspaces(|s| {
        s.max_sessions = Some(2);
        s.max_open_sessions = Some(3);
        s.evict_idle_after = Some(0);
    })
    .await;
    for id in ["a", "b", "c"] {
        world.open(id).await;
        world.out(id, "echo x > f").await;
        world.pass(1);
    }
    assert!(world.view("a").hibernated);
    world.open("d").await;
    assert!(world.sessions.get(&sid("a")).is_none(), "closed for good");
    assert_eq!(world.sessions.counts().open, 3);
    // Its workspace is kept.
    world.pass(1);
    world.sessions.open(attach("a")).await.unwrap();
    assert_eq!(world.out("a", "cat f").await, "x\n");
}

#[tokio::test(start_paused = true)]
async fn native_files_of_a_sleeper_are_served_without_waking_it() {
    let world = World::with_workspaces(|s| s.idle_timeout = 100).await;
    world.open("a").await;
    world.out("a", "echo old > f").await;
    world.sessions.hibernate(&sid("a")).await.unwrap();
    world
        .until("asleep", |w| w.sessions.is_hibernated(&sid("a")))
        .await;
    for _ in 0..5 {
        world.pass(60);
        let write = NativeFile::Write("new\n".into());
        let done = world
            .sessions
            .native(&sid("a"), "/workspace/f", write)
            .await;
        assert!(matches!(done.unwrap(), NativeDone::Done));
        world.sessions.sweep().await;
        assert!(
            world.sessions.is_hibernated(&sid("a")),
            "used, so not reaped"
        );
    }
    assert_eq!(world.backend.made_count(), 1, "never woken");
    assert_eq!(world.out("a", "cat f").await, "new\n");
}

#[tokio::test(start_paused = true)]
async fn idle_sessions_are_closed_busy_ones_are_not() {
    let world = World::with_workspaces(|s| {
        s.idle_timeout = 100;
        s.execute_timeout = 10_000;
    })
    .await;
    world.open("idle").await;
    world.open("asleep").await;
    world.open("busy").await;
    world.sessions.hibernate(&sid("asleep")).await.unwrap();
    world
        .until("asleep", |w| w.sessions.is_hibernated(&sid("asleep")))
        .await;
    let sessions = world.sessions.clone();
    let run =
        tokio::spawn(async move { sessions.run(&sid("busy"), argv(&["sleep", "500"])).await });
    assert!(still_waits(&run).await);
    world.pass(100);
    world.sessions.sweep().await;
    assert!(
        world.sessions.get(&sid("idle")).is_some(),
        "not over its time"
    );
    assert!(
        world.sessions.get(&sid("asleep")).is_none(),
        "a sleeper at its time"
    );
    world.pass(1);
    world.sessions.sweep().await;
    world
        .until("closed", |w| w.sessions.get(&sid("idle")).is_none())
        .await;
    assert!(world.view("busy").alive);
    run.await.unwrap().unwrap();
    world
        .until("one left", |w| w.backend.sandbox_count() == 1)
        .await;
}

#[tokio::test(start_paused = true)]
async fn stored_workspaces_past_their_time_go_unless_a_session_has_them() {
    let world = World::with_workspaces(|s| {
        s.idle_timeout = u64::from(u32::MAX);
        s.workspace_ttl = Some(3_600);
    })
    .await;
    for id in ["open", "closed"] {
        world.open(id).await;
    }
    world.sessions.delete(&sid("closed"), false).await.unwrap();
    let root = world.root.as_ref().unwrap().path().join("workspaces");
    std::fs::write(root.join("a-plain-file"), b"x").unwrap();
    world.sessions.sweep().await;
    assert!(
        root.join("closed").exists(),
        "the stamp is of the machine's clock, which is later"
    );
    // A hundred years later.
    world.pass(100 * 365 * 24 * 3_600);
    world.sessions.sweep().await;
    assert!(!root.join("closed").exists());
    assert!(root.join("open/workspace").exists());
    assert!(root.join("a-plain-file").exists());
    world.sessions.open(ask("closed")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn usage_is_sampled_together_and_kept_for_a_moment() {
    let world = World::with_workspaces(|_| {}).await;
    for id in ["a", "b", "asleep"] {
        world.open(id).await;
    }
    world.sessions.hibernate(&sid("asleep")).await.unwrap();
    world
        .until("asleep", |w| w.sessions.is_hibernated(&sid("asleep")))
        .await;
    let ids = [sid("a"), sid("nobody"), sid("asleep"), sid("b")];
    let first = world.sessions.usage(&ids).await;
    assert!(first[1].is_none() && first[2].is_none());
    let a = first[0].unwrap();
    assert_eq!(a.usage.pids, Some(1));
    assert_eq!(a.cpu_percent, None, "there is no sample before");
    world.out("a", "true").await;
    let cached = world.sessions.usage(&ids).await;
    assert_eq!(cached[0].unwrap().usage.cpu_time, a.usage.cpu_time);
    world.pass(6);
    let later = world.sessions.usage(&ids).await;
    assert!(later[0].unwrap().usage.cpu_time > a.usage.cpu_time);
    assert!(later[0].unwrap().cpu_percent.is_some());
    // A clock that is set back makes no sample fresh for hours.
    world.out("a", "true").await;
    world.clock.set_by(-7_200);
    world.pass(6);
    let again = world.sessions.usage(&ids).await;
    assert!(again[0].unwrap().usage.cpu_time > later[0].unwrap().usage.cpu_time);
    assert!(again[0].unwrap().cpu_percent.is_some());
    tokio::time::sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_session_is_stands_in_the_ledger_before_anybody_hears_of_it() {
    let world = World::with_workspaces(|_| {}).await;
    world.open("a").await;
    let record = world.ledger.records().remove(0);
    assert_eq!(record.id, sid("a"));
    assert!(matches!(record.standing, Standing::Resident { .. }));
    world.sessions.hibernate(&sid("a")).await.unwrap();
    world
        .until("asleep", |w| w.sessions.is_hibernated(&sid("a")))
        .await;
    let asleep = world.ledger.records().remove(0);
    assert!(matches!(
        asleep.standing,
        Standing::Hibernated { layer: None, .. }
    ));
    assert_eq!(asleep.nonce, record.nonce, "the token stays");
    world.sessions.delete(&sid("a"), false).await.unwrap();
    assert!(world.ledger.records().is_empty());
    world.backend.switches().fail_creates(Some("no"));
    world.try_open("b").await.unwrap_err();
    assert!(world.ledger.records().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_cancels_neither_a_wake_nor_a_delete() {
    let world = World::with_workspaces(|_| {}).await;
    world.open("a").await;
    world.sessions.hibernate(&sid("a")).await.unwrap();
    world
        .until("asleep", |w| w.sessions.is_hibernated(&sid("a")))
        .await;
    let gate = world.backend.switches().hold_creates();
    let sessions = world.sessions.clone();
    let waking = tokio::spawn(async move { sessions.open(reuse("a")).await });
    assert!(still_waits(&waking).await);
    waking.abort();
    let _ = waking.await;
    gate.add_permits(1);
    world.until("awake", |w| !w.view("a").hibernated).await;
    assert_eq!(world.backend.sandbox_count(), 1);

    let gate = world.backend.switches().hold_stops();
    let sessions = world.sessions.clone();
    let deleting = tokio::spawn(async move { sessions.delete(&sid("a"), true).await });
    assert!(still_waits(&deleting).await);
    deleting.abort();
    let _ = deleting.await;
    assert!(world.sessions.get(&sid("a")).is_none(), "it ends already");
    gate.add_permits(1);
    world
        .until("gone", |w| {
            w.sessions.counts().open == 0 && w.backend.sandbox_count() == 0
        })
        .await;
    let root = world.root.as_ref().unwrap().path().join("workspaces");
    world
        .until("purged", |_| std::fs::read_dir(&root).unwrap().count() == 0)
        .await;
}
