//! The release binary as a service, for as long as a suite runs.

use super::http::Connection;
use anyhow::{Context, bail};
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const TOKEN: &str = "token-of-the-bench";
const START_SECONDS_MAX: u64 = 30;
const STOP_SECONDS_MAX: u64 = 30;

/// A running daemon; dropping it ends it and removes its files.
#[derive(Debug)]
pub(crate) struct Service {
    process: Child,
    address: SocketAddr,
    folder: PathBuf,
    binary: PathBuf,
    settings: Vec<(&'static str, String)>,
    user: Option<u32>,
}

impl Service {
    /// Starts it on a free loopback port, with workspaces kept on disk as in real use.
    pub(crate) fn start(binary: &Path) -> anyhow::Result<Self> {
        Self::start_with(binary, &[("SANDBOXD_MAX_SESSIONS", "1000")])
    }

    /// As [`Service::start`], with these variables.
    pub(crate) fn start_with(
        binary: &Path,
        settings: &[(&'static str, &str)],
    ) -> anyhow::Result<Self> {
        Self::start_prepared(binary, settings, |_| Ok(()))
    }

    /// As [`Service::start_with`], with something done to its state directory before.
    pub(crate) fn start_prepared(
        binary: &Path,
        settings: &[(&'static str, &str)],
        prepare: impl FnOnce(&Path) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let folder = super::place::own_folder("service")?;
        fs::create_dir_all(folder.join("workspaces"))?;
        prepare(&folder.join("state"))?;
        let settings: Vec<_> = settings
            .iter()
            .map(|(n, v)| (*n, (*v).to_owned()))
            .collect();
        Self::begin(binary.to_owned(), folder, settings, None)
    }

    /// As [`Service::start_with`], by a user without any privilege, which only root can do.
    pub(crate) fn start_as(
        binary: &Path,
        settings: &[(&'static str, &str)],
        user: u32,
    ) -> anyhow::Result<Self> {
        let folder = super::place::own_folder("service")?;
        fs::create_dir_all(folder.join("workspaces"))?;
        // The build's own directory may be closed to others.
        let own = folder.join("sandboxd");
        fs::copy(binary, &own).context("the binary")?;
        for path in [&folder, &folder.join("workspaces"), &own] {
            std::os::unix::fs::chown(path, Some(user), Some(user))?;
        }
        let settings = settings
            .iter()
            .map(|(n, v)| (*n, (*v).to_owned()))
            .collect();
        Self::begin(own, folder, settings, Some(user))
    }

    fn begin(
        binary: PathBuf,
        folder: PathBuf,
        settings: Vec<(&'static str, String)>,
        user: Option<u32>,
    ) -> anyhow::Result<Self> {
        let (process, address) = spawn(&binary, &folder, &settings, user)?;
        let mut service = Self {
            process,
            address,
            folder,
            binary,
            settings,
            user,
        };
        service.wait_for_an_answer()?;
        Ok(service)
    }

    /// Ends it, and starts it again on the same state.
    pub(crate) fn restart(&mut self) -> anyhow::Result<()> {
        self.end();
        (self.process, self.address) =
            spawn(&self.binary, &self.folder, &self.settings, self.user)?;
        self.wait_for_an_answer()
    }

    fn wait_for_an_answer(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + Duration::from_secs(START_SECONDS_MAX);
        loop {
            let answered = self
                .connect()
                .and_then(|mut c| c.must("GET", "/healthz", ""));
            if answered.is_ok() {
                return Ok(());
            }
            let ended = self.process.try_wait()?.is_some();
            if ended || Instant::now() > deadline {
                let log = fs::read_to_string(self.folder.join("log.txt")).unwrap_or_default();
                bail!("the service does not start:\n{log}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// A connection with the service token.
    pub(crate) fn connect(&self) -> anyhow::Result<Connection> {
        Connection::open(self.address, TOKEN)
    }

    /// The daemon's process.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }
}

fn spawn(
    binary: &Path,
    folder: &Path,
    settings: &[(&'static str, String)],
    user: Option<u32>,
) -> anyhow::Result<(Child, SocketAddr)> {
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let log = fs::File::create(folder.join("log.txt"))?;
    let mut command = Command::new(binary);
    if let Some(user) = user {
        command.uid(user).gid(user).env("HOME", folder);
        command.env("TMPDIR", folder);
    }
    let process = command
        .args(["serve", "--listen", &address.to_string(), "--state-dir"])
        .arg(folder.join("state"))
        .env("SANDBOXD_TOKEN", TOKEN)
        .env("SANDBOXD_WORKSPACE_ROOT", folder.join("workspaces"))
        .envs(settings.iter().map(|(name, value)| (*name, value)))
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .with_context(|| binary.display().to_string())?;
    Ok((process, address))
}

impl Service {
    fn end(&mut self) {
        super::processes::end(&mut self.process, Duration::from_secs(STOP_SECONDS_MAX));
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.end();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
