//! The client against a guest that dies, lies or is silent.

use crate::double::run;
use bytes::BytesMut;
use futures::{AsyncReadExt, AsyncWriteExt};
use sandboxd_protocol::client::{Client, FileFailure, LinkError, Output};
use sandboxd_protocol::frame::{self, Tag};
use sandboxd_protocol::limits::MESSAGE_BYTES_MAX;
use sandboxd_protocol::message::{
    Entry, FileAnswer, GENERATION, Kind, PathRule, RunEvent, TreeEnd, Welcome,
};
use serde::Serialize;
use std::future::poll_fn;
use std::time::Duration;
use tokio::io::DuplexStream;
use tokio::time::timeout;
use tokio_util::compat::TokioAsyncReadCompatExt;

const SOON: Duration = Duration::from_secs(20);

fn word(message: &impl Serialize) -> Vec<u8> {
    let mut out = BytesMut::new();
    frame::put_message(&mut out, message, MESSAGE_BYTES_MAX).expect("fits");
    out.to_vec()
}

fn raw(tag: Tag, bytes: &[u8]) -> Vec<u8> {
    let mut out = BytesMut::new();
    frame::put_raw(&mut out, tag, bytes).expect("fits");
    out.to_vec()
}

fn welcome(generation: u16) -> Vec<u8> {
    word(&Welcome {
        generation,
        is_init: true,
        tree_end: TreeEnd::None,
    })
}

/// Answers the n-th substream with the n-th bytes, whatever was asked, and leaves it open.
async fn script(link: DuplexStream, answers: Vec<Vec<u8>>) {
    let config = yamux::Config::default();
    let mut wire = yamux::Connection::new(link.compat(), config, yamux::Mode::Server);
    let mut answers = answers.into_iter();
    let mut kept = Vec::new();
    while let Some(Ok(mut stream)) = poll_fn(|cx| wire.poll_next_inbound(cx)).await {
        let Some(answer) = answers.next() else { return };
        kept.push(tokio::spawn(async move {
            let mut head = [0; 5];
            stream.read_exact(&mut head).await.expect("asked");
            stream.write_all(&answer).await.expect("answered");
            // Open until the client lets go.
            let mut sink = [0; 4096];
            while stream.read(&mut sink).await.is_ok_and(|read| read > 0) {}
        }));
    }
}

async fn client(answers: Vec<Vec<u8>>) -> Client {
    let (near, far) = tokio::io::duplex(1 << 20);
    tokio::spawn(script(far, answers));
    let (client, _) = timeout(SOON, Client::connect(near))
        .await
        .expect("in time")
        .expect("connects");
    client
}

/// The error that a run ends with when the guest answers these bytes.
async fn run_error(answer: Vec<u8>) -> LinkError {
    let client = client(vec![welcome(GENERATION), answer]).await;
    let (_input, mut events) = client.run(run(&["x"])).await.expect("asked");
    loop {
        match timeout(SOON, events.next()).await.expect("no hang") {
            Ok(Some(_)) => {}
            Ok(None) => panic!("ended well"),
            Err(error) => return error,
        }
    }
}

async fn read_error(answer: Vec<u8>) -> FileFailure {
    let client = client(vec![welcome(GENERATION), answer]).await;
    let read = client.read(PathRule::Follow, b"/f", 10);
    let read = timeout(SOON, read).await.expect("no hang");
    read.expect_err("must fail")
}

async fn list_error(entries: Vec<Entry>, more: bool) -> FileFailure {
    let answer = word(&FileAnswer::Entries { entries, more });
    let client = client(vec![welcome(GENERATION), answer]).await;
    let list = client.list(PathRule::Follow, b"/", 500);
    timeout(SOON, list)
        .await
        .expect("no hang")
        .expect_err("must fail")
}

fn broke(error: &FileFailure) -> bool {
    matches!(error, FileFailure::Link(LinkError::Protocol(_)))
}

#[tokio::test]
async fn another_generation_is_refused_in_plain_words() {
    let (near, far) = tokio::io::duplex(1 << 20);
    tokio::spawn(script(far, vec![welcome(9)]));
    let error = Client::connect(near).await.expect_err("refused");
    assert_eq!(
        error,
        LinkError::Generation {
            ours: GENERATION,
            theirs: 9
        }
    );
    assert_eq!(
        error.to_string(),
        format!("the guest speaks generation 9 of the protocol, this daemon {GENERATION}")
    );
}

#[tokio::test(start_paused = true)]
async fn silence_in_the_hello_is_bounded() {
    let (near, _far) = tokio::io::duplex(1 << 20);
    let error = Client::connect(near).await.expect_err("silent");
    assert_eq!(error, LinkError::Silent(10_000));
}

#[tokio::test(start_paused = true)]
async fn silence_in_a_file_operation_is_bounded() {
    let client = client(vec![welcome(GENERATION), Vec::new()]).await;
    let error = client.stat(PathRule::Follow, b"/f").await;
    assert_eq!(error, Err(FileFailure::Link(LinkError::Silent(120_000))));
}

#[tokio::test(start_paused = true)]
async fn garbage_instead_of_a_hello_ends_the_link() {
    for garbage in [
        &[0_u8; 64][..],
        &[0xff; 64],
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ] {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        tokio::io::AsyncWriteExt::write_all(&mut far, garbage)
            .await
            .expect("written");
        let error = timeout(Duration::from_secs(15), Client::connect(near)).await;
        let error = error.expect("no hang").expect_err("refused");
        assert!(
            matches!(error, LinkError::Gone | LinkError::Silent(_)),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn a_hello_that_is_none_is_an_error() {
    for answer in [
        raw(Tag::Stdout, b"x"),
        word(&300_u64),
        vec![0, 0xff, 0xff, 0xff, 0xff],
    ] {
        let (near, far) = tokio::io::duplex(1 << 20);
        tokio::spawn(script(far, vec![answer]));
        let error = timeout(SOON, Client::connect(near)).await.expect("no hang");
        assert!(matches!(error, Err(LinkError::Protocol(_))), "{error:?}");
    }
}

#[tokio::test]
async fn a_run_out_of_order_is_an_error() {
    let started = word(&RunEvent::Started);
    let cases = [
        raw(Tag::Stdout, b"before the start"),
        word(&RunEvent::Exited(crate::double::EXIT)),
        [started.clone(), started.clone()].concat(),
        [started.clone(), raw(Tag::Content, b"x")].concat(),
        [started.clone(), word(&RunEvent::StdinTaken(1))].concat(),
        [started.clone(), word(&RunEvent::StdinTaken(u32::MAX))].concat(),
        [started.clone(), vec![7, 0, 0, 0, 0]].concat(),
        [started.clone(), vec![0, 1, 0, 0, 0, 0xee]].concat(),
        [started, vec![2, 0xff, 0xff, 0xff, 0x7f]].concat(),
    ];
    for answer in cases {
        let error = run_error(answer.clone()).await;
        assert!(
            matches!(error, LinkError::Protocol(_)),
            "{answer:?}: {error:?}"
        );
    }
}

#[tokio::test]
async fn a_file_answer_that_lies_is_an_error() {
    let content = word(&FileAnswer::Content { size: 10 });
    let long = vec![1; 11];
    let cases = [
        word(&FileAnswer::Done),
        word(&RunEvent::Started),
        word(&FileAnswer::Content { size: 11 }),
        [content.clone(), raw(Tag::Content, &long)].concat(),
        [content.clone(), raw(Tag::Stdout, b"x")].concat(),
        [content.clone(), content.clone()].concat(),
        [content, vec![1, 0, 0, 0, 0x10]].concat(),
    ];
    for answer in cases {
        let error = read_error(answer.clone()).await;
        assert!(broke(&error), "{answer:?}: {error:?}");
    }
}

#[tokio::test]
async fn a_listing_that_lies_is_an_error() {
    let named = |name: &[u8]| Entry {
        name: name.to_vec(),
        kind: Kind::File,
        size: 0,
        mode: 0,
        modified_nanos: 0,
        target: None,
    };
    for name in [&b""[..], b".", b"..", b"a/b", b"a\0b", &[b'n'; 256]] {
        assert!(
            broke(&list_error(vec![named(name)], false).await),
            "{name:?}"
        );
    }
    assert!(broke(
        &list_error(vec![named(b"b"), named(b"a")], false).await
    ));
    assert!(broke(
        &list_error(vec![named(b"a"), named(b"a")], false).await
    ));
    assert!(broke(&list_error(Vec::new(), true).await));
    let many = (0..300).map(crate::double::entry).collect();
    assert!(broke(&list_error(many, false).await));
}

#[tokio::test]
async fn a_guest_that_goes_in_the_middle_is_gone() {
    let (near, far) = tokio::io::duplex(1 << 20);
    let answers = vec![welcome(GENERATION), word(&RunEvent::Started)];
    let guest = tokio::spawn(script(far, answers));
    let (client, _) = Client::connect(near).await.expect("connects");
    let (_input, mut events) = client.run(run(&["x"])).await.expect("asked");
    assert_eq!(events.next().await, Ok(Some(Output::Started)));
    guest.abort();
    let event = timeout(SOON, events.next()).await.expect("no hang");
    assert_eq!(event, Err(LinkError::Gone));
    timeout(SOON, client.closed()).await.expect("closed");
}

#[tokio::test]
async fn substreams_that_a_guest_opens_are_refused_and_too_many_end_the_link() {
    let (near, far) = tokio::io::duplex(1 << 20);
    tokio::spawn(async move {
        let config = yamux::Config::default();
        let mut wire = yamux::Connection::new(far.compat(), config, yamux::Mode::Server);
        let mut first = poll_fn(|cx| wire.poll_next_inbound(cx))
            .await
            .expect("hello")
            .expect("sound");
        let mut greeted = false;
        let mut opened = 0;
        let answer = welcome(GENERATION);
        loop {
            // One more substream whenever the last was refused.
            let mut stream = poll_fn(|cx| wire.poll_new_outbound(cx)).await;
            poll_fn(|cx| {
                if !greeted {
                    greeted = true;
                    let mut writing = first.write_all(&answer);
                    let _ = std::future::Future::poll(std::pin::Pin::new(&mut writing), cx);
                }
                if let Ok(stream) = stream.as_mut() {
                    let mut writing = stream.write_all(b"x");
                    let _ = std::future::Future::poll(std::pin::Pin::new(&mut writing), cx);
                }
                let _ = wire.poll_next_inbound(cx);
                std::task::Poll::Ready(())
            })
            .await;
            opened += 1;
            if opened > 10_000 || stream.is_err() {
                return;
            }
            tokio::task::yield_now().await;
        }
    });
    let (client, _) = timeout(SOON, Client::connect(near))
        .await
        .expect("in time")
        .expect("connects");
    timeout(SOON, client.closed()).await.expect("ended for it");
}
