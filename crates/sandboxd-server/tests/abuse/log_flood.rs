//! Output without end.

use crate::town::{Town, ended_for, is_root};
use sandboxd_server::sessions::{Limit, RunDone};
use std::time::Duration;

const TIME: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_output_is_ended_for_output() {
    if !is_root() {
        return;
    }
    let town = Town::found(&[]).await;
    let neighbour = town.neighbour();
    for flood in [
        "yes",
        "yes >&2",
        // From the background as well.
        "yes & yes >&2 & wait",
    ] {
        let flooded = town.attack(&["/bin/sh", "-c", flood], TIME).await;
        ended_for(&flooded, Limit::Output);
        assert!(
            matches!(flooded.done, RunDone::OutputLimited { .. }),
            "{flood}"
        );
    }
    // The twin: much, and not too much; and each run has the whole limit.
    for _ in 0..2 {
        let said = town.says("yes | head -c 9000000").await;
        assert_eq!(said.len(), 9_000_000);
    }
    neighbour.was_well().await;
    town.close().await;
}
