//! Cgroups: the agent that the kernel starts outside, and limits that a program lifts from itself.

use crate::outside;
use crate::place::{Place, all_work, none_works};
use std::path::PathBuf;

/// The cgroup directories of the sandboxes of this test, as the host sees them.
fn directories() -> Vec<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let hierarchies: Vec<(String, String)> = mounts
        .lines()
        .filter_map(|line| {
            let (left, right) = line.split_once(" - ")?;
            let at = left.split(' ').nth(4)?.to_owned();
            let mut words = right.split(' ');
            let kind = words.next()?;
            let options = words.nth(1)?.to_owned();
            kind.starts_with("cgroup").then_some((at, options))
        })
        .collect();
    let mut found = Vec::new();
    for guest in outside::guests() {
        let text = std::fs::read_to_string(guest.path("cgroup")).unwrap();
        for line in text.lines() {
            let mut words = line.splitn(3, ':');
            let (_, controllers, path) = (words.next(), words.next().unwrap(), words.next().unwrap());
            for (at, options) in &hierarchies {
                let same = match controllers {
                    "" => !options.contains("cpu") && !options.contains("name="),
                    names => names.split(',').all(|name| options.split(',').any(|option| option == name)),
                };
                let directory = PathBuf::from(format!("{at}{path}"));
                if same && path.contains("sandboxd") && directory.is_dir() {
                    found.push(directory);
                }
            }
        }
    }
    found
}

/// Every limit in them, with its value.
fn limits() -> Vec<(PathBuf, String)> {
    let names = [
        "memory.limit_in_bytes", "memory.max", "pids.max", "cpu.max", "cpu.cfs_quota_us", "cpu.shares", "cpu.weight",
        "notify_on_release", "cgroup.freeze",
    ];
    let mut all = Vec::new();
    for directory in directories() {
        for name in names {
            let path = directory.join(name);
            if let Ok(value) = std::fs::read_to_string(&path) {
                all.push((path, value));
            }
        }
    }
    all
}

pub(crate) async fn none_is_mounted_written_or_left() {
    let place = Place::open().await;
    place.session("a").await;
    let before = limits();
    if crate::ordinary::is_root() {
        assert!(!before.is_empty(), "no limit of a sandbox is found from outside");
    }
    none_works(
        &place,
        "a",
        &[
            "mkdir -p /tmp/c; mount -t cgroup -o memory none /tmp/c",
            "mkdir -p /tmp/c; mount -t cgroup -o rdma none /tmp/c",
            "mkdir -p /tmp/c; mount -t cgroup2 none /tmp/c",
            "unshare -UrmC sh -c 'mount -t cgroup -o rdma none /tmp/c'",
            "unshare -C sh -c 'mount -t cgroup2 none /tmp/c'",
            "ls /sys/fs/cgroup",
            "find / -xdev -name release_agent -o -xdev -name cgroup.procs -o -xdev -name memory.max | grep .",
            "echo max > /sys/fs/cgroup/memory.max",
            "echo /workspace/agent > /sys/fs/cgroup/release_agent",
            "echo $$ > /proc/1/fd/4/cgroup.procs",
            "ls /proc/1/fd/4/",
            "mkdir /proc/1/cwd/../cgroup",
        ],
    )
    .await;
    let said = place
        .python_says(
            "a",
            r"
import os
# Nothing that is open leads to one.
found = []
for pid in filter(str.isdigit, os.listdir('/proc')):
    for n in range(0, 32):
        for name in ('cgroup.procs', 'release_agent', 'tasks', '../cgroup.procs'):
            try: os.close(os.open(f'/proc/{pid}/fd/{n}/{name}', os.O_WRONLY)); found.append((pid, n, name))
            except OSError: pass
assert not found, found
# What is told of them ends at the sandbox.
for line in open('/proc/self/cgroup'):
    path = line.rstrip().split(':', 2)[2]
    assert path == '/' or path.startswith('/run-'), line
print('none')
",
        )
        .await;
    assert_eq!(said, "none");
    assert_eq!(limits(), before);
    all_work(&place, "a", &["mkdir /tmp/d", "test -r /proc/self/cgroup"]).await;
    place.close().await;
}
