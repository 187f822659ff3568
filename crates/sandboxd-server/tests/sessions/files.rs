//! Files, by the native rule and by any path.

use crate::support::{World, sid};
use sandboxd_protocol::message::{FileError, HandBack, Kind};
use sandboxd_server::sessions::{
    Content, FollowError, FollowFile, NativeDone, NativeError, NativeFile, UseError,
};

async fn native(world: &World, path: &str, op: NativeFile) -> Result<NativeDone, NativeError> {
    world.sessions.native(&sid("a"), path, op).await
}

fn content(done: NativeDone) -> String {
    match done {
        NativeDone::Content(Content::Whole(bytes)) => String::from_utf8(bytes.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn native_files_are_off_without_stored_workspaces() {
    let world = World::start(|_| {}).await;
    world.open("a").await;
    let off = native(&world, "not even a path", NativeFile::Read).await;
    assert_eq!(off.unwrap_err(), NativeError::Off);
    assert!(!world.sessions.native_writes(&sid("a")));
    let nobody = world
        .sessions
        .native(&sid("nobody"), "/workspace", NativeFile::List)
        .await;
    assert_eq!(
        nobody.unwrap_err(),
        NativeError::Use(UseError::NotFound(sid("nobody")))
    );
    let world = World::with_workspaces(|s| s.native_files = false).await;
    world.open("a").await;
    let off = native(&world, "/workspace", NativeFile::List).await;
    assert_eq!(off.unwrap_err(), NativeError::Off);
}

#[tokio::test(start_paused = true)]
async fn native_files_answer_alike_awake_and_asleep() {
    let world = World::with_workspaces(|_| {}).await;
    world.open("a").await;
    for round in ["awake", "asleep"] {
        let dir = format!("/workspace/{round}");
        let file = format!("{dir}/sub/f");
        native(&world, &file, NativeFile::Write("hello".into()))
            .await
            .unwrap();
        let read = native(&world, &file, NativeFile::Read).await.unwrap();
        assert_eq!(content(read), "hello");
        native(&world, &format!("{dir}/d/e"), NativeFile::MakeDir)
            .await
            .unwrap();
        let NativeDone::Entries(rows) = native(&world, &dir, NativeFile::List).await.unwrap()
        else {
            panic!("no entries");
        };
        let names: Vec<_> = rows.iter().map(|e| (e.name.as_slice(), e.kind)).collect();
        assert_eq!(
            names,
            [
                (b"d".as_slice(), Kind::Directory),
                (b"sub".as_slice(), Kind::Directory)
            ]
        );
        let NativeDone::Entry(entry) = native(&world, &file, NativeFile::Stat).await.unwrap()
        else {
            panic!("no entry");
        };
        assert_eq!((entry.size, entry.kind), (5, Kind::File));
        let path = native(&world, &format!("{dir}//sub/f/"), NativeFile::RealPath).await;
        assert!(matches!(path.unwrap(), NativeDone::Path(path) if path == file));

        let error = |path: String, op| {
            let world = &world;
            async move { native(world, &path, op).await.unwrap_err() }
        };
        let missing = error(format!("{dir}/n"), NativeFile::Read).await;
        assert_eq!(missing, NativeError::File(FileError::NotFound));
        let directory = error(dir.clone(), NativeFile::Read).await;
        assert_eq!(directory, NativeError::File(FileError::IsADirectory));
        let file_as_dir = error(file.clone(), NativeFile::List).await;
        assert_eq!(file_as_dir, NativeError::File(FileError::NotADirectory));
        let over = error(file.clone(), NativeFile::MakeDir).await;
        assert_eq!(over, NativeError::File(FileError::Exists));
        let root = error("/workspace".into(), NativeFile::Remove).await;
        assert!(
            matches!(root, NativeError::File(FileError::Invalid(_))),
            "{root}"
        );
        for outside in ["/etc/passwd", "/workspace/../etc", "/workspace/./f"] {
            let outside = error(outside.into(), NativeFile::Read).await;
            assert_eq!(
                outside,
                NativeError::File(FileError::HandBack(HandBack::Outside))
            );
        }
        for bad in ["relative", "", "/workspace/\0"] {
            let bad = error(bad.into(), NativeFile::Read).await;
            assert!(matches!(bad, NativeError::BadPath(_)), "{bad}");
        }
        native(&world, &format!("{dir}/sub"), NativeFile::Remove)
            .await
            .unwrap();
        assert_eq!(
            error(file, NativeFile::Stat).await,
            NativeError::File(FileError::NotFound)
        );
        if round == "awake" {
            world.sessions.hibernate(&sid("a")).await.unwrap();
            world
                .until("asleep", |w| w.sessions.is_hibernated(&sid("a")))
                .await;
        }
    }
    assert_eq!(world.backend.made_count(), 1);
    let (rows, _) = world.sessions.events(&sid("a"), 0).await.unwrap();
    let ops: Vec<&str> = rows.iter().take(6).map(|event| event.op.as_ref()).collect();
    assert_eq!(ops, ["write", "read", "mkdir", "ls", "stat", "realpath"]);
    assert!(rows.iter().any(|event| event.detail == "via the sandbox"));
    assert!(rows.iter().any(|event| event.detail == "not found"));
}

#[tokio::test(start_paused = true)]
async fn what_is_too_large_is_handed_back() {
    let world = World::with_workspaces(|s| s.max_read_bytes = 10).await;
    world.open("a").await;
    let ten = NativeFile::Write("0123456789".into());
    native(&world, "/workspace/f", ten).await.unwrap();
    let read = native(&world, "/workspace/f", NativeFile::Read)
        .await
        .unwrap();
    assert_eq!(content(read), "0123456789");
    let eleven = NativeFile::Write("0123456789a".into());
    let refused = native(&world, "/workspace/f", eleven).await.unwrap_err();
    let too_large = NativeError::File(FileError::HandBack(HandBack::TooLarge));
    assert_eq!(refused, too_large);
    world.out("a", "echo 0123456789 > f").await;
    let refused = native(&world, "/workspace/f", NativeFile::Read)
        .await
        .unwrap_err();
    assert_eq!(refused, too_large);
}

#[tokio::test(start_paused = true)]
async fn writes_are_handed_back_where_runs_have_another_user() {
    let world = World::with_workspaces(|s| s.sandbox_uid = Some(1_000)).await;
    world.open("a").await;
    let refused = native(&world, "/workspace/f", NativeFile::Write("x".into())).await;
    assert_eq!(
        refused.unwrap_err(),
        NativeError::File(FileError::HandBack(HandBack::Denied))
    );
    assert!(!world.sessions.native_writes(&sid("a")));
    native(&world, "/workspace", NativeFile::List)
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn any_path_is_followed_for_era_a_and_wakes() {
    let world = World::with_workspaces(|_| {}).await;
    world.open("a").await;
    let a = sid("a");
    let follow = |path: &'static str, op| world.sessions.follow(&a, path, op);
    let done = follow("sub/f", FollowFile::Write("x".into()))
        .await
        .unwrap();
    assert_eq!(done.path, "/workspace/sub/f");
    follow("/etc/made", FollowFile::Write("y".into()))
        .await
        .unwrap();
    assert_eq!(world.out("a", "cat sub/f; cat /etc/made").await, "xy");
    world.sessions.hibernate(&sid("a")).await.unwrap();
    world
        .until("asleep", |w| w.sessions.is_hibernated(&sid("a")))
        .await;
    let read = follow("/workspace/sub/f", FollowFile::Read { limit: 10 })
        .await
        .unwrap();
    assert_eq!(content(read.answer), "x");
    assert!(!world.view("a").hibernated);
    let missing = follow("nope", FollowFile::Stat).await.unwrap_err();
    assert_eq!(missing, FollowError::File(FileError::NotFound));
    let listing = follow("", FollowFile::List).await.unwrap();
    assert!(matches!(listing.answer, NativeDone::Entries(rows) if rows.len() == 1));
    let (rows, _) = world.sessions.events(&sid("a"), 0).await.unwrap();
    assert!(
        rows.iter()
            .all(|event| ["run", "hibernate", "wake"].contains(&&*event.op)),
        "the caller logs these"
    );
}
