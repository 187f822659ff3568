//! Processes without end.

use crate::town::{Town, ended_for, is_root};
use sandboxd_server::sessions::{Limit, RunDone};
use std::time::Duration;

/// Forks for as long as it lives, and so does everything that it forks.
const BOMB: &str = r"
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
";

/// Leaves a bomb behind that has a session of its own, and ends well.
const LEFT_BEHIND: &str = r"
import os
if os.fork() == 0:
    os.setsid()
    os.close(0); os.close(1); os.close(2)
    while True:
        try:
            os.fork()
        except OSError:
            pass
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_bomb_ends_by_its_deadline_and_says_what_it_ran_into() {
    if !is_root() {
        return;
    }
    let town = Town::found(&[("pids_limit", "200")]).await;
    let neighbour = town.neighbour();
    let bomb = town.python(BOMB, Duration::from_secs(2)).await;
    ended_for(&bomb, Limit::Time);
    assert_eq!(bomb.limited.reached, [Limit::Pids, Limit::Time]);
    neighbour.was_well().await;
    // Nothing of it is left: there is as much room as at the beginning.
    let room = "for i in $(seq 150); do sleep 30 & done; echo all";
    assert_eq!(town.says(room).await, "all\n");
    town.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_needs_more_processes_than_it_may_have_fails_for_that() {
    if !is_root() {
        return;
    }
    let town = Town::found(&[("pids_limit", "64")]).await;
    let many = |count: u32| {
        format!(
            "import os, time\nfor _ in range({count}):\n    if os.fork() == 0:\n        time.sleep(60)\n        os._exit(0)\nprint('all')\n"
        )
    };
    let neighbour = town.neighbour();
    let refused = town.python(&many(100), Duration::from_secs(60)).await;
    ended_for(&refused, Limit::Pids);
    neighbour.was_well().await;
    // The twin; what the first left asleep in the background does not take its places.
    let allowed = town.python(&many(40), Duration::from_secs(60)).await;
    assert!(
        matches!(&allowed.done, RunDone::Finished { code: 0, stdout, .. } if stdout == b"all\n"),
        "{allowed:?}"
    );
    assert_eq!(allowed.limited.killed_for, None);
    town.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_bomb_leaves_behind_makes_room_for_the_next_run() {
    if !is_root() {
        return;
    }
    let town = Town::found(&[("pids_limit", "100")]).await;
    let neighbour = town.neighbour();
    let left = town.python(LEFT_BEHIND, Duration::from_secs(30)).await;
    assert!(
        matches!(left.done, RunDone::Finished { code: 0, .. }),
        "{left:?}"
    );
    // It may still be in the way of this one, which then says so; and not of the next.
    let many = "for i in $(seq 50); do sleep 0.2 & done; wait; echo all";
    let _ = town
        .attack(&["/bin/sh", "-c", many], Duration::from_secs(60))
        .await;
    for _ in 0..3 {
        assert_eq!(town.says(many).await, "all\n");
    }
    neighbour.was_well().await;
    town.close().await;
}
