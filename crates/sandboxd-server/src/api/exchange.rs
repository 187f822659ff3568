//! One request and its answer, around whatever the route does: request id, log line, panics, refusals with unread
//! bodies, and the methods that no route has.

use super::Route;
use super::answer::{self};
use super::body::{Held, Shared};
use super::error::{ERROR_CODE_HEADER, Failure};
use crate::limits::{HEAD_BYTES_MAX, REQUEST_ID_CHARS_MAX};
use crate::telemetry;
use crate::telemetry::metrics::Metrics;
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use futures::FutureExt as _;
use hyper::body::Incoming;
use std::panic::AssertUnwindSafe;
use std::time::Instant;
use tower::ServiceExt as _;
use tracing::Instrument as _;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Answers one request.
pub(super) async fn exchange(
    router: Router,
    metrics: &Metrics,
    request: Request<Incoming>,
) -> Response {
    let started = Instant::now();
    let id = request_id(request.headers());
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let span = telemetry::request_span(id.to_str().unwrap_or_default());
    let mut response = answered(router, metrics, request)
        .instrument(span.clone())
        .await;
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, id);
    // Nothing here is more than its type says: what a guest wrote is no page, whatever it looks like.
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    let status = response.status().as_u16();
    let took = started.elapsed();
    telemetry::answered(&span, method.as_str(), &path, status, took);
    let route = response.extensions_mut().remove::<Route>();
    let route = route.map_or("none", |route| route.0);
    metrics.answered(name_of(&method), route, status, took);
    let code = response.headers().get(ERROR_CODE_HEADER);
    if let Some(code) = code.and_then(|code| code.to_str().ok()) {
        metrics.refused(code.to_owned());
    }
    response
}

/// A method's name, for the figures; of those that no route has, one name stands for all.
fn name_of(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        _ => "other",
    }
}

async fn answered(router: Router, metrics: &Metrics, request: Request<Incoming>) -> Response {
    if head_bytes(&request) > HEAD_BYTES_MAX {
        return Failure::HeadTooLarge(HEAD_BYTES_MAX).into_response();
    }
    let waits_for_continue = request.headers().contains_key(header::EXPECT);
    let (mut parts, body) = request.into_parts();
    // Routes answer GET without being asked for HEAD, which this service does not have.
    if parts.method == Method::HEAD {
        parts.method = Method::OPTIONS;
    }
    let body = Shared::new(body);
    let held = Held::default();
    parts.extensions.insert(held.clone());
    let request = Request::from_parts(parts, Body::new(body.clone()));
    let answered = AssertUnwindSafe(router.oneshot(request))
        .catch_unwind()
        .await;
    // The handler is done with the body.
    drop(held);
    let response = match answered {
        Ok(Ok(response)) => response,
        Ok(Err(never)) => match never {},
        Err(panic) => {
            telemetry::panicked(panic.as_ref());
            metrics.panicked();
            answer::internal_error()
        }
    };
    let response = match response.status() {
        StatusCode::METHOD_NOT_ALLOWED => method_not_allowed(response.headers()),
        _ => response,
    };
    let refused = response.status().is_client_error() || response.status().is_server_error();
    // A body that did not come in time is not waited for once more.
    if refused && response.status() != StatusCode::REQUEST_TIMEOUT {
        body.drain(waits_for_continue).await;
    }
    response
}

/// Bytes of a request's target and headers. The connection's own bound is on its buffer, which one read may overshoot.
fn head_bytes(request: &Request<Incoming>) -> usize {
    let target = request
        .uri()
        .path_and_query()
        .map_or(0, |target| target.as_str().len());
    let headers = request.headers().iter();
    headers.fold(target, |sum, (name, value)| {
        sum + name.as_str().len() + value.len() + 4
    })
}

/// 405 with the methods that the route has.
fn method_not_allowed(headers: &HeaderMap) -> Response {
    let allowed = headers
        .get(header::ALLOW)
        .and_then(|value| value.to_str().ok());
    let mut allowed: Vec<&str> = allowed
        .unwrap_or_default()
        .split(',')
        .map(str::trim)
        .filter(|method| !method.is_empty() && *method != "HEAD")
        .collect();
    allowed.sort_unstable();
    let mut response = Failure::Method.into_response();
    if let Ok(value) = HeaderValue::from_str(&allowed.join(", ")) {
        response.headers_mut().insert(header::ALLOW, value);
    }
    response
}

/// The client's id for the request where it has a harmless one, else a new one.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    let sent = headers.get(&REQUEST_ID).filter(|value| {
        let bytes = value.as_bytes();
        (1..=REQUEST_ID_CHARS_MAX).contains(&bytes.len())
            && bytes.iter().all(|byte| byte.is_ascii_graphic())
    });
    sent.cloned().unwrap_or_else(|| {
        let text = crate::id::random_hex(8);
        HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("-"))
    })
}

#[cfg(test)]
mod tests {
    use super::super::listener::accept;
    use super::*;
    use crate::telemetry::metrics::SessionStates;
    use axum::routing::get;
    use std::sync::Arc;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio_util::sync::CancellationToken;
    use tokio_util::task::TaskTracker;

    #[tokio::test]
    async fn a_panic_is_a_500_and_a_figure_and_the_same_connection_goes_on() {
        let router = Router::new()
            .route(
                "/bad",
                get(async || -> Response { panic!("a secret word") }),
            )
            .route("/good", get(async || "fine"));
        let metrics = Arc::new(Metrics::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (stop, connections) = (CancellationToken::new(), TaskTracker::new());
        let serving = tokio::spawn(accept(
            listener,
            router,
            metrics.clone(),
            connections.clone(),
            stop.clone(),
        ));
        let mut stream = TcpStream::connect(addr).await.unwrap();
        let ask = |path: &str, last: &str| format!("GET {path} HTTP/1.1\r\nHost: x\r\n{last}\r\n");
        let asked = ask("/bad", "") + &ask("/bad", "") + &ask("/good", "Connection: close\r\n");
        stream.write_all(asked.as_bytes()).await.unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).await.unwrap();
        let statuses: Vec<&str> = said
            .split("HTTP/1.1 ")
            .skip(1)
            .map(|answer| &answer[..3])
            .collect();
        assert_eq!(statuses, ["500", "500", "200"], "{said}");
        assert!(said.ends_with("fine") && !said.contains("secret"), "{said}");
        let figures = metrics.render(SessionStates::default());
        assert!(figures.contains("sandboxd_panics_total 2"), "{figures}");
        stop.cancel();
        serving.await.unwrap();
        connections.wait().await;
    }
}
