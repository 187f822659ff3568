//! Bytes and files without end, in the workspace, the write layer and the root in memory.

use crate::town::{BAD, Town, ended_for, is_root};
use sandboxd_server::sessions::{Limit, NativeFile, RunDone};
use std::time::Duration;

const TIME: Duration = Duration::from_secs(90);

/// Writes file after file of four mebibytes, slowly enough to be caught.
const BYTES: &str =
    "i=0; while :; do head -c 4M /dev/zero > fill$i || exit 7; i=$((i+1)); sleep 0.05; done";
/// Makes file after file.
const FILES: &str = r"
import os, time
i = 0
while True:
    os.close(os.open('many%d' % i, os.O_CREAT | os.O_WRONLY))
    i += 1
    if i % 100 == 0:
        time.sleep(0.01)
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filling_the_workspace_is_ended_for_disk_and_clearing_up_is_not() {
    if !is_root() {
        return;
    }
    let town = Town::found(&[("disk_limit", "24m")]).await;
    let neighbour = town.neighbour();
    let filled = town.attack(&["/bin/sh", "-c", BYTES], TIME).await;
    ended_for(&filled, Limit::Disk);
    assert!(matches!(filled.done, RunDone::Finished { code: 137, .. }));
    // What is left in the background is ended as well.
    let left = format!("({BYTES}) >/dev/null 2>&1 & echo left");
    let begun = town.attack(&["/bin/sh", "-c", &left], TIME).await;
    assert!(matches!(begun.done, RunDone::Finished { .. }), "{begun:?}");
    let growing = town.attack(&["sleep", "60"], TIME).await;
    ended_for(&growing, Limit::Disk);
    // Looking, and clearing up, go on; so does work within the limit after that.
    assert_eq!(town.says("ls fill0").await, "fill0\n");
    assert_eq!(town.says("rm fill*; echo gone").await, "gone\n");
    let fits = "sleep 2; head -c 8M /dev/zero > fits; sleep 2; stat -c %s fits";
    assert_eq!(town.says(fits).await, "8388608\n");
    neighbour.was_well().await;
    // It is where the archive finds it.
    assert!(town.stored(BAD).join("fits").is_file());
    town.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_written_through_the_service_are_refused_while_there_is_too_much() {
    if !is_root() {
        return;
    }
    let town = Town::found(&[("disk_limit", "8m")]).await;
    let write = || NativeFile::Write(vec![b'x'; 1000].into());
    town.native("/workspace/small", write()).await.unwrap();
    let filled = town.attack(&["/bin/sh", "-c", BYTES], TIME).await;
    ended_for(&filled, Limit::Disk);
    let refused = town.native("/workspace/more", write()).await;
    assert!(
        refused
            .as_ref()
            .is_err_and(|why| why.to_string().contains("no space left")),
        "{refused:?}"
    );
    // Taking away is never refused; when that is counted, there is room again.
    town.native("/workspace/fill0", NativeFile::Remove)
        .await
        .unwrap();
    town.says("rm fill*").await;
    for _ in 0..60 {
        if town.native("/workspace/more", write()).await.is_ok() {
            break;
        }
        town.says("sleep 0.5").await;
    }
    assert_eq!(town.says("stat -c %s more").await, "1000\n");
    town.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_file_cannot_outrun_the_counting() {
    if !is_root() {
        return;
    }
    let town = Town::found(&[("disk_limit", "16m")]).await;
    let one = ["/bin/sh", "-c", "exec head -c 64M /dev/zero > one"];
    let cut = town.attack(&one, TIME).await;
    ended_for(&cut, Limit::Disk);
    assert_eq!(town.says("stat -c %s one").await, "16777216\n");
    town.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_without_end_are_ended_for_disk() {
    if !is_root() {
        return;
    }
    let town = Town::found(&[("inodes_limit", "2000")]).await;
    let neighbour = town.neighbour();
    let filled = town.python(FILES, TIME).await;
    ended_for(&filled, Limit::Disk);
    // The twin.
    assert_eq!(
        town.says("rm -rf many*; for i in $(seq 500); do : > f$i; done; sleep 2; echo done")
            .await,
        "done\n"
    );
    neighbour.was_well().await;
    town.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_root_in_memory_is_as_large_as_its_limit() {
    if !is_root() {
        return;
    }
    let settings = [("disk_limit", "12m"), ("inodes_limit", "4000")];
    let town = Town::found(&settings).await;
    let neighbour = town.neighbour();
    let full = town
        .attack(
            &["/bin/sh", "-c", "head -c 64M /dev/zero > /root/big"],
            TIME,
        )
        .await;
    ended_for(&full, Limit::Disk);
    assert_eq!(town.says("rm /root/big; echo gone").await, "gone\n");
    let files = "i=0; while : > /root/f$i; do i=$((i+1)); done 2>/dev/null; exit 3";
    let full = town.attack(&["/bin/sh", "-c", files], TIME).await;
    ended_for(&full, Limit::Disk);
    neighbour.was_well().await;
    town.close().await;
}
