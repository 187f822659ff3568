//! Opening, listing, watching and closing sessions.

use super::App;
use super::answer::{self, Answer};
use super::decode::{Decode, Fields, Ruled, rules};
use super::request::{Json, OfSession, Query, Service};
use crate::backends::{Asked, Enforced, Enforcement, SandboxSpec};
use crate::config::Service as Settings;
use crate::id::{SessionId, Tenant};
use crate::limits::RUN_OUTPUT_BYTES_MAX;
use crate::limits::TTL_SECONDS_MAX;
use crate::sessions::{Event, Open, UsageView, UseError, View};
use axum::extract::State;
use sandboxd_api::sessions as api;
use serde_json::Value;
use std::collections::HashMap;
use std::time::Duration;

/// Body of `POST /sessions`, checked.
pub(super) struct Create(Open);

impl Decode for Create {
    fn decode(fields: &mut Fields) -> Option<Self> {
        let id = fields.or(
            "session_id",
            None,
            rules::nullable(rules::id(SessionId::parse)),
        );
        let runtime = fields.or("runtime", None, rules::nullable(rules::text));
        let tenant = fields.or("tenant", None, rules::nullable(rules::id(Tenant::parse)));
        let reuse = fields.or("reuse", false, rules::boolean);
        let attach = fields.or("attach", false, rules::boolean);
        let labels = fields.or("labels", None, rules::nullable(rules::labels));
        let ttl = fields.or("ttl_seconds", None, rules::nullable(ttl_seconds));
        Some(Self(Open {
            id: id?,
            runtime: runtime?.filter(|alias| !alias.is_empty()),
            tenant: tenant?,
            reuse: reuse?,
            attach: attach?,
            labels: labels?.unwrap_or_default(),
            ttl: ttl?.map(Duration::from_secs),
        }))
    }
}

fn ttl_seconds(value: Value) -> Ruled<u64> {
    rules::between(1, TTL_SECONDS_MAX)(value)
}

/// `POST /sessions`
pub(super) async fn open(State(app): State<App>, _: Service, Json(ask): Json<Create>) -> Answer {
    let opened = app.sessions.open(ask.0).await?;
    Ok(answer::json(&api::SessionCreated {
        session: info(opened.session, None),
        token: opened.token,
    }))
}

/// `?usage=`
pub(super) struct WithUsage(bool);

impl Decode for WithUsage {
    fn decode(fields: &mut Fields) -> Option<Self> {
        fields.or("usage", false, rules::boolean).map(Self)
    }
}

/// `?usage=` and any number of `?label=`
pub(super) struct Listing {
    usage: bool,
    labels: Vec<(String, Option<String>)>,
}

impl Decode for Listing {
    fn decode(fields: &mut Fields) -> Option<Self> {
        let labels = fields.each("label", rules::label_filter);
        let usage = fields.or("usage", false, rules::boolean);
        Some(Self {
            usage: usage?,
            labels: labels?,
        })
    }
}

impl Listing {
    /// Whether a session has every label that was asked for.
    fn wants(&self, view: &View) -> bool {
        self.labels.iter().all(|(name, wanted)| {
            let found = view.labels.get(name);
            found.is_some_and(|found| wanted.as_ref().is_none_or(|wanted| wanted == found))
        })
    }
}

/// `GET /sessions`
pub(super) async fn list(
    State(app): State<App>,
    _: Service,
    Query(listing): Query<Listing>,
) -> Answer {
    let mut views = app.sessions.list();
    views.retain(|view| listing.wants(view));
    let mut usage = vec![None; views.len()];
    if listing.usage {
        let ids: Vec<SessionId> = views.iter().map(|view| view.id.clone()).collect();
        usage = app.sessions.usage(&ids).await;
        usage.resize(views.len(), None);
        // Sampling takes a while; what has gone meanwhile is not listed, and what changed is shown as it is now.
        let now = app.sessions.list().into_iter();
        let mut now: HashMap<SessionId, View> = now.map(|view| (view.id.clone(), view)).collect();
        let rows = views
            .into_iter()
            .zip(usage)
            .filter_map(|(view, usage)| Some((now.remove(&view.id)?, usage)));
        (views, usage) = rows.unzip();
    }
    let service = app.sessions.service();
    Ok(answer::json(&api::SessionList {
        sessions: views
            .into_iter()
            .zip(usage)
            .map(|(view, usage)| info(view, usage))
            .collect(),
        limit: service.max_sessions,
        open_limit: service.max_open_sessions,
        tenant_limit: service.max_sessions_per_tenant,
    }))
}

/// `GET /sessions/{session_id}`
pub(super) async fn show(
    State(app): State<App>,
    OfSession(id): OfSession,
    Query(with): Query<WithUsage>,
) -> Answer {
    let mut usage = None;
    if with.0 {
        usage = app
            .sessions
            .usage(std::slice::from_ref(&id))
            .await
            .pop()
            .flatten();
    }
    let view = app.sessions.get(&id).ok_or(UseError::NotFound(id))?;
    let spec = view.spec.clone();
    let mut shown = info(view, usage);
    shown.in_force = spec.map(|spec| in_force(&spec, &app.sessions.service()));
    Ok(answer::json(&shown))
}

/// `POST /sessions/{session_id}/hibernate`
pub(super) async fn hibernate(State(app): State<App>, OfSession(id): OfSession) -> Answer {
    app.sessions.hibernate(&id).await?;
    let view = app.sessions.get(&id).ok_or(UseError::NotFound(id))?;
    Ok(answer::json(&info(view, None)))
}

/// Body of `POST /sessions/{session_id}/renew`, checked.
pub(super) struct Renew(Option<Duration>);

impl Decode for Renew {
    fn decode(fields: &mut Fields) -> Option<Self> {
        let ttl = fields.required("ttl_seconds", rules::nullable(ttl_seconds));
        ttl.map(|ttl| Self(ttl.map(Duration::from_secs)))
    }
}

/// `POST /sessions/{session_id}/renew`
pub(super) async fn renew(
    State(app): State<App>,
    OfSession(id): OfSession,
    _: Service,
    Json(ask): Json<Renew>,
) -> Answer {
    app.sessions.renew(&id, ask.0).await?;
    let view = app.sessions.get(&id).ok_or(UseError::NotFound(id))?;
    Ok(answer::json(&info(view, None)))
}

/// `?purge=`
pub(super) struct WithPurge(bool);

impl Decode for WithPurge {
    fn decode(fields: &mut Fields) -> Option<Self> {
        fields.or("purge", false, rules::boolean).map(Self)
    }
}

/// `DELETE /sessions/{session_id}`
pub(super) async fn close(
    State(app): State<App>,
    OfSession(id): OfSession,
    Query(with): Query<WithPurge>,
) -> Answer {
    app.sessions.delete(&id, with.0).await?;
    Ok(answer::nothing())
}

/// `?after=` and `?open=`
pub(super) struct After {
    number: u64,
    open: bool,
}

impl Decode for After {
    fn decode(fields: &mut Fields) -> Option<Self> {
        let number = fields.or("after", 0, rules::at_least(0));
        let open = fields.or("open", false, rules::boolean);
        Some(Self {
            number: number?,
            open: open?,
        })
    }
}

/// `GET /sessions/{session_id}/events`
pub(super) async fn events(
    State(app): State<App>,
    OfSession(id): OfSession,
    Query(after): Query<After>,
) -> Answer {
    let (mut events, latest_seq) = app.sessions.events(&id, after.number).await?;
    if after.open {
        let view = app.sessions.get(&id).ok_or(UseError::NotFound(id))?;
        events.insert(0, view.opening());
    }
    Ok(answer::json(&api::SessionEvents {
        events: events.into_iter().map(event).collect(),
        latest_seq,
    }))
}

fn info(view: View, usage: Option<UsageView>) -> api::SessionInfo {
    api::SessionInfo {
        session_id: view.id.to_string(),
        runtime: view.runtime,
        tenant: view.tenant.map(|tenant| tenant.to_string()),
        alive: view.alive,
        state: if view.hibernated {
            api::SessionState::Hibernated
        } else {
            api::SessionState::Running
        },
        created_at: view.created.as_secs_f64(),
        last_activity: view.last_activity.as_secs_f64(),
        idle_seconds: view.idle.as_secs_f64(),
        usage: usage.map(|sample| api::SessionUsage {
            memory_bytes: sample.usage.memory_bytes,
            memory_limit_bytes: sample.usage.memory_limit_bytes,
            cpu_percent: sample.cpu_percent,
            pids: sample.usage.pids,
            disk_bytes: sample.usage.disk_bytes,
            disk_files: sample.usage.disk_files,
        }),
        enforced: enforced(view.enforced),
        labels: view.labels,
        expires_at: view.expires.map(|expires| expires.as_secs_f64()),
        in_force: None,
    }
}

/// What a sandbox was made with, and what the service gives each of its runs.
fn in_force(spec: &SandboxSpec, service: &Settings) -> api::InForce {
    let value = |asked: Option<Asked<u64>>| asked.map(|asked| asked.value);
    let memory_bytes = value(spec.memory_bytes);
    api::InForce {
        environment: spec.env.clone(),
        network: spec.network.name().to_owned(),
        user: spec.user,
        limits: api::LimitsInForce {
            memory_bytes,
            memory_swap_bytes: value(spec.memory_swap_bytes).or(memory_bytes),
            cpus: spec.cpus.map(|asked| asked.value),
            cpu_shares: value(spec.cpu_shares),
            pids: value(spec.pids),
            disk_bytes: value(spec.disk_bytes),
            inodes: value(spec.disk_files),
            tmpfs_bytes: spec.tmpfs_bytes,
            output_bytes: Some(RUN_OUTPUT_BYTES_MAX),
            run_seconds: Some(service.execute_timeout),
        },
    }
}

fn enforced(enforced: Enforced) -> std::collections::BTreeMap<String, api::Enforcement> {
    let rows = enforced.into_iter().map(|(ceiling, enforcement)| {
        let (enforced, reason) = match enforcement {
            Enforcement::Enforced(reason) => (true, reason),
            Enforcement::Unenforced(reason) => (false, reason),
        };
        let row = api::Enforcement { enforced, reason };
        (ceiling.name().to_owned(), row)
    });
    rows.collect()
}

fn event(event: Event) -> api::SessionEvent {
    api::SessionEvent {
        seq: event.seq,
        at: event.at.as_secs_f64(),
        op: event.op.into_owned(),
        target: event.target,
        ok: event.ok,
        detail: event.detail,
        duration_ms: (event.took.as_secs_f64() * 10_000.0).round() / 10.0,
    }
}
