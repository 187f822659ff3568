//! Bodies that nobody meant: whatever JSON comes to whatever route, the answer is no mistake of the service's own.

use crate::support::{Request, Service, TOKEN};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Map, Value};

/// Names that routes look for, so that values get past them.
const NAMES: [&str; 18] = [
    "session_id",
    "runtime",
    "tenant",
    "reuse",
    "attach",
    "argv",
    "env",
    "timeout_seconds",
    "run_id",
    "path",
    "pattern",
    "sessions",
    "max_depth",
    "max_entries",
    "content_b64",
    "old_string",
    "offset",
    "limit",
];

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[/a-z.\u{0}*\\[{}-]{0,12}".prop_map(Value::from),
        Just(Value::from("a")),
        Just(Value::from("/workspace/x")),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((prop::sample::select(&NAMES[..]), inner), 0..4).prop_map(object),
        ]
    })
}

fn object(fields: Vec<(&str, Value)>) -> Value {
    let fields = fields
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value));
    Value::Object(fields.collect::<Map<_, _>>())
}

#[test]
fn no_body_is_a_mistake_of_the_services() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let service = runtime.block_on(Service::start(&[("SANDBOXD_EXECUTE_TIMEOUT", "1")]));
    runtime.block_on(service.open("a"));
    let document: Value =
        serde_json::from_str(&sandboxd_server::api::openapi_document()).expect("a document");
    let routes: Vec<(String, String)> = document["paths"]
        .as_object()
        .expect("paths")
        .iter()
        .flat_map(|(path, methods)| {
            let methods = methods.as_object().expect("methods").keys();
            methods.map(|method| (method.to_ascii_uppercase(), path.clone()))
        })
        .filter(|(method, _)| ["POST", "PUT", "PATCH"].contains(&method.as_str()))
        .collect();
    assert!(routes.len() > 20, "{routes:?}");
    let config = Config {
        cases: 400,
        failure_persistence: None,
        ..Config::default()
    };
    let body = prop::collection::vec((prop::sample::select(&NAMES[..]), value()), 0..8);
    let outcome = TestRunner::new(config).run(
        &(prop::sample::select(routes), body, value(), any::<bool>()),
        |((method, route), fields, other, whole)| {
            let path = route
                .replace("{session_id}", "a")
                .replace("{run_id}", &"0".repeat(32));
            let body = if whole { object(fields) } else { other };
            let request = Request::new(service.addr, &method, &path).token(TOKEN);
            let reply = runtime.block_on(request.json(&body).send());
            prop_assert!(
                reply.status != 500 && reply.status != 0,
                "{method} {path} {body}: {}",
                reply.text()
            );
            Ok(())
        },
    );
    outcome.expect("no such body");
    runtime.block_on(service.shut_down());
}
