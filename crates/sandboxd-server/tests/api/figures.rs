//! `/metrics` and `/readyz`: what they say, and to whom.

use crate::support::{Service, TOKEN, run_id};
use serde_json::json;

/// The value of a line of the figures.
fn figure(text: &str, line: &str) -> Option<f64> {
    text.lines()
        .find_map(|found| found.strip_prefix(line)?.strip_prefix(' ')?.parse().ok())
}

#[tokio::test(flavor = "multi_thread")]
async fn figures_need_the_services_token_unless_they_are_public() {
    let service = Service::start(&[]).await;
    service.bare("GET", "/metrics").send().await.refused(401);
    let own = service.open("a").await;
    let with_own = service.bare("GET", "/metrics").token(&own).send().await;
    with_own.refused(401);
    let figures = service.get("/metrics").await;
    assert_eq!(figures.status, 200);
    let kind = figures.header("content-type").expect("a type");
    assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
    assert!(!figures.text().contains(TOKEN));

    let open = Service::start(&[("SANDBOXD_METRICS_PUBLIC", "1")]).await;
    assert_eq!(open.bare("GET", "/metrics").send().await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn figures_follow_what_happens_and_name_no_session() {
    let service = Service::start(&[
        ("SANDBOXD_MAX_SESSIONS", "1"),
        ("SANDBOXD_EVICT_IDLE_AFTER", "0"),
    ])
    .await;
    service.open("tell-tale-a").await;
    let run = |n: u32, script: &str| {
        let body = json!({ "argv": ["/bin/sh", "-c", script], "run_id": run_id(n) });
        service
            .request("POST", "/sessions/tell-tale-a/run")
            .json(&body)
            .send()
    };
    run(1, "true").await.ok();
    run(2, "exit 3").await.ok();
    // It makes room for another one, and comes back.
    service.open("tell-tale-b").await;
    run(3, "true").await.ok();
    service
        .post(
            "/sessions/tell-tale-a/files/stat",
            json!({ "path": "/workspace" }),
        )
        .await
        .ok();
    service
        .get("/sessions/nobody-by-this-name")
        .await
        .refused(404);
    service.get("/no/such/route").await.refused(404);

    let text = service.get("/metrics").await.text();
    for (line, expected) in [
        ("sandboxd_sessions{state=\"resident\"}", 1.0),
        ("sandboxd_sessions{state=\"hibernated\"}", 1.0),
        (
            "sandboxd_session_starts_total{runtime=\"python\",outcome=\"ok\"}",
            2.0,
        ),
        ("sandboxd_wake_seconds_count{outcome=\"ok\"}", 1.0),
        ("sandboxd_run_seconds_count{outcome=\"ok\"}", 2.0),
        ("sandboxd_run_seconds_count{outcome=\"nonzero\"}", 1.0),
        ("sandboxd_run_queue_seconds_count", 3.0),
        ("sandboxd_runs_in_flight", 0.0),
        ("sandboxd_file_op_seconds_count{op=\"stat\"}", 1.0),
        ("sandboxd_evictions_total{reason=\"slot\"}", 2.0),
        (
            "sandboxd_store_seconds_count{op=\"all\",outcome=\"ok\"}",
            1.0,
        ),
        ("sandboxd_refusals_total{code=\"no_session\"}", 1.0),
        (
            "sandboxd_http_request_duration_seconds_count{method=\"POST\",route=\"/sessions/{session_id}/run\",code=\"200\"}",
            3.0,
        ),
        (
            "sandboxd_http_request_duration_seconds_count{method=\"GET\",route=\"none\",code=\"404\"}",
            1.0,
        ),
    ] {
        assert_eq!(figure(&text, line), Some(expected), "{line} in\n{text}");
    }
    assert!(!text.contains("tell-tale"), "a session is named:\n{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_is_ready_while_its_parts_are() {
    let service = Service::start(&[]).await;
    let ready = service.bare("GET", "/readyz").send().await.ok();
    assert_eq!(ready["status"], "ready");
    for part in ["service", "store", "backend", "workspaces"] {
        assert!(
            ready["parts"]
                .as_array()
                .is_some_and(|all| all.contains(&json!(part)))
        );
    }

    let gone = Service::start(&[]).await;
    std::fs::rename(&gone.root, gone.root.with_extension("moved")).expect("moved");
    let reply = gone.bare("GET", "/readyz").send().await;
    assert_eq!(reply.header("x-error-code"), Some("not_ready"));
    let words = reply.refused(503);
    assert_eq!(words, "Not ready: workspaces does not work");
    assert_eq!(
        gone.bare("GET", "/healthz").send().await.status,
        200,
        "it lives all the same"
    );
}
