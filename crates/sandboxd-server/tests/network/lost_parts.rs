//! What a network needs can be lost while it is in use.

use crate::home::{assert_online, bridged, house};
use crate::world::{World, wait_for};
use std::process::Command;

/// Ends a program below this process, by its name, and waits until it has.
pub(crate) fn end_below(name: &str) {
    let found = below(name);
    assert!(!found.is_empty(), "no {name} runs");
    for pid in &found {
        let pid = rustix::process::Pid::from_raw(*pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
    wait_for(|| below(name).iter().all(|pid| !found.contains(pid)));
}

/// Processes of a name below this one that have not ended.
pub(crate) fn below(name: &str) -> Vec<i32> {
    let output = Command::new("ps")
        .args(["-e", "-o", "pid=,ppid=,stat=,comm="])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let rows: Vec<(i32, i32, &str, &str)> = text
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((
                words.next()?.parse().ok()?,
                words.next()?.parse().ok()?,
                words.next()?,
                words.next()?,
            ))
        })
        .collect();
    let me = rustix::process::getpid().as_raw_nonzero().get();
    let is_below = |mut pid: i32| {
        while let Some((_, parent, ..)) = rows.iter().find(|row| row.0 == pid) {
            if *parent == me {
                return true;
            }
            pid = *parent;
        }
        false
    };
    rows.iter()
        .filter(|row| row.3.starts_with(name) && !row.2.starts_with('Z') && is_below(row.0))
        .map(|row| row.0)
        .collect()
}

pub(crate) async fn a_new_launcher_goes_on_with_the_same_router(world: World) {
    let state = tempfile::tempdir().unwrap();
    let house = house(state.path()).await;
    let before = house.rent(&bridged()).await;
    assert_online(&before).await;
    end_below("sandboxd-jail");
    // What runs does not notice; what comes is made by another.
    assert_online(&before).await;
    let after = house.rent(&bridged()).await;
    assert_online(&after).await;
    assert_online(&before).await;
    if world.is_root() {
        let uplinks = crate::world::says("ip -o link | grep -c ' sbx-' || true");
        assert_eq!(uplinks.trim(), "1");
    }
    before.end().await;
    after.end().await;
    house.close().await;
    if world.is_root() {
        crate::on_the_host::assert_clean();
    }
}
