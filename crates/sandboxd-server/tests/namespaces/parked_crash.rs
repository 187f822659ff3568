//! A daemon that dies while it makes a sandbox for the pool, keeps it, or hands it out: at whichever step, nothing of it is
//! left, and nothing that was a session's is lost.

use crate::leftovers::{cgroups, eventually, instances, launcher_of, processes};
use crate::rented::{House, host, is_root};
use sandboxd_server::backends::{HostWorkspace, Kind, SandboxSpec, Start};
use sandboxd_server::id::SandboxId;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// Where the daemon that dies keeps its state.
const STATE: &str = "PARKED_TEST_STATE";
/// How far it comes before it dies.
const STEP: &str = "PARKED_TEST_STEP";
/// This test, which is the daemon too.
const NAME: &str = "parked_crash::a_daemon_that_dies_on_the_way_leaves_nothing_of_a_parked_sandbox";

/// The steps at which it can die.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Died {
    /// One is being made, and its launcher does not answer.
    WhileMaking,
    /// One is there, and is nobody's.
    WhileParked,
    /// It is being handed out, and its workspace is not there yet.
    WhileHandingOut,
    /// It is its session's.
    HandedOut,
    /// And has run something.
    InUse,
}

impl Died {
    const ALL: [Self; 5] = [
        Self::WhileMaking,
        Self::WhileParked,
        Self::WhileHandingOut,
        Self::HandedOut,
        Self::InUse,
    ];

    fn word(self) -> String {
        format!("{self:?}")
    }

    /// Whether its layer is the session's.
    const fn is_a_sessions(self) -> bool {
        matches!(self, Self::HandedOut | Self::InUse)
    }
}

fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

fn spec(state: &Path) -> SandboxSpec {
    let path = state.join("workspaces/a/workspace");
    std::fs::create_dir_all(&path).unwrap();
    SandboxSpec {
        keep_layer: true,
        workspace: Some(HostWorkspace {
            path,
            managed: true,
        }),
        ..host()
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "how the second process of this test learns that it is one"
)]
fn told() -> Option<(PathBuf, Died)> {
    let state = std::env::var_os(STATE).map(PathBuf::from)?;
    let word = std::env::var(STEP).unwrap();
    let step = Died::ALL.into_iter().find(|step| step.word() == word);
    Some((state, step.unwrap()))
}

async fn be_the_daemon(state: &Path, step: Died) {
    let house = Arc::new(House::at(state).await);
    let spec = spec(state);
    // Which ids the first sandbox here has; they are free again when it has gone.
    let first = house.rent(&host()).await;
    let map = first.says("cat /proc/self/uid_map").await;
    std::fs::write(state.join("ids"), map).unwrap();
    first.end().await;
    let kind = Kind {
        name: "host".to_owned(),
        spec: spec.kind(),
        count: 1,
    };
    let stop_launcher = || {
        let launcher = launcher_of(std::process::id()).expect("a launcher runs");
        signal(launcher, rustix::process::Signal::STOP);
    };
    if step == Died::WhileMaking {
        stop_launcher();
    }
    let pool = house.backend.pool().unwrap();
    let id = SandboxId::generate();
    let work = async {
        pool.park(&kind).await.unwrap();
        if step == Died::WhileParked {
            return;
        }
        if step == Died::WhileHandingOut {
            stop_launcher();
        }
        let sandbox = house.take(&id, &spec).await.expect("one is ready");
        if step == Died::InUse {
            sandbox
                .says("echo mine > f; echo installed > /etc/mine; setsid sleep 1000 >/dev/null 2>&1 & sleep 1000 >/dev/null 2>&1 & true")
                .await;
        }
        std::mem::forget(sandbox);
    };
    // Where the launcher was stopped, it comes no further: by then it has been asked.
    let stuck = matches!(step, Died::WhileMaking | Died::WhileHandingOut);
    let patience = Duration::from_secs(if stuck { 1 } else { 60 });
    let mut work = std::pin::pin!(work);
    let came_to_its_end = tokio::time::timeout(patience, &mut work).await.is_ok();
    assert_ne!(came_to_its_end, stuck);
    std::fs::write(state.join("id"), id.to_string()).unwrap();
    std::fs::write(state.join("ready"), "").unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    panic!("nobody killed this daemon");
}

/// Starts one that comes so far.
fn daemon(state: &Path, step: Died) -> Child {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME, "--nocapture"])
        .env(STATE, state)
        .env(STEP, step.word())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    eventually("the daemon comes to its step", || {
        state.join("ready").exists()
    });
    child
}

/// Whether nothing of a process is left but, at most, its status.
fn is_dead(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"));
    status.map_or(true, |status| {
        status.lines().any(|line| line.starts_with("State:\tZ"))
    })
}

/// Whether no daemon of this host has the block of ids that these are of: a lock file for each 64 ranges from 0x7001_0000 on.
fn is_free(map: &str) -> bool {
    let first: u32 = map.split_whitespace().nth(1).unwrap().parse().unwrap();
    let block = (first - 0x7001_0000) / 65_536 / 64;
    let lock = std::fs::File::open(format!("/run/sandboxd/ranges/{block}")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_dies_on_the_way_leaves_nothing_of_a_parked_sandbox() {
    if let Some((state, step)) = told() {
        return be_the_daemon(&state, step).await;
    }
    if !is_root() {
        return;
    }
    for step in Died::ALL {
        // By the launcher, which outlives its daemon; and by the next daemon, where both died.
        for both in [false, true] {
            dies_at(step, both).await;
        }
    }
}

async fn dies_at(step: Died, both: bool) {
    let at = format!("{step:?}, launcher too: {both}");
    let state = tempfile::tempdir().unwrap();
    let state = state.path();
    let mut killed = daemon(state, step);
    let names = instances(state);
    assert_eq!(names.len(), 1, "{at}");
    let launcher = launcher_of(killed.id()).expect("a launcher runs");
    if both {
        signal(launcher, rustix::process::Signal::STOP);
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    if both {
        signal(launcher, rustix::process::Signal::KILL);
        // Until it is dead it holds what tells its instance from one that nobody is left of.
        eventually(&at, || is_dead(launcher));
    } else {
        signal(launcher, rustix::process::Signal::CONT);
        eventually(&at, || {
            cgroups(&names).is_empty() && instances(state).is_empty()
        });
    }
    eventually(&at, || processes(&names) == 0);
    let house = House::at(state).await;
    assert!(cgroups(&names).is_empty(), "{at}");
    assert!(!instances(state).contains(&names[0]), "{at}");
    // What a session had been given is there; what was nobody's is not.
    let found = house.backend.list().await.unwrap();
    let id = std::fs::read_to_string(state.join("id")).unwrap();
    let ids: Vec<String> = found.iter().map(|found| found.id.to_string()).collect();
    if step.is_a_sessions() {
        assert_eq!(ids, std::slice::from_ref(&id), "{at}");
        assert!(!found[0].running, "{at}");
    } else {
        assert!(ids.is_empty(), "{at}: {ids:?}");
    }
    // The ids of what has gone are free, and those of what is kept are not.
    let before = std::fs::read_to_string(state.join("ids")).unwrap();
    let next = house.rent(&host()).await;
    let map = next.says("cat /proc/self/uid_map").await;
    let same = map == before.trim_end();
    if step.is_a_sessions() {
        assert!(!same, "{at}");
    } else if !same {
        // Another daemon of this host came first. It lets go of them when it ends, and what has gone never would.
        eventually(&at, || is_free(before.trim_end()));
    }
    next.end().await;
    if step == Died::InUse {
        let id = SandboxId::parse(&id).unwrap();
        let woken = house.try_rent(&id, &spec(state), Start::KeptLayer).await;
        let woken = woken.expect("it wakes");
        assert_eq!(
            woken.says("cat f /etc/mine").await,
            "mine\ninstalled",
            "{at}"
        );
        woken.end().await;
        house.backend.destroy(&id).await.unwrap();
    } else {
        // The session's files can be had by the sandbox that comes after it.
        let again = house.rent(&spec(state)).await;
        assert_eq!(again.says("echo x > f; cat f").await, "x", "{at}");
        again.end().await;
    }
    house.close().await;
}
