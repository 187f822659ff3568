//! Memory that requests share: one that would take more of it than there is is told so, and small ones never are.

use crate::support::{Reply, Service, TOKEN, run_id};
use serde_json::json;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A write of so many bytes of which the last is not sent yet.
async fn nearly_sent(service: &Service, bytes: usize) -> (TcpStream, usize) {
    let text = json!({"path": "f", "content_b64": "A".repeat(bytes)}).to_string();
    let head = format!(
        "POST /sessions/a/write HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Sandbox-Token: {TOKEN}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        text.len()
    );
    let mut socket = TcpStream::connect(service.addr)
        .await
        .expect("a connection");
    socket
        .write_all(head.as_bytes())
        .await
        .expect("the connection lasts");
    let most = text.len() - 1;
    socket
        .write_all(&text.as_bytes()[..most])
        .await
        .expect("the connection lasts");
    (socket, text.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_together_take_no_more_than_they_may() {
    let service = Service::start(&[
        ("SANDBOXD_MAX_BODY_BYTES", "1048576"),
        ("SANDBOXD_MAX_BODIES_BYTES", "1048576"),
    ])
    .await;
    service.open("a").await;
    let (mut first, _) = nearly_sent(&service, 1_000_000).await;
    let large = json!({"path": "g", "content_b64": "A".repeat(400_000)});
    let mut refused = None;
    // The first one's bytes are on their way.
    for _ in 0..200 {
        let reply = service.post("/sessions/a/write", large.clone()).await;
        if reply.status != 200 {
            refused = Some(reply);
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let refused = refused.expect("a refusal");
    assert_eq!(refused.header("x-error-code"), Some("bodies_busy"));
    assert!(refused.refused(503).contains("try again"));
    // What every request has for itself is not asked of anybody.
    let small = json!({"argv": ["echo", "x"], "run_id": run_id(1)});
    let done = service.post("/sessions/a/run", small).await.ok();
    assert_eq!(done["stdout"], "x\n");
    // The first one is served, and gives back what it took.
    first.write_all(b"}").await.expect("the connection lasts");
    let mut answer = Vec::new();
    first
        .read_to_end(&mut answer)
        .await
        .expect("the connection lasts");
    assert_eq!(Reply::parse(&answer).status, 200);
    let reply = service.post("/sessions/a/write", large).await;
    assert_eq!(reply.ok()["path"], "/workspace/g");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_given_up_gives_back_what_it_took() {
    let service = Service::start(&[
        ("SANDBOXD_MAX_BODY_BYTES", "1048576"),
        ("SANDBOXD_MAX_BODIES_BYTES", "1048576"),
    ])
    .await;
    service.open("a").await;
    for _ in 0..3 {
        let (half, _) = nearly_sent(&service, 1_000_000).await;
        drop(half);
    }
    let large = json!({"path": "g", "content_b64": "A".repeat(800_000)});
    for _ in 0..200 {
        if service
            .post("/sessions/a/write", large.clone())
            .await
            .status
            == 200
        {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("never taken");
}
