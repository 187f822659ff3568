//! Many clients at once, on few sessions, in every order that happens to come up.

use crate::support::{World, ask, sh, sid};
use sandboxd_server::sessions::{Open, RunDone};
use std::sync::Arc;
use std::time::Duration;

/// The same numbers every time: what differs is how the tasks take turns.
fn dice(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_crowd_never_gets_more_than_there_is_nor_anothers_files() {
    let world = World::with_workspaces(|service| {
        service.max_sessions = Some(3);
        service.max_open_sessions = Some(6);
        service.evict_idle_after = Some(0);
        service.max_running_commands = 64;
    })
    .await;
    let world = Arc::new(world);
    let clients: Vec<_> = (0..64_u64)
        .map(|client| {
            let world = world.clone();
            tokio::spawn(async move {
                let mut seed = client * 7_919 + 1;
                let mut well = 0_u32;
                for _ in 0..25 {
                    let name = format!("s{}", dice(&mut seed) % 6);
                    let id = sid(&name);
                    match dice(&mut seed) % 20 {
                        0..=6 => {
                            let reuse = Open {
                                reuse: true,
                                ..ask(&name)
                            };
                            let _ = world.sessions.open(reuse).await;
                        }
                        7..=16 => {
                            let script = format!("echo {name} > me; cat me");
                            let done = world.sessions.run(&id, sh(&script)).await;
                            if let Ok(RunDone::Finished { code, stdout, .. }) = done {
                                assert_eq!((code, stdout), (0, format!("{name}\n").into_bytes()));
                                well += 1;
                            }
                        }
                        17 | 18 => {
                            let _ = world.sessions.hibernate(&id).await;
                        }
                        _ => {
                            let purge = dice(&mut seed).is_multiple_of(2);
                            let _ = world.sessions.delete(&id, purge).await;
                        }
                    }
                    // Refusals come at once; whoever was refused looks again a little later.
                    tokio::time::sleep(Duration::from_millis(dice(&mut seed) % 3)).await;
                    let counts = world.sessions.counts();
                    assert!(counts.resident <= 3 && counts.open <= 6, "{counts:?}");
                }
                well
            })
        })
        .collect();
    let mut well = 0;
    for client in clients {
        well += client.await.unwrap();
    }
    assert!(well > 50, "only {well} runs found a sandbox");
    assert!(
        world.backend.most_at_once() <= 3,
        "{}",
        world.backend.most_at_once()
    );
    world.sessions.shutdown().await;
    assert_eq!(world.backend.sandbox_count(), 0);
    assert_eq!(world.sessions.counts().resident, 0, "no session is stuck");
}
