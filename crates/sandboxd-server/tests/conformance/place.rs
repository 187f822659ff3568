//! Where the cases run: sessions on one backend.

use bollard::query_parameters::{InspectContainerOptions, ListContainersOptions};
use sandboxd_server::auth::session_tokens::SessionTokens;
use sandboxd_server::backends::Backend;
use sandboxd_server::backends::docker::Docker;
use sandboxd_server::backends::in_memory::InMemory;
use sandboxd_server::backends::namespaces::{Namespaces, Programs};
use sandboxd_server::clock::SystemClock;
use sandboxd_server::config::{EngineAddress, Flags, Layers, Service};
use sandboxd_server::id::SessionId;
use sandboxd_server::runtimes::{Runtime, Source};
use sandboxd_server::sessions::{Open, Opened, Parts, RunAsk, RunDone, Sessions, UseError};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// A user that no host has.
const NOBODY: u32 = 54_321;
/// Says to a test that it has been started again as an ordinary user.
const AGAIN: &str = "--include-ignored";

/// The backends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    InMemory,
    Namespaces,
    Docker,
}

/// The image of sandboxes on a container engine; the engine of the tests has it (`cargo xtask test`, `cargo xtask engine`).
const IMAGE: &str = "debian-with-git:1";

/// Sessions on one backend.
pub(crate) struct Place {
    pub(crate) kind: Kind,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) backend: Arc<dyn Backend>,
    double: Option<Arc<InMemory>>,
    engine_socket: PathBuf,
    home: TempDir,
}

impl Place {
    /// With stored workspaces.
    pub(crate) async fn open(kind: Kind) -> Self {
        Self::open_with(kind, |_| {}).await
    }

    pub(crate) async fn open_with(kind: Kind, change: impl FnOnce(&mut Service)) -> Self {
        let home = tempfile::tempdir().unwrap();
        let layers = Layers {
            flags: Flags {
                state_dir: Some(home.path().join("state")),
                ..Flags::default()
            },
            env: std::env::vars_os()
                .filter(|(name, _)| name == "DOCKER_HOST")
                .collect(),
            file: None,
            root: rustix::process::geteuid().is_root(),
        };
        let config = layers.read().unwrap().0;
        let (mut service, engine) = (config.service, config.engine);
        if kind == Kind::Docker {
            let image = Source::Image(IMAGE.to_owned());
            let runtime = Runtime::plain("image", IMAGE, image);
            service.default_runtime = runtime.alias.clone();
            service.runtimes = [(runtime.alias.clone(), runtime)].into();
        }
        service.workspace_root = Some(home.path().join("workspaces"));
        change(&mut service);
        let double = (kind == Kind::InMemory).then(InMemory::new);
        let backend: Arc<dyn Backend> = match &double {
            Some(double) => double.clone(),
            None => {
                let programs = Programs::embedded().unwrap();
                let state = home.path().join("state");
                match kind {
                    Kind::Docker => Docker::start(&state, programs, &engine).await.unwrap(),
                    _ => Namespaces::start(&state, programs).await.unwrap(),
                }
            }
        };
        let parts = Parts {
            backend: backend.clone(),
            service,
            clock: Arc::new(SystemClock),
            tokens: SessionTokens::new(&[7; 32]),
        };
        let sockets = match engine {
            EngineAddress::Sockets(paths) => paths,
            other => panic!("the tests' engine is reached by a socket, not {other:?}"),
        };
        let engine_socket = sockets.into_iter().find(|path| path.exists());
        Self {
            kind,
            sessions: Sessions::start(parts).await.unwrap(),
            backend,
            double,
            engine_socket: engine_socket.unwrap_or_default(),
            home,
        }
    }

    /// Whether programs are processes here.
    pub(crate) fn has_processes(&self) -> bool {
        self.kind != Kind::InMemory
    }

    pub(crate) fn state_dir(&self) -> PathBuf {
        self.home.path().join("state")
    }

    /// The stored files of a session on the host.
    pub(crate) fn stored(&self, id: &str) -> PathBuf {
        self.home
            .path()
            .join("workspaces")
            .join(id)
            .join("workspace")
    }

    pub(crate) async fn session(&self, id: &str) -> Opened {
        let ask = Open {
            id: Some(sid(id)),
            ..Open::default()
        };
        self.sessions.open(ask).await.unwrap()
    }

    pub(crate) async fn run(&self, id: &str, argv: &[&str]) -> Result<RunDone, UseError> {
        self.sessions.run(&sid(id), ask(argv)).await
    }

    pub(crate) async fn sh(&self, id: &str, script: &str) -> RunDone {
        self.run(id, &["/bin/sh", "-c", script]).await.unwrap()
    }

    /// The stdout of a script that must end well.
    pub(crate) async fn out(&self, id: &str, script: &str) -> String {
        match self.sh(id, script).await {
            RunDone::Finished {
                code: 0, stdout, ..
            } => String::from_utf8(stdout).unwrap(),
            other => panic!("{script}: {}", shown(&other)),
        }
    }

    /// Waits, in real time, until something is so.
    pub(crate) async fn until(&self, what: &str, so: impl Fn(&Self) -> bool) {
        for _ in 0..1_000 {
            if so(self) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("never: {what}");
    }

    pub(crate) async fn put_to_sleep(&self, id: &str) {
        self.sessions.hibernate(&sid(id)).await.unwrap();
        self.until("asleep", |place| place.sessions.is_hibernated(&sid(id)))
            .await;
    }

    /// Kills every sandbox from outside, as an accident would.
    pub(crate) fn kill_sandboxes(&self) {
        if let Some(double) = &self.double {
            double.kill_all();
            return;
        }
        for pid in self.sandbox_processes() {
            let pid = rustix::process::Pid::from_raw(pid).unwrap();
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }

    /// The first processes of all sandboxes of this place: number one of a PID namespace of their own.
    pub(crate) fn sandbox_processes(&self) -> Vec<i32> {
        let mine = rustix::process::getpid().as_raw_nonzero().get();
        let mut parents = std::collections::BTreeMap::new();
        let mut inits = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let name = entry.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else {
                continue;
            };
            // One that has gone meanwhile is none.
            let Ok(status) = std::fs::read_to_string(entry.path().join("status")) else {
                continue;
            };
            let parent = field(&status, "PPid:");
            let parent = parent.first().and_then(|parent| parent.parse().ok());
            parents.insert(pid, parent.unwrap_or(0));
            let numbers = field(&status, "NSpid:");
            let alive = !field(&status, "State:").contains(&"Z");
            if alive && numbers.len() > 1 && numbers.last() == Some(&"1") {
                inits.push(pid);
            }
        }
        let of_engine = match self.kind {
            Kind::Docker => self.container_processes(),
            Kind::InMemory | Kind::Namespaces => Vec::new(),
        };
        let is_ours = |pid: &i32| {
            let mut at = *pid;
            while let Some(parent) = parents.get(&at) {
                if *parent == mine {
                    return true;
                }
                at = *parent;
            }
            of_engine.contains(pid)
        };
        inits.retain(is_ours);
        inits
    }

    /// The first processes of this place's containers, which are the engine's children.
    fn container_processes(&self) -> Vec<i32> {
        let state = std::fs::read_to_string(self.state_dir().join("engine-state")).unwrap();
        let path = self.engine_socket.clone();
        let asked = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(first_processes(&path, &state))
        });
        asked.join().unwrap()
    }

    /// Whether sandboxes show the host's own system files.
    pub(crate) fn shows_the_host(&self) -> bool {
        self.kind == Kind::Namespaces
    }

    /// Ends the sessions and the backend, so that a place leaves nothing for the next one.
    pub(crate) async fn close(self) {
        self.sessions.shutdown().await;
    }
}

/// Whether there may be a container engine: as root there has to be one, and an ordinary user is told what is left out.
#[expect(clippy::print_stderr, reason = "what is left out is said")]
pub(crate) fn has_engine() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("left out: only root has a container engine for the tests");
    }
    is_root
}

/// The first processes of the containers of a state directory.
async fn first_processes(socket: &Path, state: &str) -> Vec<i32> {
    let (path, version) = (socket.to_str().unwrap(), bollard::API_DEFAULT_VERSION);
    let client = bollard::Docker::connect_with_unix(path, 60, version).unwrap();
    let client = client.negotiate_version().await.unwrap();
    let wanted = vec![format!("sandboxd.state={state}")];
    let options = ListContainersOptions {
        filters: Some([("label".to_owned(), wanted)].into()),
        ..ListContainersOptions::default()
    };
    let mut pids = Vec::new();
    for container in client.list_containers(Some(options)).await.unwrap() {
        let looked = client
            .inspect_container(&container.id.unwrap(), None::<InspectContainerOptions>)
            .await;
        // One that has gone meanwhile has no process.
        let pid = looked.ok().and_then(|looked| looked.state?.pid);
        pids.extend(pid.and_then(|pid| i32::try_from(pid).ok()));
    }
    pids
}

/// What the file of a process's status says under this name.
fn field<'a>(status: &'a str, name: &str) -> Vec<&'a str> {
    let line = status.lines().find(|line| line.starts_with(name));
    line.map(|line| line[name.len()..].split_whitespace().collect())
        .unwrap_or_default()
}

/// Runs a case as a user without privileges: here, if this process has none, else in another process of this test.
pub(crate) fn as_ordinary_user<F: Future<Output = ()>>(name: &str, case: impl FnOnce() -> F) {
    if !rustix::process::geteuid().is_root() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(case());
        return;
    }
    let home = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(home.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", AGAIN])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", home.path())
        .env("TMPDIR", home.path())
        .env("RUST_BACKTRACE", "1")
        .current_dir("/")
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap();
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "as user {NOBODY}: {said}");
    assert!(said.contains("1 passed"), "the case did not run: {said}");
}

/// Whether a directory holds nothing but the names in `but`.
pub(crate) fn names_in(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .map(|entries| {
            let names = entries.flatten().map(|entry| entry.file_name());
            names
                .map(|name| name.to_string_lossy().into_owned())
                .collect()
        })
        .unwrap_or_default();
    names.sort();
    names
}

pub(crate) fn sid(id: &str) -> SessionId {
    SessionId::parse(id).unwrap()
}

pub(crate) fn ask(argv: &[&str]) -> RunAsk {
    RunAsk {
        argv: argv.iter().map(|arg| (*arg).to_owned()).collect(),
        env: Vec::new(),
        timeout: None,
        id: None,
    }
}

/// A result, readable.
pub(crate) fn shown(done: &RunDone) -> String {
    match done {
        RunDone::Finished {
            code,
            stdout,
            stderr,
        } => format!(
            "exit {code}, stdout {:?}, stderr {:?}",
            String::from_utf8_lossy(&stdout[..stdout.len().min(2_000)]),
            String::from_utf8_lossy(&stderr[..stderr.len().min(2_000)])
        ),
        RunDone::TimedOut { stdout, stderr } => {
            format!("timed out with {} and {} bytes", stdout.len(), stderr.len())
        }
        RunDone::OutputLimited { stdout, stderr, .. } => {
            format!(
                "too much output, {} and {} bytes",
                stdout.len(),
                stderr.len()
            )
        }
    }
}
