//! The archive.

use crate::stub::{Reply, Stub, TOKEN, refusal};
use sandboxd_client::{ArchiveError, RequestError, Service, TreeBounds};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn it_lists_reads_and_shows_trees() {
    let entry = json!({ "name": "f", "path": "f", "is_dir": false, "size": 1, "modified_at": "2026-01-01T00:00:00+00:00" });
    let stub = Stub::start(move |asked| {
        Some(Reply::Json(
            200,
            match asked.path.strip_prefix("/workspaces/")? {
                "a/ls" => json!([entry.clone()]),
                "a/read" => json!({ "content": "text" }),
                "a/read_bytes" => json!({ "content_b64": "AP\n8" }),
                "a/tree" => json!({ "entries": [entry.clone()], "truncated": true }),
                "trees" => json!({ "results": [
                    { "session_id": "a", "tree": { "entries": [], "truncated": false }, "error": null, "status_code": null },
                    { "session_id": "b", "tree": null, "error": "No stored workspace: b", "status_code": 404 },
                ] }),
                _ => return None,
            },
        ))
    })
    .await;
    let archive = stub.service().archive();
    assert_eq!(archive.ls("a", ".").await.expect("listed")[0].name, "f");
    assert_eq!(archive.read("a", "f", 3, 7).await.expect("read"), "text");
    assert_eq!(
        archive.read_bytes("a", "f").await.expect("read"),
        b"\0\xff",
        "however it is wrapped up"
    );
    let bounds = TreeBounds {
        max_depth: 2,
        ..TreeBounds::default()
    };
    assert!(
        archive
            .tree("a", "sub", bounds)
            .await
            .expect("a tree")
            .truncated
    );
    let trees = archive
        .trees(&["a", "b", "c"], ".", bounds)
        .await
        .expect("trees");
    assert!(trees["a"].is_ok());
    let error = trees["b"].as_ref().expect_err("none");
    assert_eq!(
        (error.status(), error.to_string().as_str()),
        (Some(404), "No stored workspace: b")
    );
    assert!(matches!(trees["c"], Err(ArchiveError::LeftOut)));
    let bodies: Vec<_> = stub.asked().iter().map(crate::stub::Asked::json).collect();
    assert_eq!(bodies[1], json!({ "path": "f", "offset": 3, "limit": 7 }));
    assert_eq!(
        bodies[3],
        json!({ "path": "sub", "max_depth": 2, "max_entries": 2000 })
    );
    let expected =
        json!({ "sessions": ["a", "b", "c"], "path": ".", "max_depth": 2, "max_entries": 2000 });
    assert_eq!(bodies[4], expected);
    assert!(stub.asked().iter().all(|asked| asked.token == TOKEN));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_failure_is_an_error() {
    let stub = Stub::start(|asked| match asked.path.as_str() {
        "/workspaces/a/ls" => Some(refusal(400, "\"..\" is outside the workspace")),
        "/workspaces/a/read" => Some(Reply::Raw(200, b"<html>".to_vec())),
        "/workspaces/a/read_bytes" => Some(Reply::Json(200, json!({ "content_b64": "*" }))),
        _ => None,
    })
    .await;
    let archive = stub.service().archive();
    let error = archive.ls("a", "..").await.expect_err("refused");
    assert_eq!(
        (error.status(), error.to_string().as_str()),
        (Some(400), "\"..\" is outside the workspace")
    );
    let error = archive.read("a", "f", 0, 1).await.expect_err("no JSON");
    assert!(
        matches!(
            error,
            ArchiveError::Request(RequestError::NotUnderstood { .. })
        ),
        "{error:?}"
    );
    let error = archive.read_bytes("a", "f").await.expect_err("no base64");
    assert!(matches!(error, ArchiveError::NotBase64(_)), "{error:?}");
    let nobody = Service::new("http://127.0.0.1:1", TOKEN)
        .expect("a service")
        .archive();
    let error = nobody.ls("a", ".").await.expect_err("nobody");
    assert_eq!(
        (error.status(), error.to_string().as_str()),
        (None, "could not reach the sandbox service")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_is_never_more_than_one_part_of_a_path() {
    let stub = Stub::start(|_| None).await;
    drop(stub.service().archive().ls("../sessions/a?x=#", ".").await);
    assert_eq!(
        stub.asked()[0].path,
        "/workspaces/..%2Fsessions%2Fa%3Fx%3D%23/ls"
    );
    drop(stub.service().close("a/../b").await);
    assert_eq!(stub.asked()[1].line(), "DELETE /sessions/a%2F..%2Fb");
}
