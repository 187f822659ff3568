//! How long sessions last: their own time, renewed or not, and a clock that somebody sets.

use crate::support::{World, argv, ask, sid, still_waits};
use sandboxd_server::sessions::{Open, UseError};
use std::time::Duration;

fn ask_for_so_long(id: &str, seconds: u64) -> Open {
    Open {
        ttl: Some(Duration::from_secs(seconds)),
        labels: [("user".to_owned(), "42".to_owned())].into(),
        ..ask(id)
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_ends_when_its_time_is_over_and_keeps_its_files() {
    let world = World::with_workspaces(|_| {}).await;
    let opened = world.sessions.open(ask_for_so_long("a", 60)).await.unwrap();
    let session = opened.session;
    assert_eq!(
        session.expires,
        Some(session.created + Duration::from_secs(60))
    );
    assert_eq!(session.labels["user"], "42");
    assert_eq!(world.ledger.records()[0].expires, session.expires);
    assert_eq!(world.ledger.records()[0].labels, session.labels);
    world.out("a", "echo kept > f").await;
    world.open("b").await;

    world.pass(59);
    world.sessions.sweep().await;
    world.view("a");
    // A busy one ends, too, and what it does with it.
    let sessions = world.sessions.clone();
    let run = tokio::spawn(async move { sessions.run(&sid("a"), argv(&["sleep", "100"])).await });
    assert!(still_waits(&run).await);
    world.pass(1);
    world
        .until("closed", |w| w.sessions.get(&sid("a")).is_none())
        .await;
    assert_eq!(run.await.unwrap().unwrap_err(), UseError::Gone(sid("a")));
    assert!(world.ledger.records().iter().all(|r| r.id != sid("a")));
    world.view("b");
    world.open("a").await;
    assert_eq!(world.out("a", "cat f").await, "kept\n");
    assert_eq!(world.view("a").expires, None, "another session");
}

#[tokio::test(start_paused = true)]
async fn an_end_can_be_set_anew_awake_and_asleep_and_is_written_down_first() {
    let world = World::with_workspaces(|_| {}).await;
    world.sessions.open(ask_for_so_long("a", 60)).await.unwrap();
    world.pass(50);
    let hour = Some(Duration::from_secs(3_600));
    world.sessions.renew(&sid("a"), hour).await.unwrap();
    let expires = world.view("a").expires;
    assert_eq!(
        expires,
        Some(world.view("a").created + Duration::from_secs(3_650))
    );
    assert_eq!(world.ledger.records()[0].expires, expires);
    world.pass(60);
    world.sessions.sweep().await;
    world.view("a");

    world.sessions.hibernate(&sid("a")).await.unwrap();
    assert!(
        world.sessions.is_hibernated(&sid("a")),
        "it waits until it sleeps"
    );
    assert_eq!(world.ledger.records()[0].expires, expires);
    world.sessions.renew(&sid("a"), None).await.unwrap();
    assert_eq!(world.ledger.records()[0].expires, None);
    assert!(
        world.sessions.is_hibernated(&sid("a")),
        "nothing was woken for it"
    );
    let nobody = world.sessions.renew(&sid("x"), None).await.unwrap_err();
    assert_eq!(nobody, UseError::NotFound(sid("x")));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_sleep_says_why_and_what_sleeps_is_fine() {
    let world = World::with_workspaces(|_| {}).await;
    world.open("a").await;
    let sessions = world.sessions.clone();
    let run = tokio::spawn(async move { sessions.run(&sid("a"), argv(&["sleep", "30"])).await });
    assert!(still_waits(&run).await);
    let busy = world.sessions.hibernate(&sid("a")).await.unwrap_err();
    assert_eq!(
        busy.to_string(),
        "Session a cannot go to sleep: it is in use"
    );
    run.await.unwrap().unwrap();
    for _ in 0..2 {
        world.sessions.hibernate(&sid("a")).await.unwrap();
        assert_eq!(world.backend.sandbox_count(), 0);
    }
    let nobody = world.sessions.hibernate(&sid("x")).await.unwrap_err();
    assert_eq!(nobody, UseError::NotFound(sid("x")));

    let inside = World::start(|_| {}).await;
    inside.open("a").await;
    let refused = inside.sessions.hibernate(&sid("a")).await.unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("its files live in its sandbox"),
        "{refused}"
    );
    inside.out("a", "true").await;
}

#[tokio::test(start_paused = true)]
async fn many_that_ask_for_sleep_are_all_answered_when_it_sleeps() {
    let world = World::with_workspaces(|_| {}).await;
    world.open("a").await;
    let gate = world.backend.switches().hold_stops();
    let asks: Vec<_> = (0..5)
        .map(|_| {
            let sessions = world.sessions.clone();
            tokio::spawn(async move { sessions.hibernate(&sid("a")).await })
        })
        .collect();
    for ask in &asks {
        assert!(still_waits(ask).await);
    }
    gate.add_permits(10);
    for ask in asks {
        ask.await.unwrap().unwrap();
    }
    assert!(world.sessions.is_hibernated(&sid("a")));
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_reaps_nobody_and_lets_nobody_live_for_ever() {
    const DAYS: i64 = 3 * 24 * 3_600;
    for jump in [DAYS, -DAYS] {
        let world = World::with_workspaces(|s| {
            s.idle_timeout = 600;
            s.workspace_ttl = Some(3_600);
            s.hibernate_after = Some(500);
        })
        .await;
        world
            .sessions
            .open(ask_for_so_long("a", 900))
            .await
            .unwrap();
        world.open("b").await;
        world.open("gone").await;
        world.out("gone", "echo kept > f").await;
        world.sessions.hibernate(&sid("b")).await.unwrap();
        world.sessions.delete(&sid("gone"), false).await.unwrap();
        world.pass(100);
        let before = (world.view("a"), world.view("b"));

        world.clock.set_by(jump);
        world.sessions.sweep().await;
        for (id, before) in [("a", &before.0), ("b", &before.1)] {
            let after = world.view(id);
            assert_eq!(after.idle, before.idle, "{jump} {id}");
            assert_eq!(after.hibernated, before.hibernated, "{jump} {id}");
        }
        let moved = |time: Duration| {
            let by = Duration::from_secs(jump.unsigned_abs());
            if jump > 0 { time + by } else { time - by }
        };
        let expires = before.0.expires.map(moved);
        assert_eq!(world.view("a").expires, expires);
        let written = world.ledger.records();
        let written = written.iter().find(|r| r.id == sid("a")).unwrap();
        assert_eq!(written.expires, expires, "a restart changes nothing");

        // From here on time goes on as ever.
        world.pass(400);
        world.sessions.sweep().await;
        world
            .until("asleep", |w| w.sessions.is_hibernated(&sid("a")))
            .await;
        world.pass(101);
        world.sessions.sweep().await;
        world
            .until("b is closed", |w| w.sessions.get(&sid("b")).is_none())
            .await;
        world.pass(300);
        world.sessions.sweep().await;
        world
            .until("a is over", |w| w.sessions.get(&sid("a")).is_none())
            .await;
    }
}

/// The rows of a session's log, each as `op target ok detail`.
async fn rows(world: &World, id: &str) -> Vec<String> {
    let (rows, latest) = world.sessions.events(&sid(id), 0).await.unwrap();
    assert_eq!(latest, rows.last().map_or(0, |row| row.seq));
    let words = rows.iter().map(|row| {
        let ok = if row.ok { "ok" } else { "not ok" };
        format!("{} {:?} {ok} {:?}", row.op, row.target, row.detail)
    });
    words.collect()
}

#[tokio::test(start_paused = true)]
async fn the_log_says_how_a_session_slept_and_woke_and_was_refused() {
    let world = World::with_workspaces(|s| {
        s.max_sessions = Some(1);
        s.evict_idle_after = Some(10);
        s.hibernate_after = Some(100);
    })
    .await;
    world.open("a").await;
    assert_eq!(
        rows(&world, "a").await,
        [""; 0],
        "a fresh one did nothing yet"
    );
    assert_eq!(world.view("a").opening().op, "open");
    world.sessions.hibernate(&sid("a")).await.unwrap();
    world.out("a", "true").await;
    world.pass(10);
    world.open("b").await;
    for _ in 0..3 {
        world.sh("a", "true").await.unwrap_err();
    }
    world.sessions.delete(&sid("b"), false).await.unwrap();
    let switches = world.backend.switches();
    switches.fail_creates(Some("no luck"));
    world.sh("a", "true").await.unwrap_err();
    switches.fail_creates(None);
    world.out("a", "true").await;
    world.pass(100);
    world.sessions.sweep().await;
    world
        .until("asleep", |w| w.sessions.is_hibernated(&sid("a")))
        .await;
    let found = rows(&world, "a").await;
    let expected = [
        r#"hibernate "asked to" ok """#,
        r#"wake "host" ok """#,
        r#"run "/bin/sh -c true" ok "exit 0""#,
        r#"evict "room for another session" ok """#,
        r#"refuse "wake" not ok "session limit reached (1)""#,
        r#"wake "host" not ok "start: no luck""#,
        r#"wake "host" ok """#,
        r#"run "/bin/sh -c true" ok "exit 0""#,
        r#"hibernate "idle" ok """#,
    ];
    assert_eq!(found, expected);
}

#[tokio::test(start_paused = true)]
async fn a_kill_for_memory_that_no_run_knows_of_is_told_once() {
    let world = World::with_workspaces(|_| {}).await;
    world.open("a").await;
    let kills = |world: &World| {
        let text = world.sessions.metrics().render(world.sessions.states());
        let line = text
            .lines()
            .find(|l| l.starts_with("sandboxd_oom_kills_total "));
        line.unwrap().rsplit(' ').next().unwrap().to_owned()
    };
    assert_eq!(kills(&world), "0");
    world.backend.switches().count_memory_kill();
    for _ in 0..2 {
        world.pass(6);
        world.sessions.usage(&[sid("a")]).await;
    }
    assert_eq!(kills(&world), "1");
    let told = r#"limit "memory" not ok "processes that the kernel ended for memory: 1""#;
    assert_eq!(rows(&world, "a").await, [told]);
    // Another sandbox counts from nothing.
    world.sessions.hibernate(&sid("a")).await.unwrap();
    world.out("a", "true").await;
    world.backend.switches().count_memory_kill();
    world.pass(6);
    world.sessions.usage(&[sid("a")]).await;
    assert_eq!(kills(&world), "2");
}
