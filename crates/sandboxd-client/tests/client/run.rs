//! Runs: what is sent, how long it may take, and what the answers mean.

use crate::stub::{Asked, Reply, SESSION_TOKEN, Stub, finished, refusal};
use sandboxd_client::{Command, RequestError, RunError, RunId, Sandbox};
use serde_json::json;
use std::time::Duration;

async fn answering(reply: Reply) -> (Stub, Sandbox) {
    let stub = Stub::start(move |asked| match asked.line().as_str() {
        "POST /sessions/a/run" => Some(reply.clone()),
        line if line.ends_with("/stop") => Some(Reply::Raw(204, Vec::new())),
        _ => None,
    })
    .await;
    let sandbox = stub
        .service()
        .sandbox()
        .name("a")
        .env("LEVEL", "sandbox")
        .env("KEPT", "yes")
        .build();
    let sandbox = sandbox.expect("a sandbox");
    sandbox.start().await.expect("open");
    (stub, sandbox)
}

fn stops(stub: &Stub) -> Vec<Asked> {
    let all = stub.asked().into_iter();
    all.filter(|asked| asked.path.ends_with("/stop")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_says_all_of_itself() {
    let (stub, sandbox) = answering(finished(3, "out")).await;
    let id = RunId::fresh();
    let command = Command::new(["ls", "-l"])
        .arg("a b")
        .env("LEVEL", "run")
        .timeout(Duration::from_millis(1500))
        .run_id(id.clone());
    let output = sandbox.run(&command).await.expect("an output");
    assert_eq!((output.exit_code, output.stdout.as_str()), (3, "out"));
    let expected = json!({
        "argv": ["ls", "-l", "a b"], "env": { "KEPT": "yes", "LEVEL": "run" }, "timeout_seconds": 1.5,
        "run_id": id.to_string(),
    });
    assert_eq!(stub.asked_for("POST /sessions/a/run")[0].json(), expected);
    sandbox.stop_run(&id).await.expect("stopped");
    let stop = stops(&stub);
    assert_eq!(stop[0].path, format!("/sessions/a/runs/{id}/stop"));
    assert_eq!(
        (stop[0].token.as_str(), stop[0].body.len()),
        (SESSION_TOKEN, 0)
    );
}

#[tokio::test]
async fn a_run_is_waited_for_as_long_as_it_may_take_and_ten_seconds() {
    let (stub, sandbox) = answering(Reply::Silence).await;
    // The service's ceiling is 300 s.
    let table = [
        (None, 310),
        (Some(5), 15),
        (Some(299), 309),
        (Some(900), 310),
    ];
    for (timeout, seconds) in table {
        let mut command = Command::shell("sleep infinity");
        if let Some(timeout) = timeout {
            command = command.timeout(Duration::from_secs(timeout));
        }
        tokio::time::pause();
        let error = sandbox.run(&command).await.expect_err("silence");
        tokio::time::resume();
        let RunError::Request(RequestError::TimedOut(waited)) = error else {
            panic!("{error:?}");
        };
        assert_eq!(waited, Duration::from_secs(seconds), "{timeout:?}");
    }
    drop(stub);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_caller_goes_away_is_stopped() {
    let (stub, sandbox) = answering(Reply::Silence).await;
    let command = Command::shell("sleep infinity");
    let hasty = tokio::time::timeout(Duration::from_millis(100), sandbox.run(&command)).await;
    assert!(hasty.is_err());
    let run = stub.asked_for("POST /sessions/a/run")[0].json();
    wait_for_stop(&stub, run["run_id"].as_str().expect("an id")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_connection_breaks_is_stopped_and_not_run_again() {
    let (stub, sandbox) = answering(Reply::HangUp).await;
    let error = sandbox
        .run(&Command::shell("true"))
        .await
        .expect_err("broken");
    assert!(
        matches!(error, RunError::Request(RequestError::Unreachable(_))),
        "{error:?}"
    );
    let runs = stub.asked_for("POST /sessions/a/run");
    assert_eq!(runs.len(), 1, "it may have begun");
    wait_for_stop(&stub, runs[0].json()["run_id"].as_str().expect("an id")).await;
}

async fn wait_for_stop(stub: &Stub, run_id: &str) {
    for _ in 0..200 {
        if let [stop] = stops(stub).as_slice() {
            assert_eq!(stop.path, format!("/sessions/a/runs/{run_id}/stop"));
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("nobody stopped it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_was_answered_is_not_stopped() {
    for reply in [
        finished(0, ""),
        refusal(429, "busy"),
        Reply::Json(200, json!({})),
    ] {
        let (stub, sandbox) = answering(reply).await;
        drop(sandbox.run(&Command::shell("true")).await);
        // A stop would be sent on the same connections; a request after it comes out later.
        sandbox
            .info(false)
            .await
            .expect_err("not known to the stub");
        assert!(stops(&stub).is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_gone_is_told_apart_from_what_is_refused() {
    for status in [404, 410] {
        let (_stub, sandbox) = answering(refusal(status, "the words")).await;
        let error = sandbox
            .run(&Command::shell("true"))
            .await
            .expect_err("gone");
        assert!(
            matches!(&error, RunError::Gone { said } if said == "the words"),
            "{error:?}"
        );
    }
    for status in [401, 409, 413, 422, 429, 500, 502, 302] {
        let (_stub, sandbox) = answering(refusal(status, "no")).await;
        let error = sandbox
            .run(&Command::shell("true"))
            .await
            .expect_err("refused");
        let RunError::Request(RequestError::Refused(refusal)) = error else {
            panic!("{error:?}");
        };
        assert_eq!(
            (refusal.status, refusal.request_id.as_deref()),
            (status, Some("r-1"))
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_was_ended_keeps_what_it_printed() {
    let ended = |timed_out: bool, limit: Option<u64>| {
        Reply::Json(
            200,
            json!({
                "stdout": "so far", "stderr": "e", "exit_code": null, "timed_out": timed_out,
                "output_limited": limit.is_some(), "output_limit": limit,
            }),
        )
    };
    let (_stub, sandbox) = answering(ended(true, None)).await;
    let error = sandbox
        .run(&Command::shell("x").timeout(Duration::from_secs(2)))
        .await
        .expect_err("late");
    assert!(
        matches!(&error, RunError::TimedOut { asked_for: true, stdout, .. } if stdout == "so far"),
        "{error:?}"
    );
    let (_stub, sandbox) = answering(ended(false, Some(10_485_760))).await;
    let error = sandbox
        .run(&Command::shell("x"))
        .await
        .expect_err("too much");
    assert!(
        matches!(&error, RunError::OutputLimit { limit: 10_485_760, stderr, .. } if stderr == "e"),
        "{error:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_work_directory_is_asked_for_once() {
    let (stub, sandbox) = answering(finished(0, "/workspace\n")).await;
    assert_eq!(
        sandbox.working_dir().await.expect("a directory"),
        "/workspace"
    );
    assert_eq!(
        sandbox.working_dir().await.expect("a directory"),
        "/workspace"
    );
    let runs = stub.asked_for("POST /sessions/a/run");
    assert_eq!(runs.len(), 1);
    assert_eq!(runs[0].json()["argv"], json!(["sh", "-c", "pwd -P"]));
    let (_stub, sandbox) = answering(finished(1, "")).await;
    let error = sandbox.working_dir().await.expect_err("none");
    assert!(
        matches!(error, RunError::NoWorkingDirectory(_)),
        "{error:?}"
    );
}
