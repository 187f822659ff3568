//! Whether memory, CPU time and processes can be limited: what is mounted, and what this process may write there.

use super::checks::{Check, State};
use super::host::{self, Hierarchy};
use super::probe;

/// The controllers that ceilings need.
const WANTED: [&str; 3] = ["memory", "cpu", "pids"];

/// Looks, and judges.
pub(super) fn check(root: bool) -> Check {
    let found = host::hierarchies(
        &host::read("/proc/self/mountinfo"),
        &host::read("/proc/self/cgroup"),
    );
    judge(
        root,
        &found,
        |hierarchy| match hierarchy.version {
            2 => host::read(hierarchy.own.join("cgroup.controllers"))
                .split(' ')
                .map(str::to_owned)
                .collect(),
            _ => hierarchy.controllers.clone(),
        },
        |hierarchy| probe::can_make_directory_in(&hierarchy.own).is_ok(),
    )
}

/// The judgement, apart from the looking.
fn judge(
    root: bool,
    found: &[Hierarchy],
    controllers: impl Fn(&Hierarchy) -> Vec<String>,
    writable: impl Fn(&Hierarchy) -> bool,
) -> Check {
    const NAME: &str = "cgroups";
    const COSTS: &str = "memory, CPU and process ceilings cannot be enforced; defaults are reported, a ceiling that was asked for is refused";
    let has = |version| found.iter().any(|hierarchy| hierarchy.version == version);
    let kind = match (has(1), has(2)) {
        (true, true) => "version 1 and the core of version 2",
        (true, false) => "version 1",
        (false, true) => "version 2",
        (false, false) => {
            return Check::missing(
                NAME,
                State::No,
                "not mounted",
                COSTS,
                "mount -t cgroup2 none /sys/fs/cgroup, or start the container with its cgroup namespace",
            );
        }
    };
    let usable: Vec<&str> = WANTED
        .into_iter()
        .filter(|wanted| {
            found.iter().any(|hierarchy| {
                controllers(hierarchy).iter().any(|have| have == wanted) && writable(hierarchy)
            })
        })
        .collect();
    if usable.len() == WANTED.len() {
        return Check::yes(NAME, format!("{kind}; memory, cpu and pids can be limited"));
    }
    let missing = WANTED
        .into_iter()
        .filter(|wanted| !usable.contains(wanted))
        .collect::<Vec<_>>()
        .join(", ");
    let state = if usable.is_empty() {
        State::No
    } else {
        State::Partly
    };
    let get = match (root, has(2) && !has(1)) {
        (false, true) => {
            "start it by systemd-run --user --scope -p Delegate=yes sandboxd …, or Delegate=yes in its unit"
        }
        (false, false) => {
            "run as root, or boot with systemd.unified_cgroup_hierarchy=1 and delegate"
        }
        (true, _) => {
            "a writable cgroup with these controllers: Delegate=yes in the unit, or a container with --cgroupns=private and a writable /sys/fs/cgroup"
        }
    };
    Check::missing(
        NAME,
        state,
        format!("{kind}; not usable by this process: {missing}"),
        COSTS,
        get,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn hierarchy(version: u8, controllers: &[&str]) -> Hierarchy {
        Hierarchy {
            version,
            controllers: controllers.iter().map(|&name| name.to_owned()).collect(),
            own: PathBuf::from("/sys/fs/cgroup"),
        }
    }

    fn judged(root: bool, found: &[Hierarchy], writable: bool) -> Check {
        judge(root, found, |one| one.controllers.clone(), |_| writable)
    }

    #[test]
    fn cgroups_are_judged_by_what_can_be_written() {
        let two = [hierarchy(2, &["memory", "cpu", "pids"])];
        assert_eq!(judged(true, &two, true).state, State::Yes);
        let undelegated = judged(false, &two, false);
        assert_eq!(undelegated.state, State::No);
        assert!(undelegated.get.contains("Delegate=yes"));
        let hybrid = [
            hierarchy(2, &[]),
            hierarchy(1, &["memory"]),
            hierarchy(1, &["cpu", "cpuacct"]),
        ];
        let partly = judged(true, &hybrid, true);
        assert_eq!(partly.state, State::Partly);
        assert!(partly.found.ends_with("not usable by this process: pids"));
        assert_eq!(judged(true, &[], true).found, "not mounted");
    }
}
