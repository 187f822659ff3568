//! Opening: once, for all who wait, and what happens when it fails.

use crate::stub::{Reply, SESSION_TOKEN, Stub, TOKEN, finished, policy, refusal, session};
use sandboxd_client::{Command, OpenError, RunError};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Answers each open by the next of these, the last one for ever; runs say `ok`.
fn opens(replies: Vec<Reply>) -> impl Fn(&crate::stub::Asked) -> Option<Reply> {
    let turn = AtomicUsize::new(0);
    move |asked| match asked.line().as_str() {
        "POST /sessions" => {
            let turn = turn.fetch_add(1, Ordering::SeqCst).min(replies.len() - 1);
            Some(replies[turn].clone())
        }
        "POST /sessions/a/run" => Some(finished(0, "ok")),
        _ => None,
    }
}

fn opened() -> Reply {
    Reply::Json(
        200,
        json!({ "session": session("a"), "token": SESSION_TOKEN }),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_sent_before_the_first_use() {
    let stub = Stub::start(opens(vec![opened()])).await;
    let sandbox = stub
        .service()
        .sandbox()
        .runtime("python")
        .tenant("t")
        .label("user", "42")
        .ttl(Duration::from_millis(90_500))
        .build()
        .expect("a sandbox");
    assert_eq!(sandbox.session_id(), None);
    assert_eq!(sandbox.info(false).await.expect("nothing"), None);
    sandbox.stop().await.expect("nothing to stop");
    sandbox.purge().await.expect("nothing to purge");
    assert!(stub.asked().is_empty());
    let output = sandbox
        .run(&Command::shell("true"))
        .await
        .expect("an output");
    assert_eq!(output.stdout, "ok");
    assert_eq!(sandbox.session_id().as_deref(), Some("a"));
    let asked = stub.asked();
    let lines: Vec<String> = asked.iter().map(crate::stub::Asked::line).collect();
    assert_eq!(
        lines,
        ["POST /sessions", "GET /policy", "POST /sessions/a/run"]
    );
    let tokens: Vec<&str> = asked.iter().map(|asked| asked.token.as_str()).collect();
    assert_eq!(
        tokens,
        [TOKEN, TOKEN, SESSION_TOKEN],
        "a run goes by the session's own token"
    );
    let expected = json!({ "session_id": null, "runtime": "python", "tenant": "t", "reuse": false, "attach": false,
        "labels": { "user": "42" }, "ttl_seconds": 90 });
    assert_eq!(asked[0].json(), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_who_arrive_together_open_once() {
    let slow = Reply::After(Duration::from_millis(200), Box::new(opened()));
    let stub = Stub::start(opens(vec![slow])).await;
    let sandbox = stub
        .service()
        .sandbox()
        .name("a")
        .build()
        .expect("a sandbox");
    let tasks: Vec<_> = (0..20)
        .map(|_| {
            let sandbox = sandbox.clone();
            tokio::spawn(async move {
                sandbox
                    .run(&Command::shell("true"))
                    .await
                    .expect("an output")
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    assert_eq!(stub.asked_for("POST /sessions").len(), 1);
    assert_eq!(stub.asked_for("GET /policy").len(), 1);
    assert_eq!(stub.asked_for("POST /sessions/a/run").len(), 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_goes_on_when_its_caller_goes_away() {
    let slow = Reply::After(Duration::from_millis(200), Box::new(opened()));
    let stub = Stub::start(opens(vec![slow])).await;
    let sandbox = stub
        .service()
        .sandbox()
        .name("a")
        .build()
        .expect("a sandbox");
    let hasty = tokio::time::timeout(Duration::from_millis(50), sandbox.start()).await;
    assert!(hasty.is_err(), "the caller went away");
    sandbox.start().await.expect("open");
    assert_eq!(stub.asked_for("POST /sessions").len(), 1, "the same open");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_open_is_told_to_all_and_tried_again_by_the_next() {
    let stub = Stub::start(opens(vec![
        refusal(502, "Could not start sandbox: x"),
        opened(),
    ]))
    .await;
    let sandbox = stub
        .service()
        .sandbox()
        .new_session("a")
        .build()
        .expect("a sandbox");
    let error = sandbox
        .run(&Command::shell("true"))
        .await
        .expect_err("not open");
    let RunError::Open(OpenError::Request(error)) = error else {
        panic!("{error:?}");
    };
    assert_eq!(error.status(), Some(502));
    assert_eq!(
        error.to_string(),
        "the sandbox service refused (HTTP 502): Could not start sandbox: x"
    );
    sandbox
        .run(&Command::shell("true"))
        .await
        .expect("open now");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_waits_while_somebody_else_opens_it() {
    let busy = || refusal(409, "Session is opening: a");
    let stub = Stub::start(opens(vec![busy(), busy(), opened()])).await;
    let sandbox = stub
        .service()
        .sandbox()
        .name("a")
        .build()
        .expect("a sandbox");
    sandbox.start().await.expect("open");
    let asked = stub.asked_for("POST /sessions");
    assert_eq!(asked.len(), 3);
    assert_eq!(asked[0].json()["reuse"], true);
    // Without a shared name nobody else's open can be ours.
    for builder in [
        stub.service().sandbox().new_session("a"),
        stub.service().sandbox().attach("a"),
    ] {
        let stub = Stub::start(opens(vec![busy()])).await;
        drop(builder);
        let builder = stub.service().sandbox().new_session("a");
        let refused = builder
            .build()
            .expect("a sandbox")
            .start()
            .await
            .expect_err("refused");
        assert!(
            matches!(&refused, OpenError::Request(error) if error.status() == Some(409)),
            "{refused:?}"
        );
        assert_eq!(stub.asked_for("POST /sessions").len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_for_somebody_else_ends() {
    let stub = Stub::start(opens(vec![refusal(409, "Session is opening: a")])).await;
    let builder = stub.service().sandbox().name("a");
    let builder = builder
        .open_timeout(Duration::from_millis(500))
        .request_timeout(Duration::from_millis(500));
    let error = builder
        .build()
        .expect("a sandbox")
        .start()
        .await
        .expect_err("never opens");
    assert!(
        matches!(&error, OpenError::StillOpening { session_id, .. } if session_id == "a"),
        "{error:?}"
    );
    let asked = stub.asked_for("POST /sessions").len();
    assert!(
        (2..=3).contains(&asked),
        "{asked} times, a fifth of a second apart"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn another_runtime_is_not_waited_for() {
    let words = "Session a runs \"node\", not \"python\". Close it before changing runtime";
    let stub = Stub::start(opens(vec![refusal(409, words)])).await;
    let sandbox = stub
        .service()
        .sandbox()
        .name("a")
        .runtime("python")
        .build()
        .expect("a sandbox");
    let error = sandbox.start().await.expect_err("refused");
    assert!(
        matches!(&error, OpenError::OtherRuntime { said, .. } if said == words),
        "{error:?}"
    );
    assert_eq!(stub.asked_for("POST /sessions").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn attaching_to_nothing_has_its_own_error() {
    let stub = Stub::start(opens(vec![refusal(404, "Nothing to attach to: a")])).await;
    let sandbox = stub
        .service()
        .sandbox()
        .attach("a")
        .build()
        .expect("a sandbox");
    let error = sandbox.start().await.expect_err("nothing there");
    assert!(
        matches!(error, OpenError::NothingToAttachTo { .. }),
        "{error:?}"
    );
    sandbox.purge().await.expect("nothing to purge either");
    let body = stub.asked_for("POST /sessions")[0].json();
    assert_eq!(
        (&body["attach"], &body["reuse"]),
        (&json!(true), &json!(false))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_is_needed_where_failures_are_errors() {
    for bad in [
        refusal(500, "x"),
        Reply::Json(200, json!({})),
        Reply::Json(200, policy(0)),
    ] {
        let stub =
            Stub::start(move |asked| (asked.line() == "GET /policy").then(|| bad.clone())).await;
        let error = stub
            .service()
            .sandbox()
            .name("a")
            .build()
            .expect("a sandbox")
            .start()
            .await;
        assert!(matches!(error, Err(OpenError::NoPolicy(_))), "{error:?}");
        let degrading = stub
            .service()
            .sandbox()
            .name("a")
            .build_degrading()
            .expect("a sandbox");
        degrading.start().await.expect("open without one");
        assert_eq!(degrading.server_timeout(), Duration::from_secs(60));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_open_tells_its_watcher_once() {
    let slow = Reply::After(Duration::from_millis(3300), Box::new(opened()));
    let stub = Stub::start(opens(vec![slow])).await;
    let told = Arc::new(AtomicUsize::new(0));
    let watcher = told.clone();
    let sandbox = stub.service().sandbox().name("a").on_wait(move || {
        watcher.fetch_add(1, Ordering::SeqCst);
    });
    sandbox
        .build()
        .expect("a sandbox")
        .start()
        .await
        .expect("open");
    assert_eq!(told.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_sandbox_opens_anew() {
    let stub = Stub::start(opens(vec![opened()])).await;
    let sandbox = stub
        .service()
        .sandbox()
        .name("a")
        .build()
        .expect("a sandbox");
    sandbox.start().await.expect("open");
    sandbox.stop().await.expect("stopped");
    sandbox.stop().await.expect("stopped already");
    let deleted = stub.asked_for("DELETE /sessions/a");
    assert_eq!(deleted.len(), 1);
    assert_eq!(deleted[0].token, SESSION_TOKEN);
    sandbox.purge().await.expect("opened for it");
    assert_eq!(stub.asked_for("POST /sessions").len(), 2);
    assert_eq!(
        stub.asked_for("DELETE /sessions/a?purge=true")[0].token,
        TOKEN
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_gone_is_closed() {
    for status in [404, 410] {
        let stub =
            Stub::start(move |asked| (asked.method == "DELETE").then(|| refusal(status, "gone")))
                .await;
        let sandbox = stub
            .service()
            .sandbox()
            .name("a")
            .build()
            .expect("a sandbox");
        sandbox.start().await.expect("open");
        sandbox.purge().await.expect("gone is purged");
    }
    let stub = Stub::start(|asked| (asked.method == "DELETE").then(|| refusal(500, "disk"))).await;
    let sandbox = stub
        .service()
        .sandbox()
        .name("a")
        .build()
        .expect("a sandbox");
    sandbox.start().await.expect("open");
    assert!(
        sandbox.purge().await.is_err(),
        "what was not deleted is said"
    );
}
