//! Sessions that come and go, many at once.

use crate::wire::{Reply, Service, TOKEN, raw, run_id};
use futures::future::join_all;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// So many opens at once while no sandbox gets ready; gives the statuses when all are answered.
async fn burst(service: &Service, opens: usize, tenant: Value) -> Vec<u16> {
    let gate = service.switches().hold_creates();
    let open = |n: usize| {
        service.post(
            "/sessions",
            json!({"session_id": format!("s{n}"), "tenant": tenant}),
        )
    };
    let opener = join_all((0..opens).map(open));
    let release = async {
        // Long enough for all to have asked; if it is not, the count is the same.
        tokio::time::sleep(Duration::from_millis(300)).await;
        gate.add_permits(opens);
    };
    let (replies, ()) = tokio::join!(opener, release);
    replies.iter().map(|reply| reply.status).collect()
}

fn count(statuses: &[u16], status: u16) -> usize {
    statuses.iter().filter(|found| **found == status).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_gets_exactly_as_many_sandboxes_as_there_may_be() {
    let service = Service::start(&[("SANDBOXD_MAX_SESSIONS", "4")]).await;
    let statuses = burst(&service, 5, Value::Null).await;
    assert_eq!((count(&statuses, 200), count(&statuses, 429)), (4, 1));
    assert_eq!(service.backend.made_count(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenants_burst_gets_as_many_sessions_as_it_may_have() {
    let service = Service::start(&[("SANDBOXD_MAX_SESSIONS_PER_TENANT", "2")]).await;
    let statuses = burst(&service, 10, json!("acme")).await;
    assert_eq!((count(&statuses, 200), count(&statuses, 429)), (2, 8));
    assert_eq!(service.backend.made_count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_ends_an_open_that_nobody_waits_for() {
    let service = Service::start(&[]).await;
    let gate = service.switches().hold_creates();
    let body = json!({"session_id": "a"});
    let request = service.request("POST", "/sessions").json(&body).send();
    let hung_up = tokio::time::timeout(Duration::from_millis(300), request).await;
    assert!(hung_up.is_err(), "the sandbox is held");
    let backend = service.backend.clone();
    let down = tokio::spawn(service.shut_down());
    gate.add_permits(1);
    down.await.expect("it ends");
    assert_eq!(backend.sandbox_count(), 0);
}

/// What a session is when it is deleted.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Condition {
    Running,
    Dead,
    Hibernated,
}

async fn bring_into(service: &Service, id: &str, condition: Condition) {
    match condition {
        Condition::Running => {}
        Condition::Dead => {
            service.backend.kill_all();
            let mut shown = service.get(&format!("/sessions/{id}")).await.ok();
            for _ in 0..500 {
                if shown["alive"] == false {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
                shown = service.get(&format!("/sessions/{id}")).await.ok();
            }
            panic!("never dead: {shown}");
        }
        Condition::Hibernated => {
            service.open("filler").await;
            let shown = service.get(&format!("/sessions/{id}")).await.ok();
            assert_eq!(shown["state"], "hibernated");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delete_is_204_whatever_the_session_is_and_whoever_may_asks() {
    let service = Service::start(&[
        ("SANDBOXD_MAX_SESSIONS", "1"),
        ("SANDBOXD_EVICT_IDLE_AFTER", "0"),
    ])
    .await;
    let conditions = [Condition::Running, Condition::Dead, Condition::Hibernated];
    for condition in conditions {
        for purge in [false, true] {
            for own in [false, true] {
                let case = format!("{condition:?}, purge {purge}, own token {own}");
                let id = format!("{condition:?}-{purge}-{own}");
                let session = service.open(&id).await;
                bring_into(&service, &id, condition).await;
                let path = format!("/sessions/{id}?purge={purge}");
                let token = if own { session.as_str() } else { TOKEN };
                let reply = service.bare("DELETE", &path).token(token).send().await;
                assert_eq!((reply.status, reply.text().as_str()), (204, ""), "{case}");
                assert_eq!(
                    service.get(&format!("/sessions/{id}")).await.status,
                    404,
                    "{case}"
                );
                let kept = service.root.join(&id).join("workspace").exists();
                assert_eq!(kept, !purge, "{case}");
                if condition == Condition::Hibernated {
                    let filler = service.request("DELETE", "/sessions/filler");
                    filler.send().await.nothing();
                }
                assert_eq!(service.backend.sandbox_count(), 0, "{case}");
            }
        }
    }
}

/// One thing that a client may do to the session `x`.
async fn act(service: &Service, what: usize) -> (Reply, &'static [u16]) {
    let x = "/sessions/x";
    let run = json!({"argv": ["true"], "run_id": run_id(7)});
    match what % 9 {
        0 => (
            service.post("/sessions", json!({"session_id": "x"})).await,
            &[200, 409],
        ),
        1 => (
            service
                .post("/sessions", json!({"session_id": "x", "reuse": true}))
                .await,
            &[200, 409],
        ),
        2 => (service.request("DELETE", x).send().await, &[204, 404]),
        3 => (
            service.post(&format!("{x}/run"), run).await,
            &[200, 404, 410],
        ),
        4 => (
            service
                .post(&format!("{x}/exec"), json!({"command": "true"}))
                .await,
            &[200, 404, 410],
        ),
        5 => (
            service.get(&format!("{x}/events?after=0")).await,
            &[200, 404],
        ),
        6 => (service.get(&format!("{x}?usage=true")).await, &[200, 404]),
        7 => (service.get("/sessions?usage=true").await, &[200]),
        _ => (
            service
                .post(&format!("{x}/files/list"), json!({"path": "/workspace"}))
                .await,
            &[200, 404, 409],
        ),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_done_to_one_id_at_once_every_answer_is_one_of_the_contracts() {
    let service = Arc::new(Service::start(&[]).await);
    let mut clients = JoinSet::new();
    for client in 0..9 {
        let service = service.clone();
        clients.spawn(async move {
            for round in 0..30 {
                // Each client walks over all of it, at a stride of its own.
                let what = client + round * (client % 4 + 1);
                let (reply, fine) = act(&service, what).await;
                assert!(
                    fine.contains(&reply.status),
                    "{}: {} {}",
                    what % 9,
                    reply.status,
                    reply.text()
                );
            }
        });
    }
    while let Some(ended) = clients.join_next().await {
        ended.expect("every answer was fine");
    }
    let last = service.request("DELETE", "/sessions/x").send().await;
    assert!([204, 404].contains(&last.status));
    assert_eq!(service.backend.sandbox_count(), 0, "none is left over");
    assert_eq!(service.get("/healthz").await.ok()["open_sessions"], 0);
    service.open("x").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_no_ascii_is_a_wrong_token() {
    let service = Service::start(&[]).await;
    service.open("a").await;
    let routes = [
        "GET /sessions",
        "POST /sessions",
        "GET /policy",
        "GET /sessions/a",
        "DELETE /sessions/a",
        "GET /sessions/a/events",
        "POST /sessions/a/run",
        "POST /sessions/a/exec",
        "POST /sessions/a/files/read",
        "POST /workspaces/a/ls",
    ];
    for route in routes {
        for header in ["X-Sandbox-Token: ", "Authorization: Bearer "] {
            let mut wire = format!("{route} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{header}")
                .into_bytes();
            wire.extend_from_slice(b"\xe9\r\nContent-Length: 0\r\n\r\n");
            let reply = raw(service.addr, &wire).await;
            assert_eq!(reply.status, 401, "{route} {header}: {}", reply.text());
        }
    }
    assert_eq!(service.get("/sessions/a").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_ceiling_is_the_next_sandboxs_and_not_a_running_ones() {
    let service = Service::start(&[("SANDBOXD_MEM_LIMIT", "256m")]).await;
    service.open("old").await;
    let change = service
        .request("PUT", "/policy")
        .json(&json!({"mem_limit": "512m"}))
        .send()
        .await;
    change.ok();
    service.open("new").await;
    let limit = async |id: &str| {
        let shown = service.get(&format!("/sessions/{id}?usage=true")).await;
        shown.ok()["usage"]["memory_limit_bytes"].clone()
    };
    assert_eq!(limit("old").await, 256 << 20);
    assert_eq!(limit("new").await, 512 << 20);
}
