//! What a container may use, and what is done over it.

use crate::place::{Home, has_engine, until};
use bollard::models::MountPoint;
use sandboxd_server::backends::{Ceiling, Enforcement};
use sandboxd_server::sessions::RunDone;

#[tokio::test]
async fn a_container_has_the_walls_and_ceilings_that_are_asked_for() {
    if !has_engine() {
        return;
    }
    let home = Home::new();
    let place = home
        .service(|service| {
            service.persist_containers = true;
            for runtime in service.runtimes.values_mut() {
                runtime.user = Some(1000);
            }
        })
        .await;
    let id = home.id("a");
    place.open(&id).await.unwrap();
    let looked = home.inspect(&format!("sandboxd-{id}")).await.unwrap();
    let host = looked.host_config.unwrap();
    assert_eq!(host.memory, Some(1 << 30));
    assert_eq!(host.memory_swap, host.memory, "swap is pinned to it");
    assert_eq!(host.nano_cpus, Some(2_000_000_000));
    assert_eq!(host.pids_limit, Some(512));
    assert_eq!(host.network_mode.as_deref(), Some("none"));
    // Nothing that is mounted on one side later shows on the other.
    let mounts = looked.mounts.unwrap();
    let at = |mount: &&MountPoint| mount.destination.as_deref() == Some("/workspace");
    let mount = mounts.iter().find(at).unwrap();
    assert_eq!(mount.propagation.as_deref(), Some("rprivate"));
    let executable = "cp /bin/true /tmp/t && /tmp/t && id -u && stat -c %u .";
    assert_eq!(place.out(&id, executable).await, "1000\n1000\n");
    let status = place.out(&id, "cat /proc/self/status").await;
    for wall in ["NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t0000000000000000"] {
        assert!(status.contains(wall), "{wall}: {status}");
    }
    place.purge(&id).await;
    place.close().await;
}

#[tokio::test]
async fn who_stores_too_much_in_a_workspace_is_ended_and_told() {
    if !has_engine() {
        return;
    }
    let home = Home::new();
    let place = home
        .service(|service| {
            service.ceilings.values.disk_bytes = Some(20_000_000);
            service.ceilings.disk_bytes_explicit = true;
        })
        .await;
    let id = home.id("a");
    let opened = place.open(&id).await.unwrap();
    let disk = opened.session.enforced.get(&Ceiling::Disk);
    assert!(matches!(disk, Some(Enforcement::Enforced(_))), "{disk:?}");
    let script = "i=0; while :; do i=$((i+1)); head -c 1000000 /dev/zero > f$i; sleep 0.05; done";
    let done = place.run(&id, &["/bin/sh", "-c", script]).await.unwrap();
    assert!(
        matches!(done, RunDone::Finished { code: 137, .. }),
        "{done:?}"
    );
    assert_eq!(place.out(&id, "rm -f f*; echo on").await, "on\n");
    // What goes on in the background costs the session its sandbox.
    let background = format!("setsid sh -c '{script}' >/dev/null 2>&1 & echo");
    place.out(&id, &background).await;
    until("it is ended", async || {
        !place.sessions.get(&id).unwrap().alive
    })
    .await;
    assert_eq!(place.out(&id, "rm -f f*; echo on").await, "on\n");
    place.close().await;
}

#[tokio::test]
async fn what_is_written_into_the_container_itself_counts_too() {
    if !has_engine() {
        return;
    }
    let home = Home::new();
    let place = home
        .service(|service| {
            service.ceilings.values.disk_bytes = Some(20_000_000);
            service.ceilings.disk_bytes_explicit = true;
            service.tmpfs_bytes = None;
        })
        .await;
    let id = home.id("a");
    place.open(&id).await.unwrap();
    let script =
        "i=0; while :; do i=$((i+1)); head -c 1000000 /dev/zero > /var/f$i; sleep 0.05; done";
    let done = place.run(&id, &["/bin/sh", "-c", script]).await.unwrap();
    assert!(
        matches!(done, RunDone::Finished { code: 137, .. }),
        "{done:?}"
    );
    assert_eq!(place.out(&id, "rm -f /var/f*; echo on").await, "on\n");
    place.close().await;
}
