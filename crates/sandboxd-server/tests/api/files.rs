//! Files of a session by the workspace routes.

use crate::support::{Reply, Service, run_id};
use serde_json::{Value, json};
use std::os::unix::fs::symlink;
use std::path::PathBuf;

struct Session {
    service: Service,
    token: String,
    dir: PathBuf,
}

impl Session {
    async fn open(env: &[(&str, &str)]) -> Self {
        let service = Service::start(env).await;
        let token = service.open("a").await;
        let dir = service.root.join("a/workspace");
        Self {
            service,
            token,
            dir,
        }
    }

    async fn on(&self, op: &str, path: &str) -> Reply {
        let request = self
            .service
            .bare("POST", &format!("/sessions/a/files/{op}"));
        request
            .token(&self.token)
            .json(&json!({ "path": path }))
            .send()
            .await
    }

    async fn write(&self, path: &str, content: &[u8]) -> Reply {
        let path = path.replace('%', "%25").replace(' ', "%20");
        let request = self
            .service
            .bare("POST", &format!("/sessions/a/files/write?path={path}"));
        request.token(&self.token).body(content).send().await
    }
}

/// A refusal that clients raise under a name.
#[track_caller]
fn raised(reply: &Reply, status: u16, name: &str) {
    assert_eq!(reply.status, status, "{}", reply.text());
    let detail = &reply.json()["detail"];
    assert_eq!(detail["error"], name, "{detail}");
    assert!(detail["message"].is_string(), "{detail}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_is_read_byte_for_byte() {
    let session = Session::open(&[]).await;
    let all: Vec<u8> = (0..=255).collect();
    session
        .write("/workspace/a b/c/all.bin", &all)
        .await
        .nothing();
    let reply = session.on("read", "/workspace/a b/c/all.bin").await;
    assert_eq!((reply.status, reply.body.as_slice()), (200, all.as_slice()));
    assert_eq!(
        reply.header("content-type"),
        Some("application/octet-stream")
    );
    assert_eq!(reply.header("content-length"), Some("256"));
    session.write("/workspace/empty", b"").await.nothing();
    let empty = session.on("read", "/workspace/empty").await;
    assert_eq!((empty.status, empty.body.len()), (200, 0));
    // Any content type or none will do, also one that says JSON of what is not.
    let request = session
        .service
        .bare("POST", "/sessions/a/files/write?path=/workspace/j.json");
    let request = request
        .token(&session.token)
        .header("Content-Type", "application/json");
    request.body(b"{bad").send().await.nothing();
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_are_described_under_the_path_asked_for() {
    let session = Session::open(&[]).await;
    session.write("/workspace/f.txt", b"abcd").await.nothing();
    session.write("/workspace/d/z", b"").await.nothing();
    session.write("/workspace/d/.h", b"1").await.nothing();
    let entry = |name: &str, path: &str, size: Value| json!({"name": name, "path": path, "is_dir": size.is_null(), "size": size, "modified_at": null});
    let stat = session.on("stat", "/workspace/f.txt").await;
    assert_eq!(
        stat.text(),
        r#"{"name":"f.txt","path":"/workspace/f.txt","is_dir":false,"size":4,"modified_at":null}"#
    );
    for path in ["/workspace/f.txt/", "/workspace//f.txt"] {
        assert_eq!(
            session.on("stat", path).await.ok(),
            entry("f.txt", path, json!(4))
        );
        assert_eq!(
            session.on("realpath", path).await.ok(),
            json!({"path": "/workspace/f.txt"})
        );
        assert_eq!(session.on("read", path).await.body, b"abcd");
    }
    assert_eq!(
        session.on("stat", "/workspace").await.ok(),
        entry("workspace", "/workspace", json!(null))
    );
    let list = session.on("list", "/workspace/d").await.ok();
    let expected = [
        entry(".h", "/workspace/d/.h", json!(1)),
        entry("z", "/workspace/d/z", json!(0)),
    ];
    assert_eq!(list, json!(expected));
    session
        .on("realpath", "/workspace/nope/../x")
        .await
        .refused(409);
    let kept = session.on("realpath", "/workspace/nope/x/").await.ok();
    assert_eq!(kept, json!({"path": "/workspace/nope/x"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_have_the_names_that_clients_raise() {
    let session = Session::open(&[]).await;
    session.write("/workspace/f", b"x").await.nothing();
    for op in ["read", "stat", "list", "remove"] {
        raised(
            &session.on(op, "/workspace/nope").await,
            404,
            "FileNotFoundError",
        );
    }
    for op in ["read", "stat", "list", "remove", "mkdir"] {
        raised(
            &session.on(op, "/workspace/f/x").await,
            400,
            "NotADirectoryError",
        );
    }
    for op in ["read", "stat", "list", "realpath", "mkdir", "remove"] {
        for path in ["rel", "", "./x", "/workspace/a\0b"] {
            raised(&session.on(op, path).await, 400, "ValueError");
        }
    }
    raised(&session.write("rel.txt", b"x").await, 400, "ValueError");
    raised(&session.write("", b"x").await, 400, "ValueError");
    raised(
        &session.on("read", "/workspace").await,
        400,
        "IsADirectoryError",
    );
    raised(
        &session.write("/workspace", b"x").await,
        400,
        "IsADirectoryError",
    );
    raised(
        &session.on("list", "/workspace/f").await,
        400,
        "NotADirectoryError",
    );
    raised(
        &session.on("mkdir", "/workspace/f").await,
        400,
        "FileExistsError",
    );
    raised(&session.on("remove", "/workspace").await, 400, "ValueError");
    session.on("mkdir", "/workspace/m/n").await.nothing();
    session.on("mkdir", "/workspace/m/n").await.nothing();
    session.on("mkdir", "/workspace").await.nothing();
    session.on("remove", "/workspace/m").await.nothing();
    // A missing session has the text form instead: clients tell the two apart by it.
    let nobody = session
        .service
        .post("/sessions/no/files/read", json!({"path": "/workspace/f"}))
        .await;
    assert_eq!(nobody.refused(404), "No such session: no");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_the_sandbox_can_do_is_handed_back() {
    let session = Session::open(&[]).await;
    session.write("/workspace/f", b"x").await.nothing();
    symlink("/etc/hostname", session.dir.join("link")).expect("linked");
    symlink(".", session.dir.join("dirlink")).expect("linked");
    for op in ["read", "stat", "list", "realpath", "mkdir", "remove"] {
        for path in [
            "/etc/passwd",
            "/",
            "/workspacex/a",
            "/workspace/../etc",
            "/workspace/./f",
            "/workspace/dirlink/f",
        ] {
            let reply = session.on(op, path).await;
            assert_eq!(reply.status, 409, "{op} {path}: {}", reply.text());
            assert!(reply.json()["detail"].is_string(), "{op} {path}");
        }
    }
    for path in [
        "/workspace/link",
        "/workspace/dirlink/x",
        "/etc/x",
        "/tmp/x",
    ] {
        session.write(path, b"x").await.refused(409);
    }
    for op in ["read", "stat", "realpath"] {
        session.on(op, "/workspace/link").await.refused(409);
    }
    session.on("list", "/workspace").await.refused(409);
    let long = format!("/workspace/{}", "n".repeat(256));
    for op in ["read", "stat"] {
        session.on(op, &long).await.refused(409);
    }
    session.write(&long, b"x").await.refused(409);
    session.on("remove", "/workspace/link").await.nothing();
    assert!(!session.dir.join("link").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_over_the_limit_is_handed_back_and_one_at_it_is_not() {
    let session = Session::open(&[("SANDBOXD_MAX_READ_BYTES", "10")]).await;
    std::fs::write(session.dir.join("ten"), b"0123456789").expect("written");
    std::fs::write(session.dir.join("eleven"), b"0123456789a").expect("written");
    assert_eq!(session.on("read", "/workspace/ten").await.status, 200);
    session.on("read", "/workspace/eleven").await.refused(409);
    assert_eq!(
        session.on("stat", "/workspace/eleven").await.ok()["size"],
        11
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn native_files_that_are_off_are_409_before_the_path_is_looked_at() {
    for env in [
        ("SANDBOXD_NATIVE_FILES", "0"),
        ("SANDBOXD_WORKSPACE_ROOT", ""),
    ] {
        let session = Session::open(&[env]).await;
        for op in ["read", "stat", "list", "realpath", "mkdir", "remove"] {
            session.on(op, "rel").await.refused(409);
        }
        session.write("rel", b"x").await.refused(409);
        let policy = session.service.get("/policy").await.ok();
        for flag in ["native_files", "native_writes", "native_realpath"] {
            assert_eq!(policy[flag], false);
        }
    }
    let session = Session::open(&[
        ("SANDBOXD_SANDBOX_UID", "1000"),
        ("SANDBOXD_RUNTIMES", "host=host"),
    ])
    .await;
    let policy = session.service.get("/policy").await.ok();
    assert_eq!(
        (&policy["native_files"], &policy["native_writes"]),
        (&json!(true), &json!(false))
    );
    for op in ["mkdir", "remove"] {
        session.on(op, "/workspace/x").await.refused(409);
    }
    session.write("/workspace/x", b"x").await.refused(409);
    assert_eq!(session.on("list", "/workspace").await.ok(), json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sleeping_session_is_read_without_being_woken() {
    let service = Service::start(&[
        ("SANDBOXD_MAX_SESSIONS", "1"),
        ("SANDBOXD_EVICT_IDLE_AFTER", "0"),
    ])
    .await;
    let token = service.open("a").await;
    let session = Session {
        dir: service.root.join("a/workspace"),
        service,
        token,
    };
    session.write("/workspace/f", b"kept").await.nothing();
    session.service.open("b").await;
    let asleep = session.service.get("/sessions/a").await.ok();
    assert_eq!(
        (&asleep["state"], &asleep["alive"]),
        (&json!("hibernated"), &json!(true))
    );
    assert_eq!(session.on("read", "/workspace/f").await.body, b"kept");
    session.write("/workspace/g", b"new").await.nothing();
    raised(
        &session.on("read", "/workspace/nope").await,
        404,
        "FileNotFoundError",
    );
    assert_eq!(
        session.service.get("/sessions/a").await.ok()["state"],
        "hibernated"
    );
    // A run wakes it, with the token it had.
    let body = json!({"argv": ["cat", "/workspace/f", "/workspace/g"], "run_id": run_id(1)});
    let request = session
        .service
        .bare("POST", "/sessions/a/run")
        .token(&session.token);
    assert_eq!(request.json(&body).send().await.ok()["stdout"], "keptnew");
}
