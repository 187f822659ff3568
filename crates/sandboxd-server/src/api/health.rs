//! Whether the service lives, and how full it is. No token, since probes have none.

use super::App;
use super::answer::{self, Answer};
use axum::extract::State;
use sandboxd_api::service::ServiceHealth;

/// `GET /healthz`
pub(super) async fn health(State(app): State<App>) -> Answer {
    Ok(answer::json(&of(&app)))
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
