//! Where this process may make cgroups.
//!
//! Below its own place in each tree, so that a ceiling on the service holds for its sandboxes too; in the second
//! generation that place has to be free of processes, so the daemon moves itself to a leaf, or, with privilege and where
//! it shares its place with others, goes to the top.

use std::fs;
use std::path::{Path, PathBuf};

/// One tree, and the directory in it below which cgroups can be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum Tree {
    /// A tree of the first generation.
    First {
        /// Its controller.
        controller: &'static str,
        /// The directory.
        directory: PathBuf,
    },
    /// The second generation's tree.
    Second {
        /// The directory.
        directory: PathBuf,
        /// Controllers that are used in it.
        controllers: Vec<&'static str>,
    },
}

impl Tree {
    /// The directory below which cgroups can be made.
    pub(in super::super) fn directory(&self) -> &Path {
        match self {
            Self::First { directory, .. } | Self::Second { directory, .. } => directory,
        }
    }
}

/// What was found: per ceiling the tree that enforces it, or why none does.
#[derive(Debug, Clone)]
pub(in super::super) struct Found {
    /// Memory.
    pub(in super::super) memory: Result<Tree, String>,
    /// Processes.
    pub(in super::super) pids: Result<Tree, String>,
    /// CPU.
    pub(in super::super) cpu: Result<Tree, String>,
    /// The second generation's tree, with or without controllers.
    pub(in super::super) core: Option<Tree>,
    /// Whether the guest may be given a directory of the core for its runs.
    pub(in super::super) leaves: bool,
}

impl Found {
    /// Looks at this host.
    pub(in super::super) fn on_this_host(privileged: bool) -> Self {
        let mounts = mounts(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default());
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let second = second(&mounts, &own, privileged);
        let tree = |controller: &'static str| -> Result<Tree, String> {
            if let Some(directory) = first(&mounts, &own, controller) {
                return if may_write(&directory) {
                    Ok(Tree::First {
                        controller,
                        directory,
                    })
                } else {
                    Err(NOT_DELEGATED.to_owned())
                };
            }
            match &second {
                Ok(Tree::Second { controllers, .. }) if !controllers.contains(&controller) => Err(
                    format!("the cgroup controller {controller} is not available here"),
                ),
                other => other.clone(),
            }
        };
        Self {
            memory: tree("memory"),
            pids: tree("pids"),
            cpu: tree("cpu"),
            leaves: second.is_ok(),
            core: second.ok(),
        }
    }

    /// Every tree once.
    pub(in super::super) fn trees(&self) -> impl Iterator<Item = &Tree> {
        let limits = [&self.memory, &self.pids, &self.cpu]
            .into_iter()
            .filter_map(|tree| tree.as_ref().ok())
            .filter(|tree| matches!(tree, Tree::First { .. }));
        let mut seen: Vec<&Path> = Vec::new();
        limits.chain(self.core.as_ref()).filter(move |tree| {
            // Controllers that are mounted together are one tree.
            let new = !seen.contains(&tree.directory());
            seen.push(tree.directory());
            new
        })
    }
}

/// One reason in the same words for every ceiling, so that they can be told in one line.
const NOT_DELEGATED: &str = "no cgroup is delegated to this user";

/// One cgroup mount.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    /// The directory of the tree that is its root.
    root: String,
    /// Where it is.
    at: PathBuf,
    /// Its controllers; none for the second generation.
    controllers: Option<Vec<String>>,
}

fn mounts(mountinfo: &str) -> Vec<Mount> {
    mountinfo
        .lines()
        .filter_map(|line| {
            let (left, right) = line.split_once(" - ")?;
            let mut left = left.split(' ').skip(3);
            let (root, at) = (left.next()?, left.next()?);
            let mut right = right.split(' ');
            let kind = right.next()?;
            let options = right.nth(1)?;
            let controllers = match kind {
                "cgroup2" => None,
                "cgroup" => Some(options.split(',').map(str::to_owned).collect()),
                _ => return None,
            };
            Some(Mount {
                root: root.to_owned(),
                at: PathBuf::from(at),
                controllers,
            })
        })
        .collect()
}

/// This process's directory in the first generation's tree of a controller.
fn first(mounts: &[Mount], own: &str, controller: &str) -> Option<PathBuf> {
    let mount = mounts.iter().find(|mount| {
        let controllers = mount.controllers.as_ref();
        controllers.is_some_and(|list| list.iter().any(|name| name == controller))
    })?;
    let path = own.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        controllers
            .split(',')
            .any(|name| name == controller)
            .then_some(path)
    })?;
    Some(below(mount, path))
}

/// A path of a tree, as a path below a mount of it.
fn below(mount: &Mount, path: &str) -> PathBuf {
    let relative = path
        .strip_prefix(mount.root.trim_end_matches('/'))
        .unwrap_or(path);
    mount.at.join(relative.trim_start_matches('/'))
}

/// The second generation's tree, with as many of our controllers as can be had.
fn second(mounts: &[Mount], own: &str, privileged: bool) -> Result<Tree, String> {
    let mount = mounts
        .iter()
        .find(|mount| mount.controllers.is_none())
        .ok_or("no cgroup file system is mounted")?;
    let path = own
        .lines()
        .find_map(|line| line.strip_prefix("0::"))
        .ok_or("this process is in no cgroup")?;
    let place = below(mount, path);
    if !may_write(&place) {
        return Err(NOT_DELEGATED.to_owned());
    }
    let wanted = available(&place);
    if wanted.is_empty() || enable(&place, &wanted) {
        return Ok(Tree::Second {
            directory: place,
            controllers: wanted,
        });
    }
    if move_to_leaf(&place) && enable(&place, &wanted) {
        return Ok(Tree::Second {
            directory: place,
            controllers: wanted,
        });
    }
    let top = mount.at.clone();
    if privileged && may_write(&top) {
        let wanted: Vec<_> = available(&top);
        if enable(&top, &wanted) {
            return Ok(Tree::Second {
                directory: top,
                controllers: wanted,
            });
        }
    }
    Err(format!(
        "the cgroup {} holds other processes than this one, so it can have no limited groups below it",
        place.display()
    ))
}

/// Our controllers among those that a directory offers.
fn available(directory: &Path) -> Vec<&'static str> {
    let offered = fs::read_to_string(directory.join("cgroup.controllers")).unwrap_or_default();
    ["memory", "pids", "cpu"]
        .into_iter()
        .filter(|name| offered.split_whitespace().any(|offered| offered == *name))
        .collect()
}

fn enable(directory: &Path, controllers: &[&str]) -> bool {
    let path = directory.join("cgroup.subtree_control");
    let enabled = fs::read_to_string(&path).unwrap_or_default();
    controllers.iter().all(|controller| {
        enabled.split_whitespace().any(|name| name == *controller)
            || fs::write(&path, format!("+{controller}")).is_ok()
    })
}

/// Moves this process out of the way, where it is alone.
fn move_to_leaf(directory: &Path) -> bool {
    let own = std::process::id().to_string();
    let alone = fs::read_to_string(directory.join("cgroup.procs"))
        .is_ok_and(|processes| processes.split_whitespace().eq([own.as_str()]));
    let leaf = directory.join("sandboxd-daemon");
    alone
        && (leaf.is_dir() || fs::create_dir(&leaf).is_ok())
        && fs::write(leaf.join("cgroup.procs"), own).is_ok()
}

fn may_write(directory: &Path) -> bool {
    rustix::fs::access(directory, rustix::fs::Access::WRITE_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIXED: &str = "\
24 1 253:0 / / rw,relatime - ext4 /dev/vda rw
30 24 0:26 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
34 24 0:30 /box /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
37 24 0:33 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";
    const OWN: &str = "\
8:memory:/box/service
3:cpu,cpuacct:/
0::/service
";

    #[test]
    fn both_generations_are_found_below_the_own_place() {
        let mounts = mounts(MIXED);
        assert_eq!(mounts.len(), 3);
        assert_eq!(
            first(&mounts, OWN, "memory"),
            Some(PathBuf::from("/sys/fs/cgroup/memory/service"))
        );
        assert_eq!(
            first(&mounts, OWN, "cpu"),
            Some(PathBuf::from("/sys/fs/cgroup/cpu,cpuacct/"))
        );
        assert_eq!(first(&mounts, OWN, "pids"), None);
        let second = mounts.iter().find(|mount| mount.controllers.is_none());
        assert_eq!(
            second.map(|mount| below(mount, "/service")),
            Some(PathBuf::from("/sys/fs/cgroup/unified/service"))
        );
    }

    #[test]
    fn controllers_that_are_mounted_together_are_one_tree() {
        let tree = |controller| Tree::First {
            controller,
            directory: PathBuf::from("/sys/fs/cgroup/all"),
        };
        let found = Found {
            memory: Ok(tree("memory")),
            pids: Ok(tree("pids")),
            cpu: Err("none".to_owned()),
            core: None,
            leaves: false,
        };
        assert_eq!(found.trees().count(), 1);
    }

    #[test]
    fn a_second_generation_directory_is_used_with_what_it_offers() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        file("cgroup.controllers", "cpuset cpu io memory hugetlb pids\n");
        assert_eq!(available(directory.path()), ["memory", "pids", "cpu"]);
        file("cgroup.subtree_control", "cpu memory pids\n");
        assert!(enable(directory.path(), &["memory", "pids", "cpu"]));
        file("cgroup.procs", &format!("{}\n1\n", std::process::id()));
        assert!(!move_to_leaf(directory.path()));
    }
}
