//! What HTTP itself asks for: methods, unknown paths, query spelling, request ids, connections, shutdown.

use crate::support::{Reply, Service, TOKEN, raw, run_id};
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

#[tokio::test(flavor = "multi_thread")]
async fn other_methods_are_405_and_say_which_there_are() {
    let service = Service::start(&[]).await;
    for (method, path, allow) in [
        ("POST", "/healthz", "GET"),
        ("OPTIONS", "/healthz", "GET"),
        ("OPTIONS", "/sessions", "GET, POST"),
        ("GET", "/sessions/a/run", "POST"),
        ("PATCH", "/policy", "GET, PUT"),
        ("BREW", "/sessions/a", "DELETE, GET"),
    ] {
        let reply = service.request(method, path).send().await;
        assert_eq!(reply.refused(405), "Method Not Allowed", "{method} {path}");
        let mut methods: Vec<&str> = reply
            .header("allow")
            .unwrap_or_default()
            .split(", ")
            .collect();
        methods.sort_unstable();
        assert_eq!(methods.join(", "), allow, "{method} {path}");
    }
    let head = service.request("HEAD", "/healthz").send().await;
    assert_eq!((head.status, head.text().as_str()), (405, ""));
    assert_eq!(head.header("allow"), Some("GET"));
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_paths_and_encoded_separators_are_404() {
    let service = Service::start(&[]).await;
    service.open("a").await;
    for path in [
        "/nope",
        "/sessions/a%2Fevents",
        "/sessions/..%2fa",
        "/sessions/a/nope",
        "//sessions",
        "/sessions/%FF",
        "/sessions/../sessions",
        "/ui",
    ] {
        let reply = service.request("GET", path).send().await;
        assert_eq!(reply.refused(404), "Not Found", "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slash_too_many_is_pointed_at_the_route_and_nowhere_else() {
    let service = Service::start(&[]).await;
    for (path, location) in [
        ("/sessions/", "/sessions"),
        ("/sessions/?usage=1", "/sessions?usage=1"),
        ("/sessions/a/events/", "/sessions/a/events"),
    ] {
        let reply = service.request("GET", path).send().await;
        assert_eq!(
            (reply.status, reply.header("location")),
            (307, Some(location)),
            "{path}"
        );
    }
    for path in ["//evil.example/", "/nope/", "/sessions//"] {
        let reply = service.request("GET", path).send().await;
        assert_eq!(
            (reply.status, reply.header("location")),
            (404, None),
            "{path}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_absolute_form_target_gets_the_same_verdict() {
    let service = Service::start(&[]).await;
    let target = |path: &str, token: &str| {
        format!(
            "GET http://elsewhere.example{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Sandbox-Token: {token}\r\n\r\n"
        )
    };
    for (path, token, status) in [
        ("/sessions", TOKEN, 200),
        ("/sessions", "wrong", 401),
        ("/sessions/nope", TOKEN, 404),
        ("/healthz", "", 200),
        ("/nope", TOKEN, 404),
    ] {
        let reply = raw(service.addr, target(path, token).as_bytes()).await;
        assert_eq!(reply.status, status, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_are_spelled_as_forms_are() {
    let service = Service::start(&[]).await;
    let token = service.open("a").await;
    let write = |path: &str| {
        let path = format!("/sessions/a/files/write?path={path}");
        service.bare("POST", &path).token(&token).body(b"x")
    };
    write("%2Fworkspace%2Fa+b%2Bc").send().await.nothing();
    write("/workspace/plain&path=/workspace/last")
        .send()
        .await
        .nothing();
    let mut names: Vec<String> = std::fs::read_dir(service.root.join("a/workspace"))
        .expect("a directory")
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("text")
        })
        .collect();
    names.sort();
    assert_eq!(names, ["a b+c", "last"]);
    for yes in [
        "usage=true",
        "usage=1",
        "usage=YES",
        "usage=on",
        "a=b&usage=t",
    ] {
        assert_eq!(
            service.get(&format!("/sessions/a?{yes}")).await.status,
            200,
            "{yes}"
        );
    }
    let reply = service.get("/sessions/a?usage=zz").await;
    assert_eq!(reply.status, 422);
    assert_eq!(reply.json()["detail"][0]["type"], "bool_parsing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_id_comes_back_or_is_made() {
    let service = Service::start(&[]).await;
    let sent = service
        .bare("GET", "/healthz")
        .header("X-Request-Id", "abc-123")
        .send()
        .await;
    assert_eq!(sent.header("x-request-id"), Some("abc-123"));
    let made = service.bare("GET", "/nope").send().await;
    assert_eq!(made.header("x-request-id").map(str::len), Some(16));
    let long = "x".repeat(500);
    let replaced = service
        .bare("GET", "/healthz")
        .header("X-Request-Id", &long)
        .send()
        .await;
    assert_eq!(replaced.header("x-request-id").map(str::len), Some(16));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_connection_carries_many_requests() {
    let service = Service::start(&[]).await;
    let mut stream = TcpStream::connect(service.addr).await.expect("connected");
    for _ in 0..3 {
        let request = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
        stream.write_all(request).await.expect("sent");
        let mut answer = vec![0; 4096];
        let length = stream.read(&mut answer).await.expect("answered");
        assert_eq!(Reply::parse(&answer[..length]).status, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_ends_also_with_a_busy_run_and_an_idle_connection() {
    let service = Service::start(&[]).await;
    let token = service.open("a").await;
    let body = json!({"argv": ["sleep", "19"], "run_id": run_id(1)});
    let busy = service
        .bare("POST", "/sessions/a/run")
        .token(&token)
        .json(&body);
    let busy = tokio::spawn(busy.send());
    let _idle = TcpStream::connect(service.addr).await.expect("connected");
    // The run is there once its session has been used.
    while service.get("/sessions/a").await.ok()["idle_seconds"].as_f64() > Some(0.5) {
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let started = Instant::now();
    service.shut_down().await;
    assert!(
        started.elapsed() < Duration::from_secs(30),
        "{:?}",
        started.elapsed()
    );
    let reply = busy.await.expect("no panic");
    assert!([0, 410].contains(&reply.status), "{}", reply.status);
}

/// A run that takes `seconds`, asked for and under way.
async fn begun(service: &Service, seconds: &str) -> tokio::task::JoinHandle<Reply> {
    service.open("a").await;
    let body = json!({ "argv": ["sleep", seconds], "run_id": run_id(1) });
    let asked = service
        .request("POST", "/sessions/a/run")
        .json(&body)
        .send();
    let asked = tokio::spawn(asked);
    loop {
        let figures = service.get("/metrics").await.text();
        if figures.contains("\nsandboxd_runs_in_flight 1\n") {
            return asked;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_may_finish_before_the_service_ends() {
    let service = Service::start(&[("SANDBOXD_DRAIN_TIMEOUT", "60")]).await;
    let asked = begun(&service, "1").await;
    service.shut_down().await;
    let done = asked.await.expect("no panic").ok();
    assert_eq!(done["exit_code"], 0, "{done}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_takes_longer_than_the_service_waits_is_ended_and_answered() {
    let service = Service::start(&[("SANDBOXD_DRAIN_TIMEOUT", "0")]).await;
    let asked = begun(&service, "1000").await;
    service.shut_down().await;
    asked.await.expect("no panic").refused(410);
}
