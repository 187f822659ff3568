//! Stored workspaces, read without a sandbox.

use crate::support::{Reply, Service};
use serde_json::{Value, json};
use std::os::unix::fs::symlink;

/// A service with one stored workspace, whose session is closed.
async fn stored(env: &[(&str, &str)]) -> Service {
    let service = Service::start(env).await;
    service.open("a").await;
    let dir = service.root.join("a/workspace");
    for path in ["sub/deep", ".hidden"] {
        std::fs::create_dir_all(dir.join(path)).expect("made");
    }
    let files: &[(&str, &[u8])] = &[
        ("notes.txt", b"l1\nl2\nl3\n"),
        ("empty.txt", b""),
        ("bin.dat", b"\x00\x01\xff\xfe"),
        ("latin.txt", b"caf\xe9\n"),
        ("sub/a.py", b"n\n"),
        ("sub/deep/b.py", b"n\n"),
    ];
    for (path, content) in files {
        std::fs::write(dir.join(path), content).expect("written");
    }
    symlink("notes.txt", dir.join("inlink")).expect("linked");
    symlink("/etc", dir.join("outlink")).expect("linked");
    service
        .request("DELETE", "/sessions/a")
        .send()
        .await
        .nothing();
    service
}

async fn on(service: &Service, op: &str, path: &str) -> Reply {
    service
        .post(&format!("/workspaces/a/{op}"), json!({ "path": path }))
        .await
}

fn paths(entries: &Value) -> Vec<&str> {
    let entries = entries.as_array().expect("a list").iter();
    entries
        .map(|entry| entry["path"].as_str().expect("a path"))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn listings_are_relative_to_the_root_whatever_it_is_called() {
    let service = stored(&[]).await;
    let expected = [
        ".hidden",
        "sub",
        "bin.dat",
        "empty.txt",
        "latin.txt",
        "notes.txt",
    ];
    for root in [".", "/", "", "/workspace", "/workspace/"] {
        let listing = on(&service, "ls", root).await.ok();
        assert_eq!(paths(&listing), expected, "{root:?}");
        assert_eq!(listing[0]["size"], json!(null));
        assert_eq!(listing[0]["modified_at"], json!(null));
        assert_eq!(listing[5]["size"], 9);
        let modified = listing[5]["modified_at"].as_str().expect("a time");
        assert!(
            modified.ends_with("+00:00") && modified.contains('T'),
            "{modified}"
        );
    }
    for sub in ["sub", "./sub", "sub/", "/workspace/sub"] {
        assert_eq!(
            paths(&on(&service, "ls", sub).await.ok()),
            ["sub/deep", "sub/a.py"],
            "{sub}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_plainly_inside_is_refused() {
    let service = stored(&[]).await;
    for path in [
        "..",
        "../..",
        "a/../../x",
        "sub/../sub",
        "outlink",
        "outlink/passwd",
        "inlink/x",
    ] {
        for op in ["ls", "read", "read_bytes", "tree"] {
            let words = on(&service, op, path).await.refused(400);
            assert!(
                words.contains("outside the workspace"),
                "{op} {path}: {words}"
            );
            assert!(
                !words.contains(service.root.to_str().expect("text")),
                "no host path: {words}"
            );
        }
    }
    on(&service, "read", "inlink").await.refused(400);
    for path in ["nope", "/etc/passwd"] {
        for op in ["ls", "read", "read_bytes", "tree"] {
            on(&service, op, path).await.refused(404);
        }
    }
    on(&service, "ls", "notes.txt").await.refused(404);
    on(&service, "read", "sub").await.refused(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_read_as_text_and_as_bytes() {
    let service = stored(&[]).await;
    let read = |body: Value| service.post("/workspaces/a/read", body);
    assert_eq!(
        read(json!({"path": "notes.txt"})).await.ok(),
        json!({"content": "l1\nl2\nl3"})
    );
    let slice = read(json!({"path": "notes.txt", "limit": 1})).await.ok();
    assert_eq!(
        slice["content"],
        "l1\n\n[... 2 more lines. Use offset=1 to read more.]"
    );
    let end = read(json!({"path": "notes.txt", "offset": 5})).await.ok();
    assert_eq!(end["content"], "[End of file]");
    assert_eq!(
        read(json!({"path": "empty.txt"})).await.ok()["content"],
        "[End of file]"
    );
    assert_eq!(
        read(json!({"path": "latin.txt"})).await.ok()["content"],
        "café"
    );
    assert_eq!(
        read(json!({"path": "bin.dat"})).await.refused(400),
        "[Binary File]"
    );
    let bytes = on(&service, "read_bytes", "bin.dat").await.ok();
    assert_eq!(bytes, json!({"content_b64": "AAH//g=="}));
    for bad in [
        json!({}),
        json!({"path": "x", "limit": 0}),
        json!({"path": "x", "offset": -1}),
    ] {
        assert_eq!(read(bad.clone()).await.status, 422, "{bad}");
    }
}

/// A PDF of one page; without a table of contents, which readers make up for.
fn pdf() -> Vec<u8> {
    let page = "BT /F 12 Tf 72 720 Td (First line) Tj 0 -14 Td (second line) Tj ET";
    let objects = [
        "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>".to_owned(),
        "<< /Type /Page /Parent 2 0 R /Contents 4 0 R /Resources << /Font << /F 5 0 R >> >> >>"
            .to_owned(),
        format!("<< /Length {} >>\nstream\n{page}\nendstream", page.len()),
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>".to_owned(),
        "<< /Title (A title) >>".to_owned(),
    ];
    let mut file = "%PDF-1.4\n".to_owned();
    for (index, object) in objects.iter().enumerate() {
        file.push_str(&format!("{} 0 obj\n{object}\nendobj\n", index + 1));
    }
    file.push_str("trailer\n<< /Size 7 /Root 1 0 R /Info 6 0 R >>\n%%EOF\n");
    file.into_bytes()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pdf_is_read_as_its_text() {
    let service = stored(&[]).await;
    let dir = service.root.join("a/workspace");
    std::fs::write(dir.join("report.pdf"), pdf()).expect("written");
    std::fs::write(dir.join("broken.PDF"), b"%PDF-1.7 and no more").expect("written");
    let text = on(&service, "read", "report.pdf").await.ok();
    assert_eq!(
        text["content"],
        "Title: A title\n\n--- Page 1 ---\nFirst line\nsecond line"
    );
    let body = json!({"path": "report.pdf", "offset": 3, "limit": 1});
    let slice = service.post("/workspaces/a/read", body).await.ok();
    assert_eq!(
        slice["content"],
        "First line\n\n[... 1 more lines. Use offset=4 to read more.]"
    );
    let words = on(&service, "read", "broken.PDF").await.refused(400);
    assert!(words.starts_with("Failed to parse PDF: "), "{words}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_over_the_read_limit_is_400() {
    let service = stored(&[("SANDBOXD_MAX_READ_BYTES", "8")]).await;
    for op in ["read", "read_bytes"] {
        let words = on(&service, op, "notes.txt").await.refused(400);
        assert!(
            words.contains("9 bytes") && words.contains("read limit"),
            "{words}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_is_breadth_first_and_says_when_it_was_cut() {
    let service = stored(&[]).await;
    let tree = |body: Value| service.post("/workspaces/a/tree", body);
    let whole = tree(json!({})).await.ok();
    let all = [
        ".hidden",
        "sub",
        "bin.dat",
        "empty.txt",
        "latin.txt",
        "notes.txt",
        "sub/deep",
        "sub/a.py",
        "sub/deep/b.py",
    ];
    assert_eq!(paths(&whole["entries"]), all);
    assert_eq!(whole["truncated"], false);
    let flat = tree(json!({"max_depth": 1})).await.ok();
    assert_eq!(
        (paths(&flat["entries"]).len(), &flat["truncated"]),
        (6, &json!(true))
    );
    let few = tree(json!({"max_entries": 3})).await.ok();
    assert_eq!(
        (paths(&few["entries"]).len(), &few["truncated"]),
        (3, &json!(true))
    );
    let sub = tree(json!({"path": "sub"})).await.ok();
    assert_eq!(
        paths(&sub["entries"]),
        ["sub/deep", "sub/a.py", "sub/deep/b.py"]
    );
    for bad in [
        json!({"max_depth": 0}),
        json!({"max_depth": 65}),
        json!({"max_entries": 0}),
        json!({"max_entries": 100_001}),
    ] {
        assert_eq!(tree(bad.clone()).await.status, 422, "{bad}");
    }
    let nothing = service.request("POST", "/workspaces/a/tree").send().await;
    assert_eq!(nothing.status, 422, "a body is needed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_directory_gives_as_many_entries_as_asked_for() {
    let service = stored(&[]).await;
    let dir = service.root.join("a/workspace/many");
    std::fs::create_dir(&dir).expect("made");
    for number in 0..3_000 {
        symlink("x", dir.join(format!("link{number}"))).expect("linked");
        std::fs::write(dir.join(format!("f{number}")), "").expect("written");
    }
    for (most, cut) in [(1, true), (2_999, true), (3_000, false), (3_001, false)] {
        let body = json!({"path": "many", "max_entries": most});
        let tree = service.post("/workspaces/a/tree", body).await.ok();
        let paths = paths(&tree["entries"]);
        assert_eq!(
            (paths.len(), &tree["truncated"]),
            (most.min(3_000), &json!(cut))
        );
        assert!(paths.is_sorted() && paths.iter().all(|path| path.starts_with("many/f")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn trees_come_in_the_order_asked_for_and_fail_one_by_one() {
    let service = stored(&[]).await;
    let body = json!({"sessions": ["a", "zzz", "a"], "max_depth": 1, "max_entries": 2});
    let results = service.post("/workspaces/trees", body).await.ok()["results"].clone();
    let ids: Vec<&Value> = results
        .as_array()
        .expect("a list")
        .iter()
        .map(|row| &row["session_id"])
        .collect();
    assert_eq!(ids, ["a", "zzz", "a"]);
    assert_eq!(results[0]["tree"]["truncated"], true);
    assert_eq!(results[0]["error"], json!(null));
    assert_eq!(results[1]["tree"], json!(null));
    assert_eq!(results[1]["status_code"], 404);
    assert!(results[1]["error"].is_string());
    let outside = service
        .post(
            "/workspaces/trees",
            json!({"sessions": ["a"], "path": ".."}),
        )
        .await
        .ok();
    assert_eq!(outside["results"][0]["status_code"], 400);
    let many: Vec<&str> = vec!["a"; 101];
    for bad in [
        json!({}),
        json!({"sessions": []}),
        json!({"sessions": ["../x"]}),
        json!({"sessions": many}),
        json!({"sessions": ["a"], "max_depth": 0}),
    ] {
        assert_eq!(
            service.post("/workspaces/trees", bad.clone()).await.status,
            422,
            "{bad}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_root_is_409_and_no_workspace_404() {
    let service = stored(&[]).await;
    let nobody = service
        .post("/workspaces/zzz/ls", json!({"path": "."}))
        .await;
    nobody.refused(404);
    let service = Service::start(&[("SANDBOXD_WORKSPACE_ROOT", "")]).await;
    for op in ["ls", "read", "read_bytes", "tree"] {
        let words = on(&service, op, ".").await.refused(409);
        assert!(words.contains("workspace_root"), "{words}");
    }
}
