//! HTTP in, HTTP out: the only room that knows axum and JSON. It converts types and hands on; it decides nothing but
//! what a request says and which words an answer has.
//!
//! - [`listener`]: sockets, and the bounds of a connection.
//! - [`exchange`]: one request and its answer, around whatever its route does.
//! - [`request`], [`body`], [`decode`]: what a handler is given, in the order in which it is checked.
//! - [`error`]: the one table of failures; [`answer`]: everything else that goes out.
//! - one file per resource: [`index`], [`health`], [`metrics`], [`sessions`], [`run`], [`files`], [`shell`], [`edit`] and [`search`] (the
//!   older routes), [`archive`], [`policy`]; and [`text`], which files are text.
//! - [`openapi`]: all of this in words; [`page`]: what a browser is shown.

mod answer;
mod archive;
mod body;
mod decode;
mod edit;
mod error;
mod exchange;
mod files;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod health;
mod index;
pub(crate) mod listener;
mod metrics;
mod openapi;
mod page;
mod policy;
mod request;
mod run;
mod search;
mod sessions;
mod shell;
mod text;

use crate::auth::Guard;
use crate::budget::Budget;
use crate::config::{PolicyChange, Service};
use crate::sessions::Sessions;
use axum::Router;
use axum::middleware::map_response;
use axum::response::Response;
use axum::routing::{MethodRouter, get, post};
use std::sync::{Arc, Mutex};

/// What every handler can reach. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct App {
    /// Who rents what.
    pub(crate) sessions: Arc<Sessions>,
    /// Who calls.
    pub(crate) guard: Guard,
    /// What the bodies of all requests together may take.
    pub(crate) bodies: Budget,
    /// Held while the policy is read, changed and put back; never over an await.
    policy_changes: Arc<Mutex<()>>,
}

impl App {
    pub(crate) fn new(sessions: Arc<Sessions>, guard: Guard) -> Self {
        let bodies = Budget::new(sessions.service().max_bodies_bytes);
        Self {
            sessions,
            guard,
            bodies,
            policy_changes: Arc::default(),
        }
    }

    /// Whether a path has a route.
    fn has_route(&self, path: &str) -> bool {
        routes(&self.sessions.service()).iter().any(|(route, _)| {
            let (route, path) = (route.split('/'), path.split('/'));
            route.clone().count() == path.clone().count()
                && route.zip(path).all(|(part, given)| {
                    part == given || (part.starts_with('{') && !given.is_empty())
                })
        })
    }

    /// Makes a policy change that was found in a file, which `who` names for the log. The error is one line.
    pub(crate) fn change_policy(&self, text: &[u8], who: &str) -> Result<(), String> {
        let change: PolicyChange = policy::parse(text)?;
        policy::apply(self, change, who).map_err(|failure| {
            let (_, _, detail) = failure.row();
            serde_json::to_string(&detail).unwrap_or_default()
        })
    }
}

/// The OpenAPI document of the service, as it is served and kept in `docs/openapi.json`.
#[must_use]
pub fn openapi_document() -> String {
    openapi::document().to_pretty_json().unwrap_or_default() + "\n"
}

/// The route table.
fn routes(service: &Service) -> Vec<(&'static str, MethodRouter<App>)> {
    let mut routes = vec![
        ("/", get(index::index)),
        ("/healthz", get(health::health)),
        ("/readyz", get(health::ready)),
        ("/metrics", get(metrics::metrics)),
        ("/openapi.json", get(openapi::openapi)),
        ("/docs", get(page::docs)),
        ("/redoc", get(page::docs)),
        ("/policy", get(policy::show).put(policy::change)),
        ("/sessions", post(sessions::open).get(sessions::list)),
        (
            "/sessions/{session_id}",
            get(sessions::show).delete(sessions::close),
        ),
        ("/sessions/{session_id}/events", get(sessions::events)),
        (
            "/sessions/{session_id}/hibernate",
            post(sessions::hibernate),
        ),
        ("/sessions/{session_id}/renew", post(sessions::renew)),
        ("/sessions/{session_id}/run", post(run::run)),
        ("/sessions/{session_id}/runs/{run_id}/stop", post(run::stop)),
        ("/sessions/{session_id}/files/read", post(files::read)),
        ("/sessions/{session_id}/files/write", post(files::write)),
        ("/sessions/{session_id}/files/stat", post(files::stat)),
        ("/sessions/{session_id}/files/list", post(files::list)),
        (
            "/sessions/{session_id}/files/realpath",
            post(files::realpath),
        ),
        ("/sessions/{session_id}/files/mkdir", post(files::mkdir)),
        ("/sessions/{session_id}/files/remove", post(files::remove)),
        ("/sessions/{session_id}/exec", post(shell::exec)),
        ("/sessions/{session_id}/read", post(shell::read)),
        ("/sessions/{session_id}/read_bytes", post(shell::read_bytes)),
        ("/sessions/{session_id}/write", post(shell::write)),
        ("/sessions/{session_id}/edit", post(edit::edit)),
        ("/sessions/{session_id}/exists", post(shell::exists)),
        ("/sessions/{session_id}/ls", post(shell::ls)),
        ("/sessions/{session_id}/glob", post(search::glob)),
        ("/sessions/{session_id}/grep", post(search::grep)),
        ("/workspaces/trees", post(archive::trees)),
        ("/workspaces/{session_id}/ls", post(archive::ls)),
        ("/workspaces/{session_id}/read", post(archive::read)),
        (
            "/workspaces/{session_id}/read_bytes",
            post(archive::read_bytes),
        ),
        ("/workspaces/{session_id}/tree", post(archive::tree)),
    ];
    if service.ui_enabled {
        routes.push(("/ui", get(page::ui)));
    }
    routes
}

/// Which route an answer is of, for the figures.
#[derive(Debug, Clone, Copy)]
struct Route(&'static str);

fn named(path: &'static str, mut response: Response) -> Response {
    response.extensions_mut().insert(Route(path));
    response
}

/// All routes with their handlers.
pub(crate) fn router(app: App) -> Router {
    let mut router = Router::new();
    for (path, methods) in routes(&app.sessions.service()) {
        let named = map_response(move |response: Response| async move { named(path, response) });
        router = router.route(path, methods.layer(named));
    }
    router.fallback(request::no_route).with_state(app)
}
