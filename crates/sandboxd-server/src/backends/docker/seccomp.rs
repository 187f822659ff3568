//! The jail's list of system calls as a profile for the engine: the same calls with the same verdicts, in the words of the
//! engine's profiles, which know comparisons of whole arguments where the jail's own filter has jumps.
//!
//! A rule there allows or refuses if *all* its comparisons hold, and several rules of one call are tried together; a call
//! that no rule knows does not exist (an engine of before 23.0 says that it is not permitted instead).

use sandboxd_jail::seccomp::list::{self, CLONE3};
use sandboxd_jail::seccomp::{Action, Check};
use serde::Serialize;
use std::io;
use std::path::Path;

const ENOSYS: u16 = 38;
/// The kernel looks at the lower half of such an argument only, so the comparison does too.
const LOW: u64 = 0xffff_ffff;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    default_action: &'static str,
    default_errno_ret: u16,
    architectures: [&'static str; 1],
    syscalls: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    names: Vec<&'static str>,
    action: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    errno_ret: Option<u16>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    args: Vec<Comparison>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Comparison {
    index: u32,
    value: u64,
    value_two: u64,
    op: &'static str,
}

/// The argument, as far as `mask` shows it, is `value`.
const fn masked(index: u32, mask: u64, value: u64) -> Comparison {
    Comparison {
        index,
        value: mask,
        value_two: value,
        op: "SCMP_CMP_MASKED_EQ",
    }
}

/// Its lower half is this.
fn low(index: u32, value: u32) -> Comparison {
    masked(index, LOW, u64::from(value))
}

/// The lower half is none of these: the comparisons of which exactly one then holds. A number that is none of them parts
/// from all of them at some bit; each such parting is one comparison.
fn none_of(index: u32, values: &[u32]) -> Vec<Comparison> {
    let mut partings = Vec::new();
    let mut prefixes = vec![0_u32];
    for bit in (0..32_u32).rev() {
        let seen = u32::MAX << bit;
        let mut next = Vec::new();
        for prefix in prefixes {
            for wanted in [prefix, prefix | 1 << bit] {
                if values.iter().any(|value| value & seen == wanted) {
                    next.push(wanted);
                } else {
                    partings.push(masked(index, u64::from(seen), u64::from(wanted)));
                }
            }
        }
        prefixes = next;
    }
    partings
}

/// How an engine is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Filters {
    /// In words: Docker.
    Words,
    /// By a file of its host: Podman on this one. The profile with plain modes is beside it.
    Files {
        /// The usual one.
        usual: String,
        /// The other.
        plain_modes: String,
    },
    /// Not at all: it takes files of its host, and none of ours lies there.
    Own,
}

impl Filters {
    /// Files in a directory that lies for the engine at `source`.
    ///
    /// # Errors
    /// Where they cannot be written.
    pub(super) fn write(directory: &Path, source: &Path) -> io::Result<Self> {
        let write = |name: &str, plain_modes| {
            std::fs::write(directory.join(name), profile(plain_modes))?;
            let path = source.join(name);
            let path = path.to_str().map(str::to_owned);
            path.ok_or_else(|| io::Error::other("its path is not UTF-8"))
        };
        Ok(Self::Files {
            usual: write("seccomp.json", false)?,
            plain_modes: write("seccomp-plain-modes.json", true)?,
        })
    }

    /// What it is told; nothing where its own list holds.
    pub(super) fn told(&self, plain_modes: bool) -> Option<String> {
        match self {
            Self::Words => Some(profile(plain_modes)),
            Self::Files { usual, .. } if !plain_modes => Some(usual.clone()),
            Self::Files { plain_modes, .. } => Some(plain_modes.clone()),
            Self::Own => None,
        }
    }
}

/// The profile, as the engine takes it. With `plain_modes` no call makes a file set-uid or set-gid, but `openat2`, which the
/// guest keeps from its runs.
pub(super) fn profile(plain_modes: bool) -> String {
    let profile = Profile {
        default_action: "SCMP_ACT_ERRNO",
        default_errno_ret: ENOSYS,
        architectures: [if cfg!(target_arch = "x86_64") {
            "SCMP_ARCH_X86_64"
        } else {
            "SCMP_ARCH_AARCH64"
        }],
        syscalls: rules(plain_modes),
    };
    serde_json::to_string(&profile).unwrap_or_default()
}

fn rules(plain_modes: bool) -> Vec<Rule> {
    let groups = list::GROUPS.iter().chain(list::ARCHITECTURE_GROUPS);
    let mut rules = Vec::new();
    for group in groups {
        let mut plain = Vec::new();
        for (name, number) in group.calls {
            let name = name.strip_prefix("SYS_").unwrap_or(name);
            let mode = list::MODE_CALLS.iter().find(|call| call.0 == *number);
            match mode.filter(|_| plain_modes) {
                Some(&(_, mode, flags)) => {
                    let check = Check::PlainMode { mode, flags };
                    rules.extend(checked(name, check));
                }
                None => match group.action {
                    Action::Check(check) => rules.extend(checked(name, check)),
                    Action::Allow | Action::Errno(_) => plain.push(name),
                },
            }
        }
        if !plain.is_empty() {
            let errno_ret = match group.action {
                Action::Errno(errno) => Some(errno),
                Action::Allow | Action::Check(_) => None,
            };
            rules.push(Rule {
                names: plain,
                action: action(errno_ret),
                errno_ret,
                args: Vec::new(),
            });
        }
    }
    // Its flags are in memory, where a filter cannot look: programs fall back to clone.
    debug_assert_eq!(CLONE3, 435);
    rules.push(refuse("clone3", ENOSYS, Vec::new()));
    rules
}

const fn action(errno: Option<u16>) -> &'static str {
    match errno {
        Some(_) => "SCMP_ACT_ERRNO",
        None => "SCMP_ACT_ALLOW",
    }
}

fn allow(name: &'static str, args: Vec<Comparison>) -> Rule {
    Rule {
        names: vec![name],
        action: action(None),
        errno_ret: None,
        args,
    }
}

fn refuse(name: &'static str, errno: u16, args: Vec<Comparison>) -> Rule {
    Rule {
        names: vec![name],
        action: action(Some(errno)),
        errno_ret: Some(errno),
        args,
    }
}

fn checked(name: &'static str, check: Check) -> Vec<Rule> {
    let one = |comparison: Comparison| allow(name, vec![comparison]);
    match check {
        Check::CloneFlags => vec![one(masked(0, u64::from(list::NAMESPACE_FLAGS), 0))],
        Check::SocketFamily => {
            let mut rules = vec![
                one(low(0, list::AF_UNIX)),
                allow(
                    name,
                    vec![low(0, list::AF_NETLINK), low(2, list::NETLINK_ROUTE)],
                ),
            ];
            for family in list::INTERNET_FAMILIES {
                let each = list::INTERNET_PROTOCOLS.iter();
                rules.extend(
                    each.map(|protocol| allow(name, vec![low(0, *family), low(2, *protocol)])),
                );
            }
            rules
        }
        Check::IoctlRequest => each(one, none_of(1, list::IOCTLS_REFUSED)),
        Check::SetLimit => {
            let mut rules = each(one, none_of(0, &[list::RLIMIT_CORE]));
            rules.push(refuse(name, 0, vec![low(0, list::RLIMIT_CORE)]));
            rules
        }
        Check::SetOrGetLimit => {
            let mut rules = each(one, none_of(1, &[list::RLIMIT_CORE]));
            let asks = Comparison {
                index: 2,
                value: 0,
                value_two: 0,
                op: "SCMP_CMP_EQ",
            };
            let sets = Comparison {
                op: "SCMP_CMP_NE",
                ..asks
            };
            rules.push(allow(name, vec![low(1, list::RLIMIT_CORE), asks]));
            rules.push(refuse(name, 0, vec![low(1, list::RLIMIT_CORE), sets]));
            rules
        }
        Check::Personality => {
            let values = list::PERSONALITIES.iter();
            values.map(|value| one(low(0, *value))).collect()
        }
        Check::PlainMode { mode, flags } => {
            let mut rules = vec![one(masked(mode, u64::from(list::SET_ID_BITS), 0))];
            if let Some(flags) = flags {
                rules.push(one(masked(flags, u64::from(list::OPEN_MAKES), 0)));
            }
            rules
        }
    }
}

fn each(rule: impl Fn(Comparison) -> Rule, comparisons: Vec<Comparison>) -> Vec<Rule> {
    comparisons.into_iter().map(rule).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a rule of this call that allows it applies to these arguments.
    fn allows(rules: &[Rule], name: &str, args: [u64; 6]) -> bool {
        let holds = |comparison: &Comparison| {
            let argument = args[comparison.index as usize];
            match comparison.op {
                "SCMP_CMP_MASKED_EQ" => argument & comparison.value == comparison.value_two,
                "SCMP_CMP_EQ" => argument == comparison.value,
                "SCMP_CMP_NE" => argument != comparison.value,
                other => panic!("{other}"),
            }
        };
        let of_call = rules.iter().filter(|rule| rule.names.contains(&name));
        let mut applying = of_call.filter(|rule| rule.args.iter().all(holds));
        let first = applying.next();
        let is_allowed = first.is_some_and(|rule| rule.errno_ret.is_none());
        let rest: Vec<&Rule> = applying.collect();
        assert!(
            rest.iter()
                .all(|rule| rule.errno_ret.is_none() == is_allowed),
            "rules of {name} contradict each other for {args:?}"
        );
        is_allowed
    }

    #[test]
    fn verdicts_are_those_of_the_jails_own_filter() {
        let rules = rules(false);
        let call = |name: &str, args: &[u64]| {
            let mut all = [0; 6];
            all[..args.len()].copy_from_slice(args);
            allows(&rules, name, all)
        };
        assert!(call("read", &[]) && call("execve", &[]));
        for refused in [
            "mount",
            "unshare",
            "bpf",
            "keyctl",
            "io_uring_setup",
            "clone3",
        ] {
            assert!(!call(refused, &[]), "{refused}");
        }
        assert!(!call("a_call_of_the_future", &[]));
        assert!(call("clone", &[0x11]) && !call("clone", &[0x1000_0011]));
        for request in list::IOCTLS_REFUSED {
            assert!(!call("ioctl", &[0, u64::from(*request)]));
            assert!(!call("ioctl", &[0, u64::from(*request) | 1 << 40]));
            assert!(call("ioctl", &[0, u64::from(*request) + 1]));
        }
        assert!(call("ioctl", &[0, 0]) && call("ioctl", &[0, u64::MAX]));
        assert!(call("socket", &[1, 1, 7]) && call("socket", &[2, 1, 6]));
        assert!(call("socket", &[16, 3, 0]) && !call("socket", &[16, 3, 9]));
        assert!(!call("socket", &[2, 1, 132]) && !call("socket", &[17, 3, 0]));
        assert!(call("setrlimit", &[7]) && !call("setrlimit", &[4]));
        assert!(call("prlimit64", &[0, 4, 0]) && !call("prlimit64", &[0, 4, 1]));
        assert!(call("prlimit64", &[0, 7, 1]) && !call("prlimit64", &[0, 4, 1 << 40]));
        assert!(call("personality", &[LOW]) && !call("personality", &[0x4_0000]));
    }

    #[test]
    fn no_file_becomes_set_uid_where_modes_are_plain() {
        let plain = rules(true);
        assert!(allows(&plain, "fchmod", [3, 0o755, 0, 0, 0, 0]));
        assert!(!allows(&plain, "fchmod", [3, 0o4755, 0, 0, 0, 0]));
        assert!(allows(&plain, "openat", [0, 0, 0, 0o4755, 0, 0]));
        assert!(!allows(&plain, "openat", [0, 0, 0o100, 0o4755, 0, 0]));
        assert!(allows(&rules(false), "fchmod", [3, 0o4755, 0, 0, 0, 0]));
    }

    #[test]
    fn a_number_parts_from_the_listed_ones_at_exactly_one_bit() {
        let values = [5, 0x5412, u32::MAX];
        let partings = none_of(0, &values);
        assert!(partings.len() <= 32 * values.len());
        for number in [
            0,
            4,
            5,
            6,
            7,
            0x5411,
            0x5412,
            0x5413,
            u32::MAX - 1,
            u32::MAX,
        ] {
            let holding = partings
                .iter()
                .filter(|one| u64::from(number) & one.value == one.value_two)
                .count();
            assert_eq!(
                holding,
                usize::from(!values.contains(&number)),
                "{number:#x}"
            );
        }
    }

    #[test]
    fn the_profile_is_what_engines_read() {
        let profile: serde_json::Value = serde_json::from_str(&profile(false)).unwrap();
        assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
        let first = &profile["syscalls"][0];
        assert_eq!(first["names"][0], "read");
        assert_eq!(first["action"], "SCMP_ACT_ALLOW");
        assert!(first.get("args").is_none() && first.get("errnoRet").is_none());
    }
}
