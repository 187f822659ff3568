//! One service, and the token for all of it.

use crate::address::{Address, AddressError, Token, encode};
use crate::archive::WorkspaceArchive;
use crate::builder::SandboxBuilder;
use crate::error::RequestError;
use crate::http::{Ask, Carry, Http, carrier, plain};
use crate::limits::{ANSWER_BYTES_MAX, HIBERNATE_TIMEOUT, OPEN_TIMEOUT, REQUEST_TIMEOUT};
use crate::opening::whole_seconds;
use hyper::Method;
use hyper_util::client::legacy::connect::Connect;
use sandboxd_api::policy::{PolicyUpdate, ServicePolicy};
use sandboxd_api::service::{ServiceHealth, ServiceIndex, ServiceReadiness};
use sandboxd_api::sessions::{
    CreateSession, RenewSession, SessionCreated, SessionEvents, SessionInfo, SessionList,
};
use std::sync::Arc;
use std::time::Duration;

/// A sandboxd service, and the service's token. Cheap to clone; clones share connections.
#[derive(Debug, Clone)]
pub struct Service {
    pub(crate) http: Arc<Http>,
    pub(crate) token: Option<Token>,
    timeout: Duration,
}

/// Settings of a [`Service`].
#[must_use]
pub struct ServiceBuilder {
    url: String,
    token: Option<String>,
    carrier: Option<Arc<dyn Carry>>,
    timeout: Duration,
    answer_bytes_max: usize,
}

impl std::fmt::Debug for ServiceBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServiceBuilder")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

impl ServiceBuilder {
    /// The service's token. Without one, only the routes for everybody work.
    pub fn token(mut self, token: &str) -> Self {
        self.token = (!token.is_empty()).then(|| token.to_owned());
        self
    }

    /// How connections are made, in place of plain TCP: with TLS, through a proxy, to a socket in the file system.
    pub fn connector<C: Connect + Clone + Send + Sync + 'static>(mut self, connector: C) -> Self {
        self.carrier = Some(carrier(connector));
        self
    }

    /// How long a request may take that neither opens a session nor starts a program; 30 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The longest answer that is taken in; 128 MiB.
    pub fn answer_bytes_max(mut self, bytes: usize) -> Self {
        self.answer_bytes_max = bytes;
        self
    }

    /// The service.
    ///
    /// # Errors
    /// Where the address or the token cannot be used.
    pub fn build(self) -> Result<Service, AddressError> {
        let address = Address::parse(&self.url)?;
        if address.wants_tls() && self.carrier.is_none() {
            return Err(AddressError::NeedsTls { url: self.url });
        }
        let token = self.token.as_deref().map(Token::new).transpose()?;
        let http = Http {
            address,
            carrier: self.carrier.unwrap_or_else(plain),
            answer_bytes_max: self.answer_bytes_max,
        };
        Ok(Service {
            http: Arc::new(http),
            token,
            timeout: self.timeout,
        })
    }
}

impl Service {
    /// The service at `url` (`http://host:port`), opened by `token`. Nothing is sent yet.
    ///
    /// # Errors
    /// Where the address or the token cannot be used.
    pub fn new(url: &str, token: &str) -> Result<Self, AddressError> {
        Self::builder(url).token(token).build()
    }

    /// The service at `url`, with settings.
    pub fn builder(url: &str) -> ServiceBuilder {
        ServiceBuilder {
            url: url.to_owned(),
            token: None,
            carrier: None,
            timeout: REQUEST_TIMEOUT,
            answer_bytes_max: ANSWER_BYTES_MAX,
        }
    }

    /// A sandbox of this service, that opens when it is first used.
    pub fn sandbox(&self) -> SandboxBuilder {
        SandboxBuilder::new(self.clone())
    }

    /// The stored workspaces of this service.
    #[must_use]
    pub fn archive(&self) -> WorkspaceArchive {
        WorkspaceArchive::new(self.clone())
    }

    /// What the service is and which routes it has. Needs no token.
    ///
    /// # Errors
    /// Where there is no usable answer.
    pub async fn index(&self) -> Result<ServiceIndex, RequestError> {
        self.http
            .fetch(Ask::get("/", None, self.timeout), "an index")
            .await
    }

    /// How many sessions there are, and room for how many. Needs no token.
    ///
    /// # Errors
    /// Where there is no usable answer.
    pub async fn health(&self) -> Result<ServiceHealth, RequestError> {
        let ask = Ask::get("/healthz", None, self.timeout);
        self.http.fetch(ask, "a report of health").await
    }

    /// Whether the service can serve. Needs no token.
    ///
    /// # Errors
    /// Where it cannot (503, with the parts that do not work) or there is no usable answer.
    pub async fn ready(&self) -> Result<ServiceReadiness, RequestError> {
        let ask = Ask::get("/readyz", None, self.timeout);
        self.http.fetch(ask, "a report of readiness").await
    }

    /// The service's figures, in Prometheus' text format.
    ///
    /// # Errors
    /// Where there is no usable answer.
    pub async fn metrics(&self) -> Result<String, RequestError> {
        let text = self.http.send(self.get("/metrics", self.timeout)).await?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// What the service allows.
    ///
    /// # Errors
    /// Where there is no usable answer.
    pub async fn policy(&self) -> Result<ServicePolicy, RequestError> {
        self.policy_within(self.timeout).await
    }

    pub(crate) async fn policy_within(
        &self,
        within: Duration,
    ) -> Result<ServicePolicy, RequestError> {
        self.http
            .fetch(self.get("/policy", within), "a policy")
            .await
    }

    /// Changes what the service allows; fields that are absent stay. Answers the whole policy.
    ///
    /// # Errors
    /// Where the service refuses (then nothing was changed) or there is no usable answer.
    pub async fn update_policy(
        &self,
        update: &PolicyUpdate,
    ) -> Result<ServicePolicy, RequestError> {
        let ask = Ask::new(Method::PUT, "/policy", self.token.as_ref(), self.timeout).json(update);
        self.http.fetch(ask, "a policy").await
    }

    /// The sessions in order of creation, each with a usage sample where `usage` asks for it.
    ///
    /// # Errors
    /// Where there is no usable answer.
    pub async fn sessions(&self, usage: bool) -> Result<SessionList, RequestError> {
        let path = format!("/sessions{}", usage_query(usage));
        self.http
            .fetch(self.get(path, self.timeout), "a list of sessions")
            .await
    }

    /// The sessions that have all of these labels: each a name, and the value it has to have if there is one.
    ///
    /// # Errors
    /// Where there is no usable answer.
    pub async fn sessions_labelled(
        &self,
        labels: &[(&str, Option<&str>)],
        usage: bool,
    ) -> Result<SessionList, RequestError> {
        let mut path = format!("/sessions?usage={usage}");
        for (name, value) in labels {
            let value = value.map(|value| format!("%3D{}", encode(value)));
            path = format!("{path}&label={}{}", encode(name), value.unwrap_or_default());
        }
        self.http
            .fetch(self.get(path, self.timeout), "a list of sessions")
            .await
    }

    /// One session. Neither wakes nor touches it.
    ///
    /// # Errors
    /// Where there is none (404) or no usable answer.
    pub async fn session(&self, id: &str, usage: bool) -> Result<SessionInfo, RequestError> {
        let path = session_path(id, usage_query(usage));
        self.http
            .fetch(self.get(path, self.timeout), "a session")
            .await
    }

    /// What a session did, as far as it is kept, with numbers above `after`.
    ///
    /// # Errors
    /// Where there is no such session (404) or no usable answer.
    pub async fn events(&self, id: &str, after: u64) -> Result<SessionEvents, RequestError> {
        let path = session_path(id, &format!("/events?after={after}"));
        self.http
            .fetch(self.get(path, self.timeout), "a list of events")
            .await
    }

    /// Opens a session by hand, with its own token in the answer. [`Service::sandbox`] does this by itself.
    ///
    /// # Errors
    /// Where the service refuses (400 unknown runtime, 409 in use, 429 full, 502 no sandbox) or there is no usable answer.
    pub async fn open(&self, session: &CreateSession) -> Result<SessionCreated, RequestError> {
        self.open_within(session, OPEN_TIMEOUT).await
    }

    pub(crate) async fn open_within(
        &self,
        session: &CreateSession,
        within: Duration,
    ) -> Result<SessionCreated, RequestError> {
        let ask = Ask::post("/sessions", self.token.as_ref(), within).json(session);
        self.http.fetch(ask, "an opened session").await
    }

    /// Puts a session to sleep, and answers once it sleeps. Its next use wakes it.
    ///
    /// # Errors
    /// Where it cannot sleep now (409, with the reason), there is none (404) or no usable answer.
    pub async fn hibernate(&self, id: &str) -> Result<SessionInfo, RequestError> {
        self.put_to_sleep(id, self.token.as_ref()).await
    }

    pub(crate) async fn put_to_sleep(
        &self,
        id: &str,
        token: Option<&Token>,
    ) -> Result<SessionInfo, RequestError> {
        let path = session_path(id, "/hibernate");
        let ask = Ask::post(path, token, HIBERNATE_TIMEOUT);
        self.http.fetch(ask, "a session").await
    }

    /// Says anew when a session is closed whatever it does: `ttl` from now (in whole seconds, at least one), or never.
    ///
    /// # Errors
    /// Where there is none (404) or no usable answer.
    pub async fn renew(
        &self,
        id: &str,
        ttl: Option<Duration>,
    ) -> Result<SessionInfo, RequestError> {
        let path = session_path(id, "/renew");
        let ttl_seconds = ttl.map(whole_seconds);
        let ask = Ask::post(path, self.token.as_ref(), self.timeout);
        let ask = ask.json(&RenewSession { ttl_seconds });
        self.http.fetch(ask, "a session").await
    }

    /// Closes a session and keeps its stored files.
    ///
    /// # Errors
    /// Where there is no such session (404) or no usable answer.
    pub async fn close(&self, id: &str) -> Result<(), RequestError> {
        self.delete(id, false, self.token.as_ref(), self.timeout)
            .await
    }

    /// Closes a session and deletes its stored files.
    ///
    /// # Errors
    /// Where there is no such session (404) or no usable answer.
    pub async fn purge(&self, id: &str) -> Result<(), RequestError> {
        self.delete(id, true, self.token.as_ref(), self.timeout)
            .await
    }

    pub(crate) async fn delete(
        &self,
        id: &str,
        purge: bool,
        token: Option<&Token>,
        within: Duration,
    ) -> Result<(), RequestError> {
        let path = session_path(id, if purge { "?purge=true" } else { "" });
        let ask = Ask::new(Method::DELETE, path, token, within);
        self.http.send(ask).await.map(drop)
    }

    fn get(&self, path: impl Into<String>, within: Duration) -> Ask<'_> {
        Ask::get(path, self.token.as_ref(), within)
    }
}

/// The path of something that belongs to a session; `rest` is already encoded.
pub(crate) fn session_path(id: &str, rest: &str) -> String {
    format!("/sessions/{}{rest}", encode(id))
}

pub(crate) fn usage_query(usage: bool) -> &'static str {
    if usage { "?usage=true" } else { "" }
}
