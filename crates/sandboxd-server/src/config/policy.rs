//! Changes to the policy while the service runs: ceilings and lifetimes only, applied wholly or not at all.

use super::settings::cross_check;
use super::{Service, parse};
use std::collections::BTreeMap;

/// What to change. The outer `None` leaves a setting alone, the inner one clears it.
#[derive(Debug, Clone, PartialEq, Default)]
#[expect(missing_docs, reason = "every field is the setting of the same name")]
pub struct PolicyChange {
    pub default_runtime: Option<Option<String>>,
    pub max_sessions: Option<Option<u64>>,
    pub max_open_sessions: Option<Option<u64>>,
    pub max_sessions_per_tenant: Option<Option<u64>>,
    pub evict_idle_after: Option<Option<u64>>,
    pub idle_timeout: Option<u64>,
    pub workspace_ttl: Option<Option<u64>>,
    pub container_ttl: Option<Option<u64>>,
    pub execute_timeout: Option<u64>,
    pub max_read_bytes: Option<u64>,
    pub mem_limit: Option<Option<String>>,
    pub memswap_limit: Option<Option<String>>,
    pub tmpfs_size: Option<Option<String>>,
    pub cpus: Option<Option<f64>>,
    pub cpu_shares: Option<Option<u64>>,
    pub pids_limit: Option<Option<u64>>,
    pub runtimes: BTreeMap<String, RuntimeChange>,
}

/// What to change of one runtime; an inner `None` goes back to the service's value.
#[derive(Debug, Clone, PartialEq, Default)]
#[expect(missing_docs, reason = "every field is the setting of the same name")]
pub struct RuntimeChange {
    pub mem_limit: Option<Option<String>>,
    pub memswap_limit: Option<Option<String>>,
    pub cpus: Option<Option<f64>>,
    pub cpu_shares: Option<Option<u64>>,
    pub pids_limit: Option<Option<u64>>,
}

/// A change that was not made. The texts are public.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyRefusal {
    /// The new default is not on the allowlist.
    #[error("Unknown runtime '{alias}'. The default has to be one of: {}", .allowed.join(", "))]
    UnknownDefault {
        /// Asked for.
        alias: String,
        /// The list.
        allowed: Vec<String>,
    },
    /// Ceilings for a runtime that is not on the allowlist.
    #[error(
        "Unknown runtime '{0}'. Only the ceilings of an allowed runtime can change here; which runtimes are allowed \
         is decided where the service is configured."
    )]
    UnknownRuntime(String),
    /// A size that is none.
    #[error("{setting}: {problem}, not {raw:?}")]
    Size {
        /// Which setting.
        setting: &'static str,
        /// As sent.
        raw: String,
        /// What was expected.
        problem: &'static str,
    },
    /// The settings would contradict each other.
    #[error("{setting} {problem}")]
    Contradiction {
        /// Which setting has to change.
        setting: &'static str,
        /// Why.
        problem: &'static str,
    },
}

impl Service {
    /// This policy with a change made; the policy itself stays as it is, so a refusal has changed nothing.
    pub fn changed(&self, change: PolicyChange) -> Result<Self, PolicyRefusal> {
        let mut new = self.clone();
        if let Some(alias) = change.default_runtime {
            let alias = alias.unwrap_or_else(|| "None".to_owned());
            if !new.runtimes.contains_key(&alias) {
                let allowed = new.runtimes.keys().cloned().collect();
                return Err(PolicyRefusal::UnknownDefault { alias, allowed });
            }
            new.default_runtime = alias;
        }
        put(&mut new.max_sessions, change.max_sessions);
        put(&mut new.max_open_sessions, change.max_open_sessions);
        put(
            &mut new.max_sessions_per_tenant,
            change.max_sessions_per_tenant,
        );
        put(&mut new.evict_idle_after, change.evict_idle_after);
        put(&mut new.idle_timeout, change.idle_timeout);
        put(&mut new.workspace_ttl, change.workspace_ttl);
        put(&mut new.container_ttl, change.container_ttl);
        put(&mut new.execute_timeout, change.execute_timeout);
        put(&mut new.max_read_bytes, change.max_read_bytes);
        let ceilings = &mut new.ceilings;
        ceilings.memory_explicit |= change.mem_limit.is_some();
        ceilings.cpus_explicit |= change.cpus.is_some();
        ceilings.pids_explicit |= change.pids_limit.is_some();
        let values = &mut ceilings.values;
        put_size(
            "mem_limit",
            &mut new.texts.mem_limit,
            &mut values.memory_bytes,
            change.mem_limit,
        )?;
        put_size(
            "memswap_limit",
            &mut new.texts.memswap_limit,
            &mut values.memory_swap_bytes,
            change.memswap_limit,
        )?;
        put_size(
            "tmpfs_size",
            &mut new.texts.tmpfs_size,
            &mut new.tmpfs_bytes,
            change.tmpfs_size,
        )?;
        put(&mut values.cpus, change.cpus);
        put(&mut values.cpu_shares, change.cpu_shares);
        put(&mut values.pids, change.pids_limit);
        for (alias, change) in change.runtimes {
            new.change_runtime(alias, change)?;
        }
        // A policy that contradicts itself already (an older state) may still be changed into a better one.
        if let Err(wrong) = cross_check(&new)
            && cross_check(self) != Err(wrong.clone())
        {
            let (setting, problem) = (wrong.setting, wrong.problem);
            return Err(PolicyRefusal::Contradiction { setting, problem });
        }
        Ok(new)
    }

    fn change_runtime(
        &mut self,
        alias: String,
        change: RuntimeChange,
    ) -> Result<(), PolicyRefusal> {
        let Some(runtime) = self.runtimes.get_mut(&alias) else {
            return Err(PolicyRefusal::UnknownRuntime(alias));
        };
        let (texts, own) = (&mut runtime.texts, &mut runtime.ceilings);
        put_size(
            "mem_limit",
            &mut texts.mem_limit,
            &mut own.memory_bytes,
            change.mem_limit,
        )?;
        put_size(
            "memswap_limit",
            &mut texts.memswap_limit,
            &mut own.memory_swap_bytes,
            change.memswap_limit,
        )?;
        put(&mut own.cpus, change.cpus);
        put(&mut own.cpu_shares, change.cpu_shares);
        put(&mut own.pids, change.pids_limit);
        Ok(())
    }
}

fn put<T>(place: &mut T, change: Option<T>) {
    if let Some(value) = change {
        *place = value;
    }
}

fn put_size(
    setting: &'static str,
    text: &mut Option<String>,
    bytes: &mut Option<u64>,
    change: Option<Option<String>>,
) -> Result<(), PolicyRefusal> {
    let Some(change) = change else { return Ok(()) };
    *bytes = match &change {
        None => None,
        Some(raw) => Some(parse::size(raw).map_err(|problem| PolicyRefusal::Size {
            setting,
            raw: raw.clone(),
            problem,
        })?),
    };
    *text = change;
    Ok(())
}
