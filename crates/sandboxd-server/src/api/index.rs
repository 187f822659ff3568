//! What this service is and which routes it has.

use super::answer::{self, Answer};
use super::{App, health};
use axum::extract::State;
use sandboxd_api::service::ServiceIndex;

/// `GET /`
pub(super) async fn index(State(app): State<App>) -> Answer {
    let ui = app.sessions.service().ui_enabled;
    let mut endpoints: Vec<String> = super::routes(&app.sessions.service())
        .into_iter()
        .map(|(path, _)| path.to_owned())
        .filter(|path| path != "/")
        .collect();
    endpoints.sort();
    Ok(answer::json(&ServiceIndex {
        service: "sandboxd".to_owned(),
        health: health::of(&app),
        docs_url: "/docs".to_owned(),
        openapi_url: "/openapi.json".to_owned(),
        ui_url: ui.then(|| "/ui".to_owned()),
        endpoints,
    }))
}
