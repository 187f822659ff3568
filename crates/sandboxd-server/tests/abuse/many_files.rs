//! A directory of a million names, and one two thousand levels deep.

use crate::town::{BAD, Town, is_root};
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags};
use sandboxd_files::Wanted;
use sandboxd_server::sessions::{NativeFile, RunDone};
use std::path::Path;
use std::time::Duration;

/// Each of these names some thousand times, which is quicker than as many files.
const FILES: usize = 20;
const NAMES_PER_FILE: usize = 50_000;
const LEVELS: usize = 2_000;

/// A directory in memory, where the host has one; a million names are made there in a few seconds.
fn home() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        return tempfile::tempdir_in(memory).unwrap();
    }
    tempfile::tempdir().unwrap()
}

fn fill(directory: &Path) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let at = rustix::fs::openat(CWD, directory, flags, Mode::empty()).unwrap();
    for file in 0..FILES {
        let first = format!("{file:02}-first");
        let made = OFlags::CREATE | OFlags::WRONLY;
        rustix::fs::openat(&at, &first, made, Mode::from_raw_mode(0o644)).unwrap();
        for name in 1..NAMES_PER_FILE {
            let name = format!("{file:02}-{name:05}");
            rustix::fs::linkat(&at, &first, &at, name, rustix::fs::AtFlags::empty()).unwrap();
        }
    }
}

fn dig(directory: &Path) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let mut at: OwnedFd = rustix::fs::openat(CWD, directory, flags, Mode::empty()).unwrap();
    for _ in 0..LEVELS {
        rustix::fs::mkdirat(&at, "d", Mode::from_raw_mode(0o755)).unwrap();
        at = rustix::fs::openat(&at, "d", flags, Mode::empty()).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_million_names_cost_no_more_than_is_asked_of_them() {
    if !is_root() {
        return;
    }
    let town = Town::found_in(home(), &[("inodes_limit", "")]).await;
    let place = town.stored(BAD);
    tokio::task::spawn_blocking(move || fill(&place))
        .await
        .unwrap();
    let neighbour = town.neighbour();
    // A listing that nobody could use is refused, and not made.
    let refused = town.native("/workspace", NativeFile::List).await;
    assert!(refused.is_err(), "a million entries");
    let wanted = Wanted {
        entries: 1_000,
        names: 5_000,
    };
    let part = town.archive(wanted).await.unwrap();
    assert!(part.more && part.entries.len() <= 1_000 && part.names <= 5_000);
    // The twins: one file of it, and the same directory from inside.
    let one = town.native("/workspace/07-00042", NativeFile::Stat).await;
    assert!(one.is_ok(), "{one:?}");
    let counted = town
        .attack(
            &["/bin/sh", "-c", "ls -f | wc -l"],
            Duration::from_secs(120),
        )
        .await;
    let lines = (FILES * NAMES_PER_FILE + 2).to_string();
    let RunDone::Finished { stdout, .. } = &counted.done else {
        panic!("{counted:?}");
    };
    assert_eq!(String::from_utf8_lossy(stdout).trim(), lines);
    neighbour.was_well().await;
    town.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_levels_are_walked_and_removed() {
    if !is_root() {
        return;
    }
    let town = Town::found(&[]).await;
    let place = town.stored(BAD);
    tokio::task::spawn_blocking(move || dig(&place))
        .await
        .unwrap();
    let neighbour = town.neighbour();
    let found = "find . -type d | tail -n 1 | tr -cd / | wc -c";
    assert_eq!(town.says(found).await.trim(), LEVELS.to_string());
    let listed = town.native("/workspace/d/d/d", NativeFile::List).await;
    assert!(listed.is_ok(), "{listed:?}");
    let removed = town.native("/workspace/d", NativeFile::Remove).await;
    assert!(removed.is_ok(), "{removed:?}");
    assert_eq!(town.says("ls | wc -l").await.trim(), "0");
    neighbour.was_well().await;
    town.close().await;
}
