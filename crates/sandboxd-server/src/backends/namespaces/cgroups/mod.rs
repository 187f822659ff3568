//! Ceilings by cgroup, in both generations and in their mixture.
//!
//! [`find`] learns from the kernel's tables where this process may make cgroups; [`Cgroups`] makes one directory per
//! sandbox in each tree that it needs, sets the ceilings before anything runs in them, reads usage, and removes them.
//! On a mixed host the limits are the first generation's, and the second's bare core, which every host of today has,
//! gives what the first lacks: ending a whole group at once, and groups that the guest may make for its runs.

pub(super) mod counters;
pub(super) mod find;

use crate::backends::{Ceiling, Enforced, Enforcement, SandboxSpec, Usage};
use counters::Counters;
use find::{Found, Tree};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Gid, Uid};
use sandboxd_jail::plan::Seat;
use sandboxd_jail::remains;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The period over which a CPU quota is counted, in microseconds.
const CPU_PERIOD_MICROS: u64 = 100_000;
/// The smallest quota that the kernel takes, in microseconds.
const CPU_QUOTA_MICROS_MIN: u64 = 1_000;
/// Groups that one guest may make below its own, one per run.
const LEAVES_MAX: u32 = 1_024;

/// Why a cgroup could not be made or set.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {cause}")]
pub(super) struct CgroupError {
    path: PathBuf,
    cause: io::Error,
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> CgroupError {
    move |cause| CgroupError {
        path: path.to_owned(),
        cause,
    }
}

/// Where this instance makes its cgroups, per ceiling, and why not where it cannot.
#[derive(Debug)]
pub(super) struct Cgroups {
    found: Found,
    instance: String,
}

/// One sandbox's place: what travels with its plan.
#[derive(Debug)]
pub(super) struct Place {
    /// What the plan says.
    pub(super) seat: Seat,
    /// The cgroup2 directory in which it is born.
    pub(super) born_in: Option<OwnedFd>,
    /// The v1 `tasks` files by which it enters.
    pub(super) tasks: Vec<OwnedFd>,
}

impl Cgroups {
    /// Looks at this host. `instance` names the directories of this instance.
    pub(super) fn new(instance: &str, privileged: bool) -> Self {
        Self {
            found: Found::on_this_host(privileged),
            instance: format!("sandboxd-{instance}"),
        }
    }

    /// The directories of this instance, to be removed after its end.
    pub(super) fn directories(&self) -> Vec<PathBuf> {
        self.trees()
            .map(|tree| tree.directory().join(&self.instance))
            .collect()
    }

    /// Makes them.
    pub(super) fn prepare(&mut self) -> Result<(), CgroupError> {
        let directories: Vec<(Tree, PathBuf)> = self
            .trees()
            .map(|tree| (tree.clone(), tree.directory().join(&self.instance)))
            .collect();
        for (tree, directory) in directories {
            make_directory(&directory)?;
            if let Tree::Second { controllers, .. } = tree {
                for controller in controllers {
                    let path = directory.join("cgroup.subtree_control");
                    std::fs::write(&path, format!("+{controller}")).map_err(at(&path))?;
                }
            }
        }
        Ok(())
    }

    fn trees(&self) -> impl Iterator<Item = &Tree> {
        self.found.trees()
    }

    fn directory(&self, tree: &Tree, sandbox: &str) -> PathBuf {
        tree.directory().join(&self.instance).join(sandbox)
    }

    /// What can be enforced here, and why not where it cannot.
    pub(super) fn enforcement(&self) -> Enforced {
        [
            (Ceiling::Memory, &self.found.memory),
            (Ceiling::Pids, &self.found.pids),
            (Ceiling::Cpus, &self.found.cpu),
            (Ceiling::CpuShares, &self.found.cpu),
        ]
        .into_iter()
        .map(|(ceiling, tree)| {
            let enforcement = match tree {
                Ok(tree) if ceiling == Ceiling::Memory && swaps_uncounted(tree) => {
                    let why = "this host swaps, and its memory cgroup does not count swap";
                    Enforcement::Unenforced(why.to_owned())
                }
                Ok(Tree::First { controller, .. }) => {
                    Enforcement::Enforced(format!("cgroup v1 {controller}"))
                }
                Ok(Tree::Second { .. }) => Enforcement::Enforced("cgroup v2".to_owned()),
                Err(why) => Enforcement::Unenforced(why.clone()),
            };
            (ceiling, enforcement)
        })
        .collect()
    }

    /// Makes a sandbox's directories and sets its ceilings. `root` is the host id that is root inside: it may make groups
    /// for runs below the second generation's directory, and nothing else.
    pub(super) fn make(
        &self,
        sandbox: &str,
        spec: &SandboxSpec,
        root: Option<u32>,
    ) -> Result<Place, CgroupError> {
        let mut place = Place {
            seat: Seat {
                v1_tasks: 0,
                born_inside: false,
                leaves: None,
            },
            born_in: None,
            tasks: Vec::new(),
        };
        for tree in self.trees() {
            let directory = self.directory(tree, sandbox);
            make_directory(&directory)?;
            match tree {
                Tree::First { .. } => {
                    place
                        .tasks
                        .push(open(&directory.join("tasks"), OFlags::WRONLY)?);
                    place.seat.v1_tasks += 1;
                }
                Tree::Second { .. } => {
                    if self.found.leaves {
                        hand_over(&directory, root)?;
                        place.seat.leaves = Some(directory.display().to_string());
                    }
                    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
                    place.born_in = Some(open(&directory, flags)?);
                    place.seat.born_inside = true;
                }
            }
        }
        self.limit_memory(sandbox, spec)?;
        self.limit_pids(sandbox, spec)?;
        self.limit_cpu(sandbox, spec)?;
        Ok(place)
    }

    fn limit_memory(&self, sandbox: &str, spec: &SandboxSpec) -> Result<(), CgroupError> {
        let (Ok(tree), Some(memory)) = (&self.found.memory, spec.memory_bytes) else {
            return Ok(());
        };
        let directory = self.directory(tree, sandbox);
        let both = spec
            .memory_swap_bytes
            .map_or(memory.value, |asked| asked.value.max(memory.value));
        match tree {
            Tree::First { .. } => {
                set(&directory, "memory.limit_in_bytes", memory.value)?;
                // Where swap is not counted, this file is missing; then swapping is discouraged at least.
                if !set_if_there(&directory, "memory.memsw.limit_in_bytes", both)? {
                    set_if_there(&directory, "memory.swappiness", 0)?;
                }
            }
            Tree::Second { .. } => {
                set(&directory, "memory.max", memory.value)?;
                set_if_there(&directory, "memory.swap.max", both - memory.value)?;
                // One run that grows too large ends alone, not everything with it.
                set_if_there(&directory, "memory.oom.group", 0)?;
            }
        }
        Ok(())
    }

    fn limit_pids(&self, sandbox: &str, spec: &SandboxSpec) -> Result<(), CgroupError> {
        let (Ok(tree), Some(pids)) = (&self.found.pids, spec.pids) else {
            return Ok(());
        };
        set(&self.directory(tree, sandbox), "pids.max", pids.value)
    }

    fn limit_cpu(&self, sandbox: &str, spec: &SandboxSpec) -> Result<(), CgroupError> {
        let Ok(tree) = &self.found.cpu else {
            return Ok(());
        };
        let directory = self.directory(tree, sandbox);
        if let Some(cpus) = spec.cpus {
            let quota = quota_micros(cpus.value);
            match tree {
                Tree::First { .. } => {
                    set(&directory, "cpu.cfs_period_us", CPU_PERIOD_MICROS)?;
                    set(&directory, "cpu.cfs_quota_us", quota)?;
                }
                Tree::Second { .. } => {
                    let text = format!("{quota} {CPU_PERIOD_MICROS}");
                    let path = directory.join("cpu.max");
                    std::fs::write(&path, text).map_err(at(&path))?;
                }
            }
        }
        if let Some(shares) = spec.cpu_shares {
            match tree {
                Tree::First { .. } => set(&directory, "cpu.shares", shares.value)?,
                Tree::Second { .. } => set(&directory, "cpu.weight", weight(shares.value))?,
            }
        }
        Ok(())
    }

    /// What a sandbox uses.
    pub(super) fn usage(&self, sandbox: &str) -> Usage {
        let mut usage = Usage::default();
        if let Ok(tree) = &self.found.memory {
            let directory = self.directory(tree, sandbox);
            let (current, limit, kills) = match tree {
                Tree::First { .. } => (
                    "memory.usage_in_bytes",
                    "memory.limit_in_bytes",
                    "memory.oom_control",
                ),
                Tree::Second { .. } => ("memory.current", "memory.max", "memory.events"),
            };
            usage.memory_bytes = number(&directory.join(current));
            // The first generation says "no limit" with a number near 2^63.
            usage.memory_limit_bytes = number(&directory.join(limit)).filter(|max| *max < 1 << 62);
            usage.memory_kills = field(&directory.join(kills), "oom_kill");
        }
        if let Ok(tree) = &self.found.pids {
            usage.pids = number(&self.directory(tree, sandbox).join("pids.current"));
        }
        if let Some(tree) = &self.found.core {
            let path = self.directory(tree, sandbox).join("cpu.stat");
            usage.cpu_time = field(&path, "usage_usec").map(Duration::from_micros);
        }
        usage
    }

    /// The counters of a sandbox's ceilings, held open: they are read at the beginning and the end of every run.
    pub(super) fn counters(&self, sandbox: &str) -> Counters {
        let file = |tree: &Result<Tree, String>, first: &str, second: &str| {
            let tree = tree.as_ref().ok()?;
            let name = match tree {
                Tree::First { .. } => first,
                Tree::Second { .. } => second,
            };
            std::fs::File::open(self.directory(tree, sandbox).join(name)).ok()
        };
        let core = self.found.core.as_ref().and_then(|tree| {
            std::fs::File::open(self.directory(tree, sandbox).join("cpu.stat")).ok()
        });
        Counters {
            memory: file(&self.found.memory, "memory.oom_control", "memory.events"),
            pids: file(&self.found.pids, "pids.events", "pids.events"),
            cpu: core,
        }
    }

    /// Ends every run of a sandbox, and what ended ones left behind, where each has a group of its own; the guest stays.
    pub(super) fn kill_runs(&self, sandbox: &str) {
        let Some(tree) = self.found.core.as_ref().filter(|_| self.found.leaves) else {
            return;
        };
        let entries = std::fs::read_dir(self.directory(tree, sandbox));
        for entry in entries.into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                // A run that ends at this moment takes its group with it.
                let _ = std::fs::write(entry.path().join("cgroup.kill"), "1");
            }
        }
    }

    /// Ends whatever is left in a sandbox's groups.
    pub(super) fn kill(&self, sandbox: &str) {
        if let Some(tree) = &self.found.core {
            remains::end_cgroup(&self.directory(tree, sandbox));
        }
    }

    /// Removes a sandbox's directories; waits for the kernel to let its last process go.
    pub(super) fn remove(&self, sandbox: &str) -> Result<(), CgroupError> {
        for tree in self.trees() {
            let directory = self.directory(tree, sandbox);
            remains::remove_cgroup(&directory).map_err(|errno| at(&directory)(errno.into()))?;
        }
        Ok(())
    }
}

/// A quota in microseconds per period.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to what the kernel takes, well inside both types"
)]
fn quota_micros(cpus: f64) -> u64 {
    let micros = cpus * CPU_PERIOD_MICROS as f64;
    micros.clamp(CPU_QUOTA_MICROS_MIN as f64, 1e12).round() as u64
}

/// The second generation's weight (1 to 10000) for the first's shares (2 to 262144), by the scale that both ends share.
fn weight(shares: u64) -> u64 {
    1 + (shares.clamp(2, 262_144) - 2) * 9_999 / 262_142
}

fn make_directory(path: &Path) -> Result<(), CgroupError> {
    match std::fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other.map_err(at(path)),
    }
}

/// Lets root inside make groups below a directory and move its own processes there. The files with the ceilings stay the
/// host's.
fn hand_over(directory: &Path, root: Option<u32>) -> Result<(), CgroupError> {
    let path = directory.join("cgroup.max.descendants");
    std::fs::write(&path, LEAVES_MAX.to_string()).map_err(at(&path))?;
    if let Some(root) = root {
        for path in [
            directory.to_owned(),
            directory.join("cgroup.procs"),
            directory.join("cgroup.threads"),
        ] {
            let (uid, gid) = (Uid::from_raw(root), Gid::from_raw(root));
            rustix::fs::chown(&path, Some(uid), Some(gid))
                .map_err(|errno| at(&path)(errno.into()))?;
        }
    }
    Ok(())
}

fn open(path: &Path, flags: OFlags) -> Result<OwnedFd, CgroupError> {
    rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| at(path)(errno.into()))
}

fn set(directory: &Path, file: &str, value: u64) -> Result<(), CgroupError> {
    let path = directory.join(file);
    std::fs::write(&path, value.to_string()).map_err(at(&path))
}

/// Whether memory could go on in swap past its ceiling: the first generation counts swap only where the kernel was told to.
fn swaps_uncounted(tree: &Tree) -> bool {
    let Tree::First { directory, .. } = tree else {
        return false;
    };
    let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    has_swap(&swaps) && !directory.join("memory.memsw.limit_in_bytes").exists()
}

/// Reads `/proc/swaps`: a heading, then a line for each area in use.
fn has_swap(swaps: &str) -> bool {
    swaps.lines().skip(1).any(|line| !line.trim().is_empty())
}

/// Whether the file is there.
fn set_if_there(directory: &Path, file: &str, value: u64) -> Result<bool, CgroupError> {
    let path = directory.join(file);
    if !path.exists() {
        return Ok(false);
    }
    set(directory, file, value)?;
    Ok(true)
}

fn number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn field(path: &Path, name: &str) -> Option<u64> {
    counters::field(&std::fs::read_to_string(path).ok()?, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_areas_are_seen() {
        let heading = "Filename\tType\tSize\tUsed\tPriority\n";
        assert!(!has_swap(""));
        assert!(!has_swap(heading));
        assert!(has_swap(&format!(
            "{heading}/dev/sda2 partition 1048572 0 -2\n"
        )));
    }

    #[test]
    fn an_uncounted_swap_is_told_of_the_first_generation_only() {
        let second = Tree::Second {
            directory: "/nonexistent".into(),
            controllers: vec!["memory"],
        };
        assert!(!swaps_uncounted(&second));
    }

    #[test]
    fn quotas_and_weights_keep_their_ends() {
        assert_eq!(quota_micros(1.0), 100_000);
        assert_eq!(quota_micros(0.5), 50_000);
        assert_eq!(quota_micros(0.000_1), CPU_QUOTA_MICROS_MIN);
        assert_eq!(weight(2), 1);
        assert_eq!(weight(1024), 39);
        assert_eq!(weight(262_144), 10_000);
    }
}
