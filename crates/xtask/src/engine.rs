//! A container engine for the tests of that backend, and the images that they start.
//!
//! One that answers is used as it is, with the images that it lacks, which go again at the end. Where none does, Debian's is
//! installed and started, with second OCI runtimes and with its data below the target directory; it ends with us, and
//! nothing of it stays: no data, no interface, no rule.

mod images;
mod runtimes;
mod traces;

use crate::report::{Outcome, run, say, works};
use crate::tools::{self, is_root, target, variable};
use anyhow::{Context, bail};
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use traces::Traces;

/// Where an engine listens that nobody moved.
const USUAL: &str = "unix:///var/run/docker.sock";
/// How long an engine may take until it answers, and until it has ended.
const START_MAX: Duration = Duration::from_secs(60);
const END_MAX: Duration = Duration::from_secs(60);

/// The one of this run, once a step has asked for it.
static ENGINE: Mutex<Option<Engine>> = Mutex::new(None);

/// An engine that answers.
struct Engine {
    /// As `DOCKER_HOST` has it.
    host: String,
    /// What made it, where we did.
    own: Option<Own>,
    /// The images that were not there before.
    made: Vec<String>,
}

/// An engine that we started.
struct Own {
    daemon: Child,
    /// Its sockets and its configuration: a short path, since a socket's is limited.
    place: PathBuf,
    /// Its images and containers.
    data: PathBuf,
    /// What was on this host before it.
    before: Traces,
}

/// The value of `DOCKER_HOST` that leads to an engine with the images of the tests; started at the first call. `None` for
/// an ordinary user, who can make neither.
pub(crate) fn host() -> anyhow::Result<Option<String>> {
    if !is_root() {
        return Ok(None);
    }
    let mut engine = ENGINE.lock().unwrap_or_else(PoisonError::into_inner);
    if engine.is_none() {
        *engine = Some(Engine::find_or_start()?);
    }
    Ok(engine.as_ref().map(|engine| engine.host.clone()))
}

/// Ends what [`host`] began; `None` where it began nothing.
pub(crate) fn end() -> Option<anyhow::Result<Outcome>> {
    let engine = ENGINE.lock().unwrap_or_else(PoisonError::into_inner).take();
    engine.map(|engine| engine.end().map(|()| Outcome::Passed))
}

/// `cargo xtask engine COMMAND...`: runs a command with `DOCKER_HOST` set.
pub(crate) fn with(words: &[String]) -> ExitCode {
    let ran = host().and_then(|host| {
        let (program, arguments) = words.split_first().context("which command?")?;
        let host = host.context("only root can make the images of the tests")?;
        run(Command::new(program)
            .args(arguments)
            .env("DOCKER_HOST", host))
    });
    let ended = end().unwrap_or(Ok(Outcome::Passed)).map(|_| ());
    match ran.and(ended) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

impl Engine {
    fn find_or_start() -> anyhow::Result<Self> {
        let mut engine = match answering() {
            Some(host) => {
                say(&format!("an engine answers at {host}: using it"));
                Self {
                    host,
                    own: None,
                    made: Vec::new(),
                }
            }
            None => Self::start()?,
        };
        if let Err(error) = images::make(&engine.host, &mut engine.made) {
            engine.end()?;
            return Err(error.context("the images of the tests"));
        }
        Ok(engine)
    }

    fn start() -> anyhow::Result<Self> {
        tools::engine_packages()?;
        // Installing starts one where there is a service manager.
        if let Some(host) = answering() {
            let made = Vec::new();
            return Ok(Self {
                host,
                own: None,
                made,
            });
        }
        let place = PathBuf::from(format!("/tmp/sandboxd-engine.{}", std::process::id()));
        let data = target().join("engine");
        for old in [&place, &data] {
            remove(old)?;
        }
        fs::create_dir(&place).with_context(|| place.display().to_string())?;
        let host = format!("unix://{}/docker.sock", place.display());
        let before = Traces::now()?;
        let log = fs::File::create(place.join("log"))?;
        let configuration = match runtimes::configure(&place) {
            Ok(configuration) => configuration,
            Err(error) => {
                remove(&place)?;
                return Err(error.context("OCI runtimes"));
            }
        };
        say(&format!("no engine answers: starting one at {host}"));
        // It gets the signal when this process ends, however it ends.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM", "dockerd", "--host", &host]);
        command.arg("--config-file").arg(configuration);
        command.arg("--data-root").arg(&data);
        command.arg("--exec-root").arg(place.join("exec"));
        command.arg("--pidfile").arg(place.join("pid"));
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let daemon = command.spawn().context("dockerd does not start")?;
        let mut engine = Self {
            host,
            own: Some(Own {
                daemon,
                place,
                data,
                before,
            }),
            made: Vec::new(),
        };
        if let Err(error) = engine.wait() {
            engine.end()?;
            return Err(error);
        }
        Ok(engine)
    }

    /// Waits until the engine that was started answers.
    fn wait(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_MAX;
        while !answers(&self.host) {
            let Some(own) = &mut self.own else { break };
            let ended = own.daemon.try_wait()?;
            if ended.is_some() || Instant::now() > deadline {
                let log = fs::read_to_string(own.place.join("log")).unwrap_or_default();
                let lines: Vec<_> = log.lines().collect();
                let last = lines[lines.len().saturating_sub(10)..].join("\n");
                bail!("dockerd does not answer; the last that it said:\n{last}");
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Removes the images that were made, or the whole engine where it is ours.
    fn end(self) -> anyhow::Result<()> {
        if let Some(own) = self.own {
            return own.end();
        }
        for image in self.made {
            run(docker(&self.host).args(["image", "rm", &image]))?;
        }
        Ok(())
    }
}

impl Own {
    fn end(mut self) -> anyhow::Result<()> {
        let pid = i32::try_from(self.daemon.id()).ok();
        if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
            // It ends its containers before itself.
            rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        }
        let deadline = Instant::now() + END_MAX;
        while self.daemon.try_wait()?.is_none() {
            if Instant::now() > deadline {
                self.daemon.kill()?;
                self.daemon.wait()?;
                bail!("dockerd did not end within {} s", END_MAX.as_secs());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        self.before.restore()?;
        remove(&self.data)?;
        remove(&self.place)
    }
}

fn remove(place: &PathBuf) -> anyhow::Result<()> {
    if place.exists() {
        fs::remove_dir_all(place).with_context(|| place.display().to_string())?;
    }
    Ok(())
}

/// Where an engine answers already.
fn answering() -> Option<String> {
    let said = variable("DOCKER_HOST").and_then(|host| host.into_string().ok());
    let host = said.unwrap_or_else(|| USUAL.to_owned());
    answers(&host).then_some(host)
}

fn answers(host: &str) -> bool {
    works("docker", &["--host", host, "version"])
}

/// Docker's command for this engine.
fn docker(host: &str) -> Command {
    let mut command = Command::new("docker");
    // The classic builder is in every engine, the other needs a plugin of the command's.
    command.args(["--host", host]).env("DOCKER_BUILDKIT", "0");
    command
}
