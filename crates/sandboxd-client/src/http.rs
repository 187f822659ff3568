//! Requests out, answers in: one place that knows connections, deadlines and bounds.

use crate::address::{Address, Token};
use crate::error::{Refusal, RequestError};
use crate::limits::{IDLE_CONNECTION, IDLE_CONNECTIONS_MAX};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::header::{CONTENT_TYPE, HeaderValue, USER_AGENT};
use hyper::{Method, Request};
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::client::legacy::{Client, ResponseFuture};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use sandboxd_api::{ERROR_CODE_HEADER, REQUEST_ID_HEADER, TOKEN_HEADER};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;

/// Sends one request over whatever connection there is.
pub(crate) trait Carry: Send + Sync {
    fn carry(&self, request: Request<Full<Bytes>>) -> ResponseFuture;
}

impl<C: Connect + Clone + Send + Sync + 'static> Carry for Client<C, Full<Bytes>> {
    fn carry(&self, request: Request<Full<Bytes>>) -> ResponseFuture {
        self.request(request)
    }
}

/// Connections by plain TCP.
pub(crate) fn plain() -> Arc<dyn Carry> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    carrier(connector)
}

/// Connections by a connector of the caller's choice.
pub(crate) fn carrier<C: Connect + Clone + Send + Sync + 'static>(connector: C) -> Arc<dyn Carry> {
    let client = Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_CONNECTION)
        .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
        .build::<C, Full<Bytes>>(connector);
    Arc::new(client)
}

/// The way to one service.
pub(crate) struct Http {
    pub(crate) address: Address,
    pub(crate) carrier: Arc<dyn Carry>,
    pub(crate) answer_bytes_max: usize,
}

impl std::fmt::Debug for Http {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// One request.
#[derive(Debug)]
pub(crate) struct Ask<'a> {
    method: Method,
    path: String,
    token: Option<&'a Token>,
    body: Option<(Bytes, &'static str)>,
    within: Duration,
}

impl<'a> Ask<'a> {
    pub(crate) fn new(
        method: Method,
        path: impl Into<String>,
        token: Option<&'a Token>,
        within: Duration,
    ) -> Self {
        Self {
            method,
            path: path.into(),
            token,
            body: None,
            within,
        }
    }

    pub(crate) fn get(path: impl Into<String>, token: Option<&'a Token>, within: Duration) -> Self {
        Self::new(Method::GET, path, token, within)
    }

    pub(crate) fn post(
        path: impl Into<String>,
        token: Option<&'a Token>,
        within: Duration,
    ) -> Self {
        Self::new(Method::POST, path, token, within)
    }

    pub(crate) fn json(mut self, body: &impl Serialize) -> Self {
        let text = serde_json::to_vec(body)
            .expect("the API's types have string keys and always serialise");
        self.body = Some((text.into(), "application/json"));
        self
    }

    pub(crate) fn bytes(mut self, body: Bytes) -> Self {
        self.body = Some((body, "application/octet-stream"));
        self
    }
}

impl Http {
    /// Sends a request and takes in the body of its success.
    pub(crate) async fn send(&self, ask: Ask<'_>) -> Result<Bytes, RequestError> {
        let within = ask.within;
        match tokio::time::timeout(within, self.exchange(ask)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(RequestError::TimedOut(within)),
        }
    }

    /// As [`Http::send`], for a body that is JSON of one type.
    pub(crate) async fn fetch<T: DeserializeOwned>(
        &self,
        ask: Ask<'_>,
        expected: &'static str,
    ) -> Result<T, RequestError> {
        let body = self.send(ask).await?;
        serde_json::from_slice(&body).map_err(|error| RequestError::NotUnderstood {
            expected,
            source: Arc::new(error),
        })
    }

    async fn exchange(&self, ask: Ask<'_>) -> Result<Bytes, RequestError> {
        let request = self
            .request(ask)
            .map_err(|error| RequestError::Unreachable(Arc::new(error)))?;
        let answer = self.carrier.carry(request).await;
        let answer = answer.map_err(|error| RequestError::Unreachable(Arc::new(error)))?;
        let (head, body) = answer.into_parts();
        let collected = Limited::new(body, self.answer_bytes_max).collect().await;
        let body = match collected {
            Ok(collected) => collected.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => {
                return Err(RequestError::AnswerTooLong {
                    limit: self.answer_bytes_max,
                });
            }
            Err(error) => return Err(RequestError::Unreachable(Arc::from(error))),
        };
        if head.status.is_success() {
            return Ok(body);
        }
        let header = |name| {
            let value = head.headers.get(name)?.to_str().ok()?;
            Some(value.to_owned())
        };
        Err(RequestError::Refused(Refusal {
            status: head.status.as_u16(),
            body: String::from_utf8_lossy(&body).into_owned(),
            code: header(ERROR_CODE_HEADER),
            request_id: header(REQUEST_ID_HEADER),
        }))
    }

    fn request(&self, ask: Ask<'_>) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
        let mut request = Request::builder()
            .method(ask.method)
            .uri(self.address.at(&ask.path)?)
            .header(
                USER_AGENT,
                concat!("sandboxd-client/", env!("CARGO_PKG_VERSION")),
            );
        if let Some(token) = ask.token {
            request = request.header(TOKEN_HEADER, token.header());
        }
        let (body, kind) = match ask.body {
            Some((body, kind)) => (body, Some(kind)),
            None => (Bytes::new(), None),
        };
        if let Some(kind) = kind {
            request = request.header(CONTENT_TYPE, HeaderValue::from_static(kind));
        }
        request.body(Full::new(body))
    }
}
