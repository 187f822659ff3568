//! What no honest client sends: the verdict is the plain form's, nothing panics, nothing hangs.

use crate::support::{Reply, Service, TOKEN, raw, run_id};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_are_no_json_object_are_422() {
    let service = Service::start(&[]).await;
    let send = |body: &[u8], kind: &str| {
        let request = service.request("POST", "/sessions").body(body);
        request.header("Content-Type", kind)
    };
    let deep = "[".repeat(100_000);
    let json_cases: &[(&[u8], &str)] = &[
        (b"{bad", "json_invalid"),
        (b"{\"session_id\": NaN}", "json_invalid"),
        (b"{\"session_id\": \"\xff\"}", "json_invalid"),
        (b"{\"session_id\": \"\\ud800\"}", "json_invalid"),
        (b"{} {}", "json_invalid"),
        (deep.as_bytes(), "json_invalid"),
        (b"", "missing"),
        (b"[]", "model_attributes_type"),
        (b"null", "model_attributes_type"),
        (b"\"x\"", "model_attributes_type"),
        (b"5", "model_attributes_type"),
    ];
    for (body, kind) in json_cases {
        let reply = send(body, "application/json").send().await;
        let words = String::from_utf8_lossy(&body[..body.len().min(20)]).into_owned();
        assert_eq!(reply.status, 422, "{words}");
        assert_eq!(reply.json()["detail"][0]["type"], *kind, "{words}");
        assert_eq!(reply.json()["detail"][0]["loc"][0], "body", "{words}");
        assert!(reply.body.len() < 4096, "a refusal repeats little");
    }
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/jsonx",
    ] {
        let reply = send(b"{}", kind).send().await;
        assert_eq!(reply.status, 422, "{kind}");
    }
    for kind in [
        "application/json; charset=utf-8",
        "application/vnd.x+json",
        "APPLICATION/JSON",
    ] {
        assert_eq!(send(b"{}", kind).send().await.status, 200, "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_misfit_of_a_body_is_listed() {
    let service = Service::start(&[]).await;
    let body = json!({"session_id": "../", "tenant": "!", "reuse": "q", "runtime": 5});
    let reply = service.post("/sessions", body).await;
    let detail = reply.json()["detail"].clone();
    let found: Vec<(Value, Value)> = detail
        .as_array()
        .expect("a list")
        .iter()
        .map(|row| (row["loc"][1].clone(), row["type"].clone()))
        .collect();
    let expected = [
        ("session_id", "string_pattern_mismatch"),
        ("runtime", "string_type"),
        ("tenant", "string_pattern_mismatch"),
        ("reuse", "bool_parsing"),
    ];
    assert_eq!(
        found,
        expected.map(|(name, kind)| (json!(name), json!(kind)))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_out_of_range_are_misfits() {
    let service = Service::start(&[]).await;
    let token = service.open("a").await;
    let run = |timeout: Value| {
        let body = json!({"argv": ["true"], "run_id": run_id(1), "timeout_seconds": timeout});
        service
            .bare("POST", "/sessions/a/run")
            .token(&token)
            .json(&body)
    };
    for good in [
        json!(1),
        json!("2.5"),
        json!("inf"),
        json!(1e300),
        json!(null),
        json!(true),
    ] {
        assert_eq!(run(good.clone()).send().await.status, 200, "{good}");
    }
    for bad in [
        json!(0),
        json!(-1),
        json!("nan"),
        json!("-inf"),
        json!("x"),
        json!([]),
        json!({}),
    ] {
        assert_eq!(run(bad.clone()).send().await.status, 422, "{bad}");
    }
    for bad in ["-1", "x", "1.5", "99999999999999999999", "", "1e3", "0x1"] {
        let reply = service
            .get(&format!("/sessions/a/events?after={bad}"))
            .await;
        assert_eq!(reply.status, 422, "{bad}");
    }
    for good in ["0", "1.0", "+5", "9223372036854775807", "%201%20"] {
        let reply = service
            .get(&format!("/sessions/a/events?after={good}"))
            .await;
        assert_eq!(reply.status, 200, "{good}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_huge_body_is_refused_and_the_client_sees_it() {
    let service = Service::start(&[]).await;
    let token = service.open("a").await;
    let body = vec![b' '; 65 * 1024 * 1024];
    let request = service
        .request("POST", "/sessions")
        .header("Content-Type", "application/json");
    let reply = request.body(&body).send().await;
    assert!(reply.refused(413).contains("larger than"));
    let request = service.bare("POST", "/sessions").body(&body).send().await;
    assert_eq!(
        request.status, 401,
        "the token is checked before the body is read"
    );
    // A native write is never 413: clients write through the shell on a 409.
    let write = service
        .bare("POST", "/sessions/a/files/write?path=/workspace/f")
        .token(&token);
    let reply = write.body(&body[..8 * 1024 * 1024 + 1]).send().await;
    assert!(reply.refused(409).contains("larger than"));
    let write = service
        .bare("POST", "/sessions/a/files/write?path=/workspace/f")
        .token(&token);
    write.body(&body[..8 * 1024 * 1024]).send().await.nothing();
}

#[tokio::test(flavor = "multi_thread")]
async fn how_large_a_body_may_be_is_a_setting() {
    let service = Service::start(&[("SANDBOXD_MAX_BODY_BYTES", "65536")]).await;
    service.open("a").await;
    let exec = |length: usize| {
        let (head, tail) = (r#"{"command":"true"#, r#""}"#);
        let blanks = " ".repeat(length - head.len() - tail.len());
        let request = service.request("POST", "/sessions/a/exec");
        let request = request.header("Content-Type", "application/json");
        request.body(format!("{head}{blanks}{tail}").as_bytes())
    };
    assert_eq!(exec(65_536).send().await.status, 200);
    let refused = exec(65_537).send().await.refused(413);
    assert_eq!(refused, "The body is larger than 65536 bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chunked_write_is_counted_while_it_is_read() {
    let service = Service::start(&[("SANDBOXD_MAX_READ_BYTES", "10")]).await;
    let token = service.open("a").await;
    let chunked = |chunks: &[&str]| {
        let mut wire = format!(
            "POST /sessions/a/files/write?path=/workspace/f HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
             X-Sandbox-Token: {token}\r\nTransfer-Encoding: chunked\r\n\r\n"
        );
        for chunk in chunks {
            wire.push_str(&format!("{:x}\r\n{chunk}\r\n", chunk.len()));
        }
        wire.push_str("0\r\n\r\n");
        wire
    };
    raw(service.addr, chunked(&["abcde", "fghij"]).as_bytes())
        .await
        .nothing();
    let reply = raw(service.addr, chunked(&["abcde", "fghij", "k"]).as_bytes()).await;
    reply.refused(409);
    let kept = std::fs::read(service.root.join("a/workspace/f")).expect("a file");
    assert_eq!(kept, b"abcdefghij");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_with_two_lengths_is_not_believed() {
    let service = Service::start(&[]).await;
    let smuggled = "GET /sessions HTTP/1.1\r\nHost: x\r\n\r\n";
    for lengths in [
        "Content-Length: 2\r\nContent-Length: 40\r\n".to_owned(),
        "Content-Length: +2\r\n".to_owned(),
        "Content-Length: 2, 40\r\n".to_owned(),
        "Transfer-Encoding: identity\r\nContent-Length: 2\r\n".to_owned(),
        "Transfer-Encoding: gzip, identity\r\n".to_owned(),
    ] {
        let wire = format!(
            "POST /sessions HTTP/1.1\r\nHost: x\r\nX-Sandbox-Token: {TOKEN}\r\nContent-Type: application/json\r\n\
             {lengths}\r\n{{}}{smuggled}"
        );
        let reply = raw(service.addr, wire.as_bytes()).await;
        assert!(
            [0, 400].contains(&reply.status),
            "{lengths:?}: {}",
            reply.status
        );
    }
    // Both lengths: the chunks count, and what follows them is not another request.
    let wire = format!(
        "POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{smuggled}"
    );
    let reply = raw(service.addr, wire.as_bytes()).await;
    assert!([0, 400, 405].contains(&reply.status), "{}", reply.status);
    let answers = reply.text().matches("HTTP/1.1").count();
    assert_eq!(answers, 0, "one answer: {}", reply.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn long_and_many_headers_are_refused_in_bounds() {
    let service = Service::start(&[]).await;
    let long = "x".repeat(100 * 1024);
    let reply = service
        .request("GET", "/sessions")
        .header("X-Long", &long)
        .send()
        .await;
    assert!([0, 431].contains(&reply.status), "{}", reply.status);
    let mut many = service.request("GET", "/sessions");
    for number in 0..500 {
        many = many.header(&format!("X-{number}"), "x");
    }
    assert!([0, 431].contains(&many.send().await.status));
    let reply = service
        .bare("GET", &format!("/{}", "x".repeat(100 * 1024)))
        .send()
        .await;
    assert!([0, 414, 431].contains(&reply.status), "{}", reply.status);
    assert_eq!(
        service.get("/sessions").await.status,
        200,
        "the service goes on"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_cut_off_changes_nothing() {
    let service = Service::start(&[]).await;
    let token = service.open("a").await;
    let wire = format!(
        "POST /sessions/a/files/write?path=/workspace/f HTTP/1.1\r\nHost: x\r\nX-Sandbox-Token: {token}\r\n\
         Content-Length: 100\r\n\r\nonly this"
    );
    let mut stream = TcpStream::connect(service.addr).await.expect("connected");
    stream.write_all(wire.as_bytes()).await.expect("sent");
    stream.shutdown().await.expect("closed");
    let mut answer = Vec::new();
    let read = timeout(Duration::from_secs(20), stream.read_to_end(&mut answer)).await;
    read.expect("ends").expect("read");
    let status = Reply::parse(&answer).status;
    assert!([0, 400].contains(&status), "{status}");
    assert!(!service.root.join("a/workspace/f").exists());
    assert_eq!(service.get("/sessions/a").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_waits_to_be_asked_for_its_body_is_refused_unasked() {
    let service = Service::start(&[]).await;
    let wire = "POST /sessions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\nExpect: 100-continue\r\n\
                Content-Type: application/json\r\n\r\n";
    let mut stream = TcpStream::connect(service.addr).await.expect("connected");
    stream.write_all(wire.as_bytes()).await.expect("sent");
    let mut answer = vec![0; 4096];
    let read = timeout(Duration::from_secs(10), stream.read(&mut answer)).await;
    let length = read.expect("answered").expect("read");
    assert_eq!(Reply::parse(&answer[..length]).status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_is_no_request() {
    let service = Service::start(&[]).await;
    for garbage in [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".as_slice(),
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nBad Header: x\r\n\r\n",
        b"GET / HTTP/1.1\r\n folded: x\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let reply = raw(service.addr, garbage).await;
        assert!(
            [0, 400, 404, 505].contains(&reply.status),
            "{garbage:?}: {}",
            reply.status
        );
    }
    assert_eq!(service.get("/sessions").await.status, 200);
}
