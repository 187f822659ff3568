//! A clock that is set, hours forward or back, makes no session older or younger: everything that is timed moves along.

use super::state::Shift;
use super::table::Shared;
use crate::auth::session_tokens::Nonce;
use crate::clock::Clock;
use crate::id::SessionId;
use crate::limits::{
    CLOCK_JUMP_SECONDS_MIN, LEDGER_SECONDS_MAX, RECORDS_AT_ONCE, WORKSPACE_SECONDS_MAX,
};
use futures::StreamExt as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// What the clock said when it was looked at, beside one that nobody sets.
#[derive(Debug, Clone, Copy)]
pub(super) struct Watched {
    wall: Duration,
    steady: Duration,
}

impl Watched {
    pub(super) fn new(clock: &dyn Clock) -> Self {
        Self {
            wall: clock.now(),
            steady: clock.steady(),
        }
    }

    /// By how much the clock was set since then, if it was. What drifts or is slewed adds up until it counts as set.
    fn shift(self, now: Self) -> Option<Shift> {
        let passed = now.steady.saturating_sub(self.steady);
        let expected = self.wall.saturating_add(passed);
        let least = Duration::from_secs(CLOCK_JUMP_SECONDS_MIN);
        if now.wall >= expected {
            let by = now.wall - expected;
            (by >= least).then_some(Shift::Forward(by))
        } else {
            let by = expected - now.wall;
            (by >= least).then_some(Shift::Back(by))
        }
    }
}

/// Looks at the clock. To be called before anything is judged by it.
pub(super) async fn follow(shared: &Arc<Shared>) {
    let Some((shift, ends)) = moved(shared) else {
        return;
    };
    let (direction, by) = match shift {
        Shift::Forward(by) => ("forward", by),
        Shift::Back(by) => ("back", by),
    };
    let seconds = by.as_secs();
    tracing::warn!(
        direction,
        seconds,
        "the clock was set; nothing is older or younger for it"
    );
    let limit = Duration::from_secs(LEDGER_SECONDS_MAX);
    let writes = futures::stream::iter(ends).map(|(id, nonce, expires)| async move {
        let written = timeout(limit, shared.ledger.renew(&id, &nonce, expires)).await;
        matches!(written, Ok(Ok(())))
    });
    let written: Vec<bool> = writes.buffer_unordered(RECORDS_AT_ONCE).collect().await;
    if written.contains(&false) {
        tracing::error!("the ends of some sessions were not written down by the new clock");
    }
    let limit = Duration::from_secs(WORKSPACE_SECONDS_MAX);
    let (forward, by) = match shift {
        Shift::Forward(by) => (true, by),
        Shift::Back(by) => (false, by),
    };
    let workspaces = shared.workspaces.clone().shift(forward, by);
    match timeout(limit, workspaces).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::error!(%error, "stored workspaces keep the times of the old clock")
        }
        Err(_) => tracing::error!("stored workspaces did not follow the clock in time"),
    }
}

/// Moves what is in memory; last uses are written by the journal, ends by the caller.
#[expect(
    clippy::type_complexity,
    reason = "three columns of a list that is used once"
)]
fn moved(shared: &Arc<Shared>) -> Option<(Shift, Vec<(SessionId, Nonce, Option<Duration>)>)> {
    let now = Watched::new(&*shared.clock);
    let mut table = shared.table();
    let shift = table.watched.shift(now)?;
    table.watched = now;
    table.house.shift(shift, now.wall);
    let all: Vec<SessionId> = table.house.iter().map(|(id, _)| id.clone()).collect();
    for id in &all {
        shared.is_unwritten(&mut table, id);
    }
    let ends = table.house.iter().filter_map(|(id, rental)| {
        rental.expires?;
        let nonce = table.details.get(id)?.nonce;
        Some((id.clone(), nonce, rental.expires))
    });
    Some((shift, ends.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_runs_is_not_set_and_one_that_jumps_is() {
        let at = |wall, steady| Watched {
            wall: Duration::from_secs(wall),
            steady: Duration::from_secs(steady),
        };
        let before = at(1_000_000, 50);
        let hours = Duration::from_secs(7_200);
        assert_eq!(before.shift(at(1_000_300, 350)), None);
        assert_eq!(before.shift(at(1_000_301, 350)), None, "that is drift");
        assert_eq!(
            before.shift(at(1_007_500, 350)),
            Some(Shift::Forward(hours))
        );
        assert_eq!(before.shift(at(993_100, 350)), Some(Shift::Back(hours)));
        assert_eq!(
            at(0, 50).shift(at(1_790_000_000, 51)),
            Some(Shift::Forward(Duration::from_secs(1_789_999_999))),
            "a machine that did not know the time"
        );
    }
}
