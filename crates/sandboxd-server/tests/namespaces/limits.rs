//! Ceilings: in place, or refused, or reported.

use crate::rented::{House, host, is_root};
use sandboxd_protocol::message::Ended;
use sandboxd_server::backends::{Asked, Ceiling, Enforcement};

#[tokio::test]
async fn too_much_memory_ends_the_run_and_not_the_sandbox() {
    if !is_root() {
        return;
    }
    let house = House::new().await;
    let mut spec = host();
    spec.memory_bytes = Some(Asked {
        value: 64 << 20,
        explicit: true,
    });
    let sandbox = house.rent(&spec).await;
    let did = sandbox
        .python("x = bytearray(300 << 20); print(len(x))")
        .await;
    assert_eq!(did.exit.signal, Some(9), "{did:?}");
    assert!(matches!(did.exit.ended, Ended::Memory | Ended::Itself));
    assert_eq!(sandbox.says("echo alive").await, "alive");
    let usage = house.backend.usage(std::slice::from_ref(&sandbox.id)).await;
    let usage = usage[0].clone().expect("usage");
    assert_eq!(usage.memory_limit_bytes, Some(64 << 20));
    assert!(
        usage.memory_kills.is_some_and(|kills| kills >= 1),
        "{usage:?}"
    );
    assert!(usage.memory_bytes.is_some_and(|bytes| bytes > 0));
    assert!(usage.pids.is_some_and(|pids| pids >= 1));
    assert!(usage.cpu_time.is_some_and(|time| !time.is_zero()));
    sandbox.end().await;
    house.close().await;
}

#[tokio::test]
async fn memory_file_systems_count_as_memory_and_are_bounded() {
    if !is_root() {
        return;
    }
    let house = House::new().await;
    let sandbox = house.rent(&host()).await;
    let did = sandbox.sh("head -c 100M /dev/zero > /tmp/big").await;
    assert!(did.err.contains("No space"), "{did:?}");
    let did = sandbox.sh("head -c 100M /dev/zero > /dev/shm/big").await;
    assert!(did.err.contains("No space"), "{did:?}");
    sandbox.end().await;
    house.close().await;
}

#[tokio::test]
async fn too_many_processes_are_refused_and_the_sandbox_lives() {
    if !is_root() {
        return;
    }
    let house = House::new().await;
    let mut spec = host();
    spec.pids = Some(Asked {
        value: 32,
        explicit: true,
    });
    let sandbox = house.rent(&spec).await;
    let did = sandbox
        .python(
            r"
import os, signal, time
children = []
try:
    for _ in range(200):
        pid = os.fork()
        if pid == 0:
            time.sleep(30)
            os._exit(0)
        children.append(pid)
except OSError as error:
    print(len(children), error.errno)
for pid in children:
    os.kill(pid, signal.SIGKILL)
",
        )
        .await;
    let mut words = did.out.split_whitespace();
    let count: u32 = words.next().and_then(|n| n.parse().ok()).expect("a count");
    assert!((8..32).contains(&count), "{did:?}");
    assert_eq!(words.next(), Some("11"));
    assert_eq!(sandbox.says("echo alive").await, "alive");
    sandbox.end().await;
    house.close().await;
}

#[tokio::test]
async fn programs_see_as_many_processors_as_they_may_use() {
    if !is_root() {
        return;
    }
    let here = std::thread::available_parallelism().unwrap().get();
    let house = House::new().await;
    for (cpus, seen) in [(0.5, 1), (1.0, 1), (1.5, 2), (64.0, here)] {
        let mut spec = host();
        spec.cpus = Some(Asked {
            value: cpus,
            explicit: true,
        });
        let seen = seen.min(here).to_string();
        let sandbox = house.rent(&spec).await;
        assert_eq!(sandbox.says("nproc").await, seen, "{cpus}");
        let python = sandbox.python("import os; print(os.cpu_count())").await;
        assert_eq!(python.out.trim(), seen, "{cpus}: {python:?}");
        assert_eq!(sandbox.says("getconf _NPROCESSORS_ONLN").await, seen);
        sandbox.end().await;
    }
    house.close().await;
}

#[tokio::test]
async fn sandboxes_are_spread_over_processors() {
    if !is_root() || std::thread::available_parallelism().unwrap().get() < 2 {
        return;
    }
    let house = House::new().await;
    let one = house.rent(&host()).await;
    let other = house.rent(&host()).await;
    let place = "grep Cpus_allowed_list /proc/self/status";
    assert_ne!(one.says(place).await, other.says(place).await);
    one.end().await;
    other.end().await;
    house.close().await;
}

#[tokio::test]
async fn a_processor_quota_holds() {
    if !is_root() {
        return;
    }
    let house = House::new().await;
    let mut spec = host();
    spec.cpus = Some(Asked {
        value: 0.2,
        explicit: true,
    });
    let sandbox = house.rent(&spec).await;
    let did = sandbox
        .python(
            r"
import os, time
os.sched_setaffinity(0, range(os.cpu_count() or 1))
begin, used = time.time(), time.process_time()
while time.time() - begin < 1.5:
    pass
print(time.process_time() - used)
",
        )
        .await;
    let used: f64 = did.out.trim().parse().expect("seconds");
    assert!(used < 0.75, "{used} s of 1.5 s at a fifth of a processor");
    sandbox.end().await;
    house.close().await;
}

#[tokio::test]
async fn what_is_in_place_is_reported() {
    if !is_root() {
        return;
    }
    let house = House::new().await;
    let sandbox = house.rent(&host()).await;
    for ceiling in [
        Ceiling::Memory,
        Ceiling::Cpus,
        Ceiling::Pids,
        Ceiling::Network,
        Ceiling::UidRange,
    ] {
        let found = sandbox.enforced.get(&ceiling);
        assert!(
            matches!(found, Some(Enforcement::Enforced(_))),
            "{ceiling:?}: {found:?}"
        );
    }
    assert!(!sandbox.enforced.contains_key(&Ceiling::CpuShares));
    sandbox.end().await;
    house.close().await;
}
