//! Opening, listing, watching and closing sessions.

use crate::support::{Service, run_id};
use serde_json::{Value, json};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn an_opened_session_is_described_in_the_contracts_fields() {
    let service = Service::start(&[]).await;
    let created = service
        .post(
            "/sessions",
            json!({"session_id": "probe", "tenant": "acme", "unknown": 1}),
        )
        .await
        .ok();
    assert_eq!(created["token"].as_str().map(str::len), Some(43));
    let session = &created["session"];
    assert_eq!(session["session_id"], "probe");
    assert_eq!(session["runtime"], "python");
    assert_eq!(session["tenant"], "acme");
    assert_eq!(session["alive"], true);
    assert_eq!(session["state"], "running");
    assert_eq!(session["usage"], json!(null));
    assert!(session["created_at"].as_f64() > Some(1.0e9));
    assert!(session["last_activity"].as_f64() >= session["created_at"].as_f64());
    assert!(session["idle_seconds"].as_f64() >= Some(0.0));
    assert_eq!(session["enforced"]["memory"]["enforced"], true);
    assert!(session["enforced"]["memory"]["reason"].is_string());

    let shown = service.get("/sessions/probe").await.ok();
    assert_eq!(shown["session_id"], "probe");
    let made = service.post("/sessions", json!({})).await.ok();
    let id = made["session"]["session_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    assert!(id.starts_with("s-") && id.len() == 18, "{id}");
    let empty = service
        .post("/sessions", json!({"runtime": "", "tenant": null}))
        .await
        .ok();
    assert_eq!(empty["session"]["runtime"], "python");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_cannot_be_given_is_refused_by_its_name() {
    let runtimes = "plain=host,wide=host;network_mode=bridge,theirs=host;network_mode=my-network";
    let service = Service::start(&[("SANDBOXD_RUNTIMES", runtimes)]).await;
    let open = |runtime: &str| service.post("/sessions", json!({ "runtime": runtime }));
    let wide = open("wide").await.refused(502);
    assert!(
        wide.contains("network") && wide.contains("bridge"),
        "{wide}"
    );
    let theirs = open("theirs").await.refused(502);
    assert!(theirs.contains("my-network"), "{theirs}");
    let plain = open("plain").await.ok();
    assert_eq!(plain["session"]["enforced"]["network"]["enforced"], true);
    let policy = service.get("/policy").await.ok();
    let modes: Vec<_> = policy["runtimes"]
        .as_array()
        .expect("runtimes")
        .iter()
        .map(|runtime| runtime["network_mode"].as_str().expect("text"))
        .collect();
    assert_eq!(modes, ["none", "my-network", "bridge"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn opens_that_are_refused_say_why_and_leave_nothing() {
    let service = Service::start(&[]).await;
    service.open("a").await;
    let open = |body: Value| service.post("/sessions", body);
    let unknown = open(json!({"runtime": "evil"})).await.refused(400);
    assert!(unknown.starts_with("Unknown runtime"), "{unknown}");
    assert!(unknown.contains("node, python"), "{unknown}");
    open(json!({"attach": true})).await.refused(400);
    let exists = open(json!({"session_id": "a"})).await;
    assert_eq!(exists.refused(409), "Session exists: a");
    assert_eq!(exists.header("x-error-code"), Some("session_exists"));
    let other = open(json!({"session_id": "a", "reuse": true, "runtime": "node"}))
        .await
        .refused(409);
    assert!(
        other.contains("python") && other.contains("node"),
        "{other}"
    );
    assert!(
        other.contains("Close it before changing runtime"),
        "{other}"
    );
    let missing = open(json!({"session_id": "never", "attach": true}))
        .await
        .refused(404);
    assert_eq!(missing, "Nothing to attach to: never");
    // Which runtime is asked for is checked before anything else.
    let first = open(json!({"session_id": "never", "attach": true, "runtime": "evil"})).await;
    first.refused(400);

    service.switches().fail_creates(Some("daemon down"));
    let failed = open(json!({"session_id": "b"})).await.refused(502);
    assert!(
        failed.starts_with("Could not start sandbox: ") && failed.contains("daemon down"),
        "{failed}"
    );
    service.switches().fail_creates(None);
    service.switches().miss_image("node", "pull it");
    let image = open(json!({"session_id": "b", "runtime": "node"}))
        .await
        .refused(502);
    assert!(image.contains("node:20-slim"), "{image}");
    assert_eq!(service.get("/healthz").await.ok()["open_sessions"], 1);
    service.open("b").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reuse_and_attach_hand_out_the_open_session() {
    let service = Service::start(&[]).await;
    let token = service.open("a").await;
    for body in [
        json!({"session_id": "a", "reuse": true}),
        json!({"session_id": "a", "reuse": "yes", "runtime": "python", "tenant": "other"}),
        json!({"session_id": "a", "attach": 1}),
    ] {
        let again = service.post("/sessions", body).await.ok();
        assert_eq!(again["token"], json!(token));
        assert_eq!(
            again["session"]["tenant"],
            json!(null),
            "the label stays what it was"
        );
    }
    service
        .request("DELETE", "/sessions/a")
        .send()
        .await
        .nothing();
    let attached = service
        .post("/sessions", json!({"session_id": "a", "attach": true}))
        .await;
    assert_eq!(attached.status, 200, "its workspace is stored");
    service
        .request("DELETE", "/sessions/a?purge=true")
        .send()
        .await
        .nothing();
    let gone = service
        .post("/sessions", json!({"session_id": "a", "attach": true}))
        .await;
    gone.refused(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_answer_429_in_words_that_clients_know() {
    let service = Service::start(&[
        ("SANDBOXD_MAX_SESSIONS", "3"),
        ("SANDBOXD_MAX_SESSIONS_PER_TENANT", "2"),
    ])
    .await;
    let open = |id: &str, tenant: Value| {
        service.post("/sessions", json!({"session_id": id, "tenant": tenant}))
    };
    open("a", json!("acme")).await.ok();
    open("b", json!("acme")).await.ok();
    let tenant = open("c", json!("acme")).await.refused(429);
    assert!(tenant.contains("acme"), "{tenant}");
    open("c", json!(null)).await.ok();
    let full = open("d", json!(null)).await;
    assert_eq!(full.header("retry-after"), Some("1"));
    assert!(
        full.refused(429).contains("Session limit"),
        "{}",
        full.text()
    );
    let service = Service::start(&[
        ("SANDBOXD_MAX_SESSIONS", "1"),
        ("SANDBOXD_MAX_OPEN_SESSIONS", "1"),
    ])
    .await;
    service.open("a").await;
    let open_limit = service.post("/sessions", json!({})).await.refused(429);
    assert!(
        open_limit.contains("all of them are in use"),
        "{open_limit}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_is_being_opened_is_409_also_for_reuse() {
    let service = Service::start(&[]).await;
    let gate = service.switches().hold_creates();
    let body = json!({"session_id": "a", "reuse": true});
    let open = || Box::pin(service.request("POST", "/sessions").json(&body).send());
    // Whichever comes second is told at once that the other is at it.
    let (second, first) = futures::future::select(open(), open()).await.factor_first();
    assert!(second.refused(409).contains("opening"), "{}", second.text());
    // Meanwhile the session is not there, and everybody else is served.
    assert_eq!(service.get("/sessions/a").await.status, 404);
    assert_eq!(service.get("/healthz").await.status, 200);
    gate.add_permits(1);
    assert_eq!(first.await.status, 200);
    assert_eq!(open().await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_listing_is_in_order_of_creation_with_its_limits() {
    let service = Service::start(&[]).await;
    for id in ["z", "a", "m"] {
        service.open(id).await;
    }
    let list = service.get("/sessions?usage=true").await.ok();
    let ids: Vec<&Value> = list["sessions"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|session| &session["session_id"])
        .collect();
    assert_eq!(ids, ["z", "a", "m"]);
    assert_eq!(list["limit"], 20);
    assert_eq!(list["open_limit"], json!(null));
    assert_eq!(list["tenant_limit"], json!(null));
    let usage = &list["sessions"][0]["usage"];
    assert!(usage["memory_bytes"].is_number(), "{usage}");
    assert_eq!(usage["memory_limit_bytes"], 1 << 30);
    for field in ["cpu_percent", "pids"] {
        assert!(usage.get(field).is_some(), "every field is there: {field}");
    }
    let plain = service.get("/sessions").await.ok();
    assert_eq!(plain["sessions"][0]["usage"], json!(null));
    let one = service.get("/sessions/z?usage=true").await.ok();
    assert!(one["usage"]["memory_bytes"].is_number());
}

#[tokio::test(flavor = "multi_thread")]
async fn events_tell_what_happened_after_a_number() {
    let service = Service::start(&[]).await;
    let token = service.open("a").await;
    let events = |after: u64| {
        let path = format!("/sessions/a/events?after={after}");
        service.bare("GET", &path).token(&token).send()
    };
    assert_eq!(events(0).await.ok(), json!({"events": [], "latest_seq": 0}));
    for (number, argv) in [["true", ""], ["false", ""]].iter().enumerate() {
        let number = u32::try_from(number).expect("small");
        let body = json!({"argv": argv, "run_id": run_id(number)});
        service
            .bare("POST", "/sessions/a/run")
            .token(&token)
            .json(&body)
            .send()
            .await
            .ok();
    }
    let all = events(0).await.ok();
    assert_eq!(all["latest_seq"], 2);
    let first = &all["events"][0];
    assert_eq!(
        (&first["seq"], &first["op"], &first["ok"]),
        (&json!(1), &json!("run"), &json!(true))
    );
    assert_eq!(first["detail"], "exit 0");
    assert!(first["at"].is_f64() && first["duration_ms"].is_f64());
    let later = events(1).await.ok();
    assert_eq!(later["events"].as_array().map(Vec::len), Some(1));
    assert_eq!(later["events"][0]["ok"], false);
    assert_eq!(
        events(99).await.ok(),
        json!({"events": [], "latest_seq": 2})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn looking_at_a_session_is_no_use_of_it() {
    let service = Service::start(&[]).await;
    service.open("a").await;
    let before = service.get("/sessions/a").await.ok();
    tokio::time::sleep(Duration::from_millis(20)).await;
    service.get("/sessions").await.ok();
    service.get("/sessions/a/events").await.ok();
    let after = service.get("/sessions/a").await.ok();
    assert_eq!(before["last_activity"], after["last_activity"]);
    assert!(after["idle_seconds"].as_f64() > before["idle_seconds"].as_f64());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_hangs_up_leaves_its_open_to_be_finished() {
    let service = Service::start(&[]).await;
    let gate = service.switches().hold_creates();
    let body = json!({"session_id": "a"});
    let request = service.request("POST", "/sessions").json(&body).send();
    assert!(
        tokio::time::timeout(Duration::from_millis(300), request)
            .await
            .is_err()
    );
    gate.add_permits(1);
    let reply = loop {
        let reply = service
            .post("/sessions", json!({"session_id": "a", "reuse": true}))
            .await;
        if reply.status != 409 {
            break reply;
        }
    };
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(service.backend.made_count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_session_says_what_it_was_made_with_and_a_list_does_not() {
    let service = Service::start(&[
        ("SANDBOXD_MEM_LIMIT", "256m"),
        ("SANDBOXD_CPU_SHARES", "512"),
        ("SANDBOXD_DISK_LIMIT", "2g"),
        ("SANDBOXD_INODES_LIMIT", "5000"),
        ("SANDBOXD_TMPFS_SIZE", ""),
        ("SANDBOXD_EXECUTE_TIMEOUT", "77"),
        ("SANDBOXD_OCI_RUNTIME", "runsc"),
        ("SANDBOXD_ALLOW_UNENFORCED", "oci_runtime"),
    ])
    .await;
    service.open("a").await;
    let shown = service.get("/sessions/a").await.ok();
    let made = &shown["in_force"];
    assert_eq!(made["network"], "none");
    assert_eq!(made["environment"]["LANG"], "C.UTF-8");
    let limits = json!({
        "memory_bytes": 256 << 20, "memory_swap_bytes": 256 << 20, "cpus": 2.0, "cpu_shares": 512, "pids": 512,
        "disk_bytes": 2_u64 << 30, "inodes": 5000, "tmpfs_bytes": null, "output_bytes": 10_485_760, "run_seconds": 77,
    });
    assert_eq!(made["limits"], limits);
    // What cannot be had, and was accepted, is reported.
    let runtime = &shown["enforced"]["oci_runtime"];
    assert_eq!(runtime["enforced"], false);
    assert!(
        runtime["reason"]
            .as_str()
            .unwrap_or_default()
            .contains("runsc"),
        "{runtime}"
    );
    let list = service.get("/sessions").await.ok();
    assert!(list["sessions"][0].get("in_force").is_none(), "{list}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_had_is_refused_by_name() {
    for (name, value, said) in [
        ("SANDBOXD_OCI_RUNTIME", "runsc", "runsc"),
        ("SANDBOXD_NETWORK_MODE", "my-net", "my-net"),
    ] {
        let service = Service::start(&[(name, value)]).await;
        let refused = service.post("/sessions", json!({"session_id": "a"})).await;
        assert!(refused.refused(502).contains(said), "{name}");
    }
}
