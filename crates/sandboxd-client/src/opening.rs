//! How a sandbox opens: once, when it is first used, and for all who wait for it.

use crate::address::{AddressError, Token};
use crate::degrading::DegradingSandbox;
use crate::error::RequestError;
use crate::limits::{DEGRADING_TIMEOUT, OPEN_TIMEOUT, REOPEN_PAUSE, REQUEST_TIMEOUT, SLOW_OPEN};
use crate::sandbox::Sandbox;
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

/// A name or a tenant that no service accepts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{name:?} is no name: a letter or digit, then at most 63 letters, digits, dots, dashes or underscores"
)]
pub struct NameError {
    /// What was given.
    pub name: String,
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

type Watcher = Arc<dyn Fn() + Send + Sync>;

/// What a sandbox is opened with.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) service: Service,
    pub(crate) which: Which,
    pub(crate) runtime: Option<String>,
    pub(crate) tenant: Option<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) open_timeout: Duration,
    pub(crate) request_timeout: Duration,
    /// Whether an open fails where the service does not say its policy.
    policy_required: bool,
    on_wait: Option<Watcher>,
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

/// Settings of a [`Sandbox`]. Building it sends nothing.
#[derive(Debug, Clone)]
#[must_use]
pub struct SandboxBuilder {
    service: Service,
    which: Which,
    runtime: Option<String>,
    tenant: Option<String>,
    env: BTreeMap<String, String>,
    open_timeout: Option<Duration>,
    request_timeout: Option<Duration>,
    on_wait: Watch,
}

/// A watcher, without a face of its own.
#[derive(Clone, Default)]
struct Watch(Option<Watcher>);

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "set" } else { "none" })
    }
}

impl SandboxBuilder {
    pub(crate) fn new(service: Service) -> Self {
        Self {
            service,
            which: Which::New,
            runtime: None,
            tenant: None,
            env: BTreeMap::new(),
            open_timeout: None,
            request_timeout: None,
            on_wait: Watch(None),
        }
    }

    /// The session of this name: the open one if there is one, else a new one over the files that are stored under the
    /// name. Whoever uses the same name shares the files, so a name must not be guessable.
    pub fn name(mut self, name: &str) -> Self {
        self.which = Which::Named(name.to_owned());
        self
    }

    /// A new session of this id; opening fails if the id is in use.
    pub fn new_session(mut self, id: &str) -> Self {
        self.which = Which::NewNamed(id.to_owned());
        self
    }

    /// The session of this id, as it is or from its stored files; opening fails where there is neither.
    pub fn attach(mut self, id: &str) -> Self {
        self.which = Which::Attached(id.to_owned());
        self
    }

    /// The runtime, by its alias; the service's default where none is given.
    pub fn runtime(mut self, alias: &str) -> Self {
        self.runtime = Some(alias.to_owned());
        self
    }

    /// A label under which the session is counted.
    pub fn tenant(mut self, tenant: &str) -> Self {
        self.tenant = Some(tenant.to_owned());
        self
    }

    /// A variable for every run, under the run's own.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    /// How long opening may take, builds of images included; 600 s (60 s for a degrading sandbox), and never less than
    /// the other requests.
    pub fn open_timeout(mut self, timeout: Duration) -> Self {
        self.open_timeout = Some(timeout);
        self
    }

    /// How long a request may take that starts no program; 30 s (60 s for a degrading sandbox).
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = Some(timeout);
        self
    }

    /// Called once if opening takes longer than three seconds.
    pub fn on_wait(mut self, watcher: impl Fn() + Send + Sync + 'static) -> Self {
        self.on_wait = Watch(Some(Arc::new(watcher)));
        self
    }

    /// A sandbox whose failures are errors.
    ///
    /// # Errors
    /// Where the name or the tenant is none.
    pub fn build(self) -> Result<Sandbox, NameError> {
        let plan = self.plan(OPEN_TIMEOUT, REQUEST_TIMEOUT, true)?;
        Ok(Sandbox::new(plan))
    }

    /// A sandbox whose failures are values that say so.
    ///
    /// # Errors
    /// Where the name or the tenant is none.
    pub fn build_degrading(self) -> Result<DegradingSandbox, NameError> {
        let plan = self.plan(DEGRADING_TIMEOUT, DEGRADING_TIMEOUT, false)?;
        Ok(DegradingSandbox::new(Sandbox::new(plan)))
    }

    fn plan(
        self,
        open: Duration,
        request: Duration,
        policy_required: bool,
    ) -> Result<Plan, NameError> {
        let names = [self.which.id(), self.tenant.as_deref()];
        if let Some(name) = names.into_iter().flatten().find(|name| !is_name(name)) {
            return Err(NameError {
                name: name.to_owned(),
            });
        }
        let request_timeout = self.request_timeout.unwrap_or(request);
        Ok(Plan {
            service: self.service,
            which: self.which,
            runtime: self.runtime,
            tenant: self.tenant,
            env: self.env,
            open_timeout: self.open_timeout.unwrap_or(open).max(request_timeout),
            request_timeout,
            policy_required,
            on_wait: self.on_wait.0,
        })
    }
}

/// Whether a service accepts this as an id or a tenant ([`sandboxd_api::NAME_PATTERN`]).
fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    let first = bytes
        .next()
        .is_some_and(|byte| byte.is_ascii_alphanumeric());
    let rest = bytes.all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    first && rest && text.len() <= 64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_pattern() {
        let longest = "a".repeat(64);
        for name in ["a", "0", "conversation-7", "a.b_c", longest.as_str()] {
            assert!(is_name(name), "{name}");
        }
        let longer = "a".repeat(65);
        for no_name in [
            "",
            ".",
            "-a",
            "_a",
            "a/b",
            "a b",
            "a\n",
            "ä",
            "..",
            longer.as_str(),
        ] {
            assert!(!is_name(no_name), "{no_name:?}");
        }
    }

    #[test]
    fn opening_is_never_less_patient_than_the_rest() {
        let service = Service::new("http://localhost:1", "t").expect("a service");
        let builder = service.sandbox().open_timeout(Duration::from_secs(5));
        let plan = builder
            .plan(OPEN_TIMEOUT, REQUEST_TIMEOUT, true)
            .expect("a plan");
        assert_eq!(plan.open_timeout, REQUEST_TIMEOUT);
        let refused = service.sandbox().name("a").tenant("b c").build();
        assert_eq!(refused.expect_err("no tenant").name, "b c");
    }
}
