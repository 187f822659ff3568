//! Requests that two readers understand differently, sent to get past the look at the token.

use crate::place::Place;
use crate::wire::{TOKEN, raw};

pub(crate) async fn an_odd_request_gets_what_the_plain_one_gets() {
    let place = Place::open().await;
    place.session("a").await;
    place.says("a", "echo secret > file").await;
    let read = r#"{"path": "/workspace/file"}"#;
    let n = read.len();
    let long = "x".repeat(100 * 1024);
    let good = format!("X-Sandbox-Token: {TOKEN}");
    let post = "POST /sessions/a/files/read HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n";
    // None of these carries a token that counts, or counts once: none may get anything.
    let odd: Vec<String> = vec![
        format!("{post}Content-Length: {n}\r\n\r\n{read}"),
        format!("{post}Content-Length: 0\r\n\r\n{read}"),
        format!("{post}Content-Length: 0\r\n\r\nGET /sessions HTTP/1.1\r\nHost: x\r\n\r\n"),
        format!("{post}Content-Length: {n}\r\nContent-Length: 0\r\n{good}\r\n\r\n{read}"),
        format!("{post}Content-Length: +{n}\r\n{good}\r\n\r\n{read}"),
        format!("{post}Content-Length: {n}, {n}\r\nX-Sandbox-Token: x\r\n\r\n{read}"),
        format!("{post}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /sessions HTTP/1.1\r\nHost: x\r\n{good}\r\n\r\n"),
        format!("{post}Transfer-Encoding: xchunked\r\n{good}\r\n\r\n{read}"),
        format!("{post}Transfer-Encoding: chunked, identity\r\n{good}\r\n\r\n{read}"),
        format!("{post}Transfer-Encoding: chunked\r\n{good}\r\n\r\nffffffffffffffffff\r\n{read}\r\n0\r\n\r\n"),
        format!("{post}Content-Length: {n}\r\nX-Sandbox-Token: x\r\n{good}\r\n\r\n{read}"),
        format!("{post}Content-Length: {n}\r\n{good}\r\nX-Sandbox-Token: x\r\n\r\n{read}"),
        format!("{post}Content-Length: {n}\r\nX-Sandbox-Token : {TOKEN}\r\n\r\n{read}"),
        format!("{post}Content-Length: {n}\r\nX_Sandbox_Token: {TOKEN}\r\n\r\n{read}"),
        format!("{post}Content-Length: {n}\r\nX-Sandbox-Token:\r\n {TOKEN}\r\n\r\n{read}"),
        format!("{post}Content-Length: {n}\r\nX-Sandbox-Token: {TOKEN}\0\r\n\r\n{read}"),
        format!("{post}Content-Length: {n}\r\nX-Sandbox-Token: {TOKEN}x\r\n\r\n{read}"),
        format!("{post}Content-Length: {n}\r\nX-Sandbox-Token: {}\r\n\r\n{read}", &TOKEN[..TOKEN.len() - 1]),
        format!("{post}Content-Length: {n}\r\nCookie: X-Sandbox-Token={TOKEN}\r\n\r\n{read}"),
        format!("{post}Content-Length: {n}\r\nX-Long: {long}\r\n{good}\r\n\r\n{read}"),
        format!("{post}Content-Length: {n}\r\nX-Sandbox-Token: {long}\r\n\r\n{read}"),
        format!("POST /sessions/a/files/read?X-Sandbox-Token={TOKEN} HTTP/1.1\r\nHost: x\r\nContent-Length: {n}\r\nConnection: close\r\n\r\n{read}"),
        format!("POST //sessions/a/files/read HTTP/1.1\r\nHost: x\r\nContent-Length: {n}\r\nConnection: close\r\n\r\n{read}"),
        format!("POST /sessions/%2e%2e/sessions/a/files/read HTTP/1.1\r\nHost: x\r\nContent-Length: {n}\r\nConnection: close\r\n\r\n{read}"),
        format!("POST /healthz/../sessions/a/files/read HTTP/1.1\r\nHost: x\r\nContent-Length: {n}\r\nConnection: close\r\n\r\n{read}"),
        format!("POST /healthz%2f..%2fsessions/a/files/read HTTP/1.1\r\nHost: x\r\nContent-Length: {n}\r\nConnection: close\r\n\r\n{read}"),
        format!("POST http://x/sessions/a/files/read HTTP/1.1\r\nHost: y\r\nContent-Length: {n}\r\nConnection: close\r\n\r\n{read}"),
        format!("POST /sessions/a/files/read HTTP/1.0\r\nContent-Length: {n}\r\n\r\n{read}"),
        format!("POST /sessions/a/files/read HTTP/9.9\r\nHost: x\r\n{good}\r\nContent-Length: {n}\r\n\r\n{read}"),
        format!("post /sessions/a/files/read HTTP/1.1\r\nHost: x\r\nContent-Length: {n}\r\nConnection: close\r\n\r\n{read}"),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
        format!("GET /sessions HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n"),
        "GET /sessions HTTP/1.1\r\nHost: x\r\nHost: y\r\nConnection: close\r\n\r\n".to_owned(),
        "CONNECT /sessions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_owned(),
        "GET /sessions\r\n".to_owned(),
        "OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_owned(),
    ];
    for wire in &odd {
        // Half of a connection is closed after it, so that nobody waits for more.
        let reply = one_shot(&place, wire.as_bytes()).await;
        let shown: String = wire.chars().take(300).collect();
        assert!(!(200..300).contains(&reply.0), "{shown}: {}", reply.1);
        assert!(!reply.1.contains("secret") && !reply.1.contains("\"sessions\":["), "{shown}: {}", reply.1);
    }
    // The twins: the plain form, and the odd ones that mean the same.
    for wire in [
        format!("{post}Content-Length: {n}\r\n{good}\r\n\r\n{read}"),
        format!("{post}content-length: {n}\r\nx-sandbox-token: {TOKEN}\r\n\r\n{read}"),
        format!("{post}Transfer-Encoding: chunked\r\n{good}\r\n\r\n{n:x}\r\n{read}\r\n0\r\n\r\n"),
    ] {
        let reply = raw(place.addr, wire.as_bytes()).await;
        assert_eq!((reply.status, reply.text().as_str()), (200, "secret\n"), "{wire}");
    }
    place.close().await;
}

/// Sends, says that no more comes, and reads all that comes back: every status in it has to be a refusal.
async fn one_shot(place: &Place, wire: &[u8]) -> (u16, String) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(place.addr).await.unwrap();
    let _ = stream.write_all(wire).await;
    let _ = stream.shutdown().await;
    let mut answer = Vec::new();
    let reading = stream.read_to_end(&mut answer);
    let _ = tokio::time::timeout(std::time::Duration::from_secs(50), reading)
        .await
        .expect("it ends");
    let text = String::from_utf8_lossy(&answer).into_owned();
    // Where one connection got several answers, the best of them counts.
    let best = text
        .split("HTTP/1.1 ")
        .skip(1)
        .filter_map(|part| part.get(..3)?.parse::<u16>().ok())
        .min()
        .unwrap_or(0);
    (best, text)
}
