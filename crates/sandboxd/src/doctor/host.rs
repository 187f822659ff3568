//! What the kernel says in files. The parsers take text, so that they are tested with the files of other machines.

use std::fs;
use std::path::{Path, PathBuf};

/// A file's text without the last line's end, or nothing.
pub(super) fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path)
        .map(|text| text.trim_end().to_owned())
        .unwrap_or_default()
}

/// The kernel's release.
pub(super) fn kernel_release() -> String {
    read("/proc/sys/kernel/osrelease")
}

/// Why an ordinary user may be refused user namespaces here, and the way out, from the kernel's switches.
pub(super) fn userns_refusal(
    switch: impl Fn(&str) -> String,
) -> Option<(&'static str, &'static str)> {
    if switch("/proc/sys/user/max_user_namespaces") == "0" {
        return Some((
            "user.max_user_namespaces is 0",
            "sudo sysctl -w user.max_user_namespaces=15000",
        ));
    }
    if switch("/proc/sys/kernel/unprivileged_userns_clone") == "0" {
        return Some((
            "kernel.unprivileged_userns_clone is 0",
            "sudo sysctl -w kernel.unprivileged_userns_clone=1",
        ));
    }
    if switch("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1" {
        return Some((
            "AppArmor restricts user namespaces of ordinary users",
            "an AppArmor profile for the sandboxd binary with `userns,`, or sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ));
    }
    None
}

/// How much memory sandboxes of this process can have, in bytes: what the machine has, or what a cgroup above this process
/// leaves of it.
pub(crate) fn host_memory() -> Option<u64> {
    let machine = mem_total(&read("/proc/meminfo"));
    let all = hierarchies(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"));
    let above = all.iter().filter_map(|hierarchy| {
        let file = match hierarchy.version {
            2 => "memory.max",
            _ if hierarchy.controllers.iter().any(|c| c == "memory") => "memory.limit_in_bytes",
            _ => return None,
        };
        // The tightest of all above counts. A group that is no group any more has no such file.
        let groups = hierarchy.own.ancestors();
        groups
            .filter_map(|group| read(group.join(file)).parse().ok())
            .min()
    });
    machine.into_iter().chain(above).min()
}

/// Of `/proc/meminfo`.
fn mem_total(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// One mounted cgroup hierarchy, and where this process is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hierarchy {
    /// 1 or 2.
    pub(super) version: u8,
    /// The controllers of a version 1 hierarchy.
    pub(super) controllers: Vec<String>,
    /// The directory of this process's own group.
    pub(super) own: PathBuf,
}

/// All of them, from `/proc/self/mountinfo` and `/proc/self/cgroup`.
pub(super) fn hierarchies(mountinfo: &str, cgroup: &str) -> Vec<Hierarchy> {
    // Lines of cgroup(7): number, controllers, path.
    let own_path = |controller: Option<&str>| {
        cgroup.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            let own = match controller {
                None => controllers.is_empty(),
                Some(name) => controllers.split(',').any(|own| own == name),
            };
            own.then_some(path)
        })
    };
    mountinfo
        .lines()
        .filter_map(|line| {
            // Fields of proc_pid_mountinfo(5): … root, mount point, options, optional fields, `-`, type, source, options.
            let (before, after) = line.split_once(" - ")?;
            let mut before = before.split(' ').skip(3);
            let (root, point) = (before.next()?, before.next()?);
            let mut after = after.split(' ');
            let (kind, options) = (after.next()?, after.nth(1).unwrap_or_default());
            let (version, controllers) = match kind {
                "cgroup2" => (2, Vec::new()),
                "cgroup" => (
                    1,
                    options
                        .split(',')
                        .filter(|option| {
                            [
                                "memory", "pids", "cpu", "cpuacct", "cpuset", "freezer", "devices",
                            ]
                            .contains(option)
                        })
                        .map(str::to_owned)
                        .collect(),
                ),
                _ => return None,
            };
            let path = if version == 2 {
                own_path(None)?
            } else {
                own_path(Some(controllers.first()?))?
            };
            // Inside a container the mount shows only the part below its root.
            let below = path
                .strip_prefix(root.trim_end_matches('/'))
                .unwrap_or(path);
            Some(Hierarchy {
                version,
                controllers,
                own: Path::new(point).join(below.trim_start_matches('/')),
            })
        })
        .collect()
}

/// The name of a file system's type, from the magic number that statfs(2) gives.
pub(super) fn file_system_name(magic: i64) -> String {
    match magic {
        0xEF53 => "ext4".to_owned(),
        0x5846_5342 => "xfs".to_owned(),
        0x9123_683E => "btrfs".to_owned(),
        0x0102_1994 => "tmpfs".to_owned(),
        0x794C_7630 => "overlay".to_owned(),
        0x6969 => "nfs".to_owned(),
        0x2FC1_2FC1 => "zfs".to_owned(),
        0x0102_1997 => "9p".to_owned(),
        0x6573_5546 => "fuse".to_owned(),
        0xF2F5_2010 => "f2fs".to_owned(),
        other => format!("type {other:#x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hybrid_host_has_hierarchies_of_both_versions() {
        let mountinfo = "\
30 25 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw
32 30 0:28 / /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory
33 30 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct";
        let cgroup = "5:cpu,cpuacct:/\n4:memory:/user/a\n0::/user.slice";
        let found = hierarchies(mountinfo, cgroup);
        assert_eq!(
            found
                .iter()
                .map(|one| (one.version, one.own.to_str().unwrap()))
                .collect::<Vec<_>>(),
            [
                (2, "/sys/fs/cgroup/unified/user.slice"),
                (1, "/sys/fs/cgroup/memory/user/a"),
                (1, "/sys/fs/cgroup/cpu,cpuacct/"),
            ]
        );
        assert_eq!(found[2].controllers, ["cpu", "cpuacct"]);
    }

    #[test]
    fn the_machines_memory_is_in_kibibytes() {
        let meminfo = "MemTotal:       16318480 kB\nMemFree:  1 kB";
        assert_eq!(mem_total(meminfo), Some(16_318_480 * 1024));
        assert_eq!(mem_total("MemFree: 1 kB"), None);
        let found = host_memory().expect("this machine has memory");
        assert!(found > 64 << 20, "{found}");
    }

    #[test]
    fn inside_a_container_the_own_group_is_below_the_mounts_root() {
        let mountinfo = "31 30 0:27 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw";
        let found = hierarchies(mountinfo, "0::/docker/abc/inner");
        assert_eq!(found[0].own, Path::new("/sys/fs/cgroup/inner"));
    }

    #[test]
    fn every_switch_that_forbids_user_namespaces_is_known() {
        let with = |path: &'static str, value: &'static str| {
            userns_refusal(move |asked| if asked == path { value } else { "" }.to_owned())
        };
        assert!(with("/proc/sys/user/max_user_namespaces", "0").is_some());
        assert!(with("/proc/sys/kernel/unprivileged_userns_clone", "0").is_some());
        assert!(
            with(
                "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
                "1"
            )
            .is_some()
        );
        assert_eq!(with("/proc/sys/user/max_user_namespaces", "100"), None);
    }
}
