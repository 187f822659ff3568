//! The Python service of the same name, with Docker, as its own package starts it.

use super::docker::{Docker, IMAGE};
use crate::bench::http::Connection;
use crate::tools;
use anyhow::bail;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What rows with it are called.
pub(crate) const PYTHON: &str = "Python service 0.2.37 on Docker";

const TOKEN: &str = "token-of-the-bench";
const START_SECONDS_MAX: u64 = 30;
const STOP_SECONDS_MAX: u64 = 60;

/// It, running.
pub(crate) struct PythonService {
    process: Child,
    address: SocketAddr,
    folder: PathBuf,
}

impl PythonService {
    /// Installs and starts it, on this engine.
    pub(crate) fn start(docker: &Docker) -> anyhow::Result<Self> {
        let list = tools::root().join("crates/xtask/src/bench/peers/python.txt");
        let python = tools::python_with("bench", &list)?;
        let folder = crate::bench::place::own_folder("python")?;
        fs::create_dir_all(folder.join("workspaces"))?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let log = fs::File::create(folder.join("log.txt"))?;
        let process = Command::new(python)
            .args(["-m", "pydantic_ai_backends.remote.server"])
            .env("DOCKER_HOST", &docker.host)
            .env("SANDBOXD_HOST", "127.0.0.1")
            .env("SANDBOXD_PORT", address.port().to_string())
            .env("SANDBOXD_TOKEN", TOKEN)
            .env("SANDBOXD_RUNTIMES", format!("bench={IMAGE}"))
            .env("SANDBOXD_WORKSPACE_ROOT", folder.join("workspaces"))
            .env("SANDBOXD_MAX_SESSIONS", "100")
            .env("SANDBOXD_MAX_READ_BYTES", "134217728")
            .env("SANDBOXD_PREWARM", "false")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let mut service = Self {
            process,
            address,
            folder,
        };
        service.wait_for_an_answer()?;
        Ok(service)
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
            if self.process.try_wait()?.is_some() || Instant::now() > deadline {
                let log = fs::read_to_string(self.folder.join("log.txt")).unwrap_or_default();
                let last = log.trim().lines().last().unwrap_or_default();
                bail!("it does not start: {last}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A connection with the service token.
    pub(crate) fn connect(&self) -> anyhow::Result<Connection> {
        Connection::open(self.address, TOKEN)
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for PythonService {
    fn drop(&mut self) {
        crate::bench::processes::end(&mut self.process, Duration::from_secs(STOP_SECONDS_MAX));
        let _ = fs::remove_dir_all(&self.folder);
    }
}
