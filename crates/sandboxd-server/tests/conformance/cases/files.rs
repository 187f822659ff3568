//! Files.

use crate::place::{Kind, Place, shown, sid};
use bytes::Bytes;
use sandboxd_protocol::message::{FileError, HandBack, Kind as FileKind};
use sandboxd_server::sessions::{
    FollowDone, FollowError, FollowFile, NativeDone, NativeError, NativeFile, RunDone,
};
use std::time::Duration;

async fn native(place: &Place, path: &str, op: NativeFile) -> Result<NativeDone, NativeError> {
    place.sessions.native(&sid("a"), path, op).await
}

async fn read(place: &Place, path: &str) -> Bytes {
    match native(place, path, NativeFile::Read).await.unwrap() {
        NativeDone::Content(content) => content,
        other => panic!("{other:?}"),
    }
}

async fn error(place: &Place, path: &str, op: NativeFile) -> FileError {
    match native(place, path, op).await {
        Err(NativeError::File(error)) => error,
        other => panic!("{path}: {other:?}"),
    }
}

pub(crate) async fn what_is_written_is_read_from_both_sides(kind: Kind) {
    let place = Place::open(kind).await;
    place.session("a").await;
    let write = NativeFile::Write("from outside\n".into());
    native(&place, "/workspace/d/one", write).await.unwrap();
    assert_eq!(place.out("a", "cat d/one").await, "from outside\n");
    place.out("a", "echo from inside > d/two").await;
    assert_eq!(read(&place, "/workspace/d/two").await, "from inside\n");
    // What was written outside belongs to whoever runs inside.
    place
        .out("a", "echo more >> d/one && rm d/two && mkdir d/three")
        .await;
    assert_eq!(
        read(&place, "/workspace/d/one").await,
        "from outside\nmore\n"
    );
    let listed = native(&place, "/workspace/d", NativeFile::List)
        .await
        .unwrap();
    let NativeDone::Entries(entries) = listed else {
        panic!("{listed:?}");
    };
    let rows: Vec<_> = entries
        .iter()
        .map(|e| (e.name.as_slice(), e.kind))
        .collect();
    assert_eq!(
        rows,
        [
            (b"one".as_slice(), FileKind::File),
            (b"three".as_slice(), FileKind::Directory)
        ]
    );
    place.close().await;
}

pub(crate) async fn a_large_file_goes_both_ways(kind: Kind) {
    let place = Place::open(kind).await;
    place.session("a").await;
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let write = NativeFile::Write(bytes.clone().into());
    native(&place, "/workspace/large", write).await.unwrap();
    assert!(read(&place, "/workspace/large").await == bytes);
    place.put_to_sleep("a").await;
    assert!(read(&place, "/workspace/large").await == bytes);
    place.close().await;
}

pub(crate) async fn the_native_rule_is_one_awake_and_asleep(kind: Kind) {
    let place = Place::open(kind).await;
    place.session("a").await;
    let file = NativeFile::Write("text".into());
    native(&place, "/workspace/dir/file", file).await.unwrap();
    std::os::unix::fs::symlink("file", place.stored("a").join("dir/link")).unwrap();
    std::os::unix::fs::symlink("/etc", place.stored("a").join("out")).unwrap();
    for round in ["awake", "asleep"] {
        let expect = async |path: &str, op: NativeFile, expected: FileError| {
            let name = format!("{op:?} {path} {round}");
            assert_eq!(error(&place, path, op).await, expected, "{name}");
        };
        let hand = FileError::HandBack;
        expect("/workspace/none", NativeFile::Read, FileError::NotFound).await;
        expect("/workspace/none", NativeFile::Stat, FileError::NotFound).await;
        expect("/workspace/none/x", NativeFile::List, FileError::NotFound).await;
        expect("/workspace/none", NativeFile::Remove, FileError::NotFound).await;
        expect("/workspace/dir", NativeFile::Read, FileError::IsADirectory).await;
        expect("/workspace", NativeFile::Read, FileError::IsADirectory).await;
        expect(
            "/workspace/dir",
            NativeFile::Write("x".into()),
            FileError::IsADirectory,
        )
        .await;
        expect(
            "/workspace/dir/file",
            NativeFile::List,
            FileError::NotADirectory,
        )
        .await;
        expect(
            "/workspace/dir/file/x",
            NativeFile::Read,
            FileError::NotADirectory,
        )
        .await;
        expect(
            "/workspace/dir/file",
            NativeFile::MakeDir,
            FileError::Exists,
        )
        .await;
        expect("/etc/passwd", NativeFile::Read, hand(HandBack::Outside)).await;
        expect(
            "/workspace/../etc",
            NativeFile::Stat,
            hand(HandBack::Outside),
        )
        .await;
        expect(
            "/workspace/dir/.",
            NativeFile::List,
            hand(HandBack::Outside),
        )
        .await;
        expect(
            "/workspace/dir/link",
            NativeFile::Read,
            hand(HandBack::Link),
        )
        .await;
        expect("/workspace/dir", NativeFile::List, hand(HandBack::Link)).await;
        expect(
            "/workspace/out/passwd",
            NativeFile::Read,
            hand(HandBack::Link),
        )
        .await;
        expect(
            "/workspace/out/x",
            NativeFile::Write("x".into()),
            hand(HandBack::Link),
        )
        .await;
        let root = error(&place, "/workspace", NativeFile::Remove).await;
        assert!(matches!(root, FileError::Invalid(_)), "{root:?}");
        let long = format!("/workspace/{}", "n".repeat(300));
        let name = error(&place, &long, NativeFile::Write("x".into())).await;
        assert!(matches!(name, FileError::HandBack(_)), "{name:?}");

        native(&place, "/workspace", NativeFile::MakeDir)
            .await
            .unwrap();
        native(&place, "/workspace/dir", NativeFile::MakeDir)
            .await
            .unwrap();
        assert_eq!(read(&place, "/workspace//dir///file/").await, "text");
        let path = native(&place, "/workspace/no/where", NativeFile::RealPath).await;
        assert!(matches!(path.unwrap(), NativeDone::Path(p) if p == "/workspace/no/where"));
        if round == "awake" {
            place.put_to_sleep("a").await;
        }
    }
    // A link goes itself, what it points to stays.
    native(&place, "/workspace/dir/link", NativeFile::Remove)
        .await
        .unwrap();
    native(&place, "/workspace/out", NativeFile::Remove)
        .await
        .unwrap();
    assert_eq!(read(&place, "/workspace/dir/file").await, "text");
    assert!(std::path::Path::new("/etc/passwd").exists());
    native(&place, "/workspace/dir", NativeFile::Remove)
        .await
        .unwrap();
    assert_eq!(
        error(&place, "/workspace/dir", NativeFile::Stat).await,
        FileError::NotFound
    );
    if place.has_processes() {
        // A special file blocks nobody.
        place.out("a", "mkfifo fifo").await;
        let fifo = tokio::time::timeout(
            Duration::from_secs(5),
            error(&place, "/workspace/fifo", NativeFile::Read),
        );
        assert_eq!(fifo.await.unwrap(), FileError::HandBack(HandBack::Special));
        native(&place, "/workspace/fifo", NativeFile::Remove)
            .await
            .unwrap();
    }
    place.close().await;
}

pub(crate) async fn any_path_is_reached_in_era_a(kind: Kind) {
    let place = Place::open(kind).await;
    place.session("a").await;
    let id = sid("a");
    let follow = async |path: &str, op| -> Result<FollowDone, FollowError> {
        place.sessions.follow(&id, path, op).await
    };
    let done = follow("rel/ative", FollowFile::Write("one\n".into()))
        .await
        .unwrap();
    assert_eq!(done.path, "/workspace/rel/ative");
    // The path that the Python service could not reach.
    follow("/tmp/made", FollowFile::Write("two\n".into()))
        .await
        .unwrap();
    assert_eq!(
        place.out("a", "cat rel/ative; cat /tmp/made").await,
        "one\ntwo\n"
    );
    place.out("a", "echo three > /tmp/other").await;
    let read = follow("/tmp/other", FollowFile::Read { limit: 100 })
        .await
        .unwrap();
    assert!(matches!(read.answer, NativeDone::Content(content) if content == "three\n"));
    let missing = follow("/tmp/none", FollowFile::Stat).await.unwrap_err();
    assert_eq!(missing, FollowError::File(FileError::NotFound));
    let large = follow("/tmp/other", FollowFile::Read { limit: 3 })
        .await
        .unwrap_err();
    assert!(
        matches!(large, FollowError::File(FileError::TooLarge { .. })),
        "{large:?}"
    );
    let over_dir = follow("rel", FollowFile::Write("x".into()))
        .await
        .unwrap_err();
    assert_eq!(over_dir, FollowError::File(FileError::IsADirectory));
    if place.has_processes() {
        let done = place.sh("a", "ln -s /tmp/made link && touch /etc/no").await;
        let RunDone::Finished { .. } = done else {
            panic!("{}", shown(&done));
        };
        let read = follow("link", FollowFile::Read { limit: 100 })
            .await
            .unwrap();
        assert!(matches!(read.answer, NativeDone::Content(content) if content == "two\n"));
    }
    place.close().await;
}
