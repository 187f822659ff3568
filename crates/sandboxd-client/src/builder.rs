//! The settings of a sandbox.

use crate::degrading::DegradingSandbox;
use crate::limits::{DEGRADING_TIMEOUT, OPEN_TIMEOUT, REQUEST_TIMEOUT};
use crate::opening::{Plan, Watcher, Which};
use crate::sandbox::Sandbox;
use crate::service::Service;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A name or a tenant that no service accepts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{name:?} is no name: a letter or digit, then at most 63 letters, digits, dots, dashes or underscores"
)]
pub struct NameError {
    /// What was given.
    pub name: String,
}

/// Settings of a [`Sandbox`]. Building it sends nothing.
#[derive(Debug, Clone)]
#[must_use]
pub struct SandboxBuilder {
    service: Service,
    which: Which,
    runtime: Option<String>,
    tenant: Option<String>,
    labels: BTreeMap<String, String>,
    ttl: Option<Duration>,
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
            labels: BTreeMap::new(),
            ttl: None,
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

    /// A label for finding the session again; it grants nothing. A session that is open already keeps its own.
    pub fn label(mut self, name: &str, value: &str) -> Self {
        self.labels.insert(name.to_owned(), value.to_owned());
        self
    }

    /// How long a new session may last, whatever it does, in whole seconds and at least one; for ever where this is not
    /// given. A session that is open already keeps its own end.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
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
            labels: self.labels,
            ttl: self.ttl,
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
