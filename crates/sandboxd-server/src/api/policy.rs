//! What the service allows, and changing it while it runs.

use super::App;
use super::answer::{self, Answer};
use super::decode::{Decode, Fields, rules};
use super::error::Failure;
use super::request::{Json, Peer, Service};
use crate::config::{self, PolicyChange, RuntimeChange};
use crate::runtimes::{Runtime, Source};
use axum::Extension;
use axum::extract::State;
use sandboxd_api::policy as api;
use serde_json::Value;
use std::collections::BTreeMap;

/// `GET /policy`
pub(super) async fn show(State(app): State<App>, _: Service) -> Answer {
    Ok(answer::json(&shown(&app)))
}

/// `PUT /policy`
pub(super) async fn change(
    State(app): State<App>,
    Extension(peer): Extension<Peer>,
    _: Service,
    Json(change): Json<PolicyChange>,
) -> Answer {
    let who = format!("the service token, from {}", peer.0);
    apply(&app, change, &who)?;
    Ok(answer::json(&shown(&app)))
}

/// Makes a change, wholly or not at all, and logs what and who. Two changes at once are made one after the other.
pub(super) fn apply(app: &App, change: PolicyChange, who: &str) -> Result<(), Failure> {
    let _one_at_a_time = app
        .policy_changes
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let before = app.sessions.service();
    let service = before.changed(change)?;
    let changes = differences(&policy(&before), &policy(&service));
    app.sessions
        .update_service(service)
        .map_err(Failure::Settings)?;
    if changes.is_empty() {
        tracing::info!(who, "the policy was put again, and is the same");
    } else {
        tracing::info!(who, changes = changes.join(", "), "the policy has changed");
    }
    Ok(())
}

/// What differs between two policies, each as `setting: before -> after`.
fn differences(before: &api::ServicePolicy, after: &api::ServicePolicy) -> Vec<String> {
    let value = |policy: &api::ServicePolicy| serde_json::to_value(policy).unwrap_or_default();
    let mut found = Vec::new();
    differ("", &value(before), &value(after), &mut found);
    found.sort();
    found
}

fn differ(place: &str, before: &Value, after: &Value, found: &mut Vec<String>) {
    let below = |name: &str| match place {
        "" => name.to_owned(),
        place => format!("{place}.{name}"),
    };
    match (before, after) {
        (Value::Object(old), Value::Object(new)) => {
            for (name, old) in old {
                differ(
                    &below(name),
                    old,
                    new.get(name).unwrap_or(&Value::Null),
                    found,
                );
            }
        }
        // The runtimes: a change adds none, removes none and moves none.
        (Value::Array(old), Value::Array(new)) => {
            for (old, new) in old.iter().zip(new) {
                let alias = old["alias"].as_str().unwrap_or_default();
                differ(&below(alias), old, new, found);
            }
        }
        _ if before != after => found.push(format!("{place}: {before} -> {after}")),
        _ => {}
    }
}

/// Parses a file of policy changes: the body of `PUT /policy`, kept on disk. The error is one line.
pub(super) fn parse(text: &[u8]) -> Result<PolicyChange, String> {
    let in_words = |failure: Failure| {
        let (_, _, detail) = failure.row();
        serde_json::to_string(&detail).unwrap_or_default()
    };
    let body = super::decode::body_of(text, true).map_err(in_words)?;
    let mut fields = Fields::of_body(body).map_err(in_words)?;
    let decoded = PolicyChange::decode(&mut fields);
    fields.refuse_rest();
    fields.done(decoded).map_err(in_words)
}

impl Decode for PolicyChange {
    const STRICT: bool = true;

    fn decode(fields: &mut Fields) -> Option<Self> {
        let bound = || rules::nullable(rules::at_least(0));
        let default_runtime = fields.optional("default_runtime", rules::nullable(rules::text));
        let max_sessions = fields.optional("max_sessions", bound());
        let max_open_sessions = fields.optional("max_open_sessions", bound());
        let max_sessions_per_tenant = fields.optional("max_sessions_per_tenant", bound());
        let evict_idle_after = fields.optional("evict_idle_after", bound());
        let idle_timeout = fields.optional("idle_timeout", rules::at_least(0));
        let workspace_ttl = fields.optional("workspace_ttl", bound());
        let container_ttl = fields.optional("container_ttl", bound());
        let execute_timeout = fields.optional("execute_timeout", rules::positive);
        let max_read_bytes = fields.optional("max_read_bytes", rules::positive);
        let mem_limit = fields.optional("mem_limit", rules::nullable(rules::text));
        let memswap_limit = fields.optional("memswap_limit", rules::nullable(rules::text));
        let tmpfs_size = fields.optional("tmpfs_size", rules::nullable(rules::text));
        let cpus = fields.optional("cpus", rules::nullable(rules::finite));
        let cpu_shares = fields.optional("cpu_shares", rules::nullable(rules::positive));
        let pids_limit = fields.optional("pids_limit", rules::nullable(rules::positive));
        let runtimes = fields.or("runtimes", BTreeMap::new(), |value| {
            let runtimes = rules::nullable(|value| rules::members(value, rules::object));
            runtimes(value).map(Option::unwrap_or_default)
        });
        Some(Self {
            default_runtime: default_runtime?,
            max_sessions: max_sessions?,
            max_open_sessions: max_open_sessions?,
            max_sessions_per_tenant: max_sessions_per_tenant?,
            evict_idle_after: evict_idle_after?,
            idle_timeout: idle_timeout?,
            workspace_ttl: workspace_ttl?,
            container_ttl: container_ttl?,
            execute_timeout: execute_timeout?,
            max_read_bytes: max_read_bytes?,
            mem_limit: mem_limit?,
            memswap_limit: memswap_limit?,
            tmpfs_size: tmpfs_size?,
            cpus: cpus?,
            cpu_shares: cpu_shares?,
            pids_limit: pids_limit?,
            runtimes: runtimes?,
        })
    }
}

impl Decode for RuntimeChange {
    const STRICT: bool = true;

    fn decode(fields: &mut Fields) -> Option<Self> {
        let mem_limit = fields.optional("mem_limit", rules::nullable(rules::text));
        let memswap_limit = fields.optional("memswap_limit", rules::nullable(rules::text));
        let cpus = fields.optional("cpus", rules::nullable(rules::finite));
        let cpu_shares = fields.optional("cpu_shares", rules::nullable(rules::positive));
        let pids_limit = fields.optional("pids_limit", rules::nullable(rules::positive));
        Some(Self {
            mem_limit: mem_limit?,
            memswap_limit: memswap_limit?,
            cpus: cpus?,
            cpu_shares: cpu_shares?,
            pids_limit: pids_limit?,
        })
    }
}

/// The policy in force.
fn shown(app: &App) -> api::ServicePolicy {
    api::ServicePolicy {
        buildkit: app.sessions.buildkit(),
        ..policy(&app.sessions.service())
    }
}

fn policy(service: &config::Service) -> api::ServicePolicy {
    let values = &service.ceilings.values;
    let texts = &service.texts;
    let native = service.native();
    api::ServicePolicy {
        runtimes: service
            .runtimes
            .values()
            .map(|runtime| runtime_policy(runtime, service))
            .collect(),
        default_runtime: service.default_runtime.clone(),
        max_sessions: service.max_sessions,
        max_open_sessions: service.max_open_sessions,
        max_sessions_per_tenant: service.max_sessions_per_tenant,
        evict_idle_after: service.evict_idle_after,
        mem_limit: texts.mem_limit.clone(),
        memswap_limit: texts.memswap_limit.clone(),
        cpus: values.cpus,
        cpu_shares: values.cpu_shares,
        pids_limit: values.pids,
        network_mode: values.network_mode.clone(),
        oci_runtime: values.oci_runtime.clone(),
        work_dir: service.work_dir.clone(),
        idle_timeout: service.idle_timeout,
        execute_timeout: service.execute_timeout,
        max_read_bytes: service.max_read_bytes,
        persist_containers: service.persist_containers,
        sandbox_uid: service.sandbox_uid,
        workspace_ttl: service.workspace_ttl,
        container_ttl: service.container_ttl,
        tmpfs_size: texts.tmpfs_size.clone(),
        prewarm: service.prewarm,
        // The backend's to say.
        buildkit: false,
        native_files: native.files,
        native_writes: native.writes,
        native_realpath: native.files,
    }
}

/// A runtime with the ceilings in force for it: its own, else the service's.
fn runtime_policy(runtime: &Runtime, service: &config::Service) -> api::RuntimePolicy {
    let (own, values) = (&runtime.ceilings, &service.ceilings.values);
    let either =
        |own: &Option<String>, value: &Option<String>| own.as_ref().or(value.as_ref()).cloned();
    api::RuntimePolicy {
        alias: runtime.alias.clone(),
        image: runtime.label.clone(),
        description: runtime.description.clone(),
        builds: matches!(runtime.source, Source::Recipe(_)),
        mem_limit: either(&runtime.texts.mem_limit, &service.texts.mem_limit),
        // The service's belongs to the service's memory ceiling; beside a runtime's own, memory is all there is.
        memswap_limit: match &own.memory_bytes {
            Some(_) => runtime.texts.memswap_limit.clone(),
            None => either(&runtime.texts.memswap_limit, &service.texts.memswap_limit),
        },
        cpus: own.cpus.or(values.cpus),
        cpu_shares: own.cpu_shares.or(values.cpu_shares),
        pids_limit: own.pids.or(values.pids),
        network_mode: either(&own.network_mode, &values.network_mode),
        oci_runtime: either(&own.oci_runtime, &values.oci_runtime),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Flags, Layers};

    #[test]
    fn a_change_is_told_by_what_was_and_what_is() {
        let layers = Layers {
            flags: Flags {
                settings: vec![(
                    "runtimes".to_owned(),
                    "a=host,b=host;mem_limit=1g".to_owned(),
                )],
                ..Flags::default()
            },
            env: Vec::new(),
            file: None,
            root: true,
        };
        let before = layers.read().expect("settings").0.service;
        let change = parse(
            br#"{"max_sessions": null, "idle_timeout": 60, "runtimes": {"b": {"mem_limit": "2g"}}}"#,
        )
        .expect("a change");
        let after = before.changed(change).expect("allowed");
        let told = differences(&policy(&before), &policy(&after));
        assert_eq!(
            told,
            [
                "idle_timeout: 1800 -> 60",
                "max_sessions: 20 -> null",
                r#"runtimes.b.mem_limit: "1g" -> "2g""#,
            ]
        );
        assert_eq!(differences(&policy(&after), &policy(&after)), [""; 0]);
    }
}
