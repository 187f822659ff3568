//! Labels, a session's own time, and sleep by call.

use crate::support::{Service, run_id};
use serde_json::{Value, json};

fn ids(list: &Value) -> Vec<&str> {
    let rows = list["sessions"].as_array().expect("a list").iter();
    rows.map(|row| row["session_id"].as_str().expect("an id"))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_are_shown_and_listed_by() {
    let service = Service::start(&[]).await;
    for (id, labels) in [
        ("a", json!({ "user": "4 2", "kind": "chat" })),
        ("b", json!({ "user": "4 2" })),
        ("c", json!({ "kind": "a=b" })),
        ("d", Value::Null),
    ] {
        let body = json!({ "session_id": id, "labels": labels });
        service.post("/sessions", body).await.ok();
    }
    let shown = service.get("/sessions/a").await.ok();
    assert_eq!(shown["labels"], json!({ "user": "4 2", "kind": "chat" }));
    assert_eq!(service.get("/sessions/d").await.ok()["labels"], json!({}));
    for (query, expected) in [
        ("", &["a", "b", "c", "d"][..]),
        ("?label=user%3D4+2", &["a", "b"]),
        ("?label=user=4%202&label=kind=chat", &["a"]),
        ("?label=kind", &["a", "c"]),
        ("?label=kind=a=b&usage=true", &["c"]),
        ("?label=user=", &[]),
        ("?label=nobody", &[]),
    ] {
        let list = service.get(&format!("/sessions{query}")).await.ok();
        assert_eq!(ids(&list), expected, "{query}");
    }
    for query in [
        "?label=",
        "?label==x",
        "?label=a%00b=c",
        "?label=kind&label=-",
    ] {
        let refused = service.get(&format!("/sessions{query}")).await;
        assert!(refused.refused(422).contains("label"), "{query}");
    }
    // A session that is open keeps its labels and its end.
    let again =
        json!({ "session_id": "a", "reuse": true, "labels": { "x": "y" }, "ttl_seconds": 5 });
    let again = service.post("/sessions", again).await.ok();
    assert_eq!(again["session"]["labels"], shown["labels"]);
    assert_eq!(again["session"]["expires_at"], json!(null));
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_and_times_that_do_not_fit_are_refused_by_name_and_nothing_is_opened() {
    let service = Service::start(&[]).await;
    let many: serde_json::Map<String, Value> =
        (0..17).map(|n| (format!("l{n}"), json!("x"))).collect();
    for (field, value) in [
        ("labels", json!(["a"])),
        ("labels", json!({ "a": 1 })),
        ("labels", json!({ "not a name": "x" })),
        ("labels", json!({ "a": "x".repeat(201) })),
        ("labels", json!({ "a": "one\ntwo" })),
        ("labels", json!(many)),
        ("ttl_seconds", json!(0)),
        ("ttl_seconds", json!(-1)),
        ("ttl_seconds", json!(1.5)),
        ("ttl_seconds", json!(315_360_001)),
    ] {
        let body = json!({ "session_id": "a", field: value });
        let refused = service.post("/sessions", body).await.refused(422);
        assert!(refused.contains(field), "{field} {value}: {refused}");
    }
    assert_eq!(ids(&service.get("/sessions").await.ok()), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_service_says_anew_when_a_session_ends() {
    let service = Service::start(&[]).await;
    let body = json!({ "session_id": "a", "ttl_seconds": 3600 });
    let opened = service.post("/sessions", body).await.ok();
    let token = opened["token"].as_str().expect("a token");
    let of = |session: &Value| session["expires_at"].as_f64();
    let created = opened["session"]["created_at"].as_f64().expect("a time");
    assert_eq!(of(&opened["session"]), Some(created + 3600.0));

    let renew = |body: Value| service.post("/sessions/a/renew", body);
    let renewed = renew(json!({ "ttl_seconds": 7200 })).await.ok();
    assert!(of(&renewed) >= Some(created + 7200.0), "{renewed}");
    assert_eq!(of(&service.get("/sessions/a").await.ok()), of(&renewed));
    assert_eq!(of(&renew(json!({ "ttl_seconds": null })).await.ok()), None);

    for (body, status) in [(json!({}), 422), (json!({ "ttl_seconds": 0 }), 422)] {
        assert!(renew(body).await.refused(status).contains("ttl_seconds"));
    }
    let own = service
        .bare("POST", "/sessions/a/renew")
        .token(token)
        .json(&json!({ "ttl_seconds": 10 }));
    own.send().await.refused(401);
    let nobody = service.post("/sessions/x/renew", json!({ "ttl_seconds": 1 }));
    nobody.await.refused(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_over_is_gone_within_moments() {
    let service = Service::start(&[]).await;
    let body = json!({ "session_id": "a", "ttl_seconds": 1 });
    service.post("/sessions", body).await.ok();
    while service.get("/sessions/a").await.status == 200 {
        tokio::task::yield_now().await;
    }
    service.get("/sessions/a").await.refused(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn sleep_by_call_answers_when_it_sleeps_and_says_why_it_cannot() {
    let service = Service::start(&[]).await;
    let token = service.open("a").await;
    let asleep = service
        .bare("POST", "/sessions/a/hibernate")
        .token(&token)
        .send()
        .await
        .ok();
    assert_eq!(
        (&asleep["state"], &asleep["alive"]),
        (&json!("hibernated"), &json!(true))
    );
    assert_eq!(service.backend.sandbox_count(), 0);
    let run = |n: u32, seconds: &str| {
        let body = json!({ "argv": ["sleep", seconds], "run_id": run_id(n) });
        service
            .request("POST", "/sessions/a/run")
            .json(&body)
            .send()
    };
    run(1, "0").await.ok();
    let busy = tokio::spawn(run(2, "19"));
    while !service
        .get("/metrics")
        .await
        .text()
        .contains("\nsandboxd_runs_in_flight 1\n")
    {
        tokio::task::yield_now().await;
    }
    let refused = service
        .request("POST", "/sessions/a/hibernate")
        .send()
        .await;
    assert_eq!(refused.header("x-error-code"), Some("not_asleep"));
    assert_eq!(
        refused.refused(409),
        "Session a cannot go to sleep: it is in use"
    );
    busy.abort();
    service
        .bare("POST", "/sessions/a/hibernate")
        .send()
        .await
        .refused(401);
    service
        .request("POST", "/sessions/x/hibernate")
        .send()
        .await
        .refused(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_begins_with_the_open_for_whoever_asks_for_it() {
    let service = Service::start(&[]).await;
    service.open("a").await;
    let empty = service.get("/sessions/a/events").await.ok();
    assert_eq!(
        empty,
        json!({ "events": [], "latest_seq": 0 }),
        "as clients know it"
    );
    service
        .request("POST", "/sessions/a/hibernate")
        .send()
        .await
        .ok();
    let all = service.get("/sessions/a/events?open=true").await.ok();
    let rows = all["events"].as_array().expect("rows");
    let ops: Vec<&Value> = rows.iter().map(|row| &row["op"]).collect();
    assert_eq!(ops, [&json!("open"), &json!("hibernate")]);
    assert_eq!(
        (&rows[0]["seq"], &rows[0]["target"]),
        (&json!(0), &json!("python"))
    );
    assert_eq!(
        (&rows[1]["seq"], &all["latest_seq"]),
        (&json!(1), &json!(1))
    );
    let bad = service.get("/sessions/a/events?open=perhaps").await;
    assert!(bad.refused(422).contains("open"));
}
