//! The OpenAPI document says what the service does: the same routes, by the same methods, and it is for everybody.

use crate::support::Service;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const METHODS: [&str; 5] = ["get", "put", "post", "delete", "patch"];

async fn document(service: &Service) -> Value {
    let reply = service.bare("GET", "/openapi.json").send().await;
    assert_eq!(reply.header("content-type"), Some("application/json"));
    reply.ok()
}

fn in_use(path: &str) -> String {
    path.replace("{session_id}", "unknown")
        .replace("{run_id}", "0123456789abcdef0123456789abcdef")
}

#[tokio::test(flavor = "multi_thread")]
async fn it_has_every_route_and_no_other() {
    let service = Service::start(&[]).await;
    let document = document(&service).await;
    let paths = document["paths"].as_object().expect("paths");
    let described: BTreeSet<&str> = paths.keys().map(String::as_str).collect();
    let index = service.bare("GET", "/").send().await.ok();
    let served = index["endpoints"].as_array().expect("a list").iter();
    let served: BTreeSet<&str> = served.filter_map(Value::as_str).chain(["/"]).collect();
    assert_eq!(described, served);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_has_every_method_and_whether_a_token_is_needed() {
    let service = Service::start(&[]).await;
    let document = document(&service).await;
    for (path, item) in document["paths"].as_object().expect("paths") {
        for method in METHODS {
            let asked = service.bare(&method.to_uppercase(), &in_use(path));
            let status = asked.json(&json!({})).send().await.status;
            let Some(operation) = item.get(method) else {
                assert_eq!(status, 405, "{method} {path} is not described");
                continue;
            };
            let open = operation["security"] == json!([{}]);
            assert_eq!(status, if open { 200 } else { 401 }, "{method} {path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn examples_of_requests_are_taken() {
    let service = Service::start(&[]).await;
    let document = document(&service).await;
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("an item") {
            let body = &operation["requestBody"]["content"]["application/json"]["example"];
            if body.is_null() {
                continue;
            }
            let reply = service
                .request(&method.to_uppercase(), &in_use(path))
                .json(body)
                .send()
                .await;
            assert_ne!(reply.status, 422, "{method} {path}: {}", reply.text());
            let described = operation["responses"].get(reply.status.to_string());
            assert!(
                described.is_some(),
                "{method} {path}: {} is not described",
                reply.status
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_can_be_read_in_a_browser() {
    let service = Service::start(&[]).await;
    for path in ["/docs", "/redoc"] {
        let page = service.bare("GET", path).send().await;
        assert_eq!(
            (page.status, page.header("content-type")),
            (200, Some("text/html; charset=utf-8"))
        );
        let policy = page.header("content-security-policy").expect("a policy");
        assert!(policy.starts_with("default-src 'none'"), "{policy}");
        assert!(page.text().contains("fetch(\"openapi.json\")"));
    }
}
