//! The order of checks: route, id's form, token, existence, fields. What is checked first is what is said.

use crate::support::{Service, TOKEN};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn nothing_but_the_index_and_health_goes_without_a_token() {
    let service = Service::start(&[]).await;
    let token = service.open("a").await;
    let service_only = [
        ("GET", "/policy"),
        ("PUT", "/policy"),
        ("GET", "/sessions"),
        ("POST", "/sessions"),
        ("POST", "/workspaces/a/ls"),
        ("POST", "/workspaces/a/read"),
        ("POST", "/workspaces/a/read_bytes"),
        ("POST", "/workspaces/a/tree"),
        ("POST", "/workspaces/trees"),
    ];
    for (method, path) in service_only {
        for presented in ["", "wrong", &token] {
            let reply = service.bare(method, path).token(presented).send().await;
            assert_eq!(
                reply.refused(401),
                "Invalid or missing sandbox token",
                "{method} {path}"
            );
            assert_eq!(reply.header("www-authenticate"), None);
        }
        assert_eq!(
            service.bare(method, path).send().await.status,
            401,
            "{method} {path}"
        );
    }
    for (method, path) in SESSION_ROUTES {
        let of = |id: &str| path.replace("{id}", id).replace("{run}", &"0".repeat(32));
        for id in ["a", "unknown"] {
            assert_eq!(
                service.bare(method, &of(id)).send().await.status,
                401,
                "{method} {id}"
            );
            let wrong = service.bare(method, &of(id)).token("wrong").send().await;
            assert_eq!(wrong.status, 401, "{method} {path}");
        }
        let other = service
            .bare(method, &of("unknown"))
            .token(&token)
            .send()
            .await;
        assert_eq!(
            other.status, 401,
            "another session's token: {method} {path}"
        );
        let known = service.request(method, &of("unknown")).send().await;
        assert_eq!(
            known.refused(404),
            "No such session: unknown",
            "{method} {path}"
        );
    }
}

const SESSION_ROUTES: &[(&str, &str)] = &[
    ("GET", "/sessions/{id}"),
    ("DELETE", "/sessions/{id}"),
    ("GET", "/sessions/{id}/events"),
    ("POST", "/sessions/{id}/run"),
    ("POST", "/sessions/{id}/runs/{run}/stop"),
    ("POST", "/sessions/{id}/files/read"),
    ("POST", "/sessions/{id}/files/write"),
    ("POST", "/sessions/{id}/files/stat"),
    ("POST", "/sessions/{id}/files/list"),
    ("POST", "/sessions/{id}/files/realpath"),
    ("POST", "/sessions/{id}/files/mkdir"),
    ("POST", "/sessions/{id}/files/remove"),
    ("POST", "/sessions/{id}/exec"),
    ("POST", "/sessions/{id}/read"),
    ("POST", "/sessions/{id}/read_bytes"),
    ("POST", "/sessions/{id}/write"),
    ("POST", "/sessions/{id}/edit"),
    ("POST", "/sessions/{id}/exists"),
    ("POST", "/sessions/{id}/ls"),
    ("POST", "/sessions/{id}/glob"),
    ("POST", "/sessions/{id}/grep"),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_sessions_id_is_checked_before_the_token_and_a_workspaces_after_it() {
    let service = Service::start(&[]).await;
    for path in ["/sessions/a%20b", "/sessions/.a", "/sessions/a%0A"] {
        for request in [
            service.bare("GET", path),
            service.bare("GET", path).token("wrong"),
            service.request("GET", path),
        ] {
            let reply = request.send().await;
            assert_eq!(reply.status, 422, "{path}");
            assert_eq!(
                reply.json()["detail"][0]["loc"],
                json!(["path", "session_id"])
            );
        }
    }
    let body = json!({"path": "."});
    let bare = service
        .bare("POST", "/workspaces/a%20b/ls")
        .json(&body)
        .send()
        .await;
    assert_eq!(bare.status, 401);
    let known = service.post("/workspaces/a%20b/ls", body).await;
    assert_eq!(known.status, 422);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_is_checked_before_query_body_and_run_id() {
    let service = Service::start(&[]).await;
    let token = service.open("a").await;
    let bad = json!({"session_id": "../x"});
    assert_eq!(
        service
            .bare("POST", "/sessions")
            .json(&bad)
            .send()
            .await
            .status,
        401
    );
    assert_eq!(service.post("/sessions", bad).await.status, 422);
    for (method, path) in [
        ("GET", "/sessions/a?usage=zz"),
        ("GET", "/sessions/a/events?after=x"),
        ("POST", "/sessions/a/files/write"),
        ("POST", "/sessions/a/runs/xyz/stop"),
        ("POST", "/sessions/a/run"),
    ] {
        let bare = service.bare(method, path).json(&json!({})).send().await;
        assert_eq!(bare.status, 401, "{path}");
        let own = service
            .bare(method, path)
            .token(&token)
            .json(&json!({}))
            .send()
            .await;
        assert_eq!(own.status, 422, "{path}: {}", own.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_token_works_on_its_own_session_only_and_dies_with_it() {
    let service = Service::start(&[]).await;
    let (one, other) = (service.open("one").await, service.open("other").await);
    let get = |path: &str, token: &str| service.bare("GET", path).token(token);
    assert_eq!(get("/sessions/one", &one).send().await.status, 200);
    assert_eq!(get("/sessions/one/events", &one).send().await.status, 200);
    assert_eq!(get("/sessions/other", &one).send().await.status, 401);
    assert_eq!(get("/sessions/one", &other).send().await.status, 401);
    let deleted = service
        .bare("DELETE", "/sessions/one")
        .token(&one)
        .send()
        .await;
    deleted.nothing();
    assert_eq!(get("/sessions/one", &one).send().await.status, 401);
    assert_eq!(
        service
            .bare("DELETE", "/sessions/one")
            .token(&one)
            .send()
            .await
            .status,
        401
    );
    assert_eq!(
        service
            .request("DELETE", "/sessions/one")
            .send()
            .await
            .status,
        404
    );
    // A new session of the same id has another token.
    let again = service.open("one").await;
    assert_ne!(again, one);
    assert_eq!(get("/sessions/one", &one).send().await.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_in_the_authorization_header_is_as_good() {
    let service = Service::start(&[]).await;
    let bearer = |value: &str| {
        service
            .bare("GET", "/sessions")
            .header("Authorization", value)
    };
    assert_eq!(bearer(&format!("Bearer {TOKEN}")).send().await.status, 200);
    assert_eq!(bearer(&format!("bearer {TOKEN}")).send().await.status, 200);
    for wrong in ["Bearer wrong", "Bearer", "Basic eA==", TOKEN] {
        assert_eq!(bearer(wrong).send().await.status, 401, "{wrong}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn doubled_and_contradicting_tokens_are_refused() {
    let service = Service::start(&[]).await;
    let bare = || service.bare("GET", "/sessions");
    let bearer = format!("Bearer {TOKEN}");
    let cases = [
        bare().token(TOKEN).token(TOKEN),
        bare().token("wrong").token(TOKEN),
        bare().token(TOKEN).token("wrong"),
        bare().token(TOKEN).header("Authorization", "Bearer wrong"),
        bare().token("wrong").header("Authorization", &bearer),
        bare()
            .header("Authorization", &bearer)
            .header("Authorization", &bearer),
        bare().token("\u{e9}"),
        bare().token(&format!("{TOKEN}\u{e9}")),
    ];
    for request in cases {
        assert_eq!(request.send().await.status, 401);
    }
    let both = bare()
        .token(TOKEN)
        .header("Authorization", &bearer)
        .send()
        .await;
    assert_eq!(both.status, 200);
    let blanks = bare().token(&format!("  {TOKEN}  ")).send().await;
    assert_eq!(
        blanks.status, 200,
        "blanks around a header's value do not count"
    );
}
