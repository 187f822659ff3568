//! Sleep, death, limits, ends.

use crate::place::{Kind, Place, names_in, shown, sid};
use sandboxd_server::backends::{Ceiling, Enforcement};
use sandboxd_server::sessions::{Open, OpenError, RunDone, UseError};
use std::time::Duration;

pub(crate) async fn sleep_keeps_files(kind: Kind) {
    let place = Place::open(kind).await;
    let token = place.session("a").await.token;
    for round in 0..3 {
        place
            .out(
                "a",
                &format!("mkdir -p d && echo {round} >> d/f && echo x > /tmp/t"),
            )
            .await;
        place.put_to_sleep("a").await;
        assert!(
            place.backend.list().await.unwrap().is_empty(),
            "nothing runs"
        );
        let lines = place.out("a", "cat d/f").await;
        assert_eq!(lines.lines().count(), round + 1);
        let gone = place.sh("a", "test -e /tmp/t").await;
        assert!(
            matches!(gone, RunDone::Finished { code: 1, .. }),
            "{}",
            shown(&gone)
        );
        assert!(place.sessions.check_token(&sid("a"), token.as_bytes()));
    }
    place.close().await;
}

pub(crate) async fn eviction_keeps_files(kind: Kind) {
    let place = Place::open_with(kind, |service| {
        service.max_sessions = Some(2);
        service.evict_idle_after = Some(0);
    })
    .await;
    for id in ["a", "b", "c", "d"] {
        place.session(id).await;
        place.out(id, &format!("echo of {id} > f")).await;
        assert!(place.backend.list().await.unwrap().len() <= 2);
    }
    for id in ["a", "b", "c", "d", "a"] {
        assert_eq!(place.out(id, "cat f").await, format!("of {id}\n"));
        assert!(place.backend.list().await.unwrap().len() <= 2);
    }
    place.close().await;
}

pub(crate) async fn a_dead_sandbox_is_healed_or_lost(kind: Kind) {
    let place = Place::open(kind).await;
    place.session("a").await;
    place.out("a", "echo kept > f").await;
    place.kill_sandboxes();
    place
        .until("noticed", |p| !p.sessions.get(&sid("a")).unwrap().alive)
        .await;
    assert_eq!(place.out("a", "cat f").await, "kept\n");
    place.close().await;

    let place = Place::open_with(kind, |service| service.workspace_root = None).await;
    place.session("a").await;
    place.session("b").await;
    place.kill_sandboxes();
    place
        .until("noticed", |p| !p.sessions.get(&sid("a")).unwrap().alive)
        .await;
    for _ in 0..2 {
        let gone = place.run("a", &["true"]).await;
        assert_eq!(gone, Err(UseError::Gone(sid("a"))));
    }
    place.sessions.delete(&sid("a"), false).await.unwrap();
    place.session("a").await;
    assert_eq!(place.out("a", "echo anew").await, "anew\n");
    place.close().await;
}

pub(crate) async fn limits_are_reported_or_refused(kind: Kind) {
    let place = Place::open_with(kind, |service| {
        service.ceilings.values.memory_bytes = Some(200 * 1024 * 1024);
        service.ceilings.memory_explicit = true;
    })
    .await;
    let can = place.backend.capabilities().await;
    let opened = place.sessions.open(Open::default()).await;
    match can.ceilings.get(&Ceiling::Memory) {
        Some(Enforcement::Enforced(_)) => {
            let enforced = opened.unwrap().session.enforced;
            assert!(
                matches!(
                    enforced.get(&Ceiling::Memory),
                    Some(Enforcement::Enforced(_))
                ),
                "{enforced:?}"
            );
        }
        _ => {
            let refused = opened.unwrap_err();
            assert!(
                matches!(&refused, OpenError::Start(cause) if cause.contains("memory")),
                "{refused}"
            );
        }
    }
    place.close().await;
    // What nobody asked for is only reported.
    let place = Place::open(kind).await;
    let enforced = place.session("a").await.session.enforced;
    assert!(
        matches!(
            enforced.get(&Ceiling::Network),
            Some(Enforcement::Enforced(_))
        ),
        "{enforced:?}"
    );
    place.close().await;
}

pub(crate) async fn memory_over_the_ceiling_ends_the_program_and_not_the_session(kind: Kind) {
    let place = Place::open_with(kind, |service| {
        service.ceilings.values.memory_bytes = Some(96 * 1024 * 1024);
        service.ceilings.memory_explicit = false;
    })
    .await;
    let enforced = place.session("a").await.session.enforced;
    let really = matches!(
        enforced.get(&Ceiling::Memory),
        Some(Enforcement::Enforced(_))
    );
    if !place.has_processes() || !really {
        place.close().await;
        return;
    }
    // tail keeps a line without an end in memory.
    let done = place
        .sh(
            "a",
            "head -c 400000000 /dev/zero | tail -n 1 | wc -c; echo on",
        )
        .await;
    let RunDone::Finished { stdout, .. } = &done else {
        panic!("{}", shown(&done));
    };
    assert!(
        !String::from_utf8_lossy(stdout).contains("400000000"),
        "{}",
        shown(&done)
    );
    assert_eq!(place.out("a", "echo on").await, "on\n");
    place.close().await;
}

pub(crate) async fn usage_is_sampled(kind: Kind) {
    let place = Place::open(kind).await;
    let enforced = place.session("a").await.session.enforced;
    let usage = place.sessions.usage(&[sid("a"), sid("nobody")]).await;
    assert!(usage[1].is_none());
    let really = |ceiling| matches!(enforced.get(&ceiling), Some(Enforcement::Enforced(_)));
    if really(Ceiling::Memory) {
        let usage = usage[0].unwrap().usage;
        assert!(usage.memory_bytes.unwrap() > 0, "{usage:?}");
        assert!(usage.memory_limit_bytes.unwrap() > 0, "{usage:?}");
    }
    place.put_to_sleep("a").await;
    assert_eq!(place.sessions.usage(&[sid("a")]).await, [None]);
    place.close().await;
}

/// What is stored is counted where something limits it: by the time somebody looks twice there is a figure.
pub(crate) async fn what_is_stored_is_told(kind: Kind) {
    let place = Place::open(kind).await;
    if !place.has_processes() {
        return place.close().await;
    }
    place.session("a").await;
    place.out("a", "head -c 3000000 /dev/zero > big").await;
    let found = place.backend.list().await.expect("a list");
    let running = found.into_iter().find(|found| found.running);
    let ids = [running.expect("a sandbox").id];
    let counted = async {
        loop {
            let usage = place.backend.usage(&ids).await.remove(0).expect("usage");
            if usage.disk_bytes.is_some_and(|bytes| bytes >= 3_000_000) {
                return usage;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let usage = tokio::time::timeout(Duration::from_secs(60), counted)
        .await
        .expect("counted in time");
    assert!(usage.disk_bytes < Some(30_000_000), "{usage:?}");
    assert!(usage.disk_files >= Some(2), "{usage:?}");
    place.close().await;
}

pub(crate) async fn a_closed_session_leaves_nothing(kind: Kind) {
    let place = Place::open(kind).await;
    // What the first one makes for all of them may stay.
    place.session("first").await;
    let before = names_below(&place);
    place.session("a").await;
    place.out("a", "echo x > f; echo x > /tmp/t").await;
    if place.has_processes() {
        let script = "mkdir -p locked/in && touch locked/in/f && chmod 000 locked/in locked";
        place.out("a", script).await;
    }
    place.sessions.delete(&sid("a"), true).await.unwrap();
    assert_eq!(place.backend.list().await.unwrap().len(), 1);
    assert!(!place.stored("a").exists());
    if place.has_processes() {
        assert_eq!(place.sandbox_processes().len(), 1, "only the first one's");
        assert_eq!(names_below(&place), before);
    }
    place.session("b").await;
    place.sessions.delete(&sid("b"), false).await.unwrap();
    assert!(place.stored("b").exists(), "its workspace is kept");
    place.close().await;
}

/// Everything in the state directory, two levels deep.
fn names_below(place: &Place) -> Vec<String> {
    let top = place.state_dir();
    let mut all = Vec::new();
    for name in names_in(&top) {
        for below in names_in(&top.join(&name)) {
            all.push(format!("{name}/{below}"));
        }
        all.push(name);
    }
    all
}

pub(crate) async fn a_shutdown_leaves_nothing(kind: Kind) {
    let place = Place::open(kind).await;
    for n in 0..4 {
        place.session(&format!("s{n}")).await;
    }
    if place.has_processes() {
        place.sh("s0", "setsid sleep 98765 & echo").await;
        assert_eq!(place.sandbox_processes().len(), 4);
    }
    place.sessions.shutdown().await;
    assert!(place.backend.list().await.unwrap().is_empty());
    for _ in 0..100 {
        if place.sandbox_processes().is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(place.sandbox_processes().is_empty());
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let state = place.state_dir();
    assert!(!mounts.contains(state.to_str().unwrap()), "a mount is left");
}

pub(crate) async fn a_session_from_the_pool_is_as_any_other(kind: Kind) {
    let root = rustix::process::geteuid().is_root();
    let place = Place::open_with(kind, |service| {
        let first = service.default_runtime.clone();
        service.runtimes.retain(|alias, _| *alias == first);
        service.pool = 2;
    })
    .await;
    // An ordinary user's have no stored files, and an engine has no pool: sessions are made when they are asked for.
    let filled = match kind {
        Kind::InMemory => true,
        Kind::Namespaces => root,
        Kind::Docker => false,
    };
    if filled {
        let ready = |place: &Place| place.sessions.parked().values().sum::<usize>() == 2;
        place.until("filled", ready).await;
    }
    assert!(place.sessions.list().is_empty());
    assert!(place.backend.list().await.unwrap().is_empty());
    for id in ["a", "b"] {
        place.session(id).await;
        place
            .out(id, &format!("pwd; echo of {id} > f; echo x > /tmp/f"))
            .await;
    }
    let states = place.sessions.states();
    let figures = place.sessions.metrics().render(states);
    let hits = |line: &str| line.starts_with("sandboxd_pool_hits_total{") && line.ends_with(" 2");
    assert_eq!(figures.lines().any(hits), filled, "{figures}");
    assert_eq!(place.backend.list().await.unwrap().len(), 2);
    for id in ["a", "b"] {
        let stored = std::fs::read_to_string(place.stored(id).join("f")).unwrap();
        assert_eq!(stored, format!("of {id}\n"));
        place.put_to_sleep(id).await;
        assert_eq!(place.out(id, "cat f").await, format!("of {id}\n"));
        let gone = place.sh(id, "test -e /tmp/f").await;
        assert!(
            matches!(gone, RunDone::Finished { code: 1, .. }),
            "{}",
            shown(&gone)
        );
        place.sessions.delete(&sid(id), true).await.unwrap();
    }
    assert!(place.backend.list().await.unwrap().is_empty());
    place.sessions.shutdown().await;
    assert!(
        place.sandbox_processes().is_empty(),
        "also what was nobody's ends"
    );
}

pub(crate) async fn sessions_do_not_see_each_other(kind: Kind) {
    let place = Place::open(kind).await;
    place.session("a").await;
    place.session("b").await;
    place
        .out("a", "echo secret > f; echo secret > /tmp/f")
        .await;
    let seen = place.sh("b", "test -e f || test -e /tmp/f").await;
    assert!(
        matches!(seen, RunDone::Finished { code: 1, .. }),
        "{}",
        shown(&seen)
    );
    if place.has_processes() {
        place.sh("a", "sleep 98766 & echo").await;
        let others = place
            .out(
                "b",
                "for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $f; echo; done",
            )
            .await;
        assert!(!others.contains("98766"), "{others}");
        let root = place
            .sh("b", "ls /root /home /var/lib 2>/dev/null | head")
            .await;
        let RunDone::Finished { stdout, .. } = &root else {
            panic!("{}", shown(&root));
        };
        let listed = String::from_utf8_lossy(stdout);
        // What an image brings of its own is none of the host's.
        let is_hosts = place.shows_the_host() && listed.contains("dpkg");
        assert!(!is_hosts && !listed.contains(".cargo"), "{listed}");
        let state = place.state_dir().display().to_string();
        let seen = place.sh("b", &format!("test -e {state}")).await;
        assert!(
            matches!(seen, RunDone::Finished { code: 1, .. }),
            "{}",
            shown(&seen)
        );
    }
    place.close().await;
}

pub(crate) async fn nothing_is_reached_on_a_network(kind: Kind) {
    let place = Place::open(kind).await;
    if !place.has_processes() {
        return;
    }
    place.session("a").await;
    let devices = place.out("a", "cat /proc/net/dev").await;
    let names: Vec<&str> = devices
        .lines()
        .skip(2)
        .filter_map(|line| line.split(':').next())
        .map(str::trim)
        .collect();
    assert!(names.contains(&"lo"), "{devices}");
    let routes = place.out("a", "cat /proc/net/route").await;
    assert_eq!(routes.lines().count(), 1, "{routes}");
    place.close().await;
}
