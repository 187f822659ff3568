use crate::double::{EXIT, pair, run};
use bytes::Bytes;
use sandboxd_protocol::client::{FileFailure, LinkError, Output};
use sandboxd_protocol::limits::STDIN_WINDOW_BYTES;
use sandboxd_protocol::message::{FileError, NotStarted, PathRule};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_streams_both_ways_to_its_end() {
    let (client, _guest) = pair().await;
    let (mut input, mut events) = client.run(run(&["cat"])).await.expect("asked");
    assert_eq!(events.next().await, Ok(Some(Output::Started)));
    // Far more than every window and buffer on the way.
    let sent: Vec<u8> = (0..4_000_000_u32).map(|n| n.to_le_bytes()[1]).collect();
    let expected = sent.clone();
    let feed = tokio::spawn(async move {
        for piece in sent.chunks(100_000) {
            input.stdin(piece).await.expect("sent");
        }
        input.end_stdin().await.expect("ended");
        input.end_stdin().await.expect("ended twice is fine");
        input
    });
    let mut got = Vec::new();
    loop {
        match timeout(SOON, events.next())
            .await
            .expect("moves")
            .expect("sound")
        {
            Some(Output::Stdout(bytes)) => got.extend_from_slice(&bytes),
            Some(Output::Exited(exit)) => {
                assert_eq!(exit, EXIT);
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(got == expected);
    assert_eq!(events.next().await, Ok(None));
    let mut input = feed.await.expect("fed");
    assert_eq!(input.stdin(b"late").await, Err(LinkError::Gone));
}

#[tokio::test]
async fn a_program_that_cannot_start_says_why() {
    let (client, _guest) = pair().await;
    let (_input, mut events) = client.run(run(&["missing"])).await.expect("asked");
    let first = events.next().await;
    assert_eq!(first, Ok(Some(Output::NotStarted(NotStarted::NotFound))));
    assert_eq!(events.next().await, Ok(None));
}

#[tokio::test]
async fn a_stop_is_not_stuck_behind_stdin_that_nobody_reads() {
    let (client, _guest) = pair().await;
    let (mut input, mut events) = client.run(run(&["deaf"])).await.expect("asked");
    assert_eq!(events.next().await, Ok(Some(Output::Started)));
    let much = vec![0; STDIN_WINDOW_BYTES + 1];
    // The last byte waits for room that never comes; what was sent is not torn by giving up.
    let stuck = timeout(Duration::from_millis(50), input.stdin(&much)).await;
    assert!(stuck.is_err());
    timeout(SOON, input.stop())
        .await
        .expect("not stuck")
        .expect("sent");
    let said = timeout(SOON, events.next()).await.expect("answers");
    let expected = STDIN_WINDOW_BYTES.to_string();
    assert_eq!(said, Ok(Some(Output::Stderr(Bytes::from(expected)))));
    assert_eq!(events.next().await, Ok(Some(Output::Exited(EXIT))));
}

#[tokio::test]
async fn dropping_the_events_lets_the_run_go_even_with_its_input_held() {
    let (client, guest) = pair().await;
    let (mut input, mut events) = client.run(run(&["wait"])).await.expect("asked");
    assert_eq!(events.next().await, Ok(Some(Output::Started)));
    drop(events);
    timeout(SOON, guest.let_go.notified())
        .await
        .expect("noticed");
    assert_eq!(guest.runs_let_go.load(Ordering::SeqCst), 1);
    assert_eq!(input.stop().await, Err(LinkError::Gone));
    assert_eq!(input.stdin(b"x").await, Err(LinkError::Gone));
}

#[tokio::test]
async fn a_reader_that_stops_reading_holds_up_only_itself() {
    let (client, _guest) = pair().await;
    let mut stuck = Vec::new();
    for _ in 0..8 {
        let (input, mut events) = client.run(run(&["flood"])).await.expect("asked");
        assert_eq!(events.next().await, Ok(Some(Output::Started)));
        stuck.push((input, events));
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    let content = Bytes::from(vec![7; 1_000_000]);
    let written = client.write(PathRule::Follow, b"/f", content.clone(), 0o644, false);
    timeout(SOON, written)
        .await
        .expect("moves")
        .expect("written");
    let read = client.read(PathRule::Follow, b"/f", 1_000_000);
    let read = timeout(SOON, read).await.expect("moves").expect("read");
    assert!(read == content);
}

#[tokio::test]
async fn small_files_and_refusals_come_back() {
    let (client, _guest) = pair().await;
    let written = client
        .write(
            PathRule::Follow,
            b"/f",
            Bytes::from_static(b"hi\0"),
            0,
            true,
        )
        .await;
    assert_eq!(written, Ok(()));
    let read = client.read(PathRule::Follow, b"/f", 3).await;
    assert_eq!(read, Ok(Bytes::from_static(b"hi\0")));
    let lied = client.read(PathRule::Follow, b"/f", 2).await;
    assert!(matches!(
        lied,
        Err(FileFailure::Link(LinkError::Protocol(_)))
    ));
    let big = Bytes::from(vec![0; 3_000_000]);
    let refused = client.write(PathRule::Follow, b"/refused", big, 0, true);
    let refused = timeout(SOON, refused).await.expect("moves");
    assert_eq!(refused, Err(FileFailure::File(FileError::Denied)));
    let missing = client.stat(PathRule::Follow, b"/f").await;
    assert_eq!(missing, Err(FileFailure::File(FileError::NotFound)));
}

#[tokio::test]
async fn listings_come_in_batches_and_in_order() {
    let (client, _guest) = pair().await;
    for count in [0, 1, 256, 257, 3000] {
        let entries = client.list(PathRule::Follow, b"/", count).await;
        let entries = entries.expect("listed");
        assert_eq!(entries.len(), usize::try_from(count).expect("small"));
    }
}

#[tokio::test]
async fn a_dialled_port_is_bytes_both_ways_with_a_half_close() {
    let (client, _guest) = pair().await;
    let refused = client.dial(1).await.err();
    assert_eq!(refused, Some(FileFailure::File(FileError::Os(111))));
    let far = client.dial(2).await.expect("dialled");
    let (mut reader, mut writer) = tokio::io::split(far);
    let sent = vec![5; 1_000_000];
    let expected = sent.clone();
    let feed = tokio::spawn(async move {
        writer.write_all(&sent).await.expect("written");
        writer.shutdown().await.expect("ended");
    });
    let mut got = Vec::new();
    let read = timeout(SOON, reader.read_to_end(&mut got)).await;
    read.expect("ends").expect("read");
    assert!(got == expected);
    feed.await.expect("fed");
}

#[tokio::test]
async fn the_link_ends_with_its_last_handle() {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let guest = std::sync::Arc::new(crate::double::Double::default());
    let served = tokio::spawn(sandboxd_protocol::server::serve(far, guest.clone()));
    let (client, _) = sandboxd_protocol::client::Client::connect(near)
        .await
        .expect("connects");
    let (input, mut events) = client.run(run(&["wait"])).await.expect("asked");
    assert_eq!(events.next().await, Ok(Some(Output::Started)));
    drop(client);
    // A run keeps its link.
    assert!(!served.is_finished());
    drop((input, events));
    let ended = timeout(SOON, served).await.expect("ends").expect("joins");
    assert_eq!(ended, Ok(()));
}

#[tokio::test]
async fn closing_ends_everything_that_waits() {
    let (client, _guest) = pair().await;
    let (mut input, mut events) = client.run(run(&["wait"])).await.expect("asked");
    assert_eq!(events.next().await, Ok(Some(Output::Started)));
    assert!(!client.is_closed());
    client.close();
    timeout(SOON, client.closed()).await.expect("closes");
    assert!(client.is_closed());
    let event = timeout(SOON, events.next()).await.expect("answers");
    assert_eq!(event, Err(LinkError::Gone));
    assert_eq!(input.kill().await, Err(LinkError::Gone));
    let late = client.stat(PathRule::Follow, b"/").await;
    assert_eq!(late, Err(FileFailure::Link(LinkError::Gone)));
}

#[tokio::test]
async fn many_operations_at_once_all_come_back() {
    let (client, _guest) = pair().await;
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..2000 {
        let client = client.clone();
        all.spawn(async move { client.list(PathRule::Follow, b"/", 3).await });
    }
    while let Some(done) = timeout(SOON, all.join_next()).await.expect("moves") {
        assert_eq!(done.expect("joins").map(|entries| entries.len()), Ok(3));
    }
}
