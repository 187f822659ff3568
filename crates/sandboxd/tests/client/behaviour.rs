//! What the client makes of what the service really answers.

use crate::support::{Running, TOKEN};
use sandboxd_client::api::policy::PolicyUpdate;
use sandboxd_client::{AddressError, Command, FileError, OpenError, RunError, RunId, Service};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_clients_of_one_name_share_a_session() {
    let running = Running::start(true).await;
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let sandbox = running
                .service()
                .sandbox()
                .name("shared")
                .build()
                .expect("a sandbox");
            tokio::spawn(async move {
                sandbox
                    .run(&Command::new(["echo", "x"]))
                    .await
                    .expect("an output")
            })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.expect("no panic").stdout, "x\n");
    }
    let sessions = running
        .service()
        .sessions(false)
        .await
        .expect("a list")
        .sessions;
    assert_eq!(sessions.len(), 1, "{sessions:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_to_open_have_their_own_errors() {
    let running = Running::start(true).await;
    let service = running.service();
    let first = service
        .sandbox()
        .name("taken")
        .runtime("python")
        .build()
        .expect("a sandbox");
    first.start().await.expect("open");
    let other = service
        .sandbox()
        .name("taken")
        .runtime("node")
        .build()
        .expect("a sandbox");
    let error = other.start().await.expect_err("refused");
    assert!(matches!(error, OpenError::OtherRuntime { .. }), "{error:?}");
    let nothing = service
        .sandbox()
        .attach("nothing")
        .build()
        .expect("a sandbox");
    let error = nothing.start().await.expect_err("refused");
    assert!(
        matches!(error, OpenError::NothingToAttachTo { .. }),
        "{error:?}"
    );
    for (builder, status) in [
        (service.sandbox().new_session("taken"), 409),
        (service.sandbox().runtime("perl"), 400),
    ] {
        let error = builder
            .build()
            .expect("a sandbox")
            .start()
            .await
            .expect_err("refused");
        let OpenError::Request(error) = error else {
            panic!("{error:?}");
        };
        assert_eq!(error.status(), Some(status));
    }
    let stranger = Service::new(&running.url, "wrong").expect("a service");
    let error = stranger
        .sandbox()
        .build()
        .expect("a sandbox")
        .start()
        .await
        .expect_err("refused");
    assert!(
        matches!(&error, OpenError::Request(error) if error.status() == Some(401)),
        "{error:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_end_in_every_way() {
    let running = Running::start(true).await;
    let sandbox = running.service().sandbox().build().expect("a sandbox");
    let missing = sandbox
        .run(&Command::new(["no-such-program"]))
        .await
        .expect("an output");
    assert_eq!(missing.exit_code, 127);
    let late = sandbox
        .run(&Command::new(["sleep", "60"]).timeout(Duration::from_millis(200)))
        .await;
    assert!(
        matches!(
            late,
            Err(RunError::TimedOut {
                asked_for: true,
                ..
            })
        ),
        "{late:?}"
    );
    let id = RunId::fresh();
    let command = Command::new(["sleep", "60"]).run_id(id.clone());
    let stopping = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        sandbox.stop_run(&id).await
    };
    let (stopped, asked) = tokio::join!(sandbox.run(&command), stopping);
    asked.expect("stopped");
    assert_eq!(stopped.expect("an output").exit_code, 143);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_was_closed_is_gone() {
    let running = Running::start(true).await;
    let sandbox = running
        .service()
        .sandbox()
        .name("closed")
        .build()
        .expect("a sandbox");
    sandbox.start().await.expect("open");
    running.service().close("closed").await.expect("closed");
    // By its own dead token the session cannot be told from one that never was.
    let error = sandbox
        .run(&Command::new(["echo"]))
        .await
        .expect_err("gone");
    assert!(
        matches!(&error, RunError::Request(error) if error.status() == Some(401)),
        "{error:?}"
    );
    sandbox.stop().await.expect("closed is stopped");
    sandbox
        .run(&Command::new(["echo"]))
        .await
        .expect("opened anew");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_go_by_the_native_routes() {
    let running = Running::start(true).await;
    let sandbox = running
        .service()
        .sandbox()
        .name("files")
        .build()
        .expect("a sandbox");
    let path = "/workspace/dir/a b+c";
    let content: Vec<u8> = (0..=255).collect();
    sandbox
        .write_bytes(path, content.clone())
        .await
        .expect("written");
    assert_eq!(sandbox.read_bytes(path).await.expect("read"), content);
    let entry = sandbox.stat(path).await.expect("there");
    assert_eq!(
        (entry.name.as_str(), entry.size, entry.is_dir),
        ("a b+c", Some(256), false)
    );
    let listed = sandbox.list_dir("/workspace/dir").await.expect("listed");
    assert_eq!(
        listed
            .iter()
            .map(|entry| entry.path.as_str())
            .collect::<Vec<_>>(),
        [path]
    );
    assert_eq!(sandbox.realpath(path).await.expect("resolved"), path);
    let error = sandbox
        .read_bytes("/workspace/nothing")
        .await
        .expect_err("nothing");
    assert!(matches!(error, FileError::NotFound { .. }), "{error:?}");
    let error = sandbox
        .read_bytes("/workspace/dir")
        .await
        .expect_err("a directory");
    assert!(matches!(error, FileError::IsADirectory { .. }), "{error:?}");
    sandbox
        .make_dir("/workspace/dir/deep/er")
        .await
        .expect("made");
    sandbox.remove("/workspace/dir").await.expect("removed");
    assert!(!sandbox.exists("/workspace/dir").await.expect("told"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_tells_of_itself_and_changes() {
    let running = Running::start(false).await;
    let service = running.service();
    let index = service.index().await.expect("an index");
    assert!(index.endpoints.iter().any(|path| path == "/openapi.json"));
    assert_eq!(
        service.health().await.expect("health").runtimes,
        ["node", "python"]
    );
    let update = PolicyUpdate {
        max_sessions: Some(Some(7)),
        ..PolicyUpdate::default()
    };
    assert_eq!(
        service
            .update_policy(&update)
            .await
            .expect("a policy")
            .max_sessions,
        Some(7)
    );
    let sandbox = service.sandbox().name("seen").build().expect("a sandbox");
    sandbox
        .run(&Command::new(["echo", "x"]))
        .await
        .expect("an output");
    let events = service.events("seen", 0).await.expect("events");
    assert_eq!(
        events.events.last().map(|event| event.op.as_str()),
        Some("run")
    );
    let info = sandbox.info(true).await.expect("told").expect("open");
    assert!(info.alive && info.usage.is_some(), "{info:?}");
    let error = service
        .archive()
        .ls("seen", ".")
        .await
        .expect_err("nothing is stored");
    assert_eq!(error.status(), Some(409));
    assert!(matches!(
        Service::new("nowhere", TOKEN),
        Err(AddressError::NotAnAddress { .. })
    ));
}
