//! The older routes: what fails answers 200 with a value that says so.

use crate::support::{Reply, Service};
use serde_json::{Value, json};

struct Session {
    service: Service,
    token: String,
}

impl Session {
    async fn open(env: &[(&str, &str)]) -> Self {
        let service = Service::start(env).await;
        let token = service.open("a").await;
        Self { service, token }
    }

    async fn send(&self, op: &str, body: Value) -> Reply {
        let request = self.service.bare("POST", &format!("/sessions/a/{op}"));
        request.token(&self.token).json(&body).send().await
    }

    async fn ok(&self, op: &str, body: Value) -> Value {
        self.send(op, body).await.ok()
    }

    async fn write(&self, path: &str, content: &str) {
        let done = self
            .ok("write", json!({"path": path, "content_b64": content}))
            .await;
        assert_eq!(done["error"], json!(null), "{done}");
    }

    async fn read(&self, path: &str) -> String {
        let done = self.ok("read", json!({ "path": path })).await;
        done["content"].as_str().expect("text").to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exec_has_one_stream_and_a_code() {
    let session = Session::open(&[]).await;
    let reply = session
        .send("exec", json!({"command": "echo hi; exit 3"}))
        .await;
    assert_eq!(
        reply.text(),
        r#"{"output":"hi\n","exit_code":3,"truncated":false}"#
    );
    let both = session
        .ok("exec", json!({"command": "echo out; echo err >&2"}))
        .await;
    let output = both["output"].as_str().expect("text");
    assert!(
        output.contains("out\n") && output.contains("err\n"),
        "{output}"
    );
    let empty = session.ok("exec", json!({"command": ""})).await;
    assert_eq!(
        empty,
        json!({"output": "", "exit_code": 0, "truncated": false})
    );
    let late = session
        .ok(
            "exec",
            json!({"command": "echo before; sleep 15", "timeout_seconds": 1}),
        )
        .await;
    assert_eq!(
        late,
        json!({"output": "before\n", "exit_code": 124, "truncated": false, "killed_for": "time",
            "limits_reached": ["time"]})
    );
    for good in [json!(2.0), json!("3"), json!(null), json!(0)] {
        let body = json!({"command": "echo x", "timeout_seconds": good});
        assert_eq!(session.ok("exec", body).await["output"], "x\n", "{good}");
    }
    for bad in [
        json!({}),
        json!({"command": 1}),
        json!({"command": "x", "timeout_seconds": 1.5}),
    ] {
        assert_eq!(session.send("exec", bad.clone()).await.status, 422, "{bad}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn long_output_is_cut_and_the_command_goes_on() {
    let session = Session::open(&[]).await;
    let done = session
        .ok("exec", json!({"command": "yes", "timeout_seconds": 1}))
        .await;
    assert_eq!(done["truncated"], true);
    assert_eq!(done["output"].as_str().map(str::len), Some(100_000));
    assert_eq!(done["exit_code"], 124);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_operation_that_outlasts_the_services_ceiling_is_504() {
    let session = Session::open(&[("SANDBOXD_EXECUTE_TIMEOUT", "1")]).await;
    session.service.switches().silence_guests();
    for (op, body) in [
        ("read", json!({"path": "f"})),
        ("write", json!({"path": "f", "content_b64": ""})),
        ("ls", json!({"path": "."})),
    ] {
        let reply = session.send(op, body).await;
        assert!(
            reply.refused(504).contains("service ceiling"),
            "{op}: {}",
            reply.text()
        );
    }
    // A command's own deadline comes first: what it said so far is not lost.
    let exec = session.ok("exec", json!({"command": "sleep 19"})).await;
    assert_eq!(exec["exit_code"], 124);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_written_read_and_edited() {
    let session = Session::open(&[]).await;
    let written = session
        .send(
            "write",
            json!({"path": "notes.txt", "content_b64": "bDEKbDIKbDMK"}),
        )
        .await;
    assert_eq!(
        written.text(),
        r#"{"path":"/workspace/notes.txt","error":null}"#
    );
    assert_eq!(session.read("notes.txt").await, "l1\nl2\nl3");
    let slice = session
        .ok(
            "read",
            json!({"path": "/workspace/notes.txt", "offset": 1, "limit": 1}),
        )
        .await;
    assert_eq!(
        slice["content"],
        "l2\n\n[... 1 more lines. Use offset=2 to read more.]"
    );
    let past = session
        .ok("read", json!({"path": "notes.txt", "offset": 9}))
        .await;
    assert_eq!(past["content"], "[End of file]");
    session.write("dir a/empty", "").await;
    assert_eq!(session.read("dir a/empty").await, "");
    session.write("bin.dat", "AAH//oGC").await;
    assert_eq!(session.read("bin.dat").await, "[Error: [Binary File]]");
    let bytes = session.ok("read_bytes", json!({"path": "bin.dat"})).await;
    assert_eq!(bytes, json!({"content_b64": "AAH//oGC"}));

    let edit = |old: &str, all: bool| {
        session.ok(
            "edit",
            json!({"path": "notes.txt", "old_string": old, "new_string": "b", "replace_all": all}),
        )
    };
    let one = edit("l2", false).await;
    assert_eq!(
        one,
        json!({"path": "/workspace/notes.txt", "error": null, "occurrences": 1})
    );
    let many = edit("l", false).await;
    let words = many["error"].as_str().expect("words");
    assert!(
        words.starts_with("String 'l' found 2 times. Use replace_all=True"),
        "{words}"
    );
    assert_eq!(edit("l", true).await["occurrences"], 2);
    assert_eq!(session.read("notes.txt").await, "b1\nb\nb3");
    assert_eq!(
        edit("zzz", true).await["error"],
        "String 'zzz' not found in file"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_or_written_degrades() {
    let session = Session::open(&[("SANDBOXD_MAX_READ_BYTES", "10")]).await;
    session.write("f", "eA==").await;
    for path in ["nope", "/workspace", "f/x", "/no/such"] {
        let read = session.read(path).await;
        assert_eq!(read, format!("Error: File '{path}' not found"));
        let bytes = session.ok("read_bytes", json!({ "path": path })).await;
        assert_eq!(bytes, json!({"content_b64": ""}), "{path}");
        let edit = json!({"path": path, "old_string": "a", "new_string": "b"});
        let edit = session.ok("edit", edit).await;
        assert_eq!(
            edit,
            json!({"path": null, "error": format!("File '{path}' not found"), "occurrences": null})
        );
    }
    let big = json!({"path": "big", "content_b64": "AAAAAAAAAAAAAAAAAAAA"});
    session.ok("write", big).await;
    let read = session.read("big").await;
    assert!(
        read.starts_with("[Error: File is 15 bytes, over the 10-byte read limit."),
        "{read}"
    );
    let bytes = session.ok("read_bytes", json!({"path": "big"})).await;
    assert_eq!(bytes["content_b64"], "", "never a prefix");
    for path in ["/workspace", "f/x"] {
        let write = session
            .ok("write", json!({"path": path, "content_b64": "eA=="}))
            .await;
        assert_eq!(write["path"], json!(null), "{path}");
        assert!(write["error"].is_string(), "{path}");
    }
    assert_eq!(
        session.read("f").await,
        "x",
        "a write that failed harmed nothing"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn content_that_is_no_base64_is_400_before_anything_else() {
    let session = Session::open(&[]).await;
    for bad in ["***", "abc", "YWJj\n", "eA"] {
        let reply = session
            .send("write", json!({"path": "x", "content_b64": bad}))
            .await;
        assert!(reply.refused(400).contains("base64"), "{bad}");
    }
    assert_eq!(session.read("x").await, "Error: File 'x' not found");
    for bad in [
        json!({"path": "x"}),
        json!({"path": "x", "offset": -1}),
        json!({"path": "x", "limit": 0}),
        json!({"path": 1}),
    ] {
        let op = if bad.get("offset").or(bad.get("limit")).is_some() {
            "read"
        } else {
            "write"
        };
        assert_eq!(session.send(op, bad.clone()).await.status, 422, "{bad}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exists_is_true_for_files_only() {
    let session = Session::open(&[]).await;
    session.write("f", "eA==").await;
    for (path, exists) in [
        ("f", true),
        ("/workspace/f", true),
        ("/workspace", false),
        ("q", false),
    ] {
        let reply = session.ok("exists", json!({ "path": path })).await;
        assert_eq!(reply, json!({ "exists": exists }), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ls_lists_directories_first_under_the_path_asked_for() {
    let session = Session::open(&[]).await;
    session.write("z/.h", "eA==").await;
    session.write("a", "").await;
    let names = |listing: &Value| -> Vec<(String, String, bool)> {
        let rows = listing.as_array().expect("a list").iter();
        rows.map(|row| {
            let text = |field: &str| row[field].as_str().expect("text").to_owned();
            assert_eq!(row["modified_at"], json!(null));
            (text("name"), text("path"), row["is_dir"] == true)
        })
        .collect()
    };
    let row = |name: &str, path: &str, dir| (name.to_owned(), path.to_owned(), dir);
    let root = session.ok("ls", json!({"path": "/workspace"})).await;
    assert_eq!(
        names(&root),
        [
            row("z", "/workspace/z", true),
            row("a", "/workspace/a", false)
        ]
    );
    let dot = session.ok("ls", json!({"path": "."})).await;
    assert_eq!(names(&dot), [row("z", "./z", true), row("a", "./a", false)]);
    let slash = session.ok("ls", json!({"path": "z/"})).await;
    assert_eq!(names(&slash), [row(".h", "z/.h", false)]);
    for path in ["", "a", "nope"] {
        assert_eq!(
            session.ok("ls", json!({ "path": path })).await,
            json!([]),
            "{path}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn searches_degrade_where_the_image_has_no_tools() {
    let session = Session::open(&[]).await;
    assert_eq!(
        session.ok("glob", json!({"pattern": "*.py"})).await,
        json!([])
    );
    let grep = session.ok("grep", json!({"pattern": "x"})).await;
    assert_eq!(grep["matches"], json!([]));
    assert!(
        grep["error"]
            .as_str()
            .unwrap_or_default()
            .starts_with("Error: "),
        "{grep}"
    );
    for op in ["glob", "grep"] {
        assert_eq!(session.send(op, json!({})).await.status, 422);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_is_in_the_log() {
    let session = Session::open(&[]).await;
    session.ok("exec", json!({"command": "exit 3"})).await;
    session.write("f", "eA==").await;
    session.read("f").await;
    session.read("nope").await;
    session.ok("read_bytes", json!({"path": "f"})).await;
    session
        .ok(
            "edit",
            json!({"path": "f", "old_string": "x", "new_string": "y"}),
        )
        .await;
    session.ok("exists", json!({"path": "q"})).await;
    session.ok("ls", json!({"path": "."})).await;
    session
        .ok("glob", json!({"pattern": "*.py", "path": "."}))
        .await;
    session
        .send("write", json!({"path": "x", "content_b64": "***"}))
        .await
        .refused(400);
    let events = session.service.get("/sessions/a/events").await.ok();
    let rows: Vec<(Value, Value, Value, Value)> = events["events"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|row| {
            (
                row["op"].clone(),
                row["target"].clone(),
                row["ok"].clone(),
                row["detail"].clone(),
            )
        })
        .collect();
    let expected = [
        ("exec", "exit 3", false, "exit 3"),
        ("write", "f", true, "1 bytes"),
        ("read", "f", true, "1 chars"),
        ("read", "nope", false, "28 chars"),
        ("read_bytes", "f", true, "1 bytes"),
        ("edit", "f", true, "1 replaced"),
        ("exists", "q", false, "missing"),
        ("ls", ".", true, "1 entries"),
        ("glob", "*.py in .", true, "0 matches"),
    ];
    let expected = expected
        .map(|(op, target, ok, detail)| (json!(op), json!(target), json!(ok), json!(detail)));
    assert_eq!(rows, expected);
}
