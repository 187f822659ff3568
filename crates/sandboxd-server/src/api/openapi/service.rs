//! What the service is, and what it allows.

use super::describe::{Described, route};
use super::refusals;
use sandboxd_api::policy::{PolicyUpdate, ServicePolicy};
use sandboxd_api::service::{ServiceHealth, ServiceIndex, ServiceReadiness};
use serde_json::{Value, json};
use utoipa::openapi::path::HttpMethod::{Get, Put};

pub(super) const TAG: &str = "service";

pub(super) fn routes() -> Vec<Described> {
    vec![
        route(Get, "/", TAG, "index", "What this service is")
            .about("Its health, where its documents are, and every route it serves.")
            .for_everybody()
            .gives::<ServiceIndex>("The index.", index()),
        route(Get, "/healthz", TAG, "health", "Whether the service lives")
            .about("For probes, and for whoever wants to know whether there is room.")
            .for_everybody()
            .gives::<ServiceHealth>("It lives.", health()),
        route(Get, "/readyz", TAG, "ready", "Whether the service can serve")
            .about(
                "Asks every part that an open session depends on: the store, the backend, the stored workspaces, and the service \
                 itself, which is not ready any more once it ends. An answer is given again for a second.",
            )
            .for_everybody()
            .gives::<ServiceReadiness>(
                "It can.",
                json!({ "status": "ready", "parts": ["service", "store", "backend", "workspaces"] }),
            )
            .refuses(refusals::NOT_READY),
        route(Get, "/metrics", TAG, "metrics", "Figures for a scraper")
            .about(
                "Prometheus' text format: sessions by state, starts, wakes, runs, file operations, requests, evictions, \
                 refusals, and this process. No label is a session's. Needs the service's token, unless \
                 `metrics_public` is set.",
            )
            .for_the_service()
            .gives_text(
                "The figures.",
                "# TYPE sandboxd_sessions gauge\nsandboxd_sessions{state=\"resident\"} 3\n",
            ),
        route(Get, "/openapi.json", TAG, "openapi", "This document")
            .for_everybody()
            .gives_object("OpenAPI 3.1.", json!({ "openapi": "3.1.0" })),
        route(Get, "/docs", TAG, "docs", "This document for people")
            .about("A page of the service's own; nothing is loaded from elsewhere.")
            .for_everybody()
            .gives_page("The page."),
        route(Get, "/redoc", TAG, "redoc", "This document for people, by another name")
            .for_everybody()
            .gives_page("The page."),
        route(Get, "/policy", TAG, "show_policy", "What the service allows")
            .about("The allowlist of runtimes with the ceilings in force for each, and the service's own settings.")
            .for_the_service()
            .gives::<ServicePolicy>("The policy.", policy()),
        route(Put, "/policy", TAG, "change_policy", "Change what the service allows")
            .about(
                "Wholly or not at all. A field that is left out stays, `null` clears it. Ceilings apply to the next \
                 sandbox; the others keep theirs. Nothing is written to disk: a restart goes back to the configuration. \
                 What keeps sandboxes apart (network, user, mounts, images) cannot be changed here.",
            )
            .for_the_service()
            .takes::<PolicyUpdate>(json!({
                "max_sessions": 40,
                "evict_idle_after": null,
                "runtimes": { "python": { "mem_limit": "1g" } },
            }))
            .gives::<ServicePolicy>("The whole policy after the change.", policy())
            .refuses(refusals::POLICY),
    ]
}

fn health() -> Value {
    json!({
        "status": "ok", "sessions": 3, "limit": 20, "open_sessions": 12, "open_limit": 200,
        "runtimes": ["node", "python"],
    })
}

fn index() -> Value {
    json!({
        "service": "sandboxd", "health": health(), "docs_url": "/docs", "openapi_url": "/openapi.json", "ui_url": null,
        "endpoints": ["/healthz", "/policy", "/sessions", "/sessions/{session_id}"],
    })
}

fn policy() -> Value {
    let ceilings = json!({
        "mem_limit": "512m", "memswap_limit": null, "cpus": 1.5, "cpu_shares": null, "pids_limit": 256,
        "network_mode": "none", "oci_runtime": null,
    });
    let mut runtime = json!({
        "alias": "python", "image": "python:3.12-slim", "description": "Python and nothing else", "builds": false,
    });
    let mut policy = json!({
        "runtimes": [], "default_runtime": "python", "max_sessions": 20, "max_open_sessions": 200,
        "max_sessions_per_tenant": 5, "evict_idle_after": 60, "work_dir": "/workspace", "idle_timeout": 3600,
        "execute_timeout": 300, "max_read_bytes": 10_485_760, "persist_containers": false, "sandbox_uid": null,
        "workspace_ttl": 604_800, "container_ttl": null, "tmpfs_size": "64m", "prewarm": true, "buildkit": false,
        "native_files": true, "native_writes": true, "native_realpath": true,
    });
    for target in [&mut runtime, &mut policy] {
        if let (Some(target), Some(ceilings)) = (target.as_object_mut(), ceilings.as_object()) {
            target.extend(ceilings.clone());
        }
    }
    policy["runtimes"] = json!([runtime]);
    policy
}
