//! Files that go out while they are read: their length is told, and whatever breaks one off is seen by its client.

use crate::support::{Reply, Service, raw};
use serde_json::json;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;

const SIZE: usize = 4 * 1024 * 1024 + 7;

/// More than the kernel keeps for a client that does not read: 4 MiB to send, as a rule, and what [`TcpSocket`] is told.
const MORE_THAN_SOCKETS_HOLD: usize = 24 * 1024 * 1024;

/// A service with a session that has a large file.
async fn service() -> (Service, Vec<u8>) {
    service_with(SIZE).await
}

async fn service_with(size: usize) -> (Service, Vec<u8>) {
    let most = MORE_THAN_SOCKETS_HOLD.to_string();
    let service = Service::start(&[("SANDBOXD_MAX_READ_BYTES", &most)]).await;
    service.open("a").await;
    let content: Vec<u8> = (0..=250).cycle().take(size).collect();
    let path = "/sessions/a/files/write?path=/workspace/large";
    let written = service.request("POST", path).body(&content).send().await;
    assert_eq!(written.status, 204);
    (service, content)
}

fn wire(service: &Service, close: bool) -> Vec<u8> {
    let body = json!({"path": "/workspace/large"}).to_string();
    let token = crate::support::TOKEN;
    let connection = if close { "close" } else { "keep-alive" };
    format!(
        "POST /sessions/a/files/read HTTP/1.1\r\nHost: {}\r\nConnection: {connection}\r\nX-Sandbox-Token: {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        service.addr,
        body.len()
    )
    .into_bytes()
}

/// Asks until a session may sleep, which it may as soon as nothing is under way.
async fn falls_asleep(service: &Service) {
    for _ in 0..500 {
        let asked = service.post("/sessions/a/hibernate", json!({})).await;
        if asked.status < 300 {
            return;
        }
        assert_eq!(asked.status, 409, "{}", asked.text());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("still in use");
}

fn length(reply: &Reply) -> usize {
    let told = reply.header("content-length").expect("a length");
    told.parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_file_has_its_length_and_its_bytes_awake_and_asleep() {
    let (service, content) = service().await;
    for asleep in [false, true] {
        let reply = raw(service.addr, &wire(&service, true)).await;
        assert_eq!((reply.status, length(&reply)), (200, SIZE));
        assert_eq!(
            reply.header("content-type"),
            Some("application/octet-stream")
        );
        assert_eq!(reply.header("transfer-encoding"), None);
        assert!(reply.body == content, "asleep: {asleep}");
        if !asleep {
            falls_asleep(&service).await;
        }
    }
    // The connection goes on after it.
    let twice = [wire(&service, false), wire(&service, true)].concat();
    let both = raw(service.addr, &twice).await;
    assert_eq!(length(&both), SIZE);
    let second = Reply::parse(&both.body[SIZE..]);
    assert!(second.body == content);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_short_breaks_the_connection_off() {
    let (service, content) = service().await;
    service.switches().misstate_sizes(1_000);
    let twice = [wire(&service, false), wire(&service, false)].concat();
    let reply = raw(service.addr, &twice).await;
    // Neither padded nor ended as if it were whole, and nothing comes behind it.
    assert_eq!((reply.status, length(&reply)), (200, SIZE + 1_000));
    assert!(reply.body.len() <= SIZE);
    assert!(reply.body == content[..reply.body.len()]);
    let events = service.get("/sessions/a/events").await.ok();
    let read = events["events"]
        .as_array()
        .expect("rows")
        .last()
        .expect("a row")
        .clone();
    assert_eq!(
        (&read["op"], &read["ok"]),
        (&json!("read"), &json!(false)),
        "{read}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_grows_is_sent_as_long_as_was_told() {
    let (service, content) = service().await;
    service.switches().misstate_sizes(-1_000);
    let reply = raw(service.addr, &wire(&service, true)).await;
    assert_eq!((reply.status, length(&reply)), (200, SIZE - 1_000));
    assert!(reply.body == content[..SIZE - 1_000]);
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_come_before_the_first_byte() {
    let service = Service::start(&[("SANDBOXD_MAX_READ_BYTES", "1000000")]).await;
    service.open("a").await;
    let path = service.root.join("a/workspace/large");
    std::fs::write(&path, vec![0; 1_000_001]).expect("a file");
    for asleep in [false, true] {
        let reply = raw(service.addr, &wire(&service, true)).await;
        reply.refused(409);
        if !asleep {
            falls_asleep(&service).await;
        }
    }
    std::fs::write(&path, vec![0; 1_000_000]).expect("a file");
    let reply = raw(service.addr, &wire(&service, true)).await;
    assert_eq!((reply.status, reply.body.len()), (200, 1_000_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_hangs_up_or_stops_reading_holds_nothing_for_long() {
    let (service, _) = service_with(MORE_THAN_SOCKETS_HOLD).await;
    for round in 0..3 {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(64 * 1024).expect("a size");
        let mut socket = socket.connect(service.addr).await.expect("connected");
        let asked = wire(&service, true);
        socket
            .write_all(&asked)
            .await
            .expect("the connection lasts");
        let mut first = [0; 1_000];
        socket.read_exact(&mut first).await.expect("an answer");
        if round == 1 {
            // It stops reading: its session is in use, and everybody else is served.
            let busy = service.post("/sessions/a/hibernate", json!({})).await;
            assert_eq!(busy.status, 409, "{}", busy.text());
            let run = json!({"argv": ["echo", "x"], "run_id": crate::support::run_id(1)});
            let done = service.post("/sessions/a/run", run).await.ok();
            assert_eq!(done["stdout"], "x\n");
        }
        drop(socket);
        falls_asleep(&service).await;
        service
            .post("/sessions", json!({"session_id": "a", "reuse": true}))
            .await
            .ok();
    }
}
