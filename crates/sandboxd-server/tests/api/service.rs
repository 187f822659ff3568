//! Health and index.

use crate::support::Service;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn health_needs_no_token_and_counts() {
    let service = Service::start(&[("SANDBOXD_MAX_OPEN_SESSIONS", "30")]).await;
    let health = service.bare("GET", "/healthz").send().await;
    let expected = json!({"status": "ok", "sessions": 0, "limit": 20, "open_sessions": 0, "open_limit": 30,
        "runtimes": ["node", "python"]});
    assert_eq!(health.ok(), expected);
    assert_eq!(
        health.text(),
        r#"{"status":"ok","sessions":0,"limit":20,"open_sessions":0,"open_limit":30,"runtimes":["node","python"]}"#,
        "compact, in the contract's order"
    );
    service.open("a").await;
    let health = service.bare("GET", "/healthz").send().await.ok();
    assert_eq!(
        (&health["sessions"], &health["open_sessions"]),
        (&json!(1), &json!(1))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_index_names_every_route() {
    let service = Service::start(&[]).await;
    let index = service.bare("GET", "/").send().await.ok();
    assert_eq!(index["service"], "sandboxd");
    assert_eq!(index["health"]["status"], "ok");
    assert_eq!(index["ui_url"], json!(null));
    let endpoints: Vec<&str> = index["endpoints"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|path| path.as_str().expect("a path"))
        .collect();
    assert!(endpoints.is_sorted());
    for path in [
        "/healthz",
        "/sessions",
        "/sessions/{session_id}/run",
        "/sessions/{session_id}/runs/{run_id}/stop",
        "/sessions/{session_id}/exec",
        "/workspaces/{session_id}/tree",
    ] {
        assert!(endpoints.contains(&path), "{path}");
    }
    assert!(!endpoints.contains(&"/"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_with_the_sessions_is_there_only_when_switched_on() {
    let without = Service::start(&[]).await;
    assert_eq!(without.bare("GET", "/ui").send().await.status, 404);
    let service = Service::start(&[("SANDBOXD_UI_ENABLED", "1")]).await;
    let page = service.bare("GET", "/ui").send().await;
    assert_eq!(page.status, 200, "it needs no token; what it asks for does");
    assert!(page.text().contains("sandboxd") && page.text().contains("<script>"));
    let index = service.bare("GET", "/").send().await.ok();
    assert_eq!(index["ui_url"], "/ui");
    assert!(
        index["endpoints"]
            .as_array()
            .is_some_and(|all| all.contains(&json!("/ui")))
    );
}
