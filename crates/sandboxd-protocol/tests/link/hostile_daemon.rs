//! The guest's half against a daemon that talks nonsense: it costs that daemon its link or its substream, never a hang.

use crate::double::Double;
use bytes::BytesMut;
use futures::{AsyncReadExt, AsyncWriteExt};
use sandboxd_protocol::client::LinkError;
use sandboxd_protocol::frame;
use sandboxd_protocol::limits::MESSAGE_BYTES_MAX;
use sandboxd_protocol::message::{GENERATION, Hello, Request, Welcome};
use sandboxd_protocol::server::serve;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::DuplexStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::compat::{Compat, TokioAsyncReadCompatExt};

const SOON: Duration = Duration::from_secs(20);

type Wire = yamux::Connection<Compat<DuplexStream>>;

fn guest() -> (Wire, JoinHandle<Result<(), LinkError>>) {
    let (near, far) = tokio::io::duplex(1 << 20);
    let served = tokio::spawn(serve(far, Arc::new(Double::default())));
    let config = yamux::Config::default();
    let wire = yamux::Connection::new(near.compat(), config, yamux::Mode::Client);
    (wire, served)
}

fn word(request: &Request) -> Vec<u8> {
    let mut out = BytesMut::new();
    frame::put_message(&mut out, request, MESSAGE_BYTES_MAX).expect("fits");
    out.to_vec()
}

fn hello(generation: u16) -> Vec<u8> {
    word(&Request::Hello(Hello { generation }))
}

/// Sends bytes on a fresh substream and reads what comes back, until the guest lets go or a frame is there.
async fn say(wire: &mut Wire, bytes: &[u8]) -> Vec<u8> {
    let mut stream = poll_fn(|cx| wire.poll_new_outbound(cx))
        .await
        .expect("opens");
    let talk = async {
        stream.write_all(bytes).await.expect("sent");
        let mut got = vec![0; 4096];
        let read = stream.read(&mut got).await.unwrap_or(0);
        got.truncate(read);
        got
    };
    tokio::select! {
        got = talk => got,
        _ = poll_fn(|cx| wire.poll_next_inbound(cx)) => Vec::new(),
    }
}

async fn ended(served: JoinHandle<Result<(), LinkError>>) -> Result<(), LinkError> {
    timeout(SOON, served)
        .await
        .expect("no hang")
        .expect("joins")
}

#[tokio::test]
async fn another_generation_is_told_ours_and_refused() {
    let (mut wire, served) = guest();
    let got = say(&mut wire, &hello(7)).await;
    let welcome: Welcome = frame::message(&got[5..]).expect("a welcome");
    assert_eq!(welcome.generation, GENERATION);
    drop(wire);
    assert_eq!(
        ended(served).await,
        Err(LinkError::Generation {
            ours: GENERATION,
            theirs: 7
        })
    );
}

#[tokio::test]
async fn the_first_word_must_be_a_hello() {
    let nonsense = [
        word(&Request::Dial { port: 1 }),
        vec![0, 1, 0, 0, 0, 0xee],
        vec![3, 0, 0, 0, 0],
        vec![0, 0xff, 0xff, 0xff, 0xff],
    ];
    for bytes in nonsense {
        let (mut wire, served) = guest();
        let got = say(&mut wire, &bytes).await;
        assert_eq!(got, Vec::<u8>::new());
        assert!(matches!(ended(served).await, Err(LinkError::Protocol(_))));
    }
}

#[tokio::test(start_paused = true)]
async fn a_daemon_without_a_hello_is_not_waited_for() {
    let (near, far) = tokio::io::duplex(1 << 20);
    let served = tokio::spawn(serve(far, Arc::new(Double::default())));
    assert_eq!(ended(served).await, Err(LinkError::Silent(10_000)));
    drop(near);
}

#[tokio::test]
async fn garbage_on_the_link_ends_it() {
    let (mut near, far) = tokio::io::duplex(1 << 20);
    let served = tokio::spawn(serve(far, Arc::new(Double::default())));
    tokio::io::AsyncWriteExt::write_all(&mut near, &[0xff; 4096])
        .await
        .expect("written");
    assert_eq!(ended(served).await, Ok(()));
}

#[tokio::test]
async fn nonsense_after_the_hello_costs_its_substream_only() {
    let (mut wire, served) = guest();
    let got = say(&mut wire, &hello(GENERATION)).await;
    assert!(!got.is_empty());
    let nonsense = [
        vec![0, 1, 0, 0, 0, 0xee],
        vec![9, 0, 0, 0, 0],
        vec![0, 0xff, 0xff, 0xff, 0xff],
        vec![1, 1, 0, 0, 0, 0],
        hello(GENERATION),
    ];
    for bytes in nonsense {
        let got = timeout(SOON, say(&mut wire, &bytes)).await;
        assert_eq!(got.expect("no hang"), Vec::<u8>::new());
        assert!(!served.is_finished());
    }
    drop(wire);
    assert_eq!(ended(served).await, Ok(()));
}
