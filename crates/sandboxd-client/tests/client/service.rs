//! The service's own routes, and the bounds of every request.

use crate::stub::{Reply, Stub, TOKEN, policy, session};
use sandboxd_client::api::policy::PolicyUpdate;
use sandboxd_client::api::sessions::CreateSession;
use sandboxd_client::{AddressError, RequestError, Service};
use serde_json::json;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn each_route_has_its_method_and_token() {
    let stub = Stub::start(|asked| {
        let health = json!({
            "status": "ok", "sessions": 1, "limit": null, "open_sessions": 2, "open_limit": null, "runtimes": ["python"],
        });
        let list = json!({ "sessions": [session("a")], "limit": 1, "open_limit": 2, "tenant_limit": null });
        let events = json!({ "events": [], "latest_seq": 7 });
        Some(Reply::Json(
            200,
            match asked.line().as_str() {
                "GET /" => json!({
                    "service": "sandboxd", "health": health, "docs_url": "/docs", "openapi_url": "/openapi.json",
                    "ui_url": null, "endpoints": [],
                }),
                "GET /healthz" => health,
                "PUT /policy" => policy(10),
                "GET /sessions?usage=true" => list,
                "GET /sessions/a" => session("a"),
                "GET /sessions/a/events?after=6" => events,
                _ => return None,
            },
        ))
    })
    .await;
    let service = stub.service();
    assert_eq!(service.index().await.expect("an index").service, "sandboxd");
    assert_eq!(service.health().await.expect("health").open_sessions, 2);
    assert_eq!(
        service.policy().await.expect("a policy").execute_timeout,
        300
    );
    let update = PolicyUpdate {
        max_sessions: Some(None),
        execute_timeout: Some(10),
        ..PolicyUpdate::default()
    };
    assert_eq!(
        service
            .update_policy(&update)
            .await
            .expect("a policy")
            .execute_timeout,
        10
    );
    assert_eq!(
        service.sessions(true).await.expect("a list").sessions.len(),
        1
    );
    assert_eq!(
        service
            .session("a", false)
            .await
            .expect("a session")
            .session_id,
        "a"
    );
    assert_eq!(service.events("a", 6).await.expect("events").latest_seq, 7);
    let created = service
        .open(&CreateSession::default())
        .await
        .expect("opened");
    assert!(
        !format!("{created:?}").contains(&created.token),
        "a token is never shown"
    );
    service.close("a").await.expect("closed");
    service.purge("a").await.expect("purged");
    for asked in stub.asked() {
        let open_to_all = ["/", "/healthz"].contains(&asked.path.as_str());
        assert_eq!(
            asked.token,
            if open_to_all { "" } else { TOKEN },
            "{}",
            asked.line()
        );
        if asked.method == "PUT" {
            assert_eq!(
                asked.json(),
                json!({ "max_sessions": null, "execute_timeout": 10 })
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_found_by_their_labels_put_to_sleep_and_renewed() {
    let stub = Stub::start(|asked| {
        let list =
            json!({ "sessions": [session("a")], "limit": 1, "open_limit": 2, "tenant_limit": null });
        Some(match asked.line().as_str() {
            "POST /sessions/a/hibernate" | "POST /sessions/a/renew" => {
                Reply::Json(200, session("a"))
            }
            "GET /sessions?usage=false&label=user%3D4%202&label=kept" => Reply::Json(200, list),
            "GET /readyz" => Reply::Json(200, json!({ "status": "ready", "parts": ["store"] })),
            "GET /metrics" => Reply::Raw(200, b"sandboxd_runs_in_flight 0\n".to_vec()),
            _ => return None,
        })
    })
    .await;
    let service = stub.service();
    let labels = [("user", Some("4 2")), ("kept", None)];
    let labelled = service.sessions_labelled(&labels, false).await;
    assert_eq!(labelled.expect("a list").sessions.len(), 1);
    assert_eq!(service.ready().await.expect("ready").parts, ["store"]);
    let figures = service.metrics().await.expect("figures");
    assert_eq!(figures, "sandboxd_runs_in_flight 0\n");
    service.hibernate("a").await.expect("asleep");
    let hour = Some(Duration::from_secs(3600));
    service.renew("a", hour).await.expect("renewed");
    service.renew("a", None).await.expect("renewed");
    let bodies: Vec<_> = stub
        .asked()
        .into_iter()
        .filter(|asked| asked.path.ends_with("/renew"))
        .map(|asked| asked.json())
        .collect();
    assert_eq!(
        bodies,
        [
            json!({ "ttl_seconds": 3600 }),
            json!({ "ttl_seconds": null })
        ]
    );
    for asked in stub.asked() {
        let wanted = if asked.path == "/readyz" { "" } else { TOKEN };
        assert_eq!(asked.token, wanted, "{}", asked.line());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_bounded_in_size_and_time() {
    let stub = Stub::start(|asked| match asked.path.as_str() {
        "/policy" => Some(Reply::Raw(200, vec![b'x'; 2000])),
        "/healthz" => Some(Reply::Silence),
        _ => None,
    })
    .await;
    let service = Service::builder(&stub.url)
        .answer_bytes_max(1000)
        .timeout(Duration::from_millis(100))
        .build();
    let service = service.expect("a service");
    let error = service.policy().await.expect_err("too long");
    assert!(
        matches!(error, RequestError::AnswerTooLong { limit: 1000 }),
        "{error:?}"
    );
    let error = service.health().await.expect_err("silence");
    assert_eq!(
        error.to_string(),
        "the sandbox service did not answer within 0.1 s"
    );
}

#[test]
fn tls_needs_a_connector() {
    let refused = Service::new("https://sandboxes.example", TOKEN);
    assert!(matches!(refused, Err(AddressError::NeedsTls { .. })));
    let connector = hyper_util::client::legacy::connect::HttpConnector::new();
    let service = Service::builder("https://sandboxes.example")
        .connector(connector)
        .build();
    assert!(
        service.is_ok(),
        "what it does then is the connector's business"
    );
}
