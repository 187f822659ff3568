//! Files by the native routes, and by programs inside where those hand back. For the latter the stub runs what it is
//! asked to in a directory of its own.

use crate::stub::{Asked, Reply, Stub, policy, refusal};
use sandboxd_client::{FileError, Sandbox};
use serde_json::json;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A stub that hands back every file operation, and runs programs.
async fn handing_back() -> (Stub, Sandbox, TempDir) {
    let place = tempfile::tempdir().expect("a directory");
    let inside = place.path().to_path_buf();
    let stub = Stub::start(move |asked| match asked.line().as_str() {
        "POST /sessions/a/run" => Some(really_run(asked, &inside)),
        line if line.starts_with("POST /sessions/a/files/") => Some(refusal(409, "not natively")),
        _ => None,
    })
    .await;
    let sandbox = stub
        .service()
        .sandbox()
        .name("a")
        .build()
        .expect("a sandbox");
    (stub, sandbox, place)
}

fn really_run(asked: &Asked, inside: &Path) -> Reply {
    let argv: Vec<String> = serde_json::from_value(asked.json()["argv"].clone()).expect("an argv");
    let output = Command::new(&argv[0])
        .args(&argv[1..])
        .current_dir(inside)
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    Reply::Json(
        200,
        json!({
            "stdout": String::from_utf8_lossy(&output.stdout), "stderr": String::from_utf8_lossy(&output.stderr),
            "exit_code": output.status.code().expect("an exit code"), "timed_out": false, "output_limited": false,
            "output_limit": null,
        }),
    )
}

fn at(place: &TempDir, name: &str) -> String {
    place.path().join(name).to_str().expect("a text").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn contents_come_back_as_they_were_written() {
    let (stub, sandbox, place) = handing_back().await;
    let every_byte: Vec<u8> = (0..=255).collect();
    let long: Vec<u8> = (0..5_000_000_u32)
        .map(|number| number.to_le_bytes()[0])
        .collect();
    for (name, content) in [
        ("empty", Vec::new()),
        ("dir/a b'\"$x\n", every_byte),
        ("long", long),
    ] {
        let path = at(&place, name);
        sandbox
            .write_bytes(&path, content.clone())
            .await
            .expect("written");
        let kept = std::fs::read(place.path().join(name)).expect("there");
        assert!(kept == content, "{name}: {} bytes", kept.len());
        let read = sandbox.read_bytes(&path).await.expect("read");
        assert!(read == content, "{name}: {} bytes", read.len());
        assert_eq!(
            sandbox.stat(&path).await.expect("there").size,
            Some(content.len() as u64)
        );
    }
    let runs = stub.asked_for("POST /sessions/a/run");
    let longest = runs.iter().map(|asked| asked.body.len()).max();
    assert!(
        longest < Some(100_000),
        "no argument over what a kernel takes: {longest:?}"
    );
    let left = std::fs::read_dir(place.path()).expect("a listing").count();
    assert_eq!(left, 3, "no temporary file is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn writing_keeps_modes_and_follows_links() {
    use std::os::unix::fs::PermissionsExt as _;
    let (_stub, sandbox, place) = handing_back().await;
    let target = place.path().join("script");
    std::fs::write(&target, "old").expect("written");
    std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o750)).expect("a mode");
    std::os::unix::fs::symlink("script", place.path().join("link")).expect("a link");
    sandbox
        .write_bytes(&at(&place, "link"), "new")
        .await
        .expect("written");
    assert_eq!(std::fs::read_to_string(&target).expect("there"), "new");
    let mode = target.metadata().expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o750);
    assert!(place.path().join("link").is_symlink());
}

#[tokio::test(flavor = "multi_thread")]
async fn listings_name_everything() {
    let (_stub, sandbox, place) = handing_back().await;
    let names = [".hidden", "..odd", "a\nb", "tab\there", "ü", "-n"];
    for name in names {
        std::fs::write(place.path().join(name), name).expect("written");
    }
    std::fs::create_dir(place.path().join("dir")).expect("made");
    std::os::unix::fs::symlink("nowhere", place.path().join("dangling")).expect("a link");
    let listed = sandbox.list_dir(&at(&place, "")).await.expect("listed");
    let mut expected: Vec<&str> = names.iter().copied().chain(["dangling", "dir"]).collect();
    expected.sort_unstable();
    let found: Vec<&str> = listed.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(found, expected);
    for entry in &listed {
        assert_eq!(entry.path, at(&place, &entry.name));
        assert_eq!(entry.is_dir, entry.name == "dir");
        let size = names
            .contains(&entry.name.as_str())
            .then_some(entry.name.len() as u64);
        assert_eq!(entry.size, size, "{}", entry.name);
    }
    std::fs::create_dir(place.path().join("dir/empty")).expect("made");
    assert_eq!(
        sandbox
            .list_dir(&at(&place, "dir/empty"))
            .await
            .expect("listed"),
        []
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_inside_have_the_names_of_the_native_ones() {
    let (_stub, sandbox, place) = handing_back().await;
    std::fs::write(place.path().join("file"), "x").expect("written");
    std::fs::create_dir(place.path().join("dir")).expect("made");
    let (file, dir) = (at(&place, "file"), at(&place, "dir"));
    let (nothing, below) = (at(&place, "no/thing"), at(&place, "file/below"));
    let fifo = at(&place, "fifo");
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .expect("it runs")
            .success()
    );
    type Named = fn(&FileError) -> bool;
    let not_found: Named = |error| matches!(error, FileError::NotFound { .. });
    let not_a_directory: Named = |error| matches!(error, FileError::NotADirectory { .. });
    let is_a_directory: Named = |error| matches!(error, FileError::IsADirectory { .. });
    let invalid: Named = |error| matches!(error, FileError::InvalidPath { .. });
    let exists: Named = |error| matches!(error, FileError::AlreadyExists { .. });
    for (path, named) in [
        (&nothing, not_found),
        (&below, not_a_directory),
        (&dir, is_a_directory),
        (&fifo, invalid),
        (&"relative".to_owned(), invalid),
        (&"/a\0b".to_owned(), invalid),
    ] {
        let error = sandbox.read_bytes(path).await.expect_err(path);
        assert!(named(&error), "read {path}: {error:?}");
    }
    for (path, named) in [
        (&dir, is_a_directory),
        (&below, not_a_directory),
        (&fifo, invalid),
    ] {
        let error = sandbox.write_bytes(path, "x").await.expect_err(path);
        assert!(named(&error), "write {path}: {error:?}");
    }
    for (path, named) in [
        (&nothing, not_found),
        (&file, not_a_directory),
        (&below, not_a_directory),
    ] {
        let error = sandbox.list_dir(path).await.expect_err(path);
        assert!(named(&error), "list {path}: {error:?}");
    }
    let error = sandbox.make_dir(&file).await.expect_err("in the way");
    assert!(exists(&error), "{error:?}");
    let error = sandbox.make_dir(&below).await.expect_err("below a file");
    assert!(not_a_directory(&error), "{error:?}");
    let error = sandbox.remove(&nothing).await.expect_err("nothing");
    assert!(not_found(&error), "{error:?}");
    assert!(!sandbox.exists(&nothing).await.expect("told"));
    assert!(!sandbox.exists(&below).await.expect("told"));
    assert!(sandbox.exists(&dir).await.expect("told"));
}

#[tokio::test(flavor = "multi_thread")]
async fn trees_are_made_and_removed_but_never_the_work_directory() {
    let (_stub, sandbox, place) = handing_back().await;
    let deep = at(&place, "a/b/c");
    sandbox.make_dir(&deep).await.expect("made");
    sandbox.make_dir(&deep).await.expect("there already");
    std::os::unix::fs::symlink("a", place.path().join("link")).expect("a link");
    sandbox.remove(&at(&place, "link")).await.expect("removed");
    assert!(place.path().join("a/b/c").is_dir(), "only the link");
    for work_directory in [
        at(&place, ""),
        place.path().to_str().expect("a text").to_owned(),
        "/".to_owned(),
    ] {
        let error = sandbox.remove(&work_directory).await.expect_err("refused");
        assert!(
            matches!(error, FileError::InvalidPath { .. }),
            "{work_directory}: {error:?}"
        );
    }
    assert!(place.path().join("a/b/c").is_dir());
    sandbox.remove(&at(&place, "a")).await.expect("removed");
    assert!(!place.path().join("a").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_are_resolved_as_far_as_they_exist() {
    let (_stub, sandbox, place) = handing_back().await;
    let place_path = place.path().canonicalize().expect("a path");
    std::fs::create_dir_all(place.path().join("real/dir\n")).expect("made");
    std::os::unix::fs::symlink("real", place.path().join("link")).expect("a link");
    for (given, resolved) in [
        ("link", "real"),
        ("link/dir\n", "real/dir\n"),
        ("link/no/thing", "real/no/thing"),
        ("no/thing", "no/thing"),
    ] {
        let found = sandbox
            .realpath(&at(&place, given))
            .await
            .expect("resolved");
        assert_eq!(Path::new(&found), place_path.join(resolved), "{given}");
    }
    assert_eq!(sandbox.realpath("/").await.expect("resolved"), "/");
    assert_eq!(
        sandbox.realpath("/no/such").await.expect("resolved"),
        "/no/such"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn native_routes_are_used_where_the_policy_has_them() {
    let entry = json!({ "name": "f", "path": "/workspace/f", "is_dir": false, "size": 1, "modified_at": null });
    let answer = entry.clone();
    let stub = Stub::start(move |asked| {
        let route = asked.path.strip_prefix("/sessions/a/files/")?;
        Some(match route.split('?').next().unwrap_or_default() {
            "read" => Reply::Raw(200, b"x\xff".to_vec()),
            "stat" => Reply::Json(200, answer.clone()),
            "list" => Reply::Json(200, json!([answer.clone()])),
            "realpath" => Reply::Json(200, json!({ "path": "/workspace/f" })),
            _ => Reply::Raw(204, Vec::new()),
        })
    })
    .await;
    let sandbox = stub
        .service()
        .sandbox()
        .name("a")
        .build()
        .expect("a sandbox");
    let path = "/workspace/f";
    assert_eq!(sandbox.read_bytes(path).await.expect("read"), &b"x\xff"[..]);
    assert_eq!(
        serde_json::to_value(sandbox.stat(path).await.expect("there")).expect("JSON"),
        entry
    );
    assert_eq!(
        sandbox.list_dir("/workspace").await.expect("listed").len(),
        1
    );
    assert_eq!(sandbox.realpath(path).await.expect("resolved"), path);
    sandbox
        .write_bytes("/workspace/a b+c", "content")
        .await
        .expect("written");
    sandbox.make_dir(path).await.expect("made");
    sandbox.remove(path).await.expect("removed");
    let written = stub.asked_for("POST /sessions/a/files/write?path=%2Fworkspace%2Fa%20b%2Bc");
    assert_eq!(written[0].body, b"content");
    assert!(stub.asked_for("POST /sessions/a/run").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn native_routes_are_left_alone_where_the_policy_has_none() {
    let stub = Stub::start(|asked| match asked.line().as_str() {
        "GET /policy" => {
            let mut without = policy(300);
            for flag in ["native_files", "native_writes", "native_realpath"] {
                without.as_object_mut().expect("an object").remove(flag);
            }
            Some(Reply::Json(200, without))
        }
        "POST /sessions/a/run" => Some(crate::stub::finished(101, "")),
        _ => None,
    })
    .await;
    let sandbox = stub
        .service()
        .sandbox()
        .name("a")
        .build()
        .expect("a sandbox");
    let error = sandbox
        .read_bytes("/workspace/f")
        .await
        .expect_err("nothing there");
    assert!(matches!(error, FileError::NotFound { .. }), "{error:?}");
    drop(sandbox.write_bytes("/workspace/f", "x").await);
    assert!(
        !stub
            .asked()
            .iter()
            .any(|asked| asked.path.contains("/files/"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn native_failures_are_told_apart() {
    let named = |name: &str| json!({ "detail": { "error": name, "message": "words" } });
    let table = [
        (404, named("FileNotFoundError"), "NotFound"),
        (400, named("IsADirectoryError"), "IsADirectory"),
        (400, named("NotADirectoryError"), "NotADirectory"),
        (400, named("FileExistsError"), "AlreadyExists"),
        (400, named("ValueError"), "InvalidPath"),
        (400, named("OSError"), "Request"),
        (404, json!({ "detail": "No such session: a" }), "Gone"),
        (410, json!({ "detail": "gone" }), "Gone"),
        (413, json!({ "detail": "large" }), "Request"),
        (507, json!({ "detail": "full" }), "Request"),
    ];
    for (status, body, expected) in table {
        let reply = Reply::Json(status, body);
        let stub =
            Stub::start(move |asked| asked.path.contains("/files/").then(|| reply.clone())).await;
        let sandbox = stub
            .service()
            .sandbox()
            .name("a")
            .build()
            .expect("a sandbox");
        let error = sandbox.stat("/workspace/f").await.expect_err("fails");
        assert!(
            format!("{error:?}").starts_with(expected),
            "{status}: {error:?}"
        );
        let error = sandbox
            .write_bytes("/workspace/f", "x")
            .await
            .expect_err("fails");
        assert!(
            format!("{error:?}").starts_with(expected),
            "{status}: {error:?}"
        );
    }
}
