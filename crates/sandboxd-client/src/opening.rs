//! How a sandbox opens: once, when it is first used, and for all who wait for it.

use crate::address::{AddressError, Token};
use crate::error::RequestError;
use crate::limits::{REOPEN_PAUSE, SLOW_OPEN};
use crate::service::Service;
use sandboxd_api::policy::ServicePolicy;
use sandboxd_api::sessions::{CreateSession, SessionCreated};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Why a sandbox did not open. The next use tries again.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Neither a session nor a stored workspace of this id exists any more.
    #[error("there is nothing to attach to: {session_id}")]
    NothingToAttachTo {
        /// The id.
        session_id: String,
    },
    /// The session is open with another runtime.
    #[error("session {session_id} is open with another runtime: {said}")]
    OtherRuntime {
        /// The id.
        session_id: String,
        /// The service's words.
        said: String,
    },
    /// Somebody else was opening it all the time.
    #[error("session {session_id} was still being opened by somebody else after {} s", .waited.as_secs_f64())]
    StillOpening {
        /// The id.
        session_id: String,
        /// How long.
        waited: Duration,
    },
    /// The session opened, but the service does not say what it allows.
    #[error("the session opened, but the service does not say what it allows")]
    NoPolicy(#[source] RequestError),
    /// The session's token cannot be sent.
    #[error("the session's token cannot be used")]
    BadToken(#[source] AddressError),
    /// The runtime that drove the open went away.
    #[error("the open was interrupted")]
    Interrupted,
    /// The request failed.
    #[error(transparent)]
    Request(#[from] RequestError),
}

/// Which session a sandbox is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Which {
    /// A new one; the service names it.
    New,
    /// The one of this name: as it is if it is open, else opened, over its stored files if there are some.
    Named(String),
    /// A new one of this name; refused if it is open.
    NewNamed(String),
    /// The one of this id, which must exist already, if only as stored files.
    Attached(String),
}

impl Which {
    pub(crate) fn id(&self) -> Option<&str> {
        match self {
            Self::New => None,
            Self::Named(id) | Self::NewNamed(id) | Self::Attached(id) => Some(id),
        }
    }
}

/// Told once when an open is slow.
pub(crate) type Watcher = Arc<dyn Fn() + Send + Sync>;

/// What a sandbox is opened with.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) service: Service,
    pub(crate) which: Which,
    pub(crate) runtime: Option<String>,
    pub(crate) tenant: Option<String>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) open_timeout: Duration,
    pub(crate) request_timeout: Duration,
    /// Whether an open fails where the service does not say its policy.
    pub(crate) policy_required: bool,
    pub(crate) on_wait: Option<Watcher>,
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plan")
            .field("which", &self.which)
            .field("runtime", &self.runtime)
            .field("tenant", &self.tenant)
            .finish_non_exhaustive()
    }
}

/// An open session.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) session_id: String,
    pub(crate) token: Token,
    pub(crate) policy: Option<ServicePolicy>,
    /// The longest that the service lets a run take, or the client's own patience where the service does not say.
    pub(crate) execute_timeout: Duration,
    /// The work directory, once somebody asked.
    pub(crate) working_dir: tokio::sync::OnceCell<String>,
}

impl Plan {
    /// Opens the session, waiting where somebody else is opening it.
    pub(crate) async fn open(self) -> Result<Arc<Open>, OpenError> {
        let created = match &self.on_wait {
            None => self.created().await?,
            Some(watcher) => {
                let opening = self.created();
                tokio::pin!(opening);
                match tokio::time::timeout(SLOW_OPEN, &mut opening).await {
                    Ok(created) => created?,
                    Err(_) => {
                        watcher();
                        opening.await?
                    }
                }
            }
        };
        let token = Token::new(&created.token).map_err(OpenError::BadToken)?;
        let policy = self.service.policy_within(self.request_timeout).await;
        let policy = policy.and_then(|policy| match policy.execute_timeout {
            0 => Err(RequestError::NotUnderstood {
                expected: "a policy with a ceiling above zero",
                source: Arc::new(serde::de::Error::custom("execute_timeout is 0")),
            }),
            _ => Ok(policy),
        });
        let policy = match policy {
            Ok(policy) => Some(policy),
            Err(error) if self.policy_required => return Err(OpenError::NoPolicy(error)),
            Err(_) => None,
        };
        let ceiling = policy
            .as_ref()
            .map(|policy| Duration::from_secs(policy.execute_timeout));
        Ok(Arc::new(Open {
            session_id: created.session.session_id,
            token,
            execute_timeout: ceiling.unwrap_or(self.request_timeout),
            policy,
            working_dir: tokio::sync::OnceCell::new(),
        }))
    }

    async fn created(&self) -> Result<SessionCreated, OpenError> {
        let body = CreateSession {
            session_id: self.which.id().map(str::to_owned),
            runtime: self.runtime.clone(),
            tenant: self.tenant.clone(),
            reuse: matches!(self.which, Which::Named(_)),
            attach: matches!(self.which, Which::Attached(_)),
            labels: self.labels.clone(),
            ttl_seconds: self.ttl.map(whole_seconds),
        };
        let started = Instant::now();
        loop {
            let error = match self.service.open_within(&body, self.open_timeout).await {
                Ok(created) => return Ok(created),
                Err(error) => error,
            };
            match (&self.which, error.status()) {
                (Which::Attached(id), Some(404)) => {
                    return Err(OpenError::NothingToAttachTo {
                        session_id: id.clone(),
                    });
                }
                (Which::Named(id), Some(409)) => self.wait_or_give_up(id, error, started).await?,
                _ => return Err(error.into()),
            }
        }
    }

    /// Waits a moment before the next try; no longer where waiting does not help.
    async fn wait_or_give_up(
        &self,
        id: &str,
        error: RequestError,
        started: Instant,
    ) -> Result<(), OpenError> {
        let refusal = match error {
            RequestError::Refused(refusal) => refusal,
            other => return Err(other.into()),
        };
        // Services that give no codes have these words.
        let said = refusal.text();
        let other_runtime = match refusal.code.as_deref() {
            Some(code) => code == "other_runtime",
            None => said.contains("Close it before changing runtime"),
        };
        if other_runtime {
            return Err(OpenError::OtherRuntime {
                session_id: id.to_owned(),
                said,
            });
        }
        let waited = started.elapsed();
        if waited + REOPEN_PAUSE >= self.open_timeout {
            return Err(OpenError::StillOpening {
                session_id: id.to_owned(),
                waited,
            });
        }
        tokio::time::sleep(REOPEN_PAUSE).await;
        Ok(())
    }
}

/// As the service takes a time: whole seconds, at least one.
pub(crate) fn whole_seconds(time: Duration) -> u64 {
    time.as_secs().max(1)
}
