//! What sessions use: sampled through the backend, all that are stale in one call, and kept for a few seconds.

use super::state::State;
use super::table::{Sample, Shared};
use super::words::UsageView;
use crate::backends::Usage;
use crate::id::{SandboxId, SessionId};
use crate::limits::{USAGE_SAMPLE_SECONDS_MAX, USAGE_SECONDS_MAX};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

pub(super) async fn usage(shared: &Arc<Shared>, ids: &[SessionId]) -> Vec<Option<UsageView>> {
    let now = shared.clock.now();
    let stale = stale(shared, ids, now);
    if !stale.is_empty() {
        sample(shared, &stale, now).await;
    }
    let table = shared.table();
    ids.iter()
        .map(|id| {
            let rental = table.house.get(id)?;
            let sample = table.details.get(id)?.sample.as_ref()?;
            let current =
                matches!(&rental.state, State::Resident { sandbox, .. } if *sandbox == sample.sandbox);
            let usage = sample.usage.filter(|_| current)?;
            Some(UsageView {
                usage,
                cpu_percent: sample.cpu_percent,
            })
        })
        .collect()
}

/// Those that run and have no sample that is fresh enough ("nothing" is a sample too).
fn stale(shared: &Shared, ids: &[SessionId], now: Duration) -> Vec<(SessionId, SandboxId)> {
    let fresh = Duration::from_secs(USAGE_SECONDS_MAX);
    let table = shared.table();
    ids.iter()
        .filter_map(|id| {
            let State::Resident { sandbox, .. } = &table.house.get(id)?.state else {
                return None;
            };
            let sample = table.details.get(id)?.sample.as_ref();
            let known =
                sample.is_some_and(|s| s.sandbox == *sandbox && now.saturating_sub(s.at) < fresh);
            (!known).then(|| (id.clone(), sandbox.clone()))
        })
        .collect()
}

async fn sample(shared: &Arc<Shared>, stale: &[(SessionId, SandboxId)], now: Duration) {
    let sandboxes: Vec<SandboxId> = stale.iter().map(|(_, sandbox)| sandbox.clone()).collect();
    let asked = shared.backend.usage(&sandboxes);
    let usages = timeout(Duration::from_secs(USAGE_SAMPLE_SECONDS_MAX), asked)
        .await
        .unwrap_or_default();
    let mut usages = usages.into_iter();
    let mut table = shared.table();
    for (id, sandbox) in stale {
        let usage = usages.next().and_then(Result::ok);
        let Some(detail) = table.details.get_mut(id) else {
            continue;
        };
        let before = detail.sample.take().filter(|s| s.sandbox == *sandbox);
        detail.sample = Some(Sample {
            sandbox: sandbox.clone(),
            at: now,
            usage,
            cpu_percent: before.and_then(|before| cpu_percent(&before, usage?, now)),
        });
    }
}

/// Per cent of one CPU between two samples.
fn cpu_percent(before: &Sample, usage: Usage, now: Duration) -> Option<f64> {
    let wall = now.checked_sub(before.at).filter(|wall| !wall.is_zero())?;
    let cpu = usage.cpu_time?.checked_sub(before.usage?.cpu_time?)?;
    Some(cpu.as_secs_f64() / wall.as_secs_f64() * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_is_per_cent_of_one_cpu_and_unknown_without_two_samples() {
        let usage = |millis| Usage {
            cpu_time: Some(Duration::from_millis(millis)),
            ..Usage::default()
        };
        let before = Sample {
            sandbox: SandboxId::generate(),
            at: Duration::from_secs(10),
            usage: Some(usage(1_000)),
            cpu_percent: None,
        };
        let later = Duration::from_secs(12);
        assert_eq!(cpu_percent(&before, usage(4_000), later), Some(150.0));
        assert_eq!(cpu_percent(&before, usage(4_000), before.at), None);
        assert_eq!(cpu_percent(&before, usage(500), later), None);
        assert_eq!(cpu_percent(&before, Usage::default(), later), None);
    }
}
