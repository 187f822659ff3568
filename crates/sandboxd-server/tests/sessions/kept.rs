//! What was kept for a sleeping session: it survives every failure, and goes when its time has come.

use crate::support::{World, sid};
use sandboxd_server::auth::session_tokens::SessionTokens;
use sandboxd_server::backends::Backend as _;
use sandboxd_server::sessions::{
    Ledger, MemoryLedger, Parts, RunDone, Sessions, Standing, UseError,
};
use std::sync::Arc;

/// A session that sleeps, with a layer that has a file in it.
async fn asleep_with_a_layer(world: &World) {
    world.open("a").await;
    world.out("a", "echo installed > /etc/package").await;
    sleep(world).await;
}

async fn sleep(world: &World) {
    world.sessions.hibernate(&sid("a")).await.unwrap();
    let asleep = |w: &World| w.sessions.is_hibernated(&sid("a"));
    world.until("asleep", asleep).await;
}

#[tokio::test(start_paused = true)]
async fn a_wake_that_fails_in_any_way_costs_no_layer() {
    let world = World::with_workspaces(|s| s.persist_containers = true).await;
    asleep_with_a_layer(&world).await;
    let switches = world.backend.switches();
    switches.panic_in_create(true);
    let refused = world.sh("a", "true").await.unwrap_err();
    assert!(
        matches!(refused, UseError::WakeFailed { .. }),
        "{refused:?}"
    );
    switches.panic_in_create(false);
    switches.fail_creates(Some("not now"));
    let refused = world.sh("a", "true").await.unwrap_err();
    assert!(
        matches!(refused, UseError::WakeFailed { .. }),
        "{refused:?}"
    );
    switches.fail_creates(None);
    assert_eq!(world.out("a", "cat /etc/package").await, "installed\n");
}

/// What its runtime is made from may have changed meanwhile, and may take long or be nowhere: it is for new sessions.
#[tokio::test(start_paused = true)]
async fn a_wake_over_a_kept_layer_waits_for_no_other_image() {
    let world = World::with_workspaces(|s| s.persist_containers = true).await;
    asleep_with_a_layer(&world).await;
    let switches = world.backend.switches();
    let alias = world.sessions.service().default_runtime.clone();
    switches.miss_image(&alias, "its recipe is broken now");
    let gate = switches.hold_prepares();
    assert_eq!(world.out("a", "cat /etc/package").await, "installed\n");
    // A new one needs it.
    gate.add_permits(1);
    let refused = world.sessions.open(crate::support::ask("b")).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("its recipe is broken now"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_is_there_is_not_thrown_away_because_keeping_it_went_wrong() {
    let world = World::with_workspaces(|s| s.persist_containers = true).await;
    world.backend.switches().fail_keeps(true);
    asleep_with_a_layer(&world).await;
    assert_eq!(world.out("a", "cat /etc/package").await, "installed\n");
}

#[tokio::test(start_paused = true)]
async fn a_wake_without_the_stored_files_is_an_error_and_no_empty_directory() {
    let world = World::with_workspaces(|_| {}).await;
    world.open("a").await;
    world.out("a", "echo kept > f").await;
    sleep(&world).await;
    let root = world.root.as_ref().unwrap().path().join("workspaces");
    let (here, away) = (root.join("a"), root.join("elsewhere"));
    std::fs::rename(&here, &away).unwrap();
    for _ in 0..2 {
        let refused = world.sh("a", "true").await.unwrap_err();
        assert!(
            matches!(&refused, UseError::WakeFailed { cause, .. } if cause.contains("gone")),
            "{refused:?}"
        );
        assert!(!here.exists());
    }
    assert_eq!(world.backend.sandbox_count(), 0);
    // Put back, they are found.
    std::fs::rename(&away, &here).unwrap();
    assert_eq!(world.out("a", "cat f").await, "kept\n");
    // So it is for a sandbox that died.
    world.backend.kill_all();
    world.until("noticed", |w| !w.view("a").alive).await;
    std::fs::rename(&here, &away).unwrap();
    world.sh("a", "true").await.unwrap_err();
    assert!(!here.exists());
    // A delete ends it, and a new session begins anew.
    world.sessions.delete(&sid("a"), false).await.unwrap();
    world.open("a").await;
    let there = world.sh("a", "test -e f").await.unwrap();
    assert!(
        matches!(there, RunDone::Finished { code: 1, .. }),
        "{there:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_a_crash_of_the_host_may_have_torn_is_never_used_in_silence() {
    let world = World::with_workspaces(|s| s.persist_containers = true).await;
    asleep_with_a_layer(&world).await;
    let said = async || {
        let (rows, _) = world.sessions.events(&sid("a"), 0).await.unwrap();
        rows.iter().filter(|row| row.op == "layer").count()
    };
    world.out("a", "true").await;
    assert_eq!(said().await, 0);
    sleep(&world).await;
    world.backend.switches().tear_layers(true);
    assert_eq!(world.out("a", "cat /etc/package").await, "installed\n");
    assert_eq!(said().await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_kept_layer_past_its_time_goes_and_the_session_stays() {
    let world = World::with_workspaces(|s| {
        s.persist_containers = true;
        s.container_ttl = Some(60);
    })
    .await;
    asleep_with_a_layer(&world).await;
    world.pass(60);
    world.sessions.sweep().await;
    assert_eq!(world.backend.list().await.unwrap().len(), 1, "not yet");
    world.pass(1);
    world.sessions.sweep().await;
    for _ in 0..2_000 {
        if world.backend.list().await.unwrap().is_empty() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert!(world.backend.list().await.unwrap().is_empty());
    let record = world.ledger.records().remove(0);
    assert!(matches!(
        record.standing,
        Standing::Hibernated { layer: None, .. }
    ));
    let there = world.sh("a", "test -e /etc/package").await.unwrap();
    assert!(
        matches!(there, RunDone::Finished { code: 1, .. }),
        "{there:?}"
    );
    // It sleeps and wakes as before.
    sleep(&world).await;
    world.out("a", "true").await;
}

#[tokio::test(start_paused = true)]
async fn the_next_start_removes_layers_that_no_session_on_record_has() {
    let world = World::with_workspaces(|s| s.persist_containers = true).await;
    asleep_with_a_layer(&world).await;
    let start = async |ledger: Arc<MemoryLedger>| {
        let parts = Parts {
            backend: world.backend.clone(),
            service: (*world.sessions.service()).clone(),
            clock: world.clock.clone(),
            tokens: SessionTokens::new(&[7; 32]),
        };
        Sessions::start_with(parts, ledger).await.unwrap();
        world.backend.list().await.unwrap().len()
    };
    let known = Arc::new(MemoryLedger::default());
    for record in world.ledger.records() {
        known.put(record).await.unwrap();
    }
    assert_eq!(start(known).await, 1, "somebody's");
    assert_eq!(start(Arc::default()).await, 0, "nobody's");
}
