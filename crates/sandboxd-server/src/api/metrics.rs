//! Figures for a scraper, in Prometheus' text format: with the service's token, or without one where the operator says so.

use super::App;
use super::answer::{self, Answer};
use super::error::Failure;
use super::request::Service;
use crate::telemetry::metrics::CONTENT_TYPE;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;

/// A caller who may read the figures.
#[derive(Debug)]
pub(super) struct Reader;

impl FromRequestParts<App> for Reader {
    type Rejection = Failure;
    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Failure> {
        if !app.sessions.service().metrics_public {
            Service::from_request_parts(parts, app).await?;
        }
        Ok(Self)
    }
}

/// `GET /metrics`
pub(super) async fn metrics(State(app): State<App>, _: Reader) -> Answer {
    let (metrics, states) = (app.sessions.metrics(), app.sessions.states());
    metrics.workspaces_hold(app.sessions.stored_bytes().await);
    metrics.pool_holds(app.sessions.parked());
    let rendered = tokio::task::spawn_blocking(move || metrics.render(states)).await;
    Ok(match rendered {
        Ok(text) => answer::bytes(text.into(), CONTENT_TYPE),
        Err(error) => {
            tracing::error!(%error, "the figures could not be written");
            answer::internal_error()
        }
    })
}
