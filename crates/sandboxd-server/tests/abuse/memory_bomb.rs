//! Memory without end: of processes, and of file systems in memory.

use crate::town::{Town, ended_for, is_root};
use sandboxd_server::sessions::{Limit, RunDone};
use std::time::Duration;

const TIME: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_memory_bomb_is_ended_for_memory_and_the_next_run_has_all_of_it() {
    if !is_root() {
        return;
    }
    let town = Town::found(&[("mem_limit", "128m")]).await;
    let take = |megabytes: u32| format!("x = bytearray({megabytes} << 20); print(len(x) >> 20)");
    let neighbour = town.neighbour();
    for _ in 0..3 {
        let bomb = town.python(&take(400), TIME).await;
        ended_for(&bomb, Limit::Memory);
        assert!(matches!(bomb.done, RunDone::Finished { code: 137, .. }));
        // What the shell's child died of is the run's reason too.
        let script = format!("python3 -c '{}'", take(400));
        let child = town.attack(&["/bin/sh", "-c", &script], TIME).await;
        ended_for(&child, Limit::Memory);
        // The twin: less than the limit, each time.
        let fits = town.python(&take(80), TIME).await;
        assert!(
            matches!(&fits.done, RunDone::Finished { code: 0, stdout, .. } if stdout == b"80\n"),
            "{fits:?}"
        );
        assert!(fits.limited.reached.is_empty(), "{:?}", fits.limited);
    }
    // Nobody's limit: a program that kills itself.
    let own = town.attack(&["/bin/sh", "-c", "kill -9 $$"], TIME).await;
    assert!(matches!(own.done, RunDone::Finished { code: 137, .. }));
    assert_eq!(own.limited.killed_for, None);
    neighbour.was_well().await;
    town.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn temporary_files_in_memory_run_and_are_bounded_by_their_own_size() {
    if !is_root() {
        return;
    }
    let town = Town::found(&[("tmpfs_size", "16m"), ("mem_limit", "128m")]).await;
    let neighbour = town.neighbour();
    let fill = ["/bin/sh", "-c", "head -c 64M /dev/zero > /tmp/big"];
    let full = town.attack(&fill, TIME).await;
    ended_for(&full, Limit::Disk);
    assert_eq!(town.says("rm /tmp/big; echo gone").await, "gone\n");
    let files = "i=0; while : > /tmp/f$i; do i=$((i+1)); done 2>/dev/null; exit 3";
    let full = town.attack(&["/bin/sh", "-c", files], TIME).await;
    ended_for(&full, Limit::Disk);
    assert_eq!(
        town.says("find /tmp -type f -delete; echo gone").await,
        "gone\n"
    );
    // The twin: a program of one's own, in there.
    let own = "printf '#!/bin/sh\necho it runs\n' > /tmp/p && chmod +x /tmp/p && /tmp/p";
    assert_eq!(town.says(own).await, "it runs\n");
    neighbour.was_well().await;
    town.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn temporary_files_are_the_sandboxs_own_memory_and_harm_nobody_else() {
    if !is_root() {
        return;
    }
    // More room in `/tmp` than memory: filling it is what costs the filler.
    let town = Town::found(&[("tmpfs_size", "512m"), ("mem_limit", "96m")]).await;
    let neighbour = town.neighbour();
    let fill = ["/bin/sh", "-c", "head -c 400M /dev/zero > /tmp/big"];
    let full = town.sessions_run(&fill, TIME).await;
    if let Ok(ran) = &full {
        ended_for(ran, Limit::Memory);
    }
    neighbour.was_well().await;
    town.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_tmpfs_scratch_files_lie_in_the_write_layer() {
    if !is_root() {
        return;
    }
    let town = Town::found(&[("tmpfs_size", "")]).await;
    let same = "test $(stat -c %d /tmp) = $(stat -c %d /) && : > /tmp/x && echo same";
    assert_eq!(town.says(same).await, "same\n");
    town.close().await;
    let town = Town::found(&[("tmpfs_size", "8m")]).await;
    let other = "test $(stat -c %d /tmp) != $(stat -c %d /) && echo another";
    assert_eq!(town.says(other).await, "another\n");
    town.close().await;
}
