//! What the service allows, and changing it.

use crate::support::{Reply, Service};
use serde_json::{Value, json};

async fn put(service: &Service, body: Value) -> Reply {
    service.request("PUT", "/policy").json(&body).send().await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_policy_has_every_field_in_the_contracts_order() {
    let service = Service::start(&[]).await;
    let policy = service.get("/policy").await;
    let runtime = |alias: &str, image: &str| {
        format!(
            r#"{{"alias":"{alias}","image":"{image}","description":"{image}","builds":false,"mem_limit":"1g","memswap_limit":null,"cpus":2.0,"cpu_shares":null,"pids_limit":512,"network_mode":"none","oci_runtime":null}}"#
        )
    };
    let expected = format!(
        r#"{{"runtimes":[{},{}],"default_runtime":"python","max_sessions":20,"max_open_sessions":null,"max_sessions_per_tenant":null,"evict_idle_after":null,"mem_limit":"1g","memswap_limit":null,"cpus":2.0,"cpu_shares":null,"pids_limit":512,"network_mode":"none","oci_runtime":null,"work_dir":"/workspace","idle_timeout":1800,"execute_timeout":20,"max_read_bytes":8388608,"persist_containers":false,"sandbox_uid":null,"workspace_ttl":null,"container_ttl":null,"tmpfs_size":"64m","prewarm":true,"buildkit":false,"native_files":true,"native_writes":true,"native_realpath":true}}"#,
        runtime("node", "node:20-slim"),
        runtime("python", "python:3.12-slim"),
    );
    assert_eq!((policy.status, policy.text()), (200, expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_answers_the_whole_policy_and_is_in_force() {
    let service = Service::start(&[]).await;
    let before = service.get("/policy").await.ok();
    assert_eq!(
        put(&service, json!({})).await.ok(),
        before,
        "nothing asked, nothing changed"
    );
    let body =
        json!({"max_sessions": 1, "mem_limit": "512m", "runtimes": {"python": {"cpus": 1.5}}});
    let after = put(&service, body).await.ok();
    assert_eq!(after["max_sessions"], 1);
    assert_eq!(after["mem_limit"], "512m");
    assert_eq!(after["runtimes"][1]["cpus"], 1.5);
    assert_eq!(
        after["runtimes"][1]["mem_limit"], "512m",
        "what a runtime does not set is the service's"
    );
    assert_eq!(after["runtimes"][0]["cpus"], 2.0);
    service.open("a").await;
    let full = service.post("/sessions", json!({})).await;
    assert_eq!(full.status, 429, "the limit is enforced, not only reported");
    put(
        &service,
        json!({"max_sessions": null, "runtimes": {"python": {"cpus": null}}}),
    )
    .await
    .ok();
    let cleared = service.get("/policy").await.ok();
    assert_eq!(
        (&cleared["max_sessions"], &cleared["runtimes"][1]["cpus"]),
        (&json!(null), &json!(2.0))
    );
    service.open("b").await;
    put(&service, json!({"default_runtime": "node"})).await.ok();
    let made = service.post("/sessions", json!({})).await.ok();
    assert_eq!(made["session"]["runtime"], "node");
}

#[tokio::test(flavor = "multi_thread")]
async fn swap_is_shown_as_it_is_given() {
    let service = Service::start(&[]).await;
    let body = json!({"memswap_limit": "2g", "runtimes": {"python": {"mem_limit": "256m"}}});
    let after = put(&service, body).await.ok();
    assert_eq!(after["runtimes"][0]["memswap_limit"], "2g");
    assert_eq!(
        after["runtimes"][1]["memswap_limit"],
        json!(null),
        "beside a memory ceiling of its own the service's swap does not count"
    );
    let body = json!({"runtimes": {"python": {"memswap_limit": "512m"}}});
    let after = put(&service, body).await.ok();
    assert_eq!(after["runtimes"][1]["memswap_limit"], "512m");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_decided_at_start_cannot_be_changed() {
    let service = Service::start(&[]).await;
    let before = service.get("/policy").await.ok();
    for field in [
        "network_mode",
        "oci_runtime",
        "sandbox_uid",
        "work_dir",
        "workspace_root",
        "persist_containers",
        "prewarm",
        "image",
        "token",
        "native_files",
    ] {
        let reply = put(&service, json!({field: "host", "max_sessions": 3})).await;
        assert_eq!(reply.status, 422, "{field}");
        assert_eq!(reply.json()["detail"][0]["type"], "extra_forbidden");
        assert_eq!(reply.json()["detail"][0]["loc"], json!(["body", field]));
        let nested = put(&service, json!({"runtimes": {"python": {field: "host"}}})).await;
        assert_eq!(nested.status, 422, "{field}");
        assert_eq!(
            nested.json()["detail"][0]["loc"],
            json!(["body", "runtimes", "python", field])
        );
    }
    assert_eq!(service.get("/policy").await.ok(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_change_changes_nothing_at_all() {
    let service = Service::start(&[("SANDBOXD_WORKSPACE_ROOT", "")]).await;
    let before = service.get("/policy").await.ok();
    for (body, status) in [
        (
            json!({"max_sessions": 3, "runtimes": {"zzz": {"cpus": 1}}}),
            400,
        ),
        (json!({"default_runtime": "zzz", "mem_limit": "2g"}), 400),
        (json!({"default_runtime": null}), 400),
        (json!({"max_sessions": 3, "mem_limit": "lots"}), 400),
        (json!({"max_sessions": 3, "evict_idle_after": 0}), 400),
        (json!({"max_sessions": 3, "max_open_sessions": 1}), 400),
        (json!({"max_sessions": -1, "cpus": 1}), 422),
        (json!({"cpus": 0}), 422),
        (json!({"cpus": "inf"}), 422),
        (json!({"execute_timeout": null}), 422),
        (json!({"execute_timeout": 0}), 422),
        (json!({"idle_timeout": null}), 422),
        (json!({"max_read_bytes": null}), 422),
        (json!({"pids_limit": 0}), 422),
        (json!({"runtimes": []}), 422),
        (json!({"runtimes": {"python": 1}}), 422),
    ] {
        let reply = put(&service, body.clone()).await;
        assert_eq!(reply.status, status, "{body}: {}", reply.text());
        assert_eq!(service.get("/policy").await.ok(), before, "{body}");
    }
    let unknown = put(&service, json!({"runtimes": {"zzz": {}}}))
        .await
        .refused(400);
    assert!(unknown.starts_with("Unknown runtime 'zzz'"), "{unknown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_changes_is_applied_before_the_first_request() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("policy.json");
    let name = file.to_str().expect("text");
    std::fs::write(&file, r#"{"max_sessions": 7}"#).expect("written");
    let service = Service::start(&[
        ("SANDBOXD_POLICY_OVERRIDES", name),
        ("SANDBOXD_CLEANUP_INTERVAL", "1"),
    ])
    .await;
    assert_eq!(service.get("/policy").await.ok()["max_sessions"], 7);
    // A file that cannot be used changes nothing; the next one that can is taken.
    std::fs::write(&file, r#"{"max_sessions": 8, "network_mode": "host"}"#).expect("written");
    tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
    assert_eq!(service.get("/policy").await.ok()["max_sessions"], 7);
    std::fs::write(&file, r#"{"max_sessions": 9}"#).expect("written");
    for _ in 0..100 {
        if service.get("/policy").await.ok()["max_sessions"] == 9 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("the changed file was not taken");
}
