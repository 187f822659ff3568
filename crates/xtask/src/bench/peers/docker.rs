//! Docker: `docker run` and `docker exec`, by its command, as people use it.

use super::spawn::first_output;
use anyhow::{Context, bail};
use std::process::Command;
use std::time::{Duration, Instant};

/// What rows with it are called.
pub(crate) const DOCKER_RUN: &str = "docker run";
/// What rows with it are called.
pub(crate) const DOCKER_EXEC: &str = "docker exec";
/// What rows with it are called.
pub(crate) const DOCKER_START: &str = "docker start, docker exec";
/// The image of the tests that is the Debian root.
pub(crate) const IMAGE: &str = "debian-with-git:1";

/// An engine that answers, with the images of the tests.
pub(crate) struct Docker {
    /// As `DOCKER_HOST` has it.
    pub(crate) host: String,
}

impl Docker {
    /// The one that is here, or one that is started and ends with us.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let host = crate::engine::host()?.context("only root can have one")?;
        Ok(Self { host })
    }

    /// From the command to the output of `/bin/echo hi` in a container of its own.
    pub(crate) fn run(&self) -> anyhow::Result<Duration> {
        const RUN: [&str; 6] = [
            "run",
            "--rm",
            "--memory=512m",
            "--pids-limit=256",
            "--cpus=1",
            "--network=none",
        ];
        let mut command = docker(&self.host, &RUN);
        first_output(command.args([IMAGE, "/bin/echo", "hi"]))
    }

    /// A container that stays.
    pub(crate) fn container(&self) -> anyhow::Result<Container> {
        let name = format!("sandboxd-bench-{}", std::process::id());
        let run = ["run", "--detach", "--network=none", "--name", &name];
        must(docker(&self.host, &run).args([IMAGE, "sleep", "infinity"]))?;
        let host = self.host.clone();
        Ok(Container { host, name })
    }
}

/// A container, until it is dropped.
pub(crate) struct Container {
    host: String,
    name: String,
}

impl Container {
    /// `docker exec` of this, to its end; it has to print so many bytes.
    pub(crate) fn exec(&self, argv: &[&str], output_bytes: usize) -> anyhow::Result<Duration> {
        let exec = ["docker", "--host", &self.host, "exec", &self.name];
        super::spawn::run(&[&exec[..], argv].concat(), output_bytes)
    }
}

impl Container {
    /// Stops it; then from `docker start` to the output of a `docker exec`.
    pub(crate) fn restarted(&self) -> anyhow::Result<Duration> {
        must(&mut docker(
            &self.host,
            &["stop", "--time", "0", &self.name],
        ))?;
        let began = Instant::now();
        must(&mut docker(&self.host, &["start", &self.name]))?;
        self.exec(&["/bin/echo", "hi"], 3)?;
        Ok(began.elapsed())
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // It may be gone, with its engine.
        let _ = docker(&self.host, &["rm", "--force", &self.name]).output();
    }
}

fn docker(host: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("docker");
    command.args(["--host", host]).args(arguments);
    command
}

fn must(command: &mut Command) -> anyhow::Result<()> {
    let output = command.output()?;
    if !output.status.success() {
        bail!("docker: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
