//! Large files on their way out: what is promised, what holds a session meanwhile, and how it ends.

use crate::support::{World, sid};
use sandboxd_protocol::message::FileError;
use sandboxd_server::limits::{CONTENT_PIECES_BYTES_MIN, CONTENT_SECONDS_MAX};
use sandboxd_server::sessions::{BrokenOff, Content, NativeDone, NativeError, NativeFile, Pieces};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

const SIZE: usize = 2 * 1024 * 1024;

/// A session with a large file.
async fn world() -> (World, PathBuf) {
    let world = World::with_workspaces(|_| {}).await;
    world.open("a").await;
    let write = NativeFile::Write(vec![b'x'; SIZE].into());
    let written = world
        .sessions
        .native(&sid("a"), "/workspace/f", write)
        .await;
    written.unwrap();
    let root = world.root.as_ref().unwrap().path();
    let path = root.join("workspaces/a/workspace/f");
    (world, path)
}

async fn read(world: &World) -> Result<NativeDone, NativeError> {
    let (id, op) = (sid("a"), NativeFile::Read);
    world.sessions.native(&id, "/workspace/f", op).await
}

async fn begin(world: &World) -> Box<Pieces> {
    match read(world).await.unwrap() {
        NativeDone::Content(Content::Pieces(pieces)) => pieces,
        other => panic!("{other:?}"),
    }
}

/// How many bytes come, and the end.
async fn count(mut pieces: Box<Pieces>) -> (usize, Result<(), BrokenOff>) {
    let mut count = 0;
    loop {
        match pieces.next().await {
            Ok(Some(piece)) => count += piece.len(),
            Ok(None) => return (count, Ok(())),
            Err(error) => return (count, Err(error)),
        }
    }
}

/// How the reads came out, by the session's log.
async fn logged(world: &World) -> Vec<(bool, String)> {
    let (events, _) = world.sessions.events(&sid("a"), 0).await.unwrap();
    let reads = events.into_iter().filter(|event| event.op == "read");
    reads.map(|event| (event.ok, event.detail)).collect()
}

fn well() -> (bool, String) {
    (true, String::new())
}

#[tokio::test(start_paused = true)]
async fn a_large_content_comes_in_pieces_and_is_told_when_it_is_out() {
    let (world, path) = world().await;
    for asleep in [false, true] {
        let mut pieces = begin(&world).await;
        assert_eq!(pieces.size(), SIZE as u64);
        let first = pieces.next().await.unwrap().unwrap();
        assert!((1..SIZE).contains(&first.len()), "{}", first.len());
        let before = logged(&world).await.len();
        assert_eq!(count(pieces).await, (SIZE - first.len(), Ok(())));
        let after = logged(&world).await;
        assert_eq!(after.len(), before + 1);
        assert_eq!(after.last(), Some(&well()));
        if !asleep {
            world.sessions.hibernate(&sid("a")).await.unwrap();
        }
    }
    assert!(world.sessions.is_hibernated(&sid("a")), "nothing was woken");
    // Just below that size a file is read before it is answered.
    let small = usize::try_from(CONTENT_PIECES_BYTES_MIN).unwrap() - 1;
    std::fs::write(path, vec![b'y'; small]).unwrap();
    let NativeDone::Content(Content::Whole(content)) = read(&world).await.unwrap() else {
        panic!("not whole");
    };
    assert_eq!(content.len(), small);
}

#[tokio::test(start_paused = true)]
async fn a_session_is_in_use_until_its_content_is_out_or_given_up() {
    let (world, _) = world().await;
    let mut pieces = begin(&world).await;
    pieces.next().await.unwrap().unwrap();
    let busy = world.sessions.hibernate(&sid("a")).await.unwrap_err();
    assert!(busy.to_string().ends_with("it is in use"), "{busy}");
    drop(pieces);
    let given_up = (false, "cut off".to_owned());
    assert_eq!(logged(&world).await, [given_up]);
    world.sessions.hibernate(&sid("a")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn whoever_takes_too_long_is_cut_off() {
    let (world, _) = world().await;
    for _ in 0..2 {
        let mut pieces = begin(&world).await;
        pieces.next().await.unwrap().unwrap();
        tokio::time::advance(Duration::from_secs(CONTENT_SECONDS_MAX)).await;
        let slow = Err(BrokenOff::Slow(CONTENT_SECONDS_MAX));
        assert_eq!(count(pieces).await, (0, slow));
        world.sessions.hibernate(&sid("a")).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_stored_file_that_grows_is_cut_and_one_that_shrinks_is_broken_off() {
    let (world, path) = world().await;
    world.sessions.hibernate(&sid("a")).await.unwrap();
    let mut pieces = begin(&world).await;
    let first = pieces.next().await.unwrap().unwrap().len();
    let file = OpenOptions::new().append(true).open(&path).unwrap();
    (&file).write_all(&[b'y'; SIZE]).unwrap();
    assert_eq!(count(pieces).await, (SIZE - first, Ok(())));

    let mut pieces = begin(&world).await;
    assert_eq!(pieces.size(), 2 * SIZE as u64);
    pieces.next().await.unwrap().unwrap();
    file.set_len(1).unwrap();
    let (count, end) = count(pieces).await;
    assert!(count < SIZE, "{count}");
    assert_eq!(end, Err(BrokenOff::Shrunk));
    let (ok, detail) = logged(&world).await.pop().unwrap();
    assert!(!ok && detail.contains("shorter"), "{detail}");
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_lies_about_a_size_is_not_believed() {
    let (world, _) = world().await;
    let switches = world.backend.switches();
    switches.misstate_sizes(1_000);
    assert_eq!(
        count(begin(&world).await).await,
        (SIZE, Err(BrokenOff::Shrunk))
    );
    switches.misstate_sizes(-1_000);
    assert_eq!(count(begin(&world).await).await, (SIZE - 1_000, Ok(())));
    world.sessions.hibernate(&sid("a")).await.unwrap();
    world.out("a", "true").await;
    // More than may be read is what no guest may say: the stored file is read instead, and its sandbox is ended.
    switches.misstate_sizes(i64::MAX);
    assert_eq!(count(begin(&world).await).await, (SIZE, Ok(())));
    world.until("ended", |w| !w.view("a").alive).await;
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_goes_breaks_its_content_off() {
    let (world, _) = world().await;
    let mut pieces = begin(&world).await;
    pieces.next().await.unwrap().unwrap();
    world.backend.switches().corrupt_links();
    // What makes it notice.
    let _ = world.sh("a", "true").await;
    let (count, end) = count(pieces).await;
    assert!(count < SIZE, "{count}");
    assert_eq!(end, Err(BrokenOff::Gone));
    assert!(!logged(&world).await[0].0);

    // So does the end of the session.
    world.out("a", "true").await;
    let pieces = begin(&world).await;
    world.sessions.delete(&sid("a"), false).await.unwrap();
    let (_, end) = self::count(pieces).await;
    assert_eq!(end, Err(BrokenOff::Gone));
}

#[tokio::test(start_paused = true)]
async fn a_content_is_taken_whole_or_not_at_all() {
    let (world, path) = world().await;
    let whole = Content::Pieces(begin(&world).await).whole().await.unwrap();
    assert_eq!(whole.len(), SIZE);
    world.backend.switches().misstate_sizes(1);
    let less = Content::Pieces(begin(&world).await).whole().await;
    assert_eq!(less, Err(BrokenOff::Shrunk));
    std::fs::remove_file(path).unwrap();
    let gone = read(&world).await.unwrap_err();
    assert_eq!(gone, FileError::NotFound.into());
}
