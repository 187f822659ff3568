//! File operations over the link: what the rule says is tested where it lives, here that it arrives.

use crate::house::{House, SOON, house, run};
use bytes::Bytes;
use sandboxd_protocol::client::FileFailure;
use sandboxd_protocol::message::{FileError, HandBack, Kind, PathRule};
use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

impl House {
    fn beneath(&self) -> PathRule {
        let root = self.dir.path().to_str().expect("text").as_bytes().to_vec();
        PathRule::Beneath { root }
    }

    fn absolute(&self, path: &str) -> Vec<u8> {
        let path = self.dir.path().join(path);
        path.to_str().expect("text").as_bytes().to_vec()
    }
}

fn file<T>(error: FileError) -> Result<T, FileFailure> {
    Err(FileFailure::File(error))
}

#[tokio::test]
async fn content_goes_both_ways_under_both_rules() {
    let house = house().await;
    let every_byte: Vec<u8> = (0..=255).cycle().take(3_000_001).collect();
    for content in [
        Bytes::new(),
        Bytes::from_static(b"\0a\xff"),
        Bytes::from(every_byte),
    ] {
        let limit = u64::try_from(content.len()).expect("small");
        let written = house
            .client
            .write(house.beneath(), b"new/f", content.clone(), 0o666, true)
            .await;
        assert_eq!(written, Ok(()));
        let read = house.client.read(house.beneath(), b"new/f", limit).await;
        assert!(read.as_ref() == Ok(&content));
        let path = house.absolute("g");
        let written = house
            .client
            .write(PathRule::Follow, &path, content.clone(), 0o666, false)
            .await;
        assert_eq!(written, Ok(()));
        let read = house.client.read(PathRule::Follow, &path, limit).await;
        assert!(read.as_ref() == Ok(&content));
        if let Some(less) = limit.checked_sub(1) {
            let read = house.client.read(house.beneath(), b"new/f", less).await;
            assert_eq!(read, file(HandBack::TooLarge.into()));
            let size = limit;
            let limit = less;
            let read = house.client.read(PathRule::Follow, &path, less).await;
            assert_eq!(read, file(FileError::TooLarge { size, limit }));
        }
    }
    let left = fs::read_dir(house.dir.path()).expect("read").count();
    assert_eq!(left, 2, "a temporary file was left");
}

#[tokio::test]
async fn every_operation_answers() {
    let house = house().await;
    let client = &house.client;
    assert_eq!(client.make_dir(house.beneath(), b"a/b").await, Ok(()));
    let stat = client.stat(house.beneath(), b"a/b").await.expect("there");
    assert_eq!((stat.kind, &stat.name[..]), (Kind::Directory, &b"b"[..]));
    fs::write(house.dir.path().join("a/f"), "x").expect("written");
    assert_eq!(client.rename(house.beneath(), b"a/f", b"a/g").await, Ok(()));
    let list = client
        .list(house.beneath(), b"a", 10)
        .await
        .expect("listed");
    let names: Vec<&[u8]> = list.iter().map(|entry| &entry.name[..]).collect();
    assert_eq!(names, [&b"b"[..], b"g"]);
    let limited = client.list(house.beneath(), b"a", 1).await;
    assert_eq!(limited, file(FileError::TooMany(1)));
    symlink("a", house.dir.path().join("l")).expect("linked");
    let real = client
        .real_path(PathRule::Follow, &house.absolute("l/g"))
        .await;
    let expected = fs::canonicalize(house.dir.path().join("a/g")).expect("there");
    let expected = expected.to_str().expect("text").as_bytes().to_vec();
    assert_eq!(real, Ok(expected));
    assert_eq!(
        client.real_path(house.beneath(), b"a//g").await,
        Ok(b"a/g".to_vec())
    );
    let linked = client.stat(house.beneath(), b"l/g").await;
    assert_eq!(linked, file(HandBack::Link.into()));
    assert_eq!(client.remove(house.beneath(), b"a").await, Ok(()));
    let gone = client.stat(house.beneath(), b"a").await;
    assert_eq!(gone, file(FileError::NotFound));
    let refused = client
        .write(
            house.beneath(),
            b"l",
            Bytes::from(vec![0; 2_000_000]),
            0o666,
            true,
        )
        .await;
    assert_eq!(refused, file(HandBack::Link.into()));
}

#[tokio::test]
async fn a_fifo_never_holds_the_guest_up() {
    let house = house().await;
    assert_eq!(house.run(run(&["mkfifo", "p"])).await.exit.code, 0);
    let read = timeout(SOON, house.client.read(house.beneath(), b"p", 10)).await;
    assert_eq!(read.expect("no hang"), file(HandBack::Special.into()));
    let path = house.absolute("p");
    let read = timeout(SOON, house.client.read(PathRule::Follow, &path, 10)).await;
    assert!(matches!(
        read.expect("no hang"),
        Err(FileFailure::File(FileError::Invalid(_)))
    ));
}

#[tokio::test]
async fn a_long_listing_and_a_big_removal_let_others_work() {
    let house = house().await;
    let wide = house.dir.path().join("wide");
    fs::create_dir(&wide).expect("made");
    for n in 0..5000 {
        fs::write(wide.join(format!("{n:05}")), "").expect("written");
    }
    let list = house.client.list(house.beneath(), b"wide", 5000).await;
    assert_eq!(list.map(|entries| entries.len()), Ok(5000));
    let removal = house.client.remove(house.beneath(), b"wide");
    let other = async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        house.client.stat(house.beneath(), b"").await
    };
    let (removed, other) = tokio::join!(removal, other);
    assert_eq!(removed, Ok(()));
    assert!(other.is_ok());
    assert!(!wide.exists());
}

#[tokio::test]
async fn a_port_on_the_loopback_can_be_dialled() {
    let house = house().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("bound");
    let port = listener.local_addr().expect("address").port();
    let serve = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("accepted");
        let mut asked = Vec::new();
        stream.read_to_end(&mut asked).await.expect("read");
        stream.write_all(&asked).await.expect("written");
    });
    let mut far = house.client.dial(port).await.expect("dialled");
    let sent = vec![9; 500_000];
    far.write_all(&sent).await.expect("written");
    far.shutdown().await.expect("ended");
    let mut got = Vec::new();
    let read = timeout(SOON, far.read_to_end(&mut got)).await;
    read.expect("no hang").expect("read");
    assert!(got == sent);
    serve.await.expect("served");
    let refused = house.client.dial(port).await.err();
    assert_eq!(refused, Some(FileFailure::File(FileError::Os(111))));
}
