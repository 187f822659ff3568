//! A small language for these tests: a backend in a state directory of its own, sandboxes in it, commands in them.

use sandboxd_protocol::client::{Client, Output};
use sandboxd_protocol::message::{Exit, OutputLimit, Run};
use sandboxd_server::backends::namespaces::{Namespaces, Programs};
use sandboxd_server::backends::{
    Asked, Backend, CreateError, Enforced, KeepLayer, Network, PreparedImage, SandboxSpec, Start,
};
use sandboxd_server::egress::Egress;
use sandboxd_server::id::SandboxId;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// No command of these tests takes longer.
const COMMAND_MAX: Duration = Duration::from_secs(60);

/// Whether this test can be run; as an ordinary user most cannot.
pub(crate) fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("needs root");
    }
    root
}

/// A backend.
pub(crate) struct House {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) state: PathBuf,
    _owned: Option<tempfile::TempDir>,
}

impl House {
    pub(crate) async fn new() -> Self {
        let owned = tempfile::tempdir().expect("a directory");
        let mut house = Self::at(owned.path()).await;
        house._owned = Some(owned);
        house
    }

    pub(crate) async fn at(state: &Path) -> Self {
        Self::reaching(state, Egress::default()).await
    }

    /// Whose sandboxes with a network reach this.
    pub(crate) async fn reaching(state: &Path, egress: Egress) -> Self {
        let programs = Programs::embedded().expect("this build carries the programs");
        let backend = Namespaces::start_reaching(state, programs, egress).await;
        Self::of(backend.expect("the backend starts"), state)
    }

    /// Around a backend that was started otherwise.
    pub(crate) fn of(backend: Arc<dyn Backend>, state: &Path) -> Self {
        Self {
            backend,
            state: state.to_owned(),
            _owned: None,
        }
    }

    pub(crate) async fn rent(&self, spec: &SandboxSpec) -> Rented {
        self.try_rent(&SandboxId::generate(), spec, Start::Fresh)
            .await
            .expect("the sandbox starts")
    }

    pub(crate) async fn try_rent(
        &self,
        id: &SandboxId,
        spec: &SandboxSpec,
        start: Start,
    ) -> Result<Rented, CreateError> {
        let running = self.backend.create(id, spec, start).await?;
        let (client, _) = Client::connect(running.link)
            .await
            .expect("the guest answers");
        Ok(Rented {
            id: id.clone(),
            client,
            enforced: running.enforced,
            backend: Arc::clone(&self.backend),
        })
    }

    /// One that was parked, if there is just this one.
    pub(crate) async fn take(&self, id: &SandboxId, spec: &SandboxSpec) -> Option<Rented> {
        let pool = self.backend.pool().expect("this backend has a pool");
        let taken = pool.take(id, spec).await?;
        Some(Rented {
            id: id.clone(),
            client: taken.client,
            enforced: taken.enforced,
            backend: Arc::clone(&self.backend),
        })
    }

    pub(crate) async fn close(self) {
        self.backend.shutdown().await;
        let left: Vec<_> = std::fs::read_dir(self.state.join("instances"))
            .map(|entries| entries.flatten().collect())
            .unwrap_or_default();
        assert!(left.is_empty(), "left behind: {left:?}");
    }
}

/// A sandbox that runs.
pub(crate) struct Rented {
    pub(crate) id: SandboxId,
    pub(crate) client: Client,
    pub(crate) enforced: Enforced,
    backend: Arc<dyn Backend>,
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Did {
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) exit: Exit,
}

impl Rented {
    /// Runs a shell script.
    pub(crate) async fn sh(&self, script: &str) -> Did {
        self.run(&["/bin/sh", "-c", script]).await
    }

    /// Runs a Python program.
    pub(crate) async fn python(&self, program: &str) -> Did {
        self.run(&["python3", "-c", program]).await
    }

    /// Runs a program.
    pub(crate) async fn run(&self, argv: &[&str]) -> Did {
        let run = Run {
            argv: argv.iter().map(|word| word.as_bytes().to_vec()).collect(),
            env: Vec::new(),
            cwd: None,
            stdin: false,
            timeout_millis: Some(50_000),
            output: OutputLimit::Stop(4 << 20),
        };
        let done = async {
            let (_input, mut events) = self.client.run(run).await.expect("the run begins");
            let (mut out, mut err) = (Vec::new(), Vec::new());
            loop {
                match events.next().await.expect("the link holds") {
                    Some(Output::Stdout(bytes)) => out.extend_from_slice(&bytes),
                    Some(Output::Stderr(bytes)) => err.extend_from_slice(&bytes),
                    Some(Output::Started) => {}
                    Some(Output::NotStarted(why)) => panic!("not started: {why:?}"),
                    Some(Output::Exited(exit)) => {
                        return Did {
                            out: String::from_utf8_lossy(&out).into_owned(),
                            err: String::from_utf8_lossy(&err).into_owned(),
                            exit,
                        };
                    }
                    None => panic!("the run ended without a word"),
                }
            }
        };
        tokio::time::timeout(COMMAND_MAX, done)
            .await
            .expect("the command ends in time")
    }

    /// What a script that succeeds prints, without the last newline.
    pub(crate) async fn says(&self, script: &str) -> String {
        let did = self.sh(script).await;
        assert_eq!(did.exit.code, 0, "{script}: {did:?}");
        did.out.trim_end().to_owned()
    }

    /// Ends it and everything of it.
    pub(crate) async fn end(self) {
        self.backend
            .stop(&self.id, KeepLayer::No)
            .await
            .expect("it stops");
    }

    /// Ends it and keeps its layer.
    pub(crate) async fn sleep(self) {
        self.backend
            .stop(&self.id, KeepLayer::Yes)
            .await
            .expect("it stops");
    }
}

/// The host's own files, and no ceiling that anybody set.
pub(crate) fn host() -> SandboxSpec {
    let default = |value| Asked {
        value,
        explicit: false,
    };
    SandboxSpec {
        image: PreparedImage::Host,
        env: BTreeMap::new(),
        work_dir: "/workspace".to_owned(),
        workspace: None,
        hostname: "sandbox".to_owned(),
        session: None,
        memory_bytes: Some(default(256 << 20)),
        memory_swap_bytes: None,
        cpus: Some(Asked {
            value: 1.0,
            explicit: false,
        }),
        cpu_shares: None,
        pids: Some(default(128)),
        disk_bytes: None,
        disk_files: None,
        tmpfs_bytes: Some(64 << 20),
        network: Network::None,
        oci_runtime: None,
        user: None,
        group: None,
        keep_layer: false,
        allow_unenforced: Vec::new(),
        unmet: Vec::new(),
    }
}

/// A root filesystem with a shell and a few programs of the host's, and the libraries that they need.
pub(crate) fn small_root(at: &Path) {
    let programs = [
        "sh", "ls", "cat", "id", "chown", "rm", "mkdir", "touch", "stat", "sleep", "grep", "sed",
        "mkfifo", "mv", "ln", "chmod",
    ];
    std::fs::create_dir_all(at.join("usr/bin")).expect("a directory");
    for name in programs {
        let found = ["/usr/bin", "/bin"]
            .map(|directory| Path::new(directory).join(name))
            .into_iter()
            .find(|path| path.exists())
            .expect("a usual program");
        std::fs::copy(&found, at.join("usr/bin").join(name)).expect("a copy");
        let libraries = Command::new("ldd").arg(&found).output().expect("ldd");
        for word in String::from_utf8_lossy(&libraries.stdout).split_whitespace() {
            if word.starts_with('/') && !at.join(&word[1..]).exists() {
                let target = at.join(&word[1..]);
                std::fs::create_dir_all(target.parent().expect("a parent")).expect("a directory");
                std::fs::copy(word, target).expect("a library");
            }
        }
    }
    std::os::unix::fs::symlink("usr/bin", at.join("bin")).expect("a link");
    std::fs::create_dir_all(at.join("etc")).expect("a directory");
    std::fs::write(at.join("etc/release"), "small\n").expect("a file");
}

/// Runs a test of this binary again as an ordinary user, where it is root that runs it. Whether the caller is that user.
pub(crate) fn as_ordinary_user(test: &str) -> bool {
    use std::os::unix::process::CommandExt as _;
    if !rustix::process::geteuid().is_root() {
        return true;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(directory.path(), open.clone()).expect("permissions");
    let program = directory.path().join("test");
    std::fs::copy(std::env::current_exe().expect("a path"), &program).expect("a copy");
    std::fs::set_permissions(&program, open).expect("permissions");
    let output = Command::new(&program)
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env("TMPDIR", "/tmp")
        .env_remove("HOME")
        .current_dir("/")
        .uid(65_534)
        .gid(65_534)
        .output()
        .expect("the test starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "as an ordinary user:\n{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    false
}
