//! Opening, taking and closing sessions.

use crate::support::{World, ask, ask_for, attach, reuse, sid, still_waits};
use sandboxd_server::id::{SessionId, Tenant};
use sandboxd_server::sessions::{Open, OpenError, UseError};
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn an_attach_whose_stored_files_go_meanwhile_makes_no_empty_ones() {
    let world = World::with_workspaces(|_| {}).await;
    world.open("a").await;
    world.sessions.delete(&sid("a"), false).await.unwrap();
    let home = world.root.as_ref().unwrap().path().join("workspaces/a");
    let gate = world.backend.switches().hold_prepares();
    let sessions = world.sessions.clone();
    let attaching = tokio::spawn(async move { sessions.open(attach("a")).await });
    assert!(still_waits(&attaching).await);
    std::fs::remove_dir_all(&home).unwrap();
    gate.add_permits(1);
    let refused = attaching.await.unwrap().unwrap_err();
    assert!(
        matches!(&refused, OpenError::Start(cause) if cause.contains("gone")),
        "{refused:?}"
    );
    assert!(!home.exists());
    // Whoever does not insist on them gets new ones.
    gate.add_permits(1);
    world.open("a").await;
}

/// Nobody's time passes here but the clock's, which is turned forward as soon as everybody waits.
#[tokio::test(start_paused = true)]
async fn an_open_waits_for_its_image_as_long_as_that_takes() {
    let world = World::start(|_| {}).await;
    let gate = world.backend.switches().hold_prepares();
    let opening = {
        let sessions = world.sessions.clone();
        tokio::spawn(async move { sessions.open(ask("a")).await })
    };
    assert!(still_waits(&opening).await);
    // Longer than a build may take where nobody says otherwise, and the fetch of its base before it.
    tokio::time::sleep(Duration::from_secs(10_000)).await;
    assert!(still_waits(&opening).await);
    // Who comes second is told so, and may come again.
    let second = world.sessions.open(reuse("a")).await;
    assert_eq!(second.unwrap_err(), OpenError::Opening(sid("a")));
    // Images are also made ready for nobody in particular.
    gate.add_permits(9);
    let opened = opening.await.unwrap().unwrap();
    // Building it was no idle time of the session's.
    assert!(opened.session.idle < Duration::from_secs(60), "{opened:?}");
    let again = world.sessions.open(reuse("a")).await.unwrap();
    assert_eq!(again.token, opened.token);
    assert_eq!(world.out("a", "echo hi").await, "hi\n");
}

#[tokio::test(start_paused = true)]
async fn an_open_whose_caller_hung_up_goes_on_behind_a_long_build() {
    let world = World::start(|_| {}).await;
    let gate = world.backend.switches().hold_prepares();
    let opening = {
        let sessions = world.sessions.clone();
        tokio::spawn(async move { sessions.open(ask("a")).await })
    };
    assert!(still_waits(&opening).await);
    opening.abort();
    tokio::time::sleep(Duration::from_secs(3_000)).await;
    gate.add_permits(9);
    let is_open = |world: &World| world.sessions.get(&sid("a")).is_some();
    world.until("open", is_open).await;
    world.sessions.open(reuse("a")).await.unwrap();
}

/// With files that are stored, a session may be closed, or the service ended, while its next sandbox waits for an image.
#[tokio::test(start_paused = true)]
async fn what_is_closed_while_its_image_is_built_does_not_wait_for_that() {
    let world = World::with_workspaces(|_| {}).await;
    world.open("a").await;
    world.sessions.hibernate(&sid("a")).await.unwrap();
    let _gate = world.backend.switches().hold_prepares();
    let waking = {
        let sessions = world.sessions.clone();
        tokio::spawn(async move { sessions.open(reuse("a")).await })
    };
    assert!(still_waits(&waking).await);
    tokio::time::sleep(Duration::from_secs(2_000)).await;
    assert!(still_waits(&waking).await);
    world.sessions.delete(&sid("a"), false).await.unwrap();
    assert!(waking.await.unwrap().is_err());
    assert_eq!(world.backend.sandbox_count(), 0);
    let opening = {
        let sessions = world.sessions.clone();
        tokio::spawn(async move { sessions.open(ask("b")).await })
    };
    assert!(still_waits(&opening).await);
    let began = tokio::time::Instant::now();
    world.sessions.shutdown().await;
    assert_eq!(opening.await.unwrap().unwrap_err(), OpenError::ShuttingDown);
    // By the clock of the test, which stands still where nobody waits for it.
    assert!(began.elapsed() < Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_session_opens_runs_and_goes() {
    let world = World::start(|_| {}).await;
    let opened = world.open("a").await;
    assert_eq!(opened.token.len(), 43);
    let view = world.view("a");
    assert!(view.alive && !view.hibernated);
    assert_eq!(view.runtime, world.sessions.service().default_runtime);
    assert_eq!(world.out("a", "echo hi").await, "hi\n");
    assert!(
        world
            .sessions
            .check_token(&sid("a"), opened.token.as_bytes())
    );

    world.sessions.delete(&sid("a"), false).await.unwrap();
    assert!(world.sessions.get(&sid("a")).is_none());
    assert!(
        !world
            .sessions
            .check_token(&sid("a"), opened.token.as_bytes())
    );
    assert_eq!(world.backend.sandbox_count(), 0);
    assert_eq!(world.sessions.counts().open, 0);
    let again = world.sessions.delete(&sid("a"), false).await;
    assert_eq!(again, Err(UseError::NotFound(sid("a"))));
}

#[tokio::test(start_paused = true)]
async fn ids_are_made_where_none_is_given_and_the_list_is_in_order_of_creation() {
    let world = World::start(|_| {}).await;
    let first = world.sessions.open(Open::default()).await.unwrap();
    assert!(first.session.id.as_str().starts_with("s-"));
    assert_eq!(first.session.id.as_str().len(), 18);
    for id in ["z", "m", "a"] {
        world.open(id).await;
    }
    let ids: Vec<String> = world
        .sessions
        .list()
        .iter()
        .map(|view| view.id.to_string())
        .collect();
    assert_eq!(ids, [first.session.id.as_str(), "z", "m", "a"]);
}

#[tokio::test(start_paused = true)]
async fn the_checks_come_in_the_contracts_order() {
    let world = World::with_workspaces(|_| {}).await;
    world.open("a").await;
    let open = |ask: Open| world.sessions.open(ask);
    let unknown = Open {
        runtime: Some("nope".into()),
        attach: true,
        ..Open::default()
    };
    let text = open(unknown).await.unwrap_err().to_string();
    assert!(
        text.starts_with("Unknown runtime") && text.contains("host"),
        "{text}"
    );
    let nameless = Open {
        attach: true,
        ..Open::default()
    };
    assert_eq!(
        open(nameless).await.unwrap_err(),
        OpenError::AttachWithoutId
    );
    assert_eq!(
        open(ask("a")).await.unwrap_err(),
        OpenError::Exists(sid("a"))
    );
    let other = Open {
        runtime: Some("python".into()),
        ..reuse("a")
    };
    let text = open(other).await.unwrap_err().to_string();
    assert!(text.contains("Close it before changing runtime"), "{text}");
    assert!(text.contains("host") && text.contains("python"), "{text}");
    assert_eq!(
        open(attach("gone")).await.unwrap_err(),
        OpenError::NothingToAttach(sid("gone"))
    );
    let empty_runtime = Open {
        runtime: Some(String::new()),
        ..reuse("a")
    };
    open(empty_runtime).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn reuse_and_attach_hand_out_the_same_token() {
    let world = World::with_workspaces(|_| {}).await;
    let first = world.open("a").await;
    let used = world.view("a").last_activity;
    world.pass(10);
    for again in [reuse("a"), attach("a")] {
        let again = world.sessions.open(again).await.unwrap();
        assert_eq!(again.token, first.token);
        assert_eq!(again.session.created, first.session.created);
    }
    assert_eq!(
        world.view("a").last_activity,
        used,
        "attaching is no activity"
    );
    assert_eq!(world.backend.made_count(), 1);

    world.out("a", "echo x > f").await;
    world.sessions.delete(&sid("a"), false).await.unwrap();
    let back = world.sessions.open(attach("a")).await.unwrap();
    assert_ne!(back.token, first.token, "another session, another token");
    assert_eq!(world.out("a", "cat f").await, "x\n");
    world.sessions.delete(&sid("a"), true).await.unwrap();
    assert_eq!(
        world.sessions.open(attach("a")).await.unwrap_err(),
        OpenError::NothingToAttach(sid("a"))
    );
}

#[tokio::test(start_paused = true)]
async fn an_id_that_is_being_opened_belongs_to_its_opener() {
    let world = World::start(|_| {}).await;
    let gate = world.backend.switches().hold_creates();
    let sessions = world.sessions.clone();
    let opening = tokio::spawn(async move { sessions.open(ask("a")).await });
    assert!(still_waits(&opening).await);
    assert!(world.sessions.get(&sid("a")).is_none());
    assert!(world.sessions.list().is_empty());
    for ask in [ask("a"), reuse("a"), attach("a")] {
        let refused = world.sessions.open(ask).await.unwrap_err();
        assert_eq!(refused, OpenError::Opening(sid("a")));
    }
    let delete = world.sessions.delete(&sid("a"), false).await;
    assert_eq!(delete, Err(UseError::NotFound(sid("a"))));
    gate.add_permits(1);
    let token = opening.await.unwrap().unwrap().token;
    assert!(world.sessions.check_token(&sid("a"), token.as_bytes()));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_does_not_cancel_its_open() {
    let world = World::start(|_| {}).await;
    let gate = world.backend.switches().hold_creates();
    let sessions = world.sessions.clone();
    let opening = tokio::spawn(async move { sessions.open(ask("a")).await });
    assert!(still_waits(&opening).await);
    opening.abort();
    let _ = opening.await;
    gate.add_permits(1);
    world
        .until("open", |w| w.sessions.get(&sid("a")).is_some())
        .await;
    assert_eq!(world.out("a", "echo here").await, "here\n");
}

#[tokio::test(start_paused = true)]
async fn a_failed_open_leaves_nothing() {
    let world = World::with_workspaces(|s| {
        s.max_sessions = Some(1);
        s.max_open_sessions = Some(1);
        s.max_sessions_per_tenant = Some(1);
    })
    .await;
    world.backend.switches().fail_creates(Some("daemon down"));
    let refused = world.sessions.open(ask_for("a", "t")).await.unwrap_err();
    assert!(refused.to_string().contains("Could not start sandbox"));
    assert!(refused.to_string().contains("daemon down"));
    assert_eq!(world.sessions.counts(), Default::default());
    assert_eq!(world.backend.sandbox_count(), 0);
    world.backend.switches().fail_creates(None);
    // The empty workspace stays, as the contract has it.
    let attach = Open {
        tenant: Some(Tenant::parse("t").unwrap()),
        ..attach("a")
    };
    world.sessions.open(attach).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_missing_image_and_a_backend_that_panics_are_failed_opens() {
    let world = World::start(|_| {}).await;
    let switches = world.backend.switches();
    switches.miss_image("host", "make it");
    let refused = world.try_open("a").await.unwrap_err().to_string();
    assert!(refused.contains("not on this host"), "{refused}");
    let world = World::start(|_| {}).await;
    world.backend.switches().panic_in_create(true);
    assert!(matches!(
        world.try_open("a").await,
        Err(OpenError::Start(_))
    ));
    world.backend.switches().panic_in_create(false);
    world.open("a").await;
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_never_starts_is_given_up() {
    let world = World::start(|_| {}).await;
    world
        .backend
        .switches()
        .delay_creates(Duration::from_secs(10_000));
    let refused = world.try_open("a").await.unwrap_err();
    assert!(matches!(refused, OpenError::Start(_)), "{refused}");
    assert_eq!(world.sessions.counts(), Default::default());
}

#[tokio::test(start_paused = true)]
async fn ceilings_hold_also_while_sandboxes_are_being_made() {
    let world = World::start(|s| s.max_sessions = Some(3)).await;
    let gate = world.backend.switches().hold_creates();
    let opens: Vec<_> = (0..8)
        .map(|n| {
            let sessions = world.sessions.clone();
            tokio::spawn(async move { sessions.open(ask(&format!("s{n}"))).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(50)).await;
    gate.add_permits(100);
    let mut well = 0;
    for open in opens {
        match open.await.unwrap() {
            Ok(_) => well += 1,
            Err(refused) => assert_eq!(refused, OpenError::ResidentLimit(3)),
        }
    }
    assert_eq!(well, 3);
    assert_eq!(world.backend.made_count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_tenant_has_so_many_and_unlabelled_ones_are_not_counted() {
    let world = World::start(|s| s.max_sessions_per_tenant = Some(2)).await;
    for id in ["a", "b"] {
        world.sessions.open(ask_for(id, "acme")).await.unwrap();
    }
    let refused = world.sessions.open(ask_for("c", "acme")).await.unwrap_err();
    assert!(refused.to_string().contains("acme"));
    world.sessions.open(ask_for("d", "other")).await.unwrap();
    for id in ["e", "f", "g"] {
        world.open(id).await;
    }
}

#[tokio::test(start_paused = true)]
async fn tokens_open_only_their_own_session() {
    let world = World::start(|_| {}).await;
    let a = world.open("a").await.token;
    let b = world.open("b").await.token;
    let check = |id: &str, token: &[u8]| world.sessions.check_token(&sid(id), token);
    assert!(check("a", a.as_bytes()) && check("b", b.as_bytes()));
    assert!(!check("a", b.as_bytes()) && !check("nobody", a.as_bytes()));
    assert!(!check("a", &[0xE9]) && !check("a", b""));
    assert_ne!(SessionId::generate(), SessionId::generate());
}

#[tokio::test(start_paused = true)]
async fn settings_that_contradict_each_other_are_refused() {
    let world = World::start(|_| {}).await;
    let mut service = (*world.sessions.service()).clone();
    service.evict_idle_after = Some(5);
    let refused = world.sessions.update_service(service.clone()).unwrap_err();
    assert!(refused.to_string().contains("workspace_root"));
    service.evict_idle_after = None;
    service.max_sessions = Some(1);
    world.sessions.update_service(service).unwrap();
    world.open("a").await;
    assert_eq!(
        world.try_open("b").await.unwrap_err(),
        OpenError::ResidentLimit(1),
        "a ceiling that was changed while the service runs holds"
    );
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_everything_and_refuses_what_is_new() {
    let world = World::start(|_| {}).await;
    for n in 0..20 {
        world.open(&format!("s{n}")).await;
    }
    let sessions = world.sessions.clone();
    let busy = tokio::spawn(async move {
        sessions
            .run(&sid("s3"), crate::support::argv(&["sleep", "1000"]))
            .await
    });
    assert!(still_waits(&busy).await);
    world.sessions.shutdown().await;
    assert_eq!(world.backend.sandbox_count(), 0);
    assert_eq!(busy.await.unwrap(), Err(UseError::Gone(sid("s3"))));
    assert_eq!(
        world.try_open("late").await.unwrap_err(),
        OpenError::ShuttingDown
    );
}
