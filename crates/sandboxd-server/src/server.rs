//! The parts put together: from a configuration and a backend to a service that answers, and down again.

use crate::api::{self, App};
use crate::auth::{Guard, make_service_token};
use crate::backends::Backend;
use crate::clock::{Clock, SystemClock};
use crate::config::{Config, TokenSource};
use crate::limits::{
    POLICY_FILE_BYTES_MAX, SERVICE_TOKEN_BYTES_MAX, SHUTDOWN_DRAIN_SECONDS, SHUTDOWN_SECONDS_MAX,
};
use crate::sessions::{self, Sessions};
use crate::store::{self, Served, Store, StoreError};
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The file in the state directory that holds a made service token.
const TOKEN_FILE: &str = "token";

/// Why the service does not start. Each is one line.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The state directory cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The made token's file holds no token.
    #[error("the token file {0} holds no token: remove it to have a new one made")]
    Token(PathBuf),
    /// The sessions' room does not open.
    #[error(transparent)]
    Sessions(#[from] sessions::StartError),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {cause}")]
    Listen {
        /// Which address.
        address: SocketAddr,
        /// Why.
        cause: io::Error,
    },
}

/// A service that listens; it answers once it runs.
pub struct Server {
    listener: TcpListener,
    local_addr: SocketAddr,
    app: App,
    sessions: Arc<Sessions>,
    backend: Arc<dyn Backend>,
    policy_overrides: Option<PathBuf>,
    drain: Duration,
    token_file: Option<PathBuf>,
    /// Holds the state directory for as long as the service lives.
    _store: Store,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("local_addr", &self.local_addr)
            .finish_non_exhaustive()
    }
}

#[cfg(fuzzing)]
pub use crate::api::fuzzing::Fuzzed;

#[cfg(fuzzing)]
impl Server {
    /// The routes of this service, without its socket.
    #[must_use]
    pub fn fuzzed(&self) -> Fuzzed {
        Fuzzed::new(self.app.clone())
    }
}

impl Server {
    /// Takes the state directory, finds or makes the token, listens, and opens the sessions' room.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left behind but the state directory.
    pub async fn start(config: Config, backend: Arc<dyn Backend>) -> Result<Self, StartError> {
        Self::start_with_clock(config, backend, Arc::new(SystemClock)).await
    }

    /// As [`Server::start`], by another clock (tests).
    ///
    /// # Errors
    /// As [`Server::start`].
    pub async fn start_with_clock(
        config: Config,
        backend: Arc<dyn Backend>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StartError> {
        let store = Store::open(&config.state_dir)?;
        Self::start_in(store, config, backend, clock).await
    }

    /// As [`Server::start`], in a state directory that is held already, so that a second daemon is refused before its backend
    /// does anything.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub async fn start_in(
        store: Store,
        config: Config,
        backend: Arc<dyn Backend>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StartError> {
        let (token, token_file) = token(&config, &store)?;
        let listen = |cause| StartError::Listen {
            address: config.listen,
            cause,
        };
        let listener = TcpListener::bind(config.listen).await.map_err(listen)?;
        let local_addr = listener.local_addr().map_err(listen)?;
        let parts = sessions::Parts {
            backend: Arc::clone(&backend),
            service: config.service,
            clock,
            tokens: store.session_tokens(),
        };
        let ledger = store.ledger()?;
        store.say_what_is_served(&Served {
            url: url(local_addr),
            workspace_root: parts.service.workspace_root.clone(),
        })?;
        let sessions = Sessions::start_with(parts, ledger).await?;
        let app = App::new(Arc::clone(&sessions), Guard::new(&token));
        Ok(Self {
            listener,
            local_addr,
            app,
            sessions,
            backend,
            policy_overrides: config.policy_overrides,
            drain: Duration::from_secs(config.drain_timeout),
            token_file,
            _store: store,
        })
    }

    /// The address it listens on; says which port where the configuration left it open.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// The file that holds the service token, where it was made and not configured.
    pub fn token_file(&self) -> Option<&Path> {
        self.token_file.as_deref()
    }

    /// The sessions' room, for whoever watches over the service.
    pub fn sessions(&self) -> Arc<Sessions> {
        Arc::clone(&self.sessions)
    }

    /// Answers until `shutdown` is there, then ends in order: no new connections and no new sessions, `drain_timeout` for
    /// what is under way, the end of every sandbox, the end of the backend. Every step has its bound.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let stop = CancellationToken::new();
        let connections = TaskTracker::new();
        let mut overrides = Overrides::new(self.policy_overrides.clone());
        overrides.apply_if_changed(&self.app).await;
        let accepting = api::listener::accept(
            self.listener,
            api::router(self.app.clone()),
            self.sessions.metrics(),
            connections.clone(),
            stop.clone(),
        );
        let accepting = tokio::spawn(accepting);
        tokio::select! {
            () = shutdown => {}
            () = overrides.follow(&self.app) => {}
        }
        tracing::info!("shutting down");
        stop.cancel();
        if let Err(error) = accepting.await {
            tracing::error!(%error, "accepting connections ended badly");
        }
        let finished = async { tokio::join!(connections.wait(), self.sessions.finish()) };
        let drained = timeout(self.drain, finished).await.is_ok();
        if !drained {
            let busy = self.sessions.operations();
            tracing::warn!(busy, "drain_timeout is over; what is under way is ended");
        }
        let drain = Duration::from_secs(SHUTDOWN_DRAIN_SECONDS);
        let bound = Duration::from_secs(SHUTDOWN_SECONDS_MAX);
        if timeout(bound, self.sessions.shutdown()).await.is_err() {
            tracing::error!("some sandboxes did not end in time; the backend ends them");
        }
        if timeout(drain, self.backend.shutdown()).await.is_err() {
            tracing::error!("the backend did not end in time");
        }
        // Requests whose sandbox has just gone still get to say so.
        if !drained && timeout(drain, connections.wait()).await.is_err() {
            tracing::warn!(left = connections.len(), "connections are cut off");
        }
        tracing::info!("shut down");
    }
}

/// How a command on this host asks a service that listens here.
fn url(listens: SocketAddr) -> String {
    let loopback: IpAddr = match listens.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    format!("http://{}", SocketAddr::new(loopback, listens.port()))
}

/// The token of the service that this configuration makes on its state directory, for a command beside it.
///
/// # Errors
/// [`StartError`], where it was made and cannot be read.
pub fn token_beside(config: &Config) -> Result<String, StartError> {
    match &config.token {
        TokenSource::Given(token) => Ok(token.clone()),
        TokenSource::Made => {
            let token = store::made_token(&config.state_dir.join(TOKEN_FILE))?;
            Ok(token.trim().to_owned())
        }
    }
}

/// The service token, and where it is kept if it was made.
fn token(config: &Config, store: &Store) -> Result<(String, Option<PathBuf>), StartError> {
    match &config.token {
        TokenSource::Given(token) => Ok((token.clone(), None)),
        TokenSource::Made => {
            let file = store.path().join(TOKEN_FILE);
            let token =
                store.secret_text(TOKEN_FILE, SERVICE_TOKEN_BYTES_MAX, make_service_token)?;
            let token = token.trim();
            if token.is_empty() {
                return Err(StartError::Token(file));
            }
            Ok((token.to_owned(), Some(file)))
        }
    }
}

/// A file of policy changes, applied at start and whenever it has changed. A file that cannot be used is said once and
/// changes nothing; one that goes away leaves what it set.
struct Overrides {
    file: Option<PathBuf>,
    /// When the file last changed (seconds and nanoseconds), as it was when it was last read.
    seen: Option<(i64, i64)>,
}

impl Overrides {
    fn new(file: Option<PathBuf>) -> Self {
        Self { file, seen: None }
    }

    /// Looks at the file once per sweep, for ever.
    async fn follow(&mut self, app: &App) {
        loop {
            let interval = app.sessions.service().cleanup_interval.max(1);
            tokio::time::sleep(Duration::from_secs(interval)).await;
            self.apply_if_changed(app).await;
        }
    }

    async fn apply_if_changed(&mut self, app: &App) {
        let Some(file) = &self.file else { return };
        let Ok(metadata) = tokio::fs::metadata(file).await else {
            return;
        };
        let changed = Some((metadata.mtime(), metadata.mtime_nsec()));
        if changed == self.seen {
            return;
        }
        self.seen = changed;
        let file = file.display();
        if metadata.len() > POLICY_FILE_BYTES_MAX {
            tracing::warn!(%file, "the policy file is larger than {POLICY_FILE_BYTES_MAX} bytes");
            return;
        }
        let text = match tokio::fs::read(self.file.as_ref().expect("checked above")).await {
            Ok(text) => text,
            Err(error) => {
                tracing::warn!(%file, %error, "the policy file cannot be read");
                return;
            }
        };
        match app.change_policy(&text, &format!("the file {file}")) {
            Ok(()) => tracing::info!(%file, "the policy file is in force"),
            Err(error) => tracing::warn!(%file, error, "the policy file changes nothing"),
        }
    }
}
