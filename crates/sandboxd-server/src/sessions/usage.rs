//! What sessions use: sampled through the backend, all that are stale in one call, and kept for a few seconds.

use super::detail::Sample;
use super::limited::Limit;
use super::state::State;
use super::table::Shared;
use super::words::{Happened, UsageView};
use crate::backends::Usage;
use crate::id::{SandboxId, SessionId};
use crate::limits::{USAGE_SAMPLE_SECONDS_MAX, USAGE_SECONDS_MAX};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

pub(super) async fn usage(shared: &Arc<Shared>, ids: &[SessionId]) -> Vec<Option<UsageView>> {
    if !stale(shared, ids).is_empty() {
        // Whoever asks while others sample takes what they find.
        let _one_at_a_time = shared.sampling.lock().await;
        let stale = stale(shared, ids);
        if !stale.is_empty() {
            sample(shared, &stale).await;
        }
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

/// What all samples say is stored, in bytes, as of sandboxes that run.
pub(super) fn stored(shared: &Shared) -> u64 {
    let table = shared.table();
    let samples = table.details.values();
    let each = samples.filter_map(|detail| detail.sample.as_ref()?.usage?.disk_bytes);
    each.fold(0, u64::saturating_add)
}

/// The kernel has killed so often in a sandbox for memory by now: what is new is counted. Whoever knows the run that it
/// happened to says so in the log itself; `is_told` is for that.
pub(super) fn note_kills(
    shared: &Shared,
    id: &SessionId,
    sandbox: &SandboxId,
    kills: Option<u64>,
    is_told: bool,
) {
    let Some(kills) = kills else { return };
    let (serial, new) = {
        let mut table = shared.table();
        let Some(detail) = table.details.get_mut(id) else {
            return;
        };
        let before = detail.kills.take().filter(|(of, _)| of == sandbox);
        let before = before.map_or(0, |(_, kills)| kills);
        detail.kills = Some((sandbox.clone(), kills.max(before)));
        (detail.serial, kills.saturating_sub(before))
    };
    if new == 0 {
        return;
    }
    shared.metrics.oom_killed(new);
    if !is_told {
        let happened = Happened {
            op: "limit",
            target: Limit::Memory.name().to_owned(),
            ok: false,
            detail: format!("processes that the kernel ended for memory: {new}"),
            took: Duration::ZERO,
        };
        shared.log(id, Some(serial), happened);
    }
}

/// Those that run and have no sample that is fresh enough ("nothing" is a sample too).
fn stale(shared: &Shared, ids: &[SessionId]) -> Vec<(SessionId, SandboxId)> {
    let fresh = Duration::from_secs(USAGE_SECONDS_MAX);
    let now = shared.clock.steady();
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

async fn sample(shared: &Arc<Shared>, stale: &[(SessionId, SandboxId)]) {
    let sandboxes: Vec<SandboxId> = stale.iter().map(|(_, sandbox)| sandbox.clone()).collect();
    let asked = shared.backend.usage(&sandboxes);
    let usages = timeout(Duration::from_secs(USAGE_SAMPLE_SECONDS_MAX), asked)
        .await
        .unwrap_or_default();
    let now = shared.clock.steady();
    let mut usages = usages.into_iter();
    for (id, sandbox) in stale {
        let usage = usages.next().and_then(Result::ok);
        {
            let mut table = shared.table();
            let Some(detail) = table.details.get_mut(id) else {
                continue;
            };
            let before = detail.sample.take().filter(|s| s.sandbox == *sandbox);
            detail.sample = Some(Box::new(Sample {
                sandbox: sandbox.clone(),
                at: now,
                usage,
                cpu_percent: before.and_then(|before| cpu_percent(&before, usage?, now)),
            }));
        }
        let kills = usage.and_then(|usage| usage.memory_kills);
        note_kills(shared, id, sandbox, kills, false);
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
