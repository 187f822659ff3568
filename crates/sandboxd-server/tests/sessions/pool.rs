//! Sandboxes that are kept ready: how many, of which kind, for whom.

use crate::support::{World, sid};
use sandboxd_server::backends::Room;
use sandboxd_server::sessions::OpenError;
use std::time::Duration;

impl World {
    fn ready(&self) -> usize {
        self.sessions.parked().values().sum()
    }

    /// A figure of this service.
    fn figure(&self, name: &str) -> u64 {
        let text = self.sessions.metrics().render(self.sessions.states());
        let lines = text.lines().filter(|line| line.starts_with(name));
        let numbers = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        numbers.sum()
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_kept_ready_unless_somebody_says_so() {
    let world = World::start(|_| {}).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.ready(), 0);
    world.open("a").await;
    assert_eq!(world.figure("sandboxd_pool_hits_total"), 0);
    assert_eq!(world.figure("sandboxd_pool_misses_total"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_session_gets_one_that_is_ready_and_it_is_replaced() {
    let world = World::with_workspaces(|service| {
        service
            .runtimes
            .retain(|alias, _| *alias == service.default_runtime);
        service.pool = 2;
    })
    .await;
    world
        .until("two are ready", |world| world.ready() == 2)
        .await;
    world.open("a").await;
    assert_eq!(world.out("a", "pwd").await, "/workspace\n");
    world.until("replaced", |world| world.ready() == 2).await;
    assert_eq!(world.figure("sandboxd_pool_hits_total"), 1);
    // A session that sleeps without a layer wakes in one, too.
    world.out("a", "echo kept > f").await;
    world.sessions.hibernate(&sid("a")).await.unwrap();
    world
        .until("asleep", |world| world.sessions.is_hibernated(&sid("a")))
        .await;
    assert_eq!(world.out("a", "cat f").await, "kept\n");
    assert_eq!(world.figure("sandboxd_pool_hits_total"), 2);
    assert_eq!(world.figure("sandboxd_pool_misses_total"), 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_ready_takes_no_sessions_place() {
    let world = World::start(|service| {
        service.pool = 3;
        service.max_sessions = Some(1);
        service.max_open_sessions = Some(1);
    })
    .await;
    world.until("ready", |world| world.ready() >= 3).await;
    assert!(world.sessions.list().is_empty());
    assert_eq!(world.sessions.counts().resident, 0);
    world.open("a").await;
    let refused = world.try_open("b").await;
    assert!(
        matches!(refused, Err(OpenError::OpenLimit(1))),
        "{refused:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_changed_ceiling_holds_for_the_next_session_and_replaces_what_is_ready() {
    let world = World::start(|service| {
        service
            .runtimes
            .retain(|alias, _| *alias == service.default_runtime);
        service.pool = 2;
    })
    .await;
    world.until("ready", |world| world.ready() == 2).await;
    let mut changed = (*world.sessions.service()).clone();
    changed.ceilings.values.memory_bytes = Some(123 << 20);
    changed.ceilings.memory_explicit = true;
    world.sessions.update_service(changed.clone()).unwrap();
    // Asked at once, before anything was replaced: the former ones fit nobody any more.
    world.open("a").await;
    let spec = world.view("a").spec.unwrap();
    assert_eq!(spec.memory_bytes.unwrap().value, 123 << 20);
    let of_now = |world: &World| {
        let parked = world.backend.parked();
        let memory = parked
            .iter()
            .map(|(_, spec)| spec.memory_bytes.unwrap().value);
        parked.len() == 2 && memory.into_iter().all(|bytes| bytes == 123 << 20)
    };
    world.until("replaced", of_now).await;
    // A smaller pool, and none.
    changed.pool = 1;
    world.sessions.update_service(changed.clone()).unwrap();
    world.until("smaller", |world| world.ready() == 1).await;
    changed.pool = 0;
    world.sessions.update_service(changed).unwrap();
    world.until("none", |world| world.ready() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn each_runtime_has_its_own_number_and_waits_for_its_image() {
    let mut aliases = Vec::new();
    let world = World::start(|service| {
        service.pool = 1;
        aliases = service.runtimes.keys().cloned().collect();
        service.runtimes.get_mut(&aliases[0]).unwrap().pool = Some(3);
        service.runtimes.get_mut(&aliases[1]).unwrap().pool = Some(0);
    })
    .await;
    let switches = world.backend.switches();
    assert!(aliases.len() > 2, "{aliases:?}");
    switches.miss_image(&aliases[2], "somewhere else");
    world.backend.lose_parked();
    let count = |world: &World, alias: &str| world.sessions.parked().get(alias).copied();
    world
        .until("three", |world| count(world, &aliases[0]) == Some(3))
        .await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(count(&world, &aliases[1]), None);
    assert_eq!(count(&world, &aliases[2]), None);
    switches.find_image(&aliases[2]);
    world
        .until("its image is there", |world| {
            count(world, &aliases[2]) == Some(1)
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn what_died_is_replaced() {
    let world = World::start(|service| service.pool = 1).await;
    let all = world.sessions.service().runtimes.len();
    world.until("ready", |world| world.ready() == all).await;
    world.backend.lose_parked();
    assert_eq!(world.ready(), 0);
    world.open("a").await;
    assert_eq!(world.figure("sandboxd_pool_misses_total"), 1);
    world.until("replaced", |world| world.ready() == all).await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_made_is_tried_again_after_longer_and_longer_pauses() {
    let world = World::start(|service| {
        service
            .runtimes
            .retain(|alias, _| *alias == service.default_runtime);
    })
    .await;
    let switches = world.backend.switches();
    switches.fail_creates(Some("no room"));
    let mut changed = (*world.sessions.service()).clone();
    changed.pool = 1;
    world.sessions.update_service(changed).unwrap();
    tokio::time::sleep(Duration::from_secs(600)).await;
    // 1 + 2 + 4 + ... + 60 + 60 ...: about a dozen and a half in ten minutes, not thousands.
    let tried = switches.create_attempts();
    assert!((8..=20).contains(&tried), "{tried}");
    switches.fail_creates(None);
    world
        .until("it is mended", |world| world.ready() == 1)
        .await;
}

#[tokio::test(start_paused = true)]
async fn what_nobody_has_asked_for_yields_where_memory_is_short() {
    let world = World::start(|service| {
        service
            .runtimes
            .retain(|alias, _| *alias == service.default_runtime);
        service.pool = 2;
    })
    .await;
    world.until("ready", |world| world.ready() == 2).await;
    let switches = world.backend.switches();
    // What is there stays and is used; no more are made.
    switches.leave_room(Room::Scarce);
    world.open("a").await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(world.ready(), 1);
    assert_eq!(world.figure("sandboxd_pool_hits_total"), 1);
    switches.leave_room(Room::Short);
    world.until("given up", |world| world.ready() == 0).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(world.ready(), 0);
    // A session is made its own all the same.
    world.open("b").await;
    switches.leave_room(Room::Enough);
    world.until("ready again", |world| world.ready() == 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_service_that_ends_keeps_nothing_ready() {
    let world = World::start(|service| service.pool = 2).await;
    world.until("ready", |world| world.ready() > 2).await;
    world.sessions.finish().await;
    world.backend.lose_parked();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(world.ready(), 0, "one that ends makes no more");
    world.sessions.shutdown().await;
    assert_eq!(world.ready(), 0);
}
