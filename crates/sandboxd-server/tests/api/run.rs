//! Programs.

use crate::support::{Reply, Service, run_id};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

struct Session {
    service: Service,
    token: String,
}

impl Session {
    async fn open(env: &[(&str, &str)]) -> Self {
        let service = Service::start(env).await;
        let token = service.open("a").await;
        Self { service, token }
    }

    async fn send(&self, body: Value) -> Reply {
        let request = self
            .service
            .bare("POST", "/sessions/a/run")
            .token(&self.token);
        request.json(&body).send().await
    }

    async fn run(&self, argv: &[&str]) -> Reply {
        self.send(json!({"argv": argv, "run_id": run_id(1)})).await
    }

    async fn stop(&self, run: &str) -> Reply {
        let path = format!("/sessions/a/runs/{run}/stop");
        self.service
            .bare("POST", &path)
            .token(&self.token)
            .send()
            .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finished_run_has_its_streams_apart_and_its_code() {
    let session = Session::open(&[]).await;
    let reply = session
        .run(&["sh", "-c", "echo hi; echo err >&2; exit 3"])
        .await;
    let expected = r#"{"stdout":"hi\n","stderr":"err\n","exit_code":3,"timed_out":false,"output_limited":false,"output_limit":null}"#;
    assert_eq!((reply.status, reply.text().as_str()), (200, expected));
    let argv = session.run(&["printf", "%s", " a $x `b`"]).await.ok();
    assert_eq!(
        argv["stdout"], " a $x `b`",
        "arguments are not a shell's text"
    );
    let missing = session.run(&["no-such-prog"]).await.ok();
    assert_eq!(missing["exit_code"], 127);
    assert!(!missing["stderr"].as_str().unwrap_or_default().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn output_that_is_no_utf_8_comes_with_replacements_and_nul_stays() {
    let session = Session::open(&[]).await;
    let reply = session.run(&["printf", r"\377\376abc"]).await;
    assert_eq!(reply.ok()["stdout"], "\u{fffd}\u{fffd}abc");
    let nul = session.run(&["printf", r"a\000b"]).await;
    assert_eq!(nul.ok()["stdout"], "a\0b");
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_of_the_request_come_on_top() {
    let session = Session::open(&[]).await;
    let body = json!({"argv": ["env"], "env": {"A": "1 2", "NO_COLOR": "zz"}, "run_id": run_id(1)});
    let env = session.send(body).await.ok();
    let env: Vec<&str> = env["stdout"].as_str().expect("text").lines().collect();
    for line in [
        "A=1 2",
        "NO_COLOR=zz",
        "LANG=C.UTF-8",
        "GIT_CONFIG_VALUE_0=*",
    ] {
        assert!(env.contains(&line), "{line}: {env:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_gives_what_was_said_so_far() {
    let session = Session::open(&[]).await;
    let script = json!(["sh", "-c", "echo before; sleep 15; echo after"]);
    let body = json!({"argv": script, "run_id": run_id(1), "timeout_seconds": 0.5});
    let done = session.send(body).await.ok();
    let expected = json!({"stdout": "before\n", "stderr": "", "exit_code": null, "timed_out": true,
        "output_limited": false, "output_limit": null, "killed_for": "time", "limits_reached": ["time"]});
    assert_eq!(done, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_services_ceiling_is_the_longest_and_the_default_deadline() {
    let session = Session::open(&[("SANDBOXD_EXECUTE_TIMEOUT", "1")]).await;
    for timeout in [json!(null), json!(30), json!("inf"), json!(1e300)] {
        let started = Instant::now();
        let body =
            json!({"argv": ["sleep", "19"], "run_id": run_id(1), "timeout_seconds": timeout});
        let done = session.send(body).await.ok();
        assert_eq!(done["timed_out"], true, "{timeout}");
        assert!(started.elapsed() < Duration::from_secs(11), "{timeout}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn output_without_end_is_ended() {
    let session = Session::open(&[]).await;
    let done = session.run(&["yes"]).await.ok();
    assert_eq!(done["exit_code"], json!(null));
    assert_eq!(done["output_limited"], true);
    assert_eq!(done["output_limit"], 10_485_760);
    assert_eq!(done["stdout"].as_str().map(str::len), Some(65_536));
    assert_eq!(
        session.run(&["true"]).await.ok()["exit_code"],
        0,
        "the session goes on"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_do_not_fit_are_422() {
    let session = Session::open(&[]).await;
    let id = run_id(1);
    for body in [
        json!({}),
        json!({"argv": ["true"]}),
        json!({"argv": [], "run_id": id}),
        json!({"argv": "true", "run_id": id}),
        json!({"argv": [1], "run_id": id}),
        json!({"argv": ["true"], "run_id": "A".repeat(32)}),
        json!({"argv": ["true"], "run_id": "xyz"}),
        json!({"argv": ["true"], "run_id": id, "env": {"A": 1}}),
        json!({"argv": ["true"], "run_id": id, "env": []}),
        json!({"argv": ["true"], "run_id": id, "timeout_seconds": 0}),
    ] {
        let reply = session.send(body.clone()).await;
        assert_eq!(reply.status, 422, "{body}");
    }
    let item = session.send(json!({"argv": ["a", 1], "run_id": id})).await;
    assert_eq!(item.json()["detail"][0]["loc"], json!(["body", "argv", 1]));
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_that_the_kernel_would_refuse_answer_as_a_shell_does() {
    let session = Session::open(&[]).await;
    for argv in [vec!["echo", "a\0b"], vec!["echo", &"x".repeat(200 * 1024)]] {
        let done = session.run(&argv).await.ok();
        assert_ne!(done["exit_code"], 0);
        let said = format!("{}{}", done["stdout"], done["stderr"]);
        assert!(said.len() > 10 && said.len() < 1000, "{said}");
    }
    assert_eq!(session.run(&["true"]).await.ok()["exit_code"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_stopped_by_its_id() {
    let session = Session::open(&[]).await;
    let body = json!({"argv": ["sh", "-c", "echo a; sleep 19"], "run_id": run_id(15)});
    let request = session
        .service
        .bare("POST", "/sessions/a/run")
        .token(&session.token);
    let run = tokio::spawn(request.json(&body).send());
    session.stop(&run_id(15)).await.nothing();
    let done = run.await.expect("no panic").ok();
    assert_eq!(done["exit_code"], 143);
    assert_eq!(done["timed_out"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_an_unknown_run_is_fine_and_a_body_is_ignored() {
    let session = Session::open(&[]).await;
    session.stop(&run_id(14)).await.nothing();
    let path = format!("/sessions/a/runs/{}/stop", run_id(14));
    let with_body = session
        .service
        .request("POST", &path)
        .json(&json!({"x": 1}))
        .send()
        .await;
    with_body.nothing();
    assert_eq!(session.stop("xyz").await.status, 422);
    assert_eq!(session.service.get(&path).await.status, 405);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_died_without_its_files_is_gone_for_good() {
    let session = Session::open(&[("SANDBOXD_WORKSPACE_ROOT", "")]).await;
    assert_eq!(session.run(&["true"]).await.ok()["exit_code"], 0);
    session.service.backend.kill_all();
    for _ in 0..2 {
        let gone = session.run(&["true"]).await;
        gone.refused(410);
        assert_eq!(gone.header("x-error-code"), Some("sandbox_gone"));
    }
    assert_eq!(
        session.service.get("/sessions/a").await.ok()["alive"],
        false
    );
    session
        .service
        .request("DELETE", "/sessions/a")
        .send()
        .await
        .nothing();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_died_beside_its_files_is_healed() {
    let session = Session::open(&[]).await;
    session
        .run(&["sh", "-c", "echo kept > /workspace/f"])
        .await
        .ok();
    session.service.backend.kill_all();
    // A command that is sent while the link still ends may have begun, and is answered 410.
    let alive = async || {
        let shown = session.service.request("GET", "/sessions/a").send().await;
        shown.ok()["alive"] == true
    };
    while alive().await {
        tokio::task::yield_now().await;
    }
    let done = session.run(&["cat", "/workspace/f"]).await.ok();
    assert_eq!(
        (&done["stdout"], &done["exit_code"]),
        (&json!("kept\n"), &json!(0))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_lies_or_falls_silent_harms_nobody_else() {
    for misbehave in [
        sandboxd_server::backends::in_memory::Switches::corrupt_links,
        sandboxd_server::backends::in_memory::Switches::make_guests_lie,
    ] {
        let session = Session::open(&[("SANDBOXD_EXECUTE_TIMEOUT", "2")]).await;
        misbehave(&session.service.switches());
        let reply = session.run(&["echo", "x"]).await;
        assert!([200, 410, 502].contains(&reply.status), "{}", reply.text());
        let other = session.service.open("other").await;
        let body = json!({"argv": ["true"], "run_id": run_id(1)});
        let request = session
            .service
            .bare("POST", "/sessions/other/run")
            .token(&other);
        let reply = request.json(&body).send().await;
        assert!([200, 410].contains(&reply.status), "{}", reply.text());
        session
            .service
            .request("DELETE", "/sessions/a")
            .send()
            .await
            .nothing();
    }
}
