//! Ceilings passed by asking many times at once, and the service worn out by what it has to remember.

use crate::fast::Fast;
use crate::place::Place;
use crate::wire::TOKEN;
use futures::StreamExt as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

pub(crate) async fn ceilings_hold_against_many_at_once() {
    let place = Place::open_with(&[
        ("SANDBOXD_MAX_SESSIONS", "4"),
        ("SANDBOXD_MAX_OPEN_SESSIONS", "4"),
        ("SANDBOXD_MAX_SESSIONS_PER_TENANT", "2"),
    ])
    .await;
    let opens = (0..40).map(|number| {
        let tenant = format!("t{}", number % 2);
        let place = &place;
        async move {
            let body = json!({"session_id": format!("s{number}"), "tenant": tenant});
            place.post("/sessions", body).await.status
        }
    });
    let statuses: Vec<u16> = futures::stream::iter(opens).buffer_unordered(40).collect().await;
    let opened = statuses.iter().filter(|status| **status == 200).count();
    assert_eq!(opened, 4, "{statuses:?}");
    assert!(statuses.iter().all(|status| [200, 429, 503].contains(status)), "{statuses:?}");
    let list = place.get("/sessions").await.ok();
    assert_eq!(list["sessions"].as_array().unwrap().len(), 4);
    for tenant in ["t0", "t1"] {
        let of = list["sessions"].as_array().unwrap().iter().filter(|session| session["tenant"] == tenant);
        assert_eq!(of.count(), 2, "{list}");
    }
    // One that reaches its ceiling again and again takes nothing from the others.
    assert_eq!(crate::outside::guests().len(), 4);
    let first = list["sessions"][0]["session_id"].as_str().unwrap().to_owned();
    place.purge(&first).await;
    place.post("/sessions", json!({"session_id": "again", "tenant": list["sessions"][0]["tenant"]})).await.ok();
    place.close().await;
}

pub(crate) async fn what_is_too_long_or_never_ends_is_given_up() {
    let place = Place::open().await;
    place.session("a").await;
    for id in ["x".repeat(65), "x".repeat(20_000), "é".repeat(64), "a b".to_owned(), String::new()] {
        let reply = place.post("/sessions", json!({ "session_id": id })).await;
        assert!([422, 431].contains(&reply.status), "{}", reply.text());
    }
    // Bodies that stop half-way, heads that stop half-way, and connections that say nothing: many, all kept waiting.
    let mut idle = Vec::new();
    for number in 0..200 {
        let mut stream = tokio::net::TcpStream::connect(place.addr).await.unwrap();
        let text = match number % 3 {
            0 => format!("POST /sessions/a/run HTTP/1.1\r\nHost: x\r\nX-Sandbox-Token: {TOKEN}\r\nContent-Length: 100000\r\n\r\n{{"),
            1 => "GET /healthz HTTP/1.1\r\nHost: x\r\nX-".to_owned(),
            _ => String::new(),
        };
        stream.write_all(text.as_bytes()).await.unwrap();
        idle.push(stream);
    }
    // Whoever says what they want is answered meanwhile.
    assert_eq!(place.says("a", "echo served").await, "served");
    assert_eq!(place.get("/healthz").await.status, 200);
    drop(idle);
    place.close().await;
}

/// What this process, and with it the service, has in memory, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix("kB").unwrap().trim().parse::<u64>().unwrap() * 1024
}

pub(crate) async fn nothing_is_remembered_of_a_hundred_thousand_ids() {
    let place = Place::open().await;
    place.session("a").await;
    let mut connection = Fast::connect(place.addr).await;
    let mut before = 0;
    for batch in 0..1_000 {
        // Buffers, caches and threads are there by now.
        if batch == 200 {
            before = resident();
        }
        let paths = (0..100).map(|number| format!("/sessions/none-{batch}-{number}"));
        let statuses = connection.get_all(paths).await;
        assert!(statuses.iter().all(|status| *status == 404), "{statuses:?}");
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < 8 << 20, "{grown} bytes for eighty thousand ids");
    assert_eq!(place.says("a", "echo served").await, "served");
    place.close().await;
}

pub(crate) async fn whoever_only_holds_a_connection_costs_little() {
    /// Fewer where this process may not have descriptors for both ends of so many.
    const IDLE: usize = 4_000;
    const EACH_MAX: u64 = 64 * 1024;
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let most = limit.maximum.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
    let idle = IDLE.min(most.saturating_sub(500) / 2);
    assert!(idle > 200, "{idle}");
    let place = Place::open().await;
    place.session("a").await;
    let mut held = Vec::with_capacity(idle);
    let before = resident();
    for _ in 0..idle {
        // Each has been served once, and stays.
        let mut connection = Fast::connect(place.addr).await;
        let statuses = connection.get_all(std::iter::once("/healthz".to_owned())).await;
        assert_eq!(statuses, [200]);
        held.push(connection);
    }
    // Both ends, since both are of this process.
    let each = resident().saturating_sub(before) / idle as u64;
    assert!(each < EACH_MAX, "{each} bytes for each of {idle}");
    assert_eq!(place.says("a", "echo served").await, "served");
    assert_eq!(held[0].get_all(std::iter::once("/healthz".to_owned())).await, [200]);
    drop(held);
    place.close().await;
}
