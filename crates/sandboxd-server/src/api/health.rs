//! Whether the service lives, how full it is, and whether it can serve. No token, since probes have none.

use super::App;
use super::answer::{self, Answer};
use super::error::Failure;
use axum::extract::State;
use sandboxd_api::service::{ServiceHealth, ServiceReadiness};

/// `GET /healthz`
pub(super) async fn health(State(app): State<App>) -> Answer {
    Ok(answer::json(&of(&app)))
}

/// `GET /readyz`
pub(super) async fn ready(State(app): State<App>) -> Answer {
    let parts = app.sessions.readiness().await;
    let problems: Vec<String> = parts
        .iter()
        .filter_map(|part| Some(format!("{} {}", part.part, part.problem?)))
        .collect();
    if !problems.is_empty() {
        return Err(Failure::NotReady(problems.join(", ")));
    }
    Ok(answer::json(&ServiceReadiness {
        status: "ready".to_owned(),
        parts: parts.iter().map(|part| part.part.to_owned()).collect(),
    }))
}

/// The health of the service now.
pub(super) fn of(app: &App) -> ServiceHealth {
    let service = app.sessions.service();
    let counts = app.sessions.counts();
    ServiceHealth {
        status: "ok".to_owned(),
        sessions: counts.resident,
        limit: service.max_sessions,
        open_sessions: counts.open,
        open_limit: service.max_open_sessions,
        runtimes: service.runtimes.keys().cloned().collect(),
    }
}
