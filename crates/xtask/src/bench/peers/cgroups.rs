//! The limits of a sandbox in the host's cgroups, for programs that bring none of their own.

use anyhow::Context;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What is set, where the hierarchy has it: version 1, and version 2.
const LIMITS: [(&str, &str); 5] = [
    ("memory.limit_in_bytes", "536870912"),
    ("memory.max", "536870912"),
    ("pids.max", "256"),
    ("cpu.cfs_quota_us", "100000"),
    ("cpu.max", "100000 100000"),
];

/// Where limits can be set: one directory per hierarchy with version 1, one for all with version 2.
pub(super) fn hierarchies() -> Vec<PathBuf> {
    let base = Path::new("/sys/fs/cgroup");
    let first = ["memory", "pids", "cpu"].map(|controller| base.join(controller));
    let found: Vec<PathBuf> = first.into_iter().filter(|path| path.is_dir()).collect();
    if found.is_empty() && base.join("cgroup.controllers").exists() {
        vec![base.to_owned()]
    } else {
        found
    }
}

/// A cgroup directory, and the file by which a process enters it.
struct Group {
    folder: PathBuf,
    entry: fs::File,
}

/// A cgroup in each hierarchy, with limits.
pub(super) struct Groups(Vec<Group>);

impl Groups {
    /// Makes them.
    pub(super) fn make(hierarchies: &[PathBuf], name: &str) -> anyhow::Result<Self> {
        let mut made = Vec::new();
        for hierarchy in hierarchies {
            let group = hierarchy.join(format!("sandboxd-{name}-{}", std::process::id()));
            fs::create_dir(&group).with_context(|| group.display().to_string())?;
            for (file, value) in LIMITS {
                let file = group.join(file);
                if file.exists() {
                    fs::write(&file, value).with_context(|| file.display().to_string())?;
                }
            }
            // A thread that moves itself by `tasks` (version 1) does not wait for the whole machine, as others do.
            let first = group.join("tasks");
            let entry = if first.exists() {
                first
            } else {
                group.join("cgroup.procs")
            };
            made.push(Group {
                entry: fs::OpenOptions::new().write(true).open(entry)?,
                folder: group,
            });
        }
        Ok(Self(made))
    }

    /// Moves this process into all of them.
    pub(super) fn enter(&self) -> std::io::Result<()> {
        self.0
            .iter()
            .try_for_each(|group| (&group.entry).write_all(b"0"))
    }

    /// Removes them; the kernel may need a moment after the last process has gone.
    pub(super) fn remove(self) -> anyhow::Result<()> {
        self.0.iter().try_for_each(|group| remove(&group.folder))
    }
}

/// Memory cgroups with nobody in them and no limits, to see what the kernel takes for one.
pub(crate) struct Empty(Vec<PathBuf>);

impl Empty {
    /// Makes so many.
    pub(crate) fn make(count: usize) -> anyhow::Result<Self> {
        let hierarchies = hierarchies();
        let memory = hierarchies.first().context("no cgroups")?;
        let mut made = Self(Vec::new());
        for number in 0..count {
            let group = memory.join(format!("sandboxd-empty-{}-{number}", std::process::id()));
            fs::create_dir(&group).with_context(|| group.display().to_string())?;
            made.0.push(group);
        }
        Ok(made)
    }
}

impl Drop for Empty {
    fn drop(&mut self) {
        for group in &self.0 {
            // What is left over is an empty directory, and says whose it was.
            let _ = fs::remove_dir(group);
        }
    }
}

fn remove(group: &Path) -> anyhow::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(2);
    loop {
        match fs::remove_dir(group) {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() > deadline => {
                return Err(error).with_context(|| group.display().to_string());
            }
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}
