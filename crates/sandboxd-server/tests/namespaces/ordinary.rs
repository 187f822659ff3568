//! What an ordinary user gets: the same walls, fewer ceilings, and a word about each that is missing.

use crate::rented::{House, as_ordinary_user, host, small_root};
use sandboxd_server::backends::{
    Asked, Ceiling, CreateError, Enforcement, HostWorkspace, PreparedImage, SandboxSpec, Start,
};
use sandboxd_server::id::SandboxId;

fn delegated(enforcement: Option<&Enforcement>) -> bool {
    matches!(enforcement, Some(Enforcement::Enforced(_)))
}

#[tokio::test]
async fn the_walls_stand() {
    if !as_ordinary_user("ordinary::the_walls_stand") {
        return;
    }
    let house = House::new().await;
    let sandbox = house.rent(&host()).await;
    let status = sandbox.says("cat /proc/self/status").await;
    assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    assert!(status.contains("Seccomp:\t2"), "{status}");
    assert!(status.contains("CapBnd:\t00000000800405fb"), "{status}");
    assert_eq!(
        sandbox.says("id -u; hostname; nproc").await,
        "0\nsandbox\n1"
    );
    for script in [
        "ls /etc/shadow",
        "touch /usr/new",
        "mount -t tmpfs none /mnt",
        "unshare -U true",
        "echo 1 > /proc/sys/kernel/core_pattern",
        "cat /proc/1/environ",
    ] {
        assert_ne!(sandbox.sh(script).await.exit.code, 0, "{script}");
    }
    assert_eq!(
        sandbox
            .says("ls -A /root /home /var/lib; ls /sys/class/net 2>/dev/null || true")
            .await
            .lines()
            .filter(|line| !line.is_empty() && !line.ends_with(':'))
            .count(),
        0
    );
    sandbox.end().await;
    house.close().await;
}

#[tokio::test]
async fn a_process_ceiling_holds_without_a_cgroup() {
    if !as_ordinary_user("ordinary::a_process_ceiling_holds_without_a_cgroup") {
        return;
    }
    let house = House::new().await;
    let mut spec = host();
    spec.pids = Some(Asked {
        value: 24,
        explicit: true,
    });
    let sandbox = house.rent(&spec).await;
    assert!(delegated(sandbox.enforced.get(&Ceiling::Pids)));
    let did = sandbox
        .python("import os,time\nn=0\ntry:\n  while n<200:\n    if os.fork()==0: time.sleep(9); os._exit(0)\n    n+=1\nexcept OSError: pass\nprint(n)")
        .await;
    let count: u32 = did.out.trim().parse().expect("a count");
    assert!((4..24).contains(&count), "{did:?}");
    sandbox.end().await;
    house.close().await;
}

#[tokio::test]
async fn what_cannot_be_enforced_is_refused_or_reported() {
    if !as_ordinary_user("ordinary::what_cannot_be_enforced_is_refused_or_reported") {
        return;
    }
    let house = House::new().await;
    let here = house.backend.capabilities().await.ceilings;
    if delegated(here.get(&Ceiling::Memory)) {
        println!("this user has cgroups of their own");
        return;
    }
    let sandbox = house.rent(&host()).await;
    for ceiling in [Ceiling::Memory, Ceiling::Cpus, Ceiling::UidRange] {
        let found = sandbox.enforced.get(&ceiling);
        assert!(
            matches!(found, Some(Enforcement::Unenforced(_))),
            "{ceiling:?}"
        );
    }
    sandbox.end().await;
    let mut spec = host();
    spec.memory_bytes = Some(Asked {
        value: 1 << 28,
        explicit: true,
    });
    let refused = house
        .try_rent(&SandboxId::generate(), &spec, Start::Fresh)
        .await;
    assert!(matches!(
        refused.err(),
        Some(CreateError::Unenforceable {
            ceiling: Ceiling::Memory,
            ..
        })
    ));
    spec.allow_unenforced = vec![Ceiling::Memory];
    let sandbox = house.rent(&spec).await;
    sandbox.end().await;
    house.close().await;
}

#[tokio::test]
async fn files_are_the_users_own() {
    use std::os::unix::fs::MetadataExt as _;
    if !as_ordinary_user("ordinary::files_are_the_users_own") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let house = House::new().await;
    for user in [None, Some(1000)] {
        let mut spec = host();
        spec.user = user;
        spec.workspace = Some(HostWorkspace {
            path: directory.path().to_owned(),
            managed: false,
        });
        let sandbox = house.rent(&spec).await;
        let name = format!("by-{}", user.unwrap_or(0));
        let id = sandbox
            .says(&format!("touch {name}; id -u; stat -c %u {name}"))
            .await;
        assert_eq!(id, format!("{0}\n{0}", user.unwrap_or(0)));
        sandbox.end().await;
        let made = directory.path().join(name).metadata().unwrap();
        assert_eq!(made.uid(), rustix::process::geteuid().as_raw());
    }
    house.close().await;
}

#[tokio::test]
async fn a_root_filesystem_of_their_own_works() {
    if !as_ordinary_user("ordinary::a_root_filesystem_of_their_own_works") {
        return;
    }
    let image = tempfile::tempdir().unwrap();
    small_root(image.path());
    let house = House::new().await;
    let spec = SandboxSpec {
        image: PreparedImage::Rootfs {
            path: image.path().to_owned(),
            key: "small".to_owned(),
        },
        keep_layer: true,
        ..host()
    };
    let id = SandboxId::generate();
    let sandbox = house.try_rent(&id, &spec, Start::Fresh).await.unwrap();
    assert_eq!(
        sandbox
            .says("cat /etc/release; echo mine > /etc/release")
            .await,
        "small"
    );
    sandbox.sleep().await;
    let sandbox = house.try_rent(&id, &spec, Start::KeptLayer).await.unwrap();
    assert_eq!(sandbox.says("cat /etc/release").await, "mine");
    sandbox.end().await;
    house.backend.destroy(&id).await.unwrap();
    house.close().await;
}
