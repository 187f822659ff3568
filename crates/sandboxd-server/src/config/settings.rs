//! Every setting, its default, and what must hold between them.
//!
//! - [`table`]: the names, in the order of the documents.
//! - [`reading`]: kinds of settings.
//! - [`values`]: the settings that are more than a kind.

mod reading;
mod table;
mod values;

pub(super) use reading::{Parse, refused};
pub use table::{SETTINGS, Setting};
pub(super) use values::{absolute_path, network};

use super::error::{ConfigError, Origin};
use super::layers::{Found, Warning};
use super::{Config, Service, ServiceCeilings, SizeTexts, builds, engine, parse, registries};
use crate::backends::ProjectIds;
use crate::limits::{
    BODIES_BYTES_DEFAULT, DRAIN_TIMEOUT_SECONDS_DEFAULT, JSON_BODY_BYTES_DEFAULT,
    OUTPUTS_BYTES_DEFAULT,
};
use crate::runtimes::build::BuildSettings;
use crate::runtimes::{Ceilings, Runtime, Source};
use reading::parsed;
use values::{
    backend_name, body_bytes, ceiling_names, default_runtime, drain_seconds, egress, keep_layer,
    listen, outputs_bytes, runtimes, state_dir, together_bytes, token, uid, work_dir,
};

/// Reads every setting.
pub(super) fn build(found: &Found, warnings: &mut Vec<Warning>) -> Result<Config, ConfigError> {
    if let Some(raw) = found.raw("max_workers") {
        parsed(raw, parse::positive)?;
        let origin = &raw.origin;
        warnings.push(Warning(format!(
            "{origin} has no effect: blocking work needs no pool here"
        )));
    }
    let listen = listen(found)?;
    let service = service(found)?;
    if let Some(uid) = service.sandbox_uid.filter(|uid| *uid != 0) {
        let all = service.runtimes.values();
        let own = all.filter(|runtime| runtime.user.is_none() && !runtime.source.has_account());
        let own: Vec<&str> = own.map(|runtime| runtime.alias.as_str()).collect();
        if !own.is_empty() {
            warnings.push(Warning(format!(
                "sandbox_uid {uid} is not for ready-made images, which keep their own user: {}; run_as_uid in a \
                 runtime is",
                own.join(", ")
            )));
        }
    }
    let builds = BuildSettings {
        // What may be unenforced in sandboxes may be in those of builds.
        allow_unenforced: service.allow_unenforced.clone(),
        ..builds::builds(found)?
    };
    Ok(Config {
        listen,
        token: token(found, listen)?,
        state_dir: state_dir(found)?,
        backend: backend_name(found)?,
        engine: engine::engine(found, warnings)?,
        drain_timeout: found.value(
            "drain_timeout",
            DRAIN_TIMEOUT_SECONDS_DEFAULT,
            drain_seconds,
        )?,
        policy_overrides: found.optional("policy_overrides", None, absolute_path)?,
        project_ids: found.optional("project_ids", Some(ProjectIds::default()), str::parse)?,
        egress: egress(found)?,
        registries: registries::registries(found)?,
        builds,
        service,
    })
}

fn service(found: &Found) -> Result<Service, ConfigError> {
    let runtimes = runtimes(found)?;
    let default_runtime = default_runtime(found, &runtimes)?;
    let (ceilings, texts, tmpfs_bytes) = ceilings(found)?;
    let service = Service {
        default_runtime,
        runtimes: runtimes
            .into_iter()
            .map(|runtime| (runtime.alias.clone(), runtime))
            .collect(),
        max_sessions: found.optional("max_sessions", Some(20), parse::whole)?,
        max_open_sessions: found.optional("max_open_sessions", None, parse::whole)?,
        max_sessions_per_tenant: found.optional("max_sessions_per_tenant", None, parse::whole)?,
        evict_idle_after: found.optional("evict_idle_after", None, parse::whole)?,
        hibernate_after: found.optional("hibernate_after", None, parse::whole)?,
        ceilings,
        tmpfs_bytes,
        work_dir: found.value("work_dir", "/workspace".to_owned(), work_dir)?,
        workspace_root: found.optional("workspace_root", None, absolute_path)?,
        persist_containers: keep_layer(found)?,
        idle_timeout: found.value("idle_timeout", 1800, parse::whole)?,
        cleanup_interval: found.value("cleanup_interval", 300, parse::positive)?,
        workspace_ttl: found.optional("workspace_ttl", None, parse::whole)?,
        container_ttl: found.optional("container_ttl", None, parse::whole)?,
        sandbox_uid: found.optional("sandbox_uid", None, uid)?,
        max_read_bytes: found.value("max_read_bytes", 8 * 1024 * 1024, parse::positive)?,
        max_body_bytes: found.value("max_body_bytes", JSON_BODY_BYTES_DEFAULT, body_bytes)?,
        max_bodies_bytes: found.value("max_bodies_bytes", 0, together_bytes)?,
        max_outputs_bytes: found.value(
            "max_outputs_bytes",
            OUTPUTS_BYTES_DEFAULT,
            outputs_bytes,
        )?,
        execute_timeout: found.value("execute_timeout", 300, parse::positive)?,
        max_running_commands: found.value("max_running_commands", 256, parse::positive)?,
        runtimes_given: found.raw("runtimes").is_some()
            || found.tables.runtimes.is_some()
            || found.explicit("catalogue"),
        native_files: found.value("native_files", true, parse::flag)?,
        prewarm: found.value("prewarm", true, parse::flag)?,
        pool: found.value("pool", 0, parse::pool)?,
        ui_enabled: found.value("ui_enabled", false, parse::flag)?,
        metrics_public: found.value("metrics_public", false, parse::flag)?,
        allow_unenforced: found.value("allow_unenforced", Vec::new(), ceiling_names)?,
        texts,
    };
    let mut service = Service {
        max_bodies_bytes: match service.max_bodies_bytes {
            0 => service.max_body_bytes.max(BODIES_BYTES_DEFAULT),
            set => set,
        },
        ..service
    };
    // An account is built into what is built, so a recipe has to know.
    for runtime in service.runtimes.values_mut() {
        let user = runtime.user.or(service.sandbox_uid);
        if let Source::Recipe(recipe) = &mut runtime.source {
            recipe.user = user.filter(|uid| *uid != 0);
        }
    }
    cross_check(&service).map_err(|wrong| {
        let origin = found
            .raw(wrong.setting)
            .map_or(Origin::Setting(wrong.setting), |raw| raw.origin.clone());
        refused(&origin, wrong.problem)
    })?;
    Ok(service)
}

/// A relation between settings that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Contradiction {
    /// Which setting has to change.
    pub(super) setting: &'static str,
    /// Why.
    pub(super) problem: &'static str,
}

/// What must hold between settings, at start and after a change.
pub(super) fn cross_check(service: &Service) -> Result<(), Contradiction> {
    let wrong = |setting, problem| Err(Contradiction { setting, problem });
    if service.evict_idle_after.is_some() && service.workspace_root.is_none() {
        return wrong(
            "evict_idle_after",
            "needs workspace_root: without one a session that makes room would lose its files",
        );
    }
    if service.hibernate_after.is_some() && service.workspace_root.is_none() {
        return wrong(
            "hibernate_after",
            "needs workspace_root: without one a session that goes to sleep would lose its files",
        );
    }
    if service.max_bodies_bytes < service.max_body_bytes {
        return wrong(
            "max_bodies_bytes",
            "must not be below max_body_bytes: the largest body would never fit",
        );
    }
    if let (Some(open), Some(resident)) = (service.max_open_sessions, service.max_sessions)
        && open < resident
    {
        return wrong("max_open_sessions", "must not be below max_sessions");
    }
    let below = |swap: Option<u64>, memory: Option<u64>| {
        swap.zip(memory).is_some_and(|(swap, memory)| swap < memory)
    };
    let values = &service.ceilings.values;
    let own = |runtime: &Runtime| {
        let own = &runtime.ceilings;
        below(
            own.memory_swap_bytes.or(values.memory_swap_bytes),
            own.memory_bytes.or(values.memory_bytes),
        ) && (own.memory_swap_bytes.is_some() || own.memory_bytes.is_none())
    };
    if below(values.memory_swap_bytes, values.memory_bytes) || service.runtimes.values().any(own) {
        return wrong(
            "memswap_limit",
            "is memory and swap together, so it must not be below mem_limit",
        );
    }
    Ok(())
}

fn ceilings(found: &Found) -> Result<(ServiceCeilings, SizeTexts, Option<u64>), ConfigError> {
    let (mem_limit, memory_bytes) = found.size("mem_limit", Some("1g"))?;
    let (memswap_limit, memory_swap_bytes) = found.size("memswap_limit", None)?;
    let (tmpfs_size, tmpfs_bytes) = found.size("tmpfs_size", Some("64m"))?;
    let (disk_limit, disk_bytes) = found.size("disk_limit", Some("10g"))?;
    let text: Parse<String> = |text| Ok(text.trim().to_owned());
    let ceilings = ServiceCeilings {
        values: Ceilings {
            memory_bytes,
            memory_swap_bytes,
            cpus: found.optional("cpus", Some(2.0), parse::decimal)?,
            cpu_shares: found.optional("cpu_shares", None, parse::positive)?,
            pids: found.optional("pids_limit", Some(512), parse::positive)?,
            disk_bytes,
            disk_files: found.optional("inodes_limit", Some(1_000_000), parse::positive)?,
            network_mode: found.optional("network_mode", Some("none".to_owned()), network)?,
            oci_runtime: found.optional("oci_runtime", None, text)?,
        },
        memory_explicit: found.explicit("mem_limit"),
        cpus_explicit: found.explicit("cpus"),
        pids_explicit: found.explicit("pids_limit"),
        disk_bytes_explicit: found.explicit("disk_limit"),
        disk_files_explicit: found.explicit("inodes_limit"),
    };
    let texts = SizeTexts {
        mem_limit,
        memswap_limit,
        tmpfs_size,
        disk_limit,
    };
    Ok((ceilings, texts, tmpfs_bytes))
}
