//! Whether this room can serve: each part that it depends on is asked, within a bound. Probes come often and from anybody,
//! so an answer is kept for a moment, and many that ask at once are given one.

use super::table::Shared;
use crate::limits::{READY_KEPT_MILLIS, READY_SECONDS_MAX};
use std::future::Future;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

/// One part that was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Readiness {
    /// Which part.
    pub part: &'static str,
    /// Why it cannot serve, in public words; the log has the cause.
    pub problem: Option<&'static str>,
}

/// The last answer, and when it was given.
#[derive(Debug, Default)]
pub(super) struct LastAnswer(Mutex<Option<(Instant, Vec<Readiness>)>>);

/// Asks every part.
pub(super) async fn ask(shared: &Shared) -> Vec<Readiness> {
    // Held while asking: whoever comes meanwhile waits for this answer and takes it. Every part has its bound.
    let mut last = shared.ready.0.lock().await;
    let stopping = Readiness {
        part: "service",
        problem: shared.table().stopping.then_some("is shutting down"),
    };
    let fresh = Duration::from_millis(READY_KEPT_MILLIS);
    if let Some((at, answers)) = &*last
        && at.elapsed() < fresh
    {
        let mut answers = answers.clone();
        answers.insert(0, stopping);
        return answers;
    }
    let (store, backend, workspaces) = tokio::join!(
        part("store", async {
            let written = shared.ledger.check().await;
            written.map_err(|error| error.to_string())
        }),
        part("backend", async {
            let listed = shared.backend.list().await;
            listed.map(|_| ()).map_err(|error| error.to_string())
        }),
        part("workspaces", async {
            let looked = shared.workspaces.clone().check().await;
            looked.map_err(|error| error.to_string())
        }),
    );
    let answers = vec![store, backend, workspaces];
    *last = Some((Instant::now(), answers.clone()));
    let mut all = answers;
    all.insert(0, stopping);
    all
}

async fn part(part: &'static str, asked: impl Future<Output = Result<(), String>>) -> Readiness {
    let limit = Duration::from_secs(READY_SECONDS_MAX);
    let problem = match timeout(limit, asked).await {
        Ok(Ok(())) => None,
        Ok(Err(cause)) => {
            tracing::warn!(part, cause, "not ready");
            Some("does not work")
        }
        Err(_) => {
            tracing::warn!(part, "not ready: no answer in time");
            Some("does not answer in time")
        }
    };
    Readiness { part, problem }
}
