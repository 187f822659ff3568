//! Ways to an engine: TCP with TLS, and Podman's socket; and what is said where there is none that can be used.

use crate::own::{OwnEngine, SMALL};
use crate::place::{Home, allow, has_engine};
use sandboxd_server::backends::docker::Docker;
use sandboxd_server::backends::namespaces::Programs;
use sandboxd_server::config::EngineAddress;
use std::path::Path;
use std::process::Command;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;

/// Why the backend does not start with this engine.
async fn refused(state: &Path, engine: &EngineAddress) -> String {
    let programs = Programs::embedded().unwrap();
    match Docker::start(state, programs, engine).await {
        Ok(_) => panic!("it starts"),
        Err(error) => error.to_string(),
    }
}

/// An authority, and what it has signed: `ca.pem`, `server-*.pem`, and a client's `cert.pem` and `key.pem`.
fn certificates(at: &Path) {
    let script = r#"
        openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj "/CN=authority" -keyout ca-key.pem -out ca.pem
        for who in server client; do
            openssl req -newkey rsa:2048 -nodes -subj "/CN=$who" -keyout $who-key.pem -out $who.csr
            printf 'subjectAltName=IP:127.0.0.1\nextendedKeyUsage=%sAuth\n' $who > $who.ext
            openssl x509 -req -days 2 -in $who.csr -CA ca.pem -CAkey ca-key.pem -CAcreateserial -extfile $who.ext -out $who-cert.pem
        done
        mv client-cert.pem cert.pem; mv client-key.pem key.pem
    "#;
    std::fs::create_dir_all(at).unwrap();
    let done = Command::new("sh")
        .args(["-ec", script])
        .current_dir(at)
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[tokio::test]
async fn over_tcp_both_sides_show_who_they_are() {
    if !has_engine() {
        return;
    }
    let home = Home::new();
    let (ours, theirs) = (home.dir.path().join("ours"), home.dir.path().join("theirs"));
    certificates(&ours);
    certificates(&theirs);
    let port = free_port();
    let file = |name: &str| ours.join(name).display().to_string();
    let engine = OwnEngine::docker(&[
        format!("--host=tcp://127.0.0.1:{port}"),
        "--tlsverify".to_owned(),
        format!("--tlscacert={}", file("ca.pem")),
        format!("--tlscert={}", file("server-cert.pem")),
        format!("--tlskey={}", file("server-key.pem")),
    ])
    .await;
    let with = |certificates: Option<&Path>| EngineAddress::Tcp {
        address: format!("127.0.0.1:{port}"),
        certificates: certificates.map(Path::to_owned),
    };
    let place = home
        .service_at(&with(Some(&ours)), |service| {
            allow(service, SMALL);
            service.workspace_root = None;
        })
        .await;
    let id = home.id("a");
    place.open(&id).await.unwrap();
    assert_eq!(place.out(&id, "echo here").await, "here\n");
    place.close().await;
    // A stranger's authority, and nothing to show at all.
    let state = home.state();
    let why = refused(&state, &with(Some(&theirs))).await;
    assert!(
        why.contains("127.0.0.1") && why.contains("ertificate"),
        "{why}"
    );
    let why = refused(&state, &with(None)).await;
    assert!(why.contains("no container engine answers"), "{why}");
    let why = refused(&state, &with(Some(&home.dir.path().join("nowhere")))).await;
    assert!(why.contains("nowhere"), "{why}");
    drop(engine);
}

#[tokio::test]
async fn podmans_socket_leads_to_the_same() {
    if !has_engine() {
        return;
    }
    let engine = OwnEngine::podman().await;
    let home = Home::new();
    let place = home
        .service_at(&engine.address(), |service| {
            allow(service, SMALL);
            service.persist_containers = true;
        })
        .await;
    assert!(!place.backend.capabilities().await.buildkit);
    let id = home.id("a");
    place.open(&id).await.unwrap();
    place.out(&id, "echo kept > f; echo inside > /made").await;
    let status = place.out(&id, "cat /proc/1/status /proc/self/status").await;
    let all = |line: &str| status.lines().filter(|one| one.starts_with(line)).count();
    assert_eq!(all("NoNewPrivs:\t1"), 2, "{status}");
    assert_eq!(all("Seccomp:\t2"), 2, "{status}");
    place.put_to_sleep(&id).await;
    assert_eq!(place.out(&id, "cat f /made").await, "kept\ninside\n");
    place.purge(&id).await;
    place.close().await;
    assert_eq!(engine.docker_says(&["ps", "--all", "--quiet"]), "");
}

/// Answers everything that is asked with this status and text.
async fn pretending(path: &Path, status: &'static str, body: &'static str) {
    let listener = UnixListener::bind(path).unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut asked = [0; 4096];
            let _ = stream.read(&mut asked).await;
            let answer = format!(
                "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
}

#[tokio::test]
async fn an_engine_that_cannot_be_used_is_told_why() {
    let home = tempfile::tempdir().unwrap();
    let cases = [
        (
            "200 OK",
            r#"{"Version":"18.09.1","ApiVersion":"1.39","MinAPIVersion":"1.12"}"#,
            "speaks API version 1.39; at least 1.41",
        ),
        (
            "403 Forbidden",
            r#"{"message":"authorization denied by plugin gate: not you"}"#,
            "authorization denied by plugin gate: not you",
        ),
        (
            "200 OK",
            "<html>a page</html>",
            "no container engine answers",
        ),
        (
            "503 Service Unavailable",
            r#"{"message":"starting"}"#,
            "starting",
        ),
    ];
    for (number, (status, body, wanted)) in cases.into_iter().enumerate() {
        let path = home.path().join(format!("{number}.sock"));
        pretending(&path, status, body).await;
        let engine = EngineAddress::Sockets(vec![path.clone()]);
        let why = refused(&home.path().join("state"), &engine).await;
        assert!(why.contains(wanted), "{why}");
        assert!(why.contains(&path.display().to_string()), "{why}");
    }
    assert!(!home.path().join("state").exists(), "nothing was begun");
}
