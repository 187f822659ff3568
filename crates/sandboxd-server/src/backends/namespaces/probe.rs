//! What this host can do, tried out and not assumed.

use super::cgroups::Cgroups;
use super::program_file::ProgramFile;
use super::users::{COUNT, STORAGE_FIRST};
use crate::backends::{Ceiling, Enforced, Enforcement};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet};
use std::process::{Command, Stdio};

/// Whether the launcher holds the host's power over mounts and users, and this process over owners: root, not confined to
/// fewer ids than sandboxes need.
pub(super) fn privileged() -> bool {
    let wanted = CapabilitySet::SYS_ADMIN | CapabilitySet::SETUID | CapabilitySet::SETGID;
    let own = rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::CHOWN));
    let maps = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    rustix::process::geteuid().is_root() && own && launcher_holds(wanted) && covers(&maps)
}

/// Whether a program that this process starts as root holds these capabilities. By the kernel's rule for root it gets the
/// whole bounding set, also what this process has given up; where that rule is switched off, what this process has.
pub(in crate::backends) fn launcher_holds(wanted: CapabilitySet) -> bool {
    let switched_off = rustix::thread::capabilities_secure_bits()
        .is_ok_and(|bits| bits.contains(CapabilitiesSecureBits::NO_ROOT));
    if switched_off || rustix::thread::no_new_privs().unwrap_or(true) {
        return rustix::thread::capabilities(None)
            .is_ok_and(|sets| sets.effective.contains(wanted));
    }
    wanted
        .iter()
        .all(|one| rustix::thread::capability_is_in_bounding_set(one).unwrap_or(false))
}

/// Whether a mapping knows the ids that belong to sandboxes.
fn covers(maps: &str) -> bool {
    let wanted = u64::from(STORAGE_FIRST)..u64::from(STORAGE_FIRST) + u64::from(COUNT) * 8;
    maps.lines().any(|line| {
        let mut numbers = line
            .split_whitespace()
            .filter_map(|n| n.parse::<u64>().ok());
        let (first, count) = (numbers.next(), numbers.nth(1));
        match (first, count) {
            (Some(first), Some(count)) => first <= wanted.start && first + count >= wanted.end,
            _ => false,
        }
    })
}

/// Whether a memory file may be executed here: it is, with nothing to say to it, and it ends.
pub(super) fn can_execute(program: &ProgramFile) -> bool {
    Command::new(program.path())
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok()
}

/// Whether processes can be counted per user namespace by a resource limit (Linux 5.14).
pub(super) fn counts_processes_per_namespace() -> bool {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy();
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|n| n.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version >= (5, 14)
}

/// How a resource limit is a ceiling on a sandbox's processes, where it is one: it counts each user for itself, so a
/// sandbox with a range of users, whose root may become any of them, has as many times the limit.
fn processes_by_resource(privileged: bool, per_namespace: bool) -> Option<&'static str> {
    (!privileged && per_namespace).then_some("a resource limit in its own user namespace")
}

/// Per ceiling: enforced here, or why not.
pub(super) fn ceilings(cgroups: &Cgroups, privileged: bool) -> Enforced {
    let mut ceilings = cgroups.enforcement();
    if let Some(Enforcement::Unenforced(_)) = ceilings.get(&Ceiling::Pids)
        && let Some(how) = processes_by_resource(privileged, counts_processes_per_namespace())
    {
        ceilings.insert(Ceiling::Pids, Enforcement::Enforced(how.to_owned()));
    }
    let network = "a network namespace with nothing but loopback";
    ceilings.insert(Ceiling::Network, Enforcement::Enforced(network.to_owned()));
    let disk = "memory by the size of its file system, disk by project quota where its file system keeps one, else by counting while programs run";
    ceilings.insert(Ceiling::Disk, Enforcement::Enforced(disk.to_owned()));
    let (range, owner) = if privileged {
        (
            Enforcement::Enforced(format!("{COUNT} ids of its own")),
            Enforcement::Enforced("idmapped mount".to_owned()),
        )
    } else {
        let why = "not started as root: one user, the caller, is all there is".to_owned();
        (
            Enforcement::Unenforced(why.clone()),
            Enforcement::Unenforced(why),
        )
    };
    ceilings.insert(Ceiling::UidRange, range);
    ceilings.insert(Ceiling::WorkspaceOwner, owner);
    ceilings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_per_user_is_no_ceiling_where_there_are_many_users() {
        assert!(processes_by_resource(false, true).is_some());
        assert_eq!(processes_by_resource(true, true), None);
        assert_eq!(processes_by_resource(false, false), None);
    }

    #[test]
    fn a_confined_root_is_not_privileged() {
        assert!(covers("         0          0 4294967295\n"));
        assert!(!covers("         0     100000      65536\n"));
        assert!(!covers(""));
    }
}
