//! A sandbox whose failures are values: the same ones whatever went wrong.

use crate::stub::{Asked, Reply, SESSION_TOKEN, Stub, refusal, session};
use sandboxd_client::api::shell::GrepRequest;
use sandboxd_client::{DegradingSandbox, Grep, Service};
use serde_json::{Value, json};
use std::time::Duration;

fn of(stub: &Stub) -> DegradingSandbox {
    stub.service()
        .sandbox()
        .new_session("a")
        .build_degrading()
        .expect("a sandbox")
}

fn grep(pattern: &str) -> GrepRequest {
    GrepRequest {
        pattern: pattern.to_owned(),
        path: None,
        glob: None,
        ignore_hidden: true,
    }
}

/// Every operation says that it failed, and none raises.
async fn assert_degraded(sandbox: &DegradingSandbox) {
    let executed = sandbox.execute("true", None).await;
    assert_eq!(executed.output, "Error: sandbox service unavailable");
    assert_eq!((executed.exit_code, executed.truncated), (Some(1), false));
    assert_eq!(
        sandbox.read("a'b", 0, 10).await,
        "Error: could not read 'a'b'"
    );
    assert_eq!(sandbox.read_bytes("f").await, b"");
    let written = sandbox.write("f", b"x").await;
    assert_eq!(
        (written.path, written.error.as_deref()),
        (None, Some("Error: could not write 'f'"))
    );
    let edited = sandbox.edit("f", "a", "b", false).await;
    assert_eq!((edited.path, edited.occurrences), (None, None));
    assert_eq!(edited.error.as_deref(), Some("Error: could not edit 'f'"));
    assert!(!sandbox.exists("f").await);
    assert_eq!(sandbox.ls(".").await, []);
    assert_eq!(sandbox.glob("*", "/").await, []);
    assert_eq!(
        sandbox.grep(&grep("x")).await,
        Grep::Failed("Error: could not search for 'x'".to_owned())
    );
    assert!(!sandbox.is_alive().await);
    assert_eq!(sandbox.resource_usage().await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_failure_looks_the_same() {
    let wrong = [
        refusal(401, "x"),
        refusal(404, "x"),
        refusal(409, "x"),
        refusal(410, "x"),
        refusal(429, "x"),
        refusal(502, "x"),
        refusal(504, "x"),
        Reply::Raw(200, b"<html>".to_vec()),
        Reply::Json(200, json!("nothing")),
        Reply::HangUp,
    ];
    for reply in wrong {
        let answer = reply.clone();
        let stub =
            Stub::start(move |asked| asked.path.starts_with("/sessions/").then(|| answer.clone()))
                .await;
        let sandbox = of(&stub);
        sandbox.start().await.expect("open");
        assert_degraded(&sandbox).await;
        let opens = stub.asked_for("POST /sessions").len();
        assert_eq!(
            opens, 1,
            "{reply:?}: a session that is gone is not opened anew by itself"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_not_there_degrades_too_but_start_raises() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", nobody.local_addr().expect("an address"));
    drop(nobody);
    let service = Service::new(&url, "t").expect("a service");
    let sandbox = service.sandbox().build_degrading().expect("a sandbox");
    assert_degraded(&sandbox).await;
    let error = sandbox.start().await.expect_err("nobody");
    assert_eq!(error.to_string(), "could not reach the sandbox service");
    sandbox.stop(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_works_comes_through() {
    let stub = Stub::start(|asked| {
        let body = match asked.path.strip_prefix("/sessions/a/")? {
            "exec" => json!({ "output": "o", "exit_code": 0, "truncated": true }),
            "read" => json!({ "content": "text" }),
            "read_bytes" => json!({ "content_b64": "AP8=" }),
            "write" => json!({ "path": "/workspace/f", "error": null }),
            "edit" => json!({ "path": "/workspace/f", "error": null, "occurrences": 2 }),
            "exists" => json!({ "exists": true }),
            "ls" | "glob" => json!([{ "name": "f", "path": "f", "is_dir": false, "size": null, "modified_at": null }]),
            "grep" if asked.json()["pattern"] == "bad" => json!({ "matches": [], "error": "Error: grep" }),
            "grep" => json!({ "matches": [{ "path": "f", "line_number": 1, "line": "x" }], "error": null }),
            _ => return None,
        };
        Some(Reply::Json(200, body))
    })
    .await;
    let sandbox = of(&stub);
    let executed = sandbox
        .execute("x", Some(Duration::from_millis(1500)))
        .await;
    assert_eq!((executed.output.as_str(), executed.truncated), ("o", true));
    assert_eq!(sandbox.server_timeout(), Duration::from_secs(300));
    assert_eq!(sandbox.read("f", 5, 10).await, "text");
    assert_eq!(sandbox.read_bytes("f").await, b"\0\xff");
    assert_eq!(
        sandbox.write("f", b"\0\xff").await.path.as_deref(),
        Some("/workspace/f")
    );
    assert_eq!(sandbox.edit("f", "a", "b", true).await.occurrences, Some(2));
    assert!(sandbox.exists("f").await);
    assert_eq!(
        (
            sandbox.ls(".").await.len(),
            sandbox.glob("*", "/").await.len()
        ),
        (1, 1)
    );
    assert!(
        matches!(sandbox.grep(&grep("x")).await, Grep::Matches(found) if found[0].line_number == 1)
    );
    assert_eq!(
        sandbox.grep(&grep("bad")).await,
        Grep::Failed("Error: grep".to_owned())
    );
    let body = |route: &str| stub.asked_for(&format!("POST /sessions/a/{route}"))[0].json();
    assert_eq!(
        body("exec"),
        json!({ "command": "x", "timeout_seconds": 2 }),
        "never less than was asked for"
    );
    assert_eq!(
        body("read"),
        json!({ "path": "f", "offset": 5, "limit": 10 })
    );
    assert_eq!(body("write"), json!({ "path": "f", "content_b64": "AP8=" }));
    let tokens = stub
        .asked()
        .into_iter()
        .filter(|asked| asked.path.starts_with("/sessions/a/"));
    assert!(
        tokens
            .into_iter()
            .all(|asked: Asked| asked.token == SESSION_TOKEN)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn life_and_usage_are_asked_for_without_opening() {
    let usage =
        json!({ "memory_bytes": 1, "memory_limit_bytes": null, "cpu_percent": 0.5, "pids": 2 });
    let stub = Stub::start(move |asked| {
        let mut info: Value = session("a");
        match asked.line().as_str() {
            "GET /sessions/a" => {}
            "GET /sessions/a?usage=true" => info["usage"] = usage.clone(),
            _ => return None,
        }
        Some(Reply::Json(200, info))
    })
    .await;
    let sandbox = of(&stub);
    assert!(!sandbox.is_alive().await);
    assert!(stub.asked().is_empty());
    sandbox.start().await.expect("open");
    assert!(sandbox.is_alive().await);
    assert_eq!(
        sandbox.resource_usage().await.expect("a sample").pids,
        Some(2)
    );
    sandbox.stop(true).await;
    assert_eq!(stub.asked_for("DELETE /sessions/a?purge=true").len(), 1);
    assert!(!sandbox.is_alive().await);
}

#[tokio::test]
async fn a_command_is_waited_for_as_long_as_it_asks_and_ten_seconds() {
    let stub = Stub::start(|asked| asked.path.ends_with("/exec").then_some(Reply::Silence)).await;
    let sandbox = of(&stub);
    sandbox.start().await.expect("open");
    // Not cut to the service's ceiling of 300 s: the service does that, and answers.
    for (timeout, seconds) in [(None, 310), (Some(5), 15), (Some(900), 910)] {
        tokio::time::pause();
        let started = tokio::time::Instant::now();
        let shell = sandbox.raising().shell();
        let outcome = shell.exec("x", timeout.map(Duration::from_secs)).await;
        let waited = started.elapsed();
        tokio::time::resume();
        assert!(outcome.is_err());
        assert_eq!(waited.as_secs(), seconds, "{timeout:?}");
    }
}
