//! What the kernel counts about a container, where the engine runs on this host: read from the container's cgroups, which
//! its first process names, through files that are held open. A container of an engine elsewhere has none of these.

use crate::backends::{Hits, Usage};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes of one such file: some short lines.
const FILE_BYTES_MAX: usize = 4096;

/// The files. One that this host does not have is not there.
#[derive(Debug, Default)]
pub(super) struct Counters {
    memory_events: Option<File>,
    memory_now: Option<File>,
    memory_most: Option<File>,
    pids_events: Option<File>,
    pids_now: Option<File>,
    cpu: Option<(File, CpuUnit)>,
}

/// How CPU time is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CpuUnit {
    /// Nanoseconds, and nothing else in the file.
    Nanoseconds,
    /// A line with microseconds.
    Microseconds,
}

impl Counters {
    /// Those of the container with this id, whose first process has this number. Nothing where that number is not the
    /// container's here: then the engine is elsewhere.
    pub(super) fn find(container: &str, pid: i64) -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
        let places = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        if container.is_empty() || !places.contains(container) {
            return None;
        }
        Some(Self::open(&mounts, &places))
    }

    fn open(mounts: &str, places: &str) -> Self {
        let file = |controller: &str, first: &str, second: &str| {
            let (directory, is_first) = directory(mounts, places, controller)?;
            let name = if is_first { first } else { second };
            Some((File::open(directory.join(name)).ok()?, is_first))
        };
        let plain =
            |controller, first, second| file(controller, first, second).map(|found| found.0);
        Self {
            memory_events: plain("memory", "memory.oom_control", "memory.events"),
            memory_now: plain("memory", "memory.usage_in_bytes", "memory.current"),
            memory_most: plain("memory", "memory.limit_in_bytes", "memory.max"),
            pids_events: plain("pids", "pids.events", "pids.events"),
            pids_now: plain("pids", "pids.current", "pids.current"),
            cpu: file("cpuacct", "cpuacct.usage", "cpu.stat").map(|(file, is_first)| {
                let unit = if is_first {
                    CpuUnit::Nanoseconds
                } else {
                    CpuUnit::Microseconds
                };
                (file, unit)
            }),
        }
    }

    /// How often the ceilings have bitten.
    pub(super) fn hits(&self) -> Hits {
        let field = |file: &Option<File>, name| field(&text(file.as_ref()?)?, name);
        Hits {
            memory_kills: field(&self.memory_events, "oom_kill"),
            process_refusals: field(&self.pids_events, "max"),
        }
    }

    /// CPU time that the container has used.
    pub(super) fn cpu_time(&self) -> Option<Duration> {
        let (file, unit) = self.cpu.as_ref()?;
        let text = text(file)?;
        match unit {
            CpuUnit::Nanoseconds => text.trim().parse().ok().map(Duration::from_nanos),
            CpuUnit::Microseconds => field(&text, "usage_usec").map(Duration::from_micros),
        }
    }

    /// What it uses now.
    pub(super) fn usage(&self) -> Usage {
        let number = |file: &Option<File>| text(file.as_ref()?)?.trim().parse().ok();
        Usage {
            memory_bytes: number(&self.memory_now),
            memory_limit_bytes: number(&self.memory_most),
            cpu_time: self.cpu_time(),
            pids: number(&self.pids_now),
            memory_kills: self.hits().memory_kills,
            disk_bytes: None,
            disk_files: None,
        }
    }

    /// Whether there is anything to read.
    pub(super) const fn is_complete(&self) -> bool {
        self.memory_now.is_some() && self.pids_now.is_some() && self.cpu.is_some()
    }
}

/// A file anew. That of a container that is gone answers with an error.
fn text(file: &File) -> Option<String> {
    let mut bytes = [0; FILE_BYTES_MAX];
    let length = file.read_at(&mut bytes, 0).ok()?;
    Some(String::from_utf8_lossy(bytes.get(..length)?).into_owned())
}

/// The value of the line with this name.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(key, _)| *key == name)
        .and_then(|(_, value)| value.trim().parse().ok())
}

/// The directory of a controller for a process, and whether it is of the first generation. `mounts` is a `mountinfo`,
/// `places` the process's `cgroup` file.
fn directory(mounts: &str, places: &str, controller: &str) -> Option<(PathBuf, bool)> {
    let mut of_first = places.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        controllers
            .split(',')
            .any(|one| one == controller)
            .then_some(path)
    });
    if let Some(path) = of_first.next() {
        let (point, root) = mounted(mounts, |kind, options| {
            kind == "cgroup" && options.split(',').any(|one| one == controller)
        })?;
        return Some((below(point, root, path)?, true));
    }
    let path = places.lines().find_map(|line| line.strip_prefix("0::"))?;
    let (point, root) = mounted(mounts, |kind, _| kind == "cgroup2")?;
    Some((below(point, root, path)?, false))
}

/// Where a file system of that kind is mounted, and what of it is.
fn mounted(mounts: &str, wanted: impl Fn(&str, &str) -> bool) -> Option<(&str, &str)> {
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut kind = after.split(' ');
        let (kind, options) = (kind.next()?, kind.nth(1)?);
        let mut words = before.split(' ').skip(3);
        let (root, point) = (words.next()?, words.next()?);
        wanted(kind, options).then_some((point, root))
    })
}

fn below(point: &str, root: &str, path: &str) -> Option<PathBuf> {
    let relative = if root == "/" {
        path
    } else {
        path.strip_prefix(root)?
    };
    // A path through `..` is one outside of what this process sees.
    if relative.split('/').any(|part| part == "..") {
        return None;
    }
    Some(Path::new(point).join(relative.trim_start_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "\
30 20 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
31 20 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
32 20 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
";
    const SECOND: &str = "30 20 0:26 /outer /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn the_place_is_found_in_both_generations() {
        let places = "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n0::/docker/abc\n";
        let memory = directory(FIRST, places, "memory");
        let wanted = PathBuf::from("/sys/fs/cgroup/memory/docker/abc");
        assert_eq!(memory, Some((wanted, true)));
        let cpu = directory(FIRST, places, "cpuacct");
        let wanted = PathBuf::from("/sys/fs/cgroup/cpu,cpuacct/docker/abc");
        assert_eq!(cpu, Some((wanted, true)));
        let places = "0::/outer/system.slice/docker-abc.scope\n";
        let wanted = PathBuf::from("/sys/fs/cgroup/system.slice/docker-abc.scope");
        assert_eq!(directory(SECOND, places, "memory"), Some((wanted, false)));
    }

    #[test]
    fn what_is_outside_of_what_is_seen_is_not_there() {
        assert_eq!(directory(SECOND, "0::/elsewhere/abc\n", "memory"), None);
        let mounts = SECOND.replace("/outer", "/");
        assert_eq!(directory(&mounts, "0::/../abc\n", "memory"), None);
        assert_eq!(directory("", "0::/abc\n", "memory"), None);
    }

    #[test]
    fn a_process_that_is_not_the_containers_has_no_counters() {
        let own = i64::from(std::process::id());
        assert!(Counters::find("no-such-container", own).is_none());
        assert!(Counters::find("", own).is_none());
        assert!(Counters::find("x", -1).is_none());
    }
}
