//! The examples of the client do what they say.

use crate::support::{Running, TOKEN};

#[path = "../../../sandboxd-client/examples/conversation.rs"]
mod conversation;
#[path = "../../../sandboxd-client/examples/proxy.rs"]
mod proxy;
#[path = "../../../sandboxd-client/examples/run.rs"]
mod run;
#[path = "../../../sandboxd-client/examples/tools.rs"]
mod tools;

#[tokio::test(flavor = "multi_thread")]
async fn run_prints_and_ends() {
    let running = Running::start(true).await;
    assert_eq!(
        run::example(&running.url, TOKEN).await.expect("no error"),
        "hello\n"
    );
    let left = running.service().sessions(false).await.expect("a list");
    assert!(left.sessions.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_keeps_its_files() {
    let running = Running::start(true).await;
    let paths = conversation::example(&running.url, TOKEN)
        .await
        .expect("no error");
    assert_eq!(paths, ["notes", "notes/today.md"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_say_what_went_wrong() {
    let running = Running::start(true).await;
    let said = tools::example(&running.url, TOKEN).await.expect("no error");
    let expected = [
        "one\ntwo",
        "Error: File 'missing.md' not found",
        "done\n",
        "Error: sandbox service unavailable\nCommand failed (exit code 1)",
    ];
    assert_eq!(said, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_shows_files_to_those_who_may_see_them_and_no_token() {
    use proxy::Answer::{Download, Names, NotFound};
    let running = Running::start(true).await;
    let told = proxy::example(&running.url, TOKEN).await.expect("no error");
    let expected = [
        Names(vec!["report/".to_owned()]),
        Download(b"<script>".to_vec()),
        NotFound,
        NotFound,
        NotFound,
    ];
    assert_eq!(told, expected);
}
