//! The service without a socket, for a fuzzer. Built with `--cfg fuzzing` only.

use super::request::Peer;
use super::{App, router, routes};
use axum::Router;
use axum::body::Body;
use axum::http::{Request, header};
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;

/// Answers requests in this process.
#[derive(Debug, Clone)]
pub struct Fuzzed {
    router: Router,
    routes: Vec<(String, String)>,
}

impl Fuzzed {
    pub(crate) fn new(app: App) -> Self {
        let methods = ["GET", "POST", "PUT", "DELETE"];
        let paths = routes(&app.sessions.service());
        let routes = paths
            .iter()
            .flat_map(|(path, _)| methods.map(|method| (method.to_owned(), (*path).to_owned())))
            .collect();
        Self {
            router: router(app),
            routes,
        }
    }

    /// Each route with each method.
    pub fn routes(&self) -> &[(String, String)] {
        &self.routes
    }

    /// The status of the answer, whose body has been read to its end; nothing where this is no request.
    pub async fn answer(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        token: Option<&str>,
        body: &[u8],
    ) -> Option<u16> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, content_type);
        if let Some(token) = token {
            request = request.header("x-sandbox-token", token);
        }
        // Which a listener would say.
        let peer = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
        let request = request.extension(Peer(peer));
        let request = request.body(Body::from(body.to_vec())).ok()?;
        let response = match self.router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let status = response.status().as_u16();
        response.into_body().collect().await.ok()?;
        Some(status)
    }
}
