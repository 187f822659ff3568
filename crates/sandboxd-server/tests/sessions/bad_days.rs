//! Guests that die, fall silent or lie: the session is healed or closed, the answer is clear, nobody else is harmed.

use crate::support::{World, argv, reuse, sid, still_waits};
use sandboxd_server::sessions::{
    FollowFile, NativeDone, NativeFile, OpenError, RunAsk, RunDone, UseError,
};
use std::time::Duration;
use tokio::time::Instant;

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_died_is_healed_where_its_files_live_outside() {
    let world = World::with_workspaces(|s| s.max_sessions = Some(1)).await;
    let token = world.open("a").await.token;
    world.out("a", "echo kept > f").await;
    world.backend.kill_all();
    world.until("noticed", |w| !w.view("a").alive).await;
    assert!(!world.view("a").hibernated);
    let again = world.sessions.open(reuse("a")).await.unwrap();
    assert!(!again.session.alive, "taken as it is");
    assert_eq!(again.token, token);
    assert_eq!(world.out("a", "cat f").await, "kept\n");
    assert!(world.view("a").alive);
    assert_eq!(world.backend.made_count(), 2);
    assert_eq!(
        world.backend.sandbox_count(),
        1,
        "nothing is left of the dead one"
    );
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_died_with_its_files_is_lost_until_it_is_deleted() {
    let world = World::start(|_| {}).await;
    world.open("a").await;
    world.open("b").await;
    let sessions = world.sessions.clone();
    let run = tokio::spawn(async move { sessions.run(&sid("a"), argv(&["sleep", "99"])).await });
    assert!(still_waits(&run).await);
    world.backend.kill_all();
    assert_eq!(run.await.unwrap(), Err(UseError::Gone(sid("a"))));
    for _ in 0..2 {
        let gone = world.sh("a", "echo x").await;
        assert_eq!(
            gone,
            Err(UseError::Gone(sid("a"))),
            "never silently another one"
        );
    }
    assert!(!world.view("a").alive);
    let taken = world.sessions.open(reuse("a")).await.unwrap();
    assert!(!taken.session.alive);
    let (rows, _) = world.sessions.events(&sid("a"), 0).await.unwrap();
    assert_eq!(rows[0].detail, "sandbox gone");
    world.sessions.delete(&sid("a"), false).await.unwrap();
    world.open("a").await;
}

#[tokio::test(start_paused = true)]
async fn death_before_a_command_is_no_answer_to_it() {
    let world = World::with_workspaces(|_| {}).await;
    world.open("a").await;
    for _ in 0..20 {
        world.backend.kill_all();
        // At once, whether the end was noticed or not.
        tokio::task::yield_now().await;
        let done = world.sh("a", "echo x").await;
        assert!(
            matches!(
                done,
                Ok(RunDone::Finished { code: 0, .. }) | Err(UseError::Gone(_))
            ),
            "{done:?}"
        );
        world.sh("a", "echo x").await.unwrap();
    }
    assert_eq!(world.backend.sandbox_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn many_at_once_heal_a_session_once() {
    let world = World::with_workspaces(|_| {}).await;
    world.open("a").await;
    world.backend.kill_all();
    world.until("noticed", |w| !w.view("a").alive).await;
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
async fn a_guest_that_sends_garbage_costs_it_the_sandbox_and_nobody_else_anything() {
    let world = World::with_workspaces(|_| {}).await;
    world.open("a").await;
    world.backend.switches().corrupt_links();
    world.open("b").await;
    let done = world.sh("a", "echo x").await;
    assert_eq!(done, Err(UseError::Gone(sid("a"))));
    assert_eq!(world.out("b", "echo fine").await, "fine\n");
    assert_eq!(world.out("a", "echo healed").await, "healed\n");
    assert_eq!(world.backend.sandbox_count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_falls_silent_answers_no_run_for_ever() {
    let world = World::with_workspaces(|_| {}).await;
    world.open("a").await;
    world.backend.switches().silence_guests();
    let began = Instant::now();
    let ask = RunAsk {
        timeout: Some(Duration::from_secs(3)),
        ..argv(&["true"])
    };
    let done = world.sessions.run(&sid("a"), ask).await.unwrap();
    assert!(matches!(done, RunDone::TimedOut { .. }), "{done:?}");
    assert!(
        began.elapsed() <= Duration::from_secs(9),
        "within the client's patience"
    );
    assert_eq!(world.out("a", "echo healed").await, "healed\n");
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_does_not_end_a_run_loses_its_sandbox() {
    let world = World::with_workspaces(|_| {}).await;
    world.open("a").await;
    world.backend.switches().deafen_guests();
    let ask = RunAsk {
        timeout: Some(Duration::from_secs(1)),
        ..argv(&["sleep", "1000"])
    };
    let began = Instant::now();
    let done = world.sessions.run(&sid("a"), ask).await.unwrap();
    assert!(matches!(done, RunDone::TimedOut { .. }), "{done:?}");
    assert!(began.elapsed() <= Duration::from_secs(7));
    world
        .until("ended", |w| w.backend.sandbox_count() == 0)
        .await;
    assert_eq!(world.out("a", "echo healed").await, "healed\n");
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_ignores_the_output_limit_is_cut_off() {
    let world = World::start(|_| {}).await;
    world.open("a").await;
    world.backend.switches().let_guests_flood();
    let done = world.sessions.run(&sid("a"), argv(&["yes"])).await.unwrap();
    let RunDone::OutputLimited { stdout, .. } = done else {
        panic!("{done:?}");
    };
    assert_eq!(stdout.len(), 65_536);
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_lies_about_files_is_not_believed() {
    let world = World::with_workspaces(|_| {}).await;
    world.open("a").await;
    world.out("a", "echo true > f").await;
    world.backend.switches().make_guests_lie();
    // The stored files tell the truth.
    let read = world
        .sessions
        .native(&sid("a"), "/workspace/f", NativeFile::Read)
        .await
        .unwrap();
    let NativeDone::Content(content) = read else {
        panic!("{read:?}");
    };
    assert_eq!(content.whole().await.unwrap(), "true\n");
    world.until("ended", |w| !w.view("a").alive).await;
    assert_eq!(world.out("a", "cat f").await, "true\n");

    world.backend.switches().make_guests_lie();
    let followed = world
        .sessions
        .follow(&sid("a"), "/workspace/f", FollowFile::Read { limit: 100 })
        .await;
    assert!(followed.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_wake_that_fails_is_said_and_tried_again() {
    let world = World::with_workspaces(|_| {}).await;
    world.open("a").await;
    world.out("a", "echo kept > f").await;
    world.sessions.hibernate(&sid("a")).await.unwrap();
    world
        .until("asleep", |w| w.sessions.is_hibernated(&sid("a")))
        .await;
    world
        .backend
        .switches()
        .fail_creates(Some("no more memory"));
    let failed = world.sh("a", "cat f").await.unwrap_err();
    assert!(matches!(failed, UseError::WakeFailed { .. }), "{failed}");
    assert!(failed.to_string().contains("no more memory"));
    let attach = world.sessions.open(reuse("a")).await.unwrap_err();
    assert!(matches!(attach, OpenError::Start(_)), "{attach}");
    world.backend.switches().fail_creates(None);
    assert_eq!(world.out("a", "cat f").await, "kept\n");
}

#[tokio::test(start_paused = true)]
async fn deleting_a_dead_a_sleeping_and_a_waking_session_is_fine() {
    let world = World::with_workspaces(|_| {}).await;
    for id in ["dead", "asleep", "waking"] {
        world.open(id).await;
    }
    for id in ["asleep", "waking"] {
        world.sessions.hibernate(&sid(id)).await.unwrap();
        world
            .until("asleep", |w| w.sessions.is_hibernated(&sid(id)))
            .await;
    }
    world.backend.kill_all();
    world.until("noticed", |w| !w.view("dead").alive).await;
    let gate = world.backend.switches().hold_creates();
    let sessions = world.sessions.clone();
    let waking = tokio::spawn(async move { sessions.run(&sid("waking"), argv(&["true"])).await });
    assert!(still_waits(&waking).await);
    for id in ["dead", "asleep"] {
        world.sessions.delete(&sid(id), true).await.unwrap();
    }
    let sessions = world.sessions.clone();
    let deleting = tokio::spawn(async move { sessions.delete(&sid("waking"), true).await });
    assert!(still_waits(&deleting).await);
    gate.add_permits(1);
    deleting.await.unwrap().unwrap();
    assert_eq!(waking.await.unwrap(), Err(UseError::Gone(sid("waking"))));
    assert_eq!(world.backend.sandbox_count(), 0);
    let root = world.root.as_ref().unwrap().path().join("workspaces");
    assert_eq!(std::fs::read_dir(root).unwrap().count(), 0, "purged");
}

#[test]
fn a_session_whose_owner_is_gone_gets_another_one() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).enable_all().build().unwrap()
    };
    let before = runtime();
    let world = before.block_on(async {
        let world = World::with_workspaces(|_| {}).await;
        world.open("a").await;
        world
    });
    // Every task goes with it, the owner among them, and its session knows nothing of that.
    before.shutdown_timeout(Duration::from_secs(30));
    runtime().block_on(async {
        let id = sid("a");
        let deleting = world.sessions.delete(&id, false);
        let deleted = tokio::time::timeout(Duration::from_secs(60), deleting).await;
        deleted.expect("somebody carries it out").unwrap();
        assert_eq!(world.backend.sandbox_count(), 0);
        world.open("a").await;
    });
}
