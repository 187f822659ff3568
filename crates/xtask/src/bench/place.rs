//! What all suites share: the binary, how much is spent, and peers that are set up once and only where they are needed.

use super::machine::Watch;
use super::peers::docker::Docker;
use super::peers::python::PythonService;
use super::rounds::{Effort, Race, Results};
use crate::tools;
use anyhow::{Context, anyhow, bail};
use std::cell::OnceCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Rounds of a race at most, where nobody says otherwise.
const ROUNDS_MAX: usize = 300;
/// Between two turns.
pub(crate) const PAUSE: Duration = Duration::from_millis(2);

/// Once made, or why not.
type Once<T> = OnceCell<Result<T, String>>;

/// Given to every suite.
pub(crate) struct Bench {
    /// The binary under test.
    pub(crate) binary: PathBuf,
    rounds: Option<usize>,
    root: Once<PathBuf>,
    docker: Once<Docker>,
    /// Of the suite that runs.
    pub(crate) watch: Watch,
}

impl Bench {
    /// With at most so many rounds in each race.
    pub(crate) fn new(binary: PathBuf, rounds: Option<usize>) -> Self {
        Self {
            binary,
            rounds,
            root: OnceCell::new(),
            docker: OnceCell::new(),
            watch: Watch::begin(),
        }
    }

    /// Runs a race for so many seconds at most.
    pub(crate) fn race(&self, race: Race<'_>, seconds: f64) -> anyhow::Result<Results> {
        let effort = Effort {
            rounds_max: self.rounds.unwrap_or(ROUNDS_MAX),
            time_max: Duration::from_secs_f64(seconds),
            pause: PAUSE,
        };
        race.run(effort, &self.watch.ruler)
    }

    /// How often something is repeated that is done so many times where nobody says otherwise.
    pub(crate) fn times(&self, usual: usize) -> usize {
        self.rounds.map_or(usual, |rounds| rounds.min(usual))
    }

    /// A Debian root filesystem, which ours and the peers make their images of.
    pub(crate) fn root(&self) -> anyhow::Result<&Path> {
        once(&self.root, tools::debian_root).map(PathBuf::as_path)
    }

    /// Docker, with the image.
    pub(crate) fn docker(&self) -> anyhow::Result<&Docker> {
        once(&self.docker, Docker::new)
    }

    /// The Python service, started.
    pub(crate) fn python(&self) -> anyhow::Result<PythonService> {
        PythonService::start(self.docker()?)
    }
}

fn once<T>(cell: &Once<T>, make: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<&T> {
    let made = cell.get_or_init(|| make().map_err(|error| format!("{error:#}")));
    made.as_ref().map_err(|why| anyhow!(why.clone()))
}

/// A folder that nobody else has; whoever asks for it removes it.
pub(crate) fn own_folder(name: &str) -> anyhow::Result<PathBuf> {
    /// Several of one name may be there at once.
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("sandboxd-bench-{}-{name}-{number}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    Ok(folder)
}

/// The root filesystem as an image of ours, in the state directory of a service to come.
pub(crate) fn import(binary: &Path, state: &Path, source: &Path, name: &str) -> anyhow::Result<()> {
    let imported = Command::new(binary)
        .args(["image", "import"])
        .arg(source)
        .args(["--name", name, "--state-dir"])
        .arg(state)
        .output()
        .with_context(|| binary.display().to_string())?;
    if !imported.status.success() {
        let said = String::from_utf8_lossy(&imported.stderr).into_owned();
        bail!("image import: {}", said.trim());
    }
    Ok(())
}
