//! Whole requests to every route of the service, over a backend without programs: each gets an answer, none of them the
//! one for a mistake of the service's own, and none without a token gets anything.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sandboxd_server::backends::in_memory::InMemory;
use sandboxd_server::config::{Flags, Layers};
use sandboxd_server::server::{Fuzzed, Server};
use std::sync::OnceLock;
use tokio::runtime::{Builder, Runtime};

const TOKEN: &str = "fuzzing-token";
const KINDS: [&str; 3] = ["application/json", "application/octet-stream", "text/plain"];

fn service() -> &'static (Runtime, Fuzzed) {
    static SERVICE: OnceLock<(Runtime, Fuzzed)> = OnceLock::new();
    SERVICE.get_or_init(|| {
        let home = std::env::temp_dir().join(format!("requests-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&home);
        let text = |name: &str| home.join(name).display().to_string();
        let env = [
            ("SANDBOXD_PORT", "0".to_owned()),
            ("SANDBOXD_TOKEN", TOKEN.to_owned()),
            ("SANDBOXD_BACKEND", "in_memory".to_owned()),
            ("SANDBOXD_STATE_DIR", text("state")),
            ("SANDBOXD_WORKSPACE_ROOT", text("workspaces")),
            ("SANDBOXD_RUNTIMES", "python=python:3.12-slim".to_owned()),
            ("SANDBOXD_EXECUTE_TIMEOUT", "1".to_owned()),
            ("SANDBOXD_UI_ENABLED", "true".to_owned()),
        ];
        let layers = Layers {
            flags: Flags::default(),
            env: env.map(|(name, value)| (name.into(), value.into())).into(),
            file: None,
            root: false,
        };
        let (config, _) = layers.read().expect("a configuration");
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let server = runtime
            .block_on(Server::start(config, InMemory::new()))
            .expect("it starts");
        let fuzzed = server.fuzzed();
        // It answers for as long as the fuzzer lives.
        std::mem::forget(server);
        let body = br#"{"session_id": "a", "reuse": true}"#;
        let opened = runtime.block_on(fuzzed.answer("POST", "/sessions", KINDS[0], Some(TOKEN), body));
        assert_eq!(opened, Some(200));
        (runtime, fuzzed)
    })
}

fuzz_target!(|input: (u8, u8, &str, &[u8])| {
    let (route, kind, query, body) = input;
    let (runtime, fuzzed) = service();
    let routes = fuzzed.routes();
    let (method, path) = &routes[usize::from(route) % routes.len()];
    let mut path = path.replace("{session_id}", "a").replace("{run_id}", &"0".repeat(32));
    if !query.is_empty() && kind & 4 != 0 {
        path = format!("{path}?{query}");
    }
    let kind_name = KINDS[usize::from(kind) % KINDS.len()];
    let token = (kind & 8 == 0).then_some(TOKEN);
    // Nothing: the query was no part of a request.
    let Some(status) = runtime.block_on(fuzzed.answer(method, &path, kind_name, token, body)) else {
        return;
    };
    assert_ne!(status, 500, "{method} {path}");
    if token.is_none() {
        let open = ["/", "/healthz", "/readyz", "/openapi.json", "/docs", "/redoc", "/ui"];
        let bare = path.split('?').next().unwrap_or_default();
        assert!(open.contains(&bare) || (400..500).contains(&status), "{method} {path}: {status}");
    }
});
