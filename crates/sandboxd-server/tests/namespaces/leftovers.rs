//! Nothing is left behind: by a stop, by a failure, by a daemon that was killed.

use crate::rented::{House, host, is_root, small_root};
use sandboxd_server::backends::{CreateError, Kind, PreparedImage, SandboxSpec, Start};
use sandboxd_server::id::SandboxId;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The host's mounts.
fn mounts() -> BTreeSet<String> {
    std::fs::read_to_string("/proc/self/mountinfo")
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}

/// Cgroup directories whose path names one of these instances or sandboxes.
pub(crate) fn cgroups(instances: &[String]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut to_do = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(directory) = to_do.pop() {
        for entry in std::fs::read_dir(&directory)
            .into_iter()
            .flatten()
            .flatten()
        {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let path = entry.path().display().to_string();
                if instances.iter().any(|instance| path.contains(instance)) {
                    found.push(entry.path());
                }
                to_do.push(entry.path());
            }
        }
    }
    found
}

/// The instances in a state directory.
pub(crate) fn instances(state: &Path) -> Vec<String> {
    std::fs::read_dir(state.join("instances"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

pub(crate) fn eventually(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_leaves_nothing() {
    if !is_root() {
        return;
    }
    let image = tempfile::tempdir().unwrap();
    small_root(image.path());
    let house = House::new().await;
    let before = mounts();
    let names = instances(&house.state);
    assert_eq!(names.len(), 1);
    let empty = cgroups(&names).len();
    let spec = SandboxSpec {
        image: PreparedImage::Rootfs {
            path: image.path().to_owned(),
            key: "small".to_owned(),
        },
        ..host()
    };
    let sandbox = house.rent(&spec).await;
    sandbox.sh("sleep 1000 & sleep 1000 & echo").await;
    assert_eq!(mounts(), before, "the daemon's view of mounts has changed");
    assert!(cgroups(&names).len() > empty || empty == 0);
    let id = sandbox.id.clone();
    sandbox.end().await;
    let groups = cgroups(&[id.to_string()]);
    assert!(groups.is_empty(), "{groups:?}");
    house.close().await;
    assert!(cgroups(&names).is_empty());
    assert_eq!(mounts(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_start_leaves_nothing() {
    if !is_root() {
        return;
    }
    let house = House::new().await;
    let id = SandboxId::generate();
    let spec = SandboxSpec {
        image: PreparedImage::Rootfs {
            path: "/no/such/image".into(),
            key: "missing".to_owned(),
        },
        ..host()
    };
    let refused = house.try_rent(&id, &spec, Start::Fresh).await;
    assert!(matches!(refused.err(), Some(CreateError::Step { .. })));
    eventually("cgroups are left", || cgroups(&[id.to_string()]).is_empty());
    assert!(house.backend.list().await.unwrap().is_empty());
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_launcher_harms_no_sandbox_and_another_is_started() {
    if !is_root() {
        return;
    }
    let house = House::new().await;
    let sandbox = house.rent(&host()).await;
    let launcher = children()
        .into_iter()
        .find(|pid| command_line(*pid).starts_with("sandboxd-jail"))
        .expect("a launcher runs");
    let pid = rustix::process::Pid::from_raw(launcher).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    assert_eq!(sandbox.says("echo alive").await, "alive");
    // The loss may be noticed only by the request after it.
    let mut other = house
        .try_rent(&SandboxId::generate(), &host(), Start::Fresh)
        .await;
    if other.is_err() {
        other = house
            .try_rent(&SandboxId::generate(), &host(), Start::Fresh)
            .await;
    }
    let other = other.expect("another launcher is started");
    assert_eq!(other.says("echo new").await, "new");
    sandbox.end().await;
    other.end().await;
    house.close().await;
}

fn children() -> Vec<i32> {
    let own = std::process::id();
    let tasks = std::fs::read_dir(format!("/proc/{own}/task")).unwrap();
    tasks
        .flatten()
        .flat_map(|task| {
            let text = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            text.split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<i32>>()
        })
        .collect()
}

fn command_line(pid: i32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The variable by which the test below tells its own second process what to be.
const STATE: &str = "NAMESPACES_TEST_STATE";

/// Starts a daemon (this test, again) that holds a sandbox until it is killed.
fn daemon(state: &Path) -> Child {
    let child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "leftovers::a_killed_daemon_leaves_nothing",
            "--nocapture",
        ])
        .env(STATE, state)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    eventually("the daemon makes its sandbox", || {
        state.join("ready").exists()
    });
    child
}

#[expect(
    clippy::disallowed_methods,
    reason = "how the second process of this test learns that it is one"
)]
fn told_state() -> Option<PathBuf> {
    std::env::var_os(STATE).map(PathBuf::from)
}

async fn be_the_daemon(state: &Path) {
    let house = House::at(state).await;
    let sandbox = house.rent(&host()).await;
    sandbox.sh("sleep 1000 & setsid sleep 1000 & echo").await;
    // One that is nobody's yet.
    let kind = Kind {
        name: "host".to_owned(),
        spec: host(),
        count: 1,
    };
    house.backend.pool().unwrap().park(&kind).await.unwrap();
    std::fs::write(state.join("ready"), "").unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    panic!("nobody killed this daemon");
}

/// The launcher of a daemon.
pub(crate) fn launcher_of(daemon: u32) -> Option<u32> {
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .find(|pid| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let parent = format!("PPid:\t{daemon}\n");
            status.contains(&parent)
                && i32::try_from(*pid)
                    .is_ok_and(|pid| command_line(pid).starts_with("sandboxd-jail"))
        })
}

/// Processes that are in a cgroup of one of these instances.
pub(crate) fn processes(instances: &[String]) -> usize {
    cgroups(instances)
        .iter()
        .filter_map(|directory| std::fs::read_to_string(directory.join("cgroup.procs")).ok())
        .map(|text| text.lines().count())
        .sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_daemon_leaves_nothing() {
    if let Some(state) = told_state() {
        return be_the_daemon(&state).await;
    }
    if !is_root() {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let mut killed = daemon(state.path());
    let names = instances(state.path());
    assert_eq!(names.len(), 1);
    assert!(processes(&names) >= 4);
    killed.kill().unwrap();
    killed.wait().unwrap();
    // The launcher does it.
    eventually("a killed daemon's cgroups are left", || {
        cgroups(&names).is_empty()
    });
    eventually("a killed daemon's directory is left", || {
        instances(state.path()).is_empty()
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_was_killed_with_its_launcher_is_swept_by_the_next() {
    if !is_root() {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let mut killed = daemon(state.path());
    let names = instances(state.path());
    let launcher = launcher_of(killed.id()).expect("a launcher runs");
    let launcher = rustix::process::Pid::from_raw(i32::try_from(launcher).unwrap()).unwrap();
    // Held still while its daemon dies, then killed: it cannot clean up.
    rustix::process::kill_process(launcher, rustix::process::Signal::STOP).unwrap();
    killed.kill().unwrap();
    killed.wait().unwrap();
    rustix::process::kill_process(launcher, rustix::process::Signal::KILL).unwrap();
    eventually("sandboxes outlive their daemon", || processes(&names) == 0);
    assert!(!cgroups(&names).is_empty(), "nothing was left to sweep");
    assert_eq!(instances(state.path()), names);
    let house = House::at(state.path()).await;
    assert!(cgroups(&names).is_empty());
    assert!(!instances(state.path()).contains(&names[0]));
    house.close().await;
}
