//! Ceilings passed by asking many times at once, and the service worn out by what it has to remember.

use crate::place::Place;
use crate::wire::TOKEN;
use futures::StreamExt as _;
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
    // Ids by the thousand, of sessions that there are not.
    for number in 0..300 {
        let reply = place.get(&format!("/sessions/none-{number}")).await;
        assert_eq!(reply.status, 404);
    }
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
