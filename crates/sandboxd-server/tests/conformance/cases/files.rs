//! Files.

use crate::place::{Kind, Place, shown, sid};
use bytes::Bytes;
use sandboxd_files::Wanted;
use sandboxd_protocol::message::{FileError, HandBack, Kind as FileKind};
use sandboxd_server::backends::{Ceiling, Enforcement};
use sandboxd_server::sessions::{
    ArchiveError, BrokenOff, Content, FollowDone, FollowError, FollowFile, NativeDone, NativeError,
    NativeFile, Pieces, RunDone,
};
use std::time::Duration;

async fn native(place: &Place, path: &str, op: NativeFile) -> Result<NativeDone, NativeError> {
    place.sessions.native(&sid("a"), path, op).await
}

async fn read(place: &Place, path: &str) -> Bytes {
    match native(place, path, NativeFile::Read).await.unwrap() {
        NativeDone::Content(content) => content.whole().await.unwrap(),
        other => panic!("{other:?}"),
    }
}

/// A large file that is being read.
async fn begin(place: &Place, path: &str) -> Box<Pieces> {
    match native(place, path, NativeFile::Read).await.unwrap() {
        NativeDone::Content(Content::Pieces(pieces)) => pieces,
        other => panic!("{other:?}"),
    }
}

/// What is left of it, and how it ends.
async fn rest(mut pieces: Box<Pieces>) -> (Vec<u8>, Result<(), BrokenOff>) {
    let mut content = Vec::new();
    loop {
        match pieces.next().await {
            Ok(Some(piece)) => content.extend_from_slice(&piece),
            Ok(None) => return (content, Ok(())),
            Err(error) => return (content, Err(error)),
        }
    }
}

pub(crate) async fn a_large_file_is_read_while_it_comes(kind: Kind) {
    const SIZE: usize = 4 * 1024 * 1024 + 1;
    let place = Place::open(kind).await;
    place.session("a").await;
    let content: Vec<u8> = (0..=250).cycle().take(SIZE).collect();
    for asleep in [false, true] {
        let write = NativeFile::Write(content.clone().into());
        native(&place, "/workspace/large", write).await.unwrap();
        if asleep {
            place.sessions.hibernate(&sid("a")).await.unwrap();
        }
        let pieces = begin(&place, "/workspace/large").await;
        assert_eq!(pieces.size(), SIZE as u64);
        // It is in use meanwhile, and not after.
        if !asleep {
            place.sessions.hibernate(&sid("a")).await.unwrap_err();
        }
        let (got, end) = rest(pieces).await;
        assert!(got == content, "{asleep}: {} bytes", got.len());
        assert_eq!(end, Ok(()));
        // Another file in its place does no harm to a reading that has begun.
        let pieces = begin(&place, "/workspace/large").await;
        let write = NativeFile::Write("small".into());
        native(&place, "/workspace/large", write).await.unwrap();
        let (got, end) = rest(pieces).await;
        assert!(got == content, "{asleep}: {} bytes", got.len());
        assert_eq!(end, Ok(()));
    }
    place.close().await;
}

pub(crate) async fn a_large_file_that_changes_while_it_is_read_is_cut_or_broken_off(kind: Kind) {
    const SIZE: usize = 4 * 1024 * 1024;
    let place = Place::open(kind).await;
    place.session("a").await;
    let write = || NativeFile::Write(vec![b'x'; SIZE].into());
    native(&place, "/workspace/large", write()).await.unwrap();
    if place.has_processes() {
        let mut pieces = begin(&place, "/workspace/large").await;
        pieces.next().await.unwrap().unwrap();
        place.out("a", "echo more >> large").await;
        let mut left = rest(pieces).await;
        assert_eq!(left.1, Ok(()));
        assert!(left.0.len() < SIZE && left.0.iter().all(|&byte| byte == b'x'));

        native(&place, "/workspace/large", write()).await.unwrap();
        let mut pieces = begin(&place, "/workspace/large").await;
        pieces.next().await.unwrap().unwrap();
        place.out("a", "truncate -s 1 large").await;
        left = rest(pieces).await;
        assert_eq!(left.1, Err(BrokenOff::Shrunk));
        assert!(left.0.len() < SIZE);
    }
    place.close().await;
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

/// The contract's table of answers, but for what is said differently by each operation below.
fn table() -> Vec<(&'static str, NativeFile, FileError)> {
    let hand = FileError::HandBack;
    let text = || NativeFile::Write("x".into());
    vec![
        ("/workspace/none", NativeFile::Read, FileError::NotFound),
        ("/workspace/none", NativeFile::Stat, FileError::NotFound),
        ("/workspace/none/x", NativeFile::List, FileError::NotFound),
        ("/workspace/none", NativeFile::Remove, FileError::NotFound),
        ("/workspace/dir", NativeFile::Read, FileError::IsADirectory),
        ("/workspace", NativeFile::Read, FileError::IsADirectory),
        ("/workspace/dir", text(), FileError::IsADirectory),
        ("/workspace", text(), FileError::IsADirectory),
        (
            "/workspace/dir/file",
            NativeFile::List,
            FileError::NotADirectory,
        ),
        (
            "/workspace/dir/file/x",
            NativeFile::Read,
            FileError::NotADirectory,
        ),
        (
            "/workspace/dir/file/x",
            NativeFile::Stat,
            FileError::NotADirectory,
        ),
        ("/workspace/dir/file/x", text(), FileError::NotADirectory),
        (
            "/workspace/dir/file",
            NativeFile::MakeDir,
            FileError::Exists,
        ),
        (
            "/workspace/dir/file/x",
            NativeFile::MakeDir,
            FileError::NotADirectory,
        ),
        ("/etc/passwd", NativeFile::Read, hand(HandBack::Outside)),
        (
            "/workspace/../etc",
            NativeFile::Stat,
            hand(HandBack::Outside),
        ),
        (
            "/workspace/dir/.",
            NativeFile::List,
            hand(HandBack::Outside),
        ),
        (
            "/workspace/dir/./file",
            NativeFile::Read,
            hand(HandBack::Outside),
        ),
        (
            "/workspace/dir/link",
            NativeFile::Read,
            hand(HandBack::Link),
        ),
        (
            "/workspace/dir/link",
            NativeFile::Stat,
            hand(HandBack::Link),
        ),
        (
            "/workspace/dir/link",
            NativeFile::RealPath,
            hand(HandBack::Link),
        ),
        ("/workspace/dir/link", text(), hand(HandBack::Link)),
        ("/workspace/dir", NativeFile::List, hand(HandBack::Link)),
        (
            "/workspace/out/passwd",
            NativeFile::Read,
            hand(HandBack::Link),
        ),
        ("/workspace/out/x", text(), hand(HandBack::Link)),
        (
            "/workspace/out/x",
            NativeFile::MakeDir,
            hand(HandBack::Link),
        ),
        (
            "/workspace/out/passwd",
            NativeFile::Remove,
            hand(HandBack::Link),
        ),
    ]
}

pub(crate) async fn the_native_rule_is_one_awake_and_asleep(kind: Kind) {
    let place = Place::open(kind).await;
    place.session("a").await;
    let file = NativeFile::Write("text".into());
    native(&place, "/workspace/dir/file", file).await.unwrap();
    std::os::unix::fs::symlink("file", place.stored("a").join("dir/link")).unwrap();
    std::os::unix::fs::symlink("/etc", place.stored("a").join("out")).unwrap();
    for round in ["awake", "asleep"] {
        for (path, op, expected) in table() {
            let name = format!("{op:?} {path} {round}");
            assert_eq!(error(&place, path, op).await, expected, "{name}");
        }
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
    place.close().await;
}

pub(crate) async fn what_is_removed_is_the_thing_itself(kind: Kind) {
    let place = Place::open(kind).await;
    place.session("a").await;
    for round in ["awake", "asleep"] {
        let file = NativeFile::Write("text".into());
        native(&place, "/workspace/dir/file", file).await.unwrap();
        std::os::unix::fs::symlink("file", place.stored("a").join("dir/link")).unwrap();
        std::os::unix::fs::symlink("/etc", place.stored("a").join("out")).unwrap();
        if round == "awake" && place.has_processes() {
            place.out("a", "mkfifo fifo").await;
            // A special file blocks nobody.
            let read = error(&place, "/workspace/fifo", NativeFile::Read);
            let fifo = tokio::time::timeout(Duration::from_secs(5), read).await;
            assert_eq!(fifo.unwrap(), FileError::HandBack(HandBack::Special));
            native(&place, "/workspace/fifo", NativeFile::Remove)
                .await
                .unwrap();
        }
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
        let gone = error(&place, "/workspace/dir", NativeFile::Stat).await;
        assert_eq!(gone, FileError::NotFound);
        if round == "awake" {
            place.put_to_sleep("a").await;
        }
    }
    place.close().await;
}

/// What the daemon writes for a sleeper is, inside, root's own like everything else.
pub(crate) async fn files_written_while_asleep_belong_to_the_sandbox(kind: Kind) {
    let place = Place::open(kind).await;
    place.session("a").await;
    place.put_to_sleep("a").await;
    let file = NativeFile::Write("asleep".into());
    native(&place, "/workspace/new/file", file).await.unwrap();
    if place.has_processes() {
        assert_eq!(
            place.out("a", "stat -c %u:%g new new/file").await,
            "0:0\n0:0\n"
        );
        place
            .out(
                "a",
                "echo more >> new/file && chmod 600 new/file && rm -r new",
            )
            .await;
        // As root, no file on disk is a host user's, where the backend says so.
        place.out("a", "mkdir made && touch made/f").await;
        let can = place.backend.capabilities().await.ceilings;
        let in_range = matches!(
            can.get(&Ceiling::WorkspaceOwner),
            Some(Enforcement::Enforced(_))
        );
        if in_range && rustix::process::geteuid().is_root() {
            use std::os::unix::fs::MetadataExt as _;
            for path in ["made", "made/f"] {
                let owner = place.stored("a").join(path).metadata().unwrap().uid();
                assert_eq!(owner, sandboxd_server::limits::STORAGE_OWNER, "{path}");
            }
        }
    } else {
        assert_eq!(place.out("a", "cat new/file").await, "asleep");
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
    assert!(
        matches!(read.answer, NativeDone::Content(Content::Whole(content)) if content == "three\n")
    );
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
        assert!(
            matches!(read.answer, NativeDone::Content(Content::Whole(content)) if content == "two\n")
        );
    }
    place.close().await;
}

pub(crate) async fn the_archive_reads_what_is_stored(kind: Kind) {
    let place = Place::open_with(kind, |service| service.max_read_bytes = 100).await;
    place.session("a").await;
    let id = sid("a");
    place
        .out(
            "a",
            "mkdir -p sub/deep && printf 'x\\377y' > sub/f && echo hidden > .h",
        )
        .await;
    std::os::unix::fs::symlink("/etc/passwd", place.stored("a").join("out")).unwrap();
    std::fs::write(place.stored("a").join("large"), [0; 101]).unwrap();
    let wanted = Wanted {
        entries: 100,
        names: 100,
    };
    for round in ["open", "closed"] {
        let list = async |path: &str| place.sessions.archive_list(&id, path, wanted).await;
        let read = async |path: &str| place.sessions.archive_read(&id, path).await;
        let names: Vec<Vec<u8>> = list("/workspace")
            .await
            .unwrap()
            .entries
            .into_iter()
            .map(|e| e.name)
            .collect();
        assert_eq!(
            names,
            [b"sub".to_vec(), b".h".to_vec(), b"large".to_vec()],
            "{round}"
        );
        assert_eq!(read("sub/f").await.unwrap(), b"x\xffy".as_slice());
        assert_eq!(
            read("/workspace/sub/f").await.unwrap(),
            b"x\xffy".as_slice()
        );
        assert!(matches!(
            read("/etc/passwd").await,
            Err(ArchiveError::NotFound(_))
        ));
        for outside in ["out", "../x", "sub/../f"] {
            let refused = read(outside).await.unwrap_err();
            assert!(
                refused.to_string().contains("outside the workspace"),
                "{refused}"
            );
        }
        assert!(matches!(
            list("sub/f").await,
            Err(ArchiveError::NotADirectory(_))
        ));
        assert!(matches!(
            read("sub").await,
            Err(ArchiveError::IsADirectory(_))
        ));
        let large = read("large").await.unwrap_err();
        assert_eq!(
            large,
            ArchiveError::TooLarge {
                size: 101,
                limit: 100
            }
        );
        assert!(large.to_string().contains("read limit"));
        let nobody = place
            .sessions
            .archive_list(&sid("nobody"), "", wanted)
            .await;
        assert_eq!(
            nobody.unwrap_err(),
            ArchiveError::NoWorkspace(sid("nobody"))
        );
        if round == "open" {
            place.sessions.delete(&id, false).await.unwrap();
        }
    }
    place.close().await;
}
