//! An engine that is reached over the network: nothing of its host is looked at here.

use crate::place::{Home, has_engine};
use sandboxd_server::backends::{Ceiling, Enforcement};
use sandboxd_server::config::EngineAddress;
use tokio::net::{TcpListener, UnixStream};
use tokio::task::{JoinHandle, JoinSet};

/// Passes what connects to a port on to the engine of the tests.
async fn port() -> (EngineAddress, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let passing = tokio::spawn(async move {
        let mut all = JoinSet::new();
        while let Ok((mut near, _)) = listener.accept().await {
            all.spawn(async move {
                let mut far = UnixStream::connect(crate::place::socket()).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    let engine = EngineAddress::Tcp {
        address,
        certificates: None,
    };
    (engine, passing)
}

#[tokio::test]
async fn the_link_and_the_figures_come_over_the_network() {
    if !has_engine() {
        return;
    }
    let home = Home::new();
    let (engine, passing) = port().await;
    let place = home
        .service_at(&engine, |service| service.workspace_root = None)
        .await;
    let id = home.id("a");
    place.open(&id).await.unwrap();
    assert_eq!(place.out(&id, "echo here").await, "here\n");
    let much = place
        .out(&id, "head -c 5000000 /dev/zero | tr '\\0' x")
        .await;
    assert_eq!(much.len(), 5_000_000);
    let usage = place.sessions.usage(std::slice::from_ref(&id)).await;
    let usage = usage[0].unwrap().usage;
    assert!(usage.memory_bytes > Some(0), "{usage:?}");
    assert!(
        usage.cpu_time.is_some() && usage.pids > Some(0),
        "{usage:?}"
    );
    place.close().await;
    passing.abort();
}

#[tokio::test]
async fn what_cannot_be_counted_from_here_is_refused_where_somebody_set_it() {
    if !has_engine() {
        return;
    }
    let home = Home::new();
    let (engine, passing) = port().await;
    let place = home
        .service_at(&engine, |service| {
            service.workspace_root = None;
            service.ceilings.values.disk_bytes = Some(1 << 30);
            service.ceilings.disk_bytes_explicit = true;
        })
        .await;
    let can = place.backend.capabilities().await;
    assert!(
        matches!(&can.bridge, Enforcement::Unenforced(why) if why.contains("over the network")),
        "{:?}",
        can.bridge
    );
    let disk = can.ceilings;
    assert!(
        matches!(disk.get(&Ceiling::Disk), Some(Enforcement::Unenforced(_))),
        "{disk:?}"
    );
    let refused = place.open(&home.id("a")).await.unwrap_err().to_string();
    assert!(
        refused.contains("disk cannot be enforced here"),
        "{refused}"
    );
    place.close().await;
    passing.abort();
}
