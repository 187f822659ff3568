//! Sessions on the docker backend, and the engine beside them.

use bollard::models::{
    ContainerCreateBody, ContainerInspectResponse, HostConfig, Mount, MountType,
};
use bollard::query_parameters::{
    CreateContainerOptions, InspectContainerOptions, RemoveContainerOptions, StartContainerOptions,
};
use sandboxd_server::auth::session_tokens::SessionTokens;
use sandboxd_server::backends::Backend;
use sandboxd_server::backends::docker::Docker;
use sandboxd_server::backends::namespaces::Programs;
use sandboxd_server::clock::SystemClock;
use sandboxd_server::config::{EngineAddress, Flags, Layers, Service};
use sandboxd_server::id::SessionId;
use sandboxd_server::runtimes::{Runtime, Source};
use sandboxd_server::sessions::{
    Ledger, MemoryLedger, Open, OpenError, Opened, Parts, RunAsk, RunDone, Sessions, UseError,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::{JoinHandle, JoinSet};

/// An image with a shell and what goes with it.
pub(crate) const DEBIAN: &str = "debian-with-git:1";
/// An image with one static program, `/only`, and nothing else: no shell, no C library.
pub(crate) const STATIC: &str = "sandboxd-test/static:1";
/// An image with an entry point of its own.
pub(crate) const ENTRYPOINT: &str = "sandboxd-test/entrypoint:1";

/// Whether there may be an engine: as root there has to be one, and an ordinary user is told what is left out.
#[expect(clippy::print_stderr, reason = "what is left out is said")]
pub(crate) fn has_engine() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("left out: only root has a container engine for the tests");
    }
    is_root
}

/// Where the engine of the tests is.
fn engine() -> EngineAddress {
    layers(None).read().unwrap().0.engine
}

/// The socket of the tests' engine.
pub(crate) fn socket() -> PathBuf {
    let EngineAddress::Sockets(paths) = engine() else {
        panic!("the tests' engine is reached by a socket");
    };
    let found = paths.into_iter().find(|path| path.exists());
    found.expect("an engine")
}

fn layers(state_dir: Option<PathBuf>) -> Layers {
    Layers {
        flags: Flags {
            state_dir,
            ..Flags::default()
        },
        env: std::env::vars_os()
            .filter(|(name, _)| name == "DOCKER_HOST")
            .collect(),
        file: None,
        root: true,
    }
}

/// A state directory, workspaces, and records that outlive a service.
pub(crate) struct Home {
    pub(crate) dir: Arc<TempDir>,
    pub(crate) client: bollard::Docker,
    ledger: Arc<MemoryLedger>,
    /// What session ids of this test begin with: containers have names.
    prefix: String,
}

impl Home {
    pub(crate) fn new() -> Self {
        let path = socket();
        let version = bollard::API_DEFAULT_VERSION;
        let text = path.to_str().unwrap();
        let client = bollard::Docker::connect_with_unix(text, 120, version).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let prefix = dir.path().file_name().unwrap().to_str().unwrap();
        let prefix = prefix.trim_start_matches('.').to_owned();
        Self {
            client,
            ledger: Arc::new(MemoryLedger::default()),
            prefix,
            dir: Arc::new(dir),
        }
    }

    /// The same place, with no session on record.
    pub(crate) fn without_records(&self) -> Self {
        Self {
            dir: Arc::clone(&self.dir),
            client: self.client.clone(),
            ledger: Arc::new(MemoryLedger::default()),
            prefix: self.prefix.clone(),
        }
    }

    /// A session id that no other test has.
    pub(crate) fn id(&self, name: &str) -> SessionId {
        SessionId::parse(&format!("{}-{name}", self.prefix)).unwrap()
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    pub(crate) fn workspaces(&self) -> PathBuf {
        self.dir.path().join("workspaces")
    }

    pub(crate) fn stored(&self, id: &SessionId) -> PathBuf {
        self.workspaces().join(id.as_str()).join("workspace")
    }

    pub(crate) async fn client(&self) -> bollard::Docker {
        self.client.clone().negotiate_version().await.unwrap()
    }

    /// A service here, which the caller ends.
    pub(crate) async fn service(&self, change: impl FnOnce(&mut Service)) -> Place {
        self.service_at(&engine(), change).await
    }

    /// The same, with its engine elsewhere.
    pub(crate) async fn service_at(
        &self,
        engine: &EngineAddress,
        change: impl FnOnce(&mut Service),
    ) -> Place {
        let mut service = layers(Some(self.state())).read().unwrap().0.service;
        service.workspace_root = Some(self.workspaces());
        service.prewarm = false;
        allow(&mut service, DEBIAN);
        change(&mut service);
        let programs = Programs::embedded().unwrap();
        let backend = Docker::start(&self.state(), programs, engine)
            .await
            .unwrap();
        let parts = Parts {
            backend: backend.clone(),
            service,
            clock: Arc::new(SystemClock),
            tokens: SessionTokens::new(&[7; 32]),
        };
        let ledger: Arc<dyn Ledger> = self.ledger.clone();
        let sessions = Sessions::start_with(parts, ledger).await.unwrap();
        Place { sessions, backend }
    }

    /// A container as the Python service makes it.
    pub(crate) async fn old_container(&self, id: &SessionId, workspace: Option<&Path>) -> String {
        self.container(&format!("sandboxd-{id}"), &["sleep", "infinity"], workspace)
            .await
    }

    /// A container of somebody's, started.
    pub(crate) async fn container(
        &self,
        name: &str,
        command: &[&str],
        workspace: Option<&Path>,
    ) -> String {
        let mount = workspace.map(|path| Mount {
            source: Some(path.to_str().unwrap().to_owned()),
            target: Some("/workspace".to_owned()),
            typ: Some(MountType::BIND),
            ..Mount::default()
        });
        let body = ContainerCreateBody {
            image: Some(DEBIAN.to_owned()),
            cmd: Some(command.iter().map(|&word| word.to_owned()).collect()),
            working_dir: Some("/workspace".to_owned()),
            host_config: Some(HostConfig {
                init: Some(true),
                network_mode: Some("none".to_owned()),
                security_opt: Some(vec!["no-new-privileges:true".to_owned()]),
                memory: Some(256 << 20),
                memory_swap: Some(256 << 20),
                pids_limit: Some(512),
                mounts: mount.map(|mount| vec![mount]),
                ..HostConfig::default()
            }),
            ..ContainerCreateBody::default()
        };
        let client = self.client().await;
        let options = CreateContainerOptions {
            name: Some(name.to_owned()),
            ..CreateContainerOptions::default()
        };
        let made = client.create_container(Some(options), body).await.unwrap();
        let started = client.start_container(&made.id, None::<StartContainerOptions>);
        started.await.unwrap();
        made.id
    }

    pub(crate) async fn inspect(&self, container: &str) -> Option<ContainerInspectResponse> {
        let client = self.client().await;
        let looked = client.inspect_container(container, None::<InspectContainerOptions>);
        looked.await.ok()
    }

    pub(crate) async fn runs(&self, container: &str) -> bool {
        let looked = self.inspect(container).await;
        let state = looked.and_then(|looked| looked.state);
        state.and_then(|state| state.running) == Some(true)
    }

    pub(crate) async fn remove(&self, container: &str) {
        let options = RemoveContainerOptions {
            force: true,
            v: true,
            ..RemoveContainerOptions::default()
        };
        let client = self.client().await;
        let _ = client.remove_container(container, Some(options)).await;
    }
}

/// Makes this image the only runtime.
pub(crate) fn allow(service: &mut Service, image: &str) {
    let source = Source::Image(image.to_owned());
    let runtime = Runtime::plain("image", image, source);
    service.default_runtime = runtime.alias.clone();
    service.runtimes = [(runtime.alias.clone(), runtime)].into();
}

/// One service.
pub(crate) struct Place {
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) backend: Arc<dyn Backend>,
}

impl Place {
    pub(crate) async fn open(&self, id: &SessionId) -> Result<Opened, OpenError> {
        let ask = Open {
            id: Some(id.clone()),
            ..Open::default()
        };
        self.sessions.open(ask).await
    }

    pub(crate) async fn run(&self, id: &SessionId, argv: &[&str]) -> Result<RunDone, UseError> {
        let ask = RunAsk {
            argv: argv.iter().map(|arg| (*arg).to_owned()).collect(),
            env: Vec::new(),
            timeout: None,
            id: None,
        };
        self.sessions.run(id, ask).await
    }

    /// The stdout of a script that must end well.
    pub(crate) async fn out(&self, id: &SessionId, script: &str) -> String {
        match self.run(id, &["/bin/sh", "-c", script]).await.unwrap() {
            RunDone::Finished {
                code: 0, stdout, ..
            } => String::from_utf8(stdout).unwrap(),
            RunDone::Finished { code, stderr, .. } => {
                panic!("{script}: {code}, {}", String::from_utf8_lossy(&stderr))
            }
            other => panic!("{script}: {other:?}"),
        }
    }

    pub(crate) async fn put_to_sleep(&self, id: &SessionId) {
        self.sessions.hibernate(id).await.unwrap();
        until("asleep", async || self.sessions.is_hibernated(id)).await;
    }

    pub(crate) async fn purge(&self, id: &SessionId) {
        self.sessions.delete(id, true).await.unwrap();
    }

    /// Ends it in order.
    pub(crate) async fn close(self) {
        self.sessions.shutdown().await;
        self.backend.shutdown().await;
    }
}

/// Waits, in real time, until something is so.
pub(crate) async fn until(what: &str, so: impl AsyncFn() -> bool) {
    for _ in 0..600 {
        if so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("never: {what}");
}

/// An engine that can be taken away: what connects is passed on to the real one.
pub(crate) struct Front {
    path: PathBuf,
    passing: Option<JoinHandle<()>>,
}

impl Front {
    pub(crate) fn new(home: &Path) -> Self {
        let mut front = Self {
            path: home.join("engine.sock"),
            passing: None,
        };
        front.come();
        front
    }

    pub(crate) fn come(&mut self) {
        let _ = std::fs::remove_file(&self.path);
        let listener = UnixListener::bind(&self.path).unwrap();
        let real = socket();
        self.passing = Some(tokio::spawn(async move {
            let mut all = JoinSet::new();
            while let Ok((mut near, _)) = listener.accept().await {
                let real = real.clone();
                all.spawn(async move {
                    let mut far = UnixStream::connect(real).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                });
            }
        }));
    }

    /// Everything that it had open ends too.
    pub(crate) async fn go(&mut self) {
        let passing = self.passing.take().unwrap();
        passing.abort();
        let _ = passing.await;
        std::fs::remove_file(&self.path).unwrap();
    }

    pub(crate) fn address(&self) -> EngineAddress {
        EngineAddress::Sockets(vec![self.path.clone()])
    }
}
