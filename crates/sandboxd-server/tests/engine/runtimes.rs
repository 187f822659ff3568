//! Other OCI runtimes than the engine's own, by the name that it has for them.

use crate::home::{DEBIAN, docker, house, of};
use crate::registry::{Heard, settings};
use sandboxd_server::backends::{Ceiling, Enforcement, SandboxSpec, Start};
use sandboxd_server::id::SandboxId;
use sandboxd_server::runtimes::images::Watcher;
use sandboxd_server::runtimes::{Runtime, Source};
use std::sync::Arc;

/// A sandbox by this runtime; nothing where the engine has none of that name, as one that was here before the tests may.
async fn by(name: &str, works: impl AsyncFnOnce(&crate::rented::Rented)) {
    let Some((house, _home)) = house(settings()).await else {
        return;
    };
    let runtimes = docker(&["info", "--format", "{{json .Runtimes}}"]);
    if !runtimes.contains(&format!("\"{name}\"")) {
        println!(
            "this machine's engine has no runtime {name}: cargo xtask engine starts one that has"
        );
        return;
    }
    let image = Source::Image(DEBIAN.to_owned());
    let watcher: Watcher = Arc::new(Heard::default());
    let prepared = house
        .backend
        .prepare(&Runtime::plain("x", DEBIAN, image), &watcher)
        .await
        .unwrap();
    let spec = SandboxSpec {
        oci_runtime: Some(name.to_owned()),
        ..of(prepared)
    };
    let sandbox = house.rent(&spec).await;
    let told = sandbox.enforced.get(&Ceiling::OciRuntime);
    assert!(matches!(told, Some(Enforcement::Enforced(_))), "{told:?}");
    assert_eq!(sandbox.python("print(6 * 7)").await.out, "42\n");
    let did = sandbox.sh("echo out; echo err >&2; exit 3").await;
    assert_eq!(
        (did.out.as_str(), did.err.as_str(), did.exit.code),
        ("out\n", "err\n", 3)
    );
    works(&sandbox).await;
    sandbox.end().await;
    house.close().await;
}

#[tokio::test]
async fn gvisors_kernel_is_the_one_inside() {
    by("runsc", async |sandbox| {
        let ours = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        assert_ne!(sandbox.says("uname -r").await, ours.trim());
        assert!(sandbox.says("dmesg").await.contains("gVisor"));
    })
    .await;
}

#[tokio::test]
async fn crun_makes_the_same_sandbox() {
    by("crun", async |sandbox| {
        assert_eq!(
            sandbox
                .says("cat /proc/self/status | grep NoNewPrivs")
                .await,
            "NoNewPrivs:\t1"
        );
        assert_eq!(
            sandbox
                .says("tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '")
                .await,
            "lo"
        );
    })
    .await;
}

#[tokio::test]
async fn one_that_the_engine_does_not_know_is_refused_by_name() {
    let Some((house, _home)) = house(settings()).await else {
        return;
    };
    let image = Source::Image(DEBIAN.to_owned());
    let watcher: Watcher = Arc::new(Heard::default());
    let prepared = house
        .backend
        .prepare(&Runtime::plain("x", DEBIAN, image), &watcher)
        .await
        .unwrap();
    let spec = SandboxSpec {
        oci_runtime: Some("no-such".to_owned()),
        ..of(prepared)
    };
    let refused = house
        .try_rent(&SandboxId::generate(), &spec, Start::Fresh)
        .await;
    let why = refused.map(drop).unwrap_err().to_string();
    assert!(why.contains("no-such") && why.contains("runc"), "{why}");
    house.close().await;
}
