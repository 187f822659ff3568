//! Sandboxes with a network: whether this host can give them one, the router that they hang on, and who has which address.
//!
//! The router is made with the first sandbox that needs it, by the launcher. What keeps it are descriptors that are held
//! here, so that it outlives a launcher that is lost, and goes with the daemon.

use super::launch::{LaunchError, Launcher};
use super::{instance, lock};
use crate::backends::{Ceiling, CreateError, Enforcement, Network};
use crate::egress::{Dns, Egress, name_servers};
use crate::limits::SANDBOX_CONNECTIONS_MAX;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::fs::{Access, AtFlags};
use rustix::thread::CapabilitySet;
use sandboxd_jail::network::{
    Allowed, HostRules, NUMBER_MAX, NUMBER_MIN, Range, Reach, Router, Uplink,
};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};

/// Where a system program may lie.
const PROGRAM_DIRECTORIES: &[&str] = &[
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
    "/usr/local/sbin",
    "/usr/local/bin",
];
/// Where the host's name servers are named. The first one that names a server a sandbox can reach counts: where a
/// service on loopback answers for them, it keeps the list that it asks itself elsewhere.
const RESOLVERS: &[&str] = &["/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"];
/// Where a process of the user's gets its interface from.
const TUN: &str = "/dev/net/tun";

/// How this host gives sandboxes a network.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Means {
    nft: String,
    uplink: Uplink,
}

/// What the backend knows about networks.
#[derive(Debug)]
pub(in crate::backends) struct Networks {
    egress: Egress,
    /// The instance's own.
    directory: PathBuf,
    means: Result<Means, String>,
    /// Addresses that running sandboxes have; held only while one is taken or given back.
    numbers: std::sync::Mutex<Numbers>,
    /// Locked while a router is made.
    made: tokio::sync::Mutex<Option<Made>>,
}

/// A router that is there.
#[derive(Debug)]
struct Made {
    /// How many there were before it.
    number: u64,
    /// Ends with the process that is its uplink, where that is one.
    lifeline: Option<OwnedFd>,
    resolvers: Vec<Ipv4Addr>,
}

impl Made {
    fn is_alive(&self) -> bool {
        let lifeline = self.lifeline.as_ref();
        lifeline.is_none_or(|lifeline| !has_ended(lifeline))
    }
}

/// Which of this instance's routers is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RouterNow(u64);

/// What one sandbox has of the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::backends) struct Joined {
    /// What its address is made from.
    pub(in crate::backends) number: u16,
    /// Its name servers.
    pub(in crate::backends) resolvers: Vec<Ipv4Addr>,
    /// Which of this instance's routers it hangs on.
    router: u64,
}

impl Networks {
    /// Looks at what the host has.
    pub(in crate::backends) fn look(
        egress: Egress,
        privileged: bool,
        instance: &instance::Instance,
    ) -> Self {
        Self {
            means: means(privileged, &instance.name, find),
            egress,
            directory: instance.directory.clone(),
            numbers: std::sync::Mutex::new(Numbers::default()),
            made: tokio::sync::Mutex::new(None),
        }
    }

    /// Whether a sandbox can have a network, and how.
    pub(in crate::backends) fn enforcement(&self) -> Enforcement {
        match &self.means {
            Ok(means) => Enforcement::Enforced(self.described(&means.uplink)),
            Err(why) => Enforcement::Unenforced(why.clone()),
        }
    }

    fn described(&self, uplink: &Uplink) -> String {
        let by = match uplink {
            Uplink::Host { .. } => "address translation on the host",
            Uplink::Pasta { .. } => {
                "pasta; of the host's addresses, those that it had when a sandbox was last made are refused"
            }
            Uplink::Slirp { .. } => {
                "slirp4netns; of the host's addresses, those that it had when a sandbox was last made are refused"
            }
        };
        let exceptions = match self.egress.allow.len() {
            0 => String::new(),
            _ => {
                let texts: Vec<String> =
                    self.egress.allow.iter().map(ToString::to_string).collect();
                format!(", except {}", texts.join(", "))
            }
        };
        format!(
            "IPv4 outbound only, no private, link-local or host's own address{exceptions}; no IPv6; by {by}"
        )
    }

    /// The router that there is now, if there is one.
    pub(super) async fn router_now(&self) -> Option<RouterNow> {
        let made = self.made.lock().await;
        let alive = made.as_ref().filter(|made| made.is_alive());
        alive.map(|made| RouterNow(made.number))
    }

    /// Gives an address back.
    pub(in crate::backends) fn give_back(&self, joined: Option<u16>) {
        if let Some(number) = joined {
            lock(&self.numbers).taken.remove(&number);
        }
    }

    fn router(&self, means: &Means, scratch: &Path, resolvers: &[Ipv4Addr]) -> Router {
        let range = |network: &crate::egress::Network| Range {
            address: network.address,
            bits: network.bits,
        };
        Router {
            nft: means.nft.clone(),
            uplink: means.uplink.clone(),
            reach: Reach {
                denied: self.egress.denied().iter().map(range).collect(),
                allowed: self
                    .egress
                    .allow
                    .iter()
                    .map(|destination| Allowed {
                        range: range(&destination.network),
                        port: destination.port,
                    })
                    .collect(),
                resolvers: resolvers.to_vec(),
                connections_max: SANDBOX_CONNECTIONS_MAX,
            },
            scratch: scratch.display().to_string(),
        }
    }
}

/// The addresses of one instance's sandboxes. One that was given back is the last to be given again, so that nothing that
/// is still on its way to a sandbox that has gone reaches another.
#[derive(Debug)]
struct Numbers {
    taken: BTreeSet<u16>,
    last: u16,
}

impl Default for Numbers {
    fn default() -> Self {
        Self {
            taken: BTreeSet::new(),
            last: NUMBER_MIN - 1,
        }
    }
}

impl Numbers {
    fn take(&mut self) -> Option<u16> {
        let after = (self.last..=NUMBER_MAX).skip(1);
        let before = NUMBER_MIN..=self.last.max(NUMBER_MIN);
        let free = after.chain(before).find(|n| !self.taken.contains(n))?;
        self.taken.insert(free);
        self.last = free;
        Some(free)
    }
}

/// What became of a wish for a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::backends) enum Join {
    /// None was wished for.
    Loopback,
    /// It has one.
    Joined(Joined),
    /// There is none, for this reason, and whoever asked accepts that: it has its loopback, which is less and not weaker.
    Without(String),
}

impl Join {
    /// Whether it still is what it was: what it was joined to may have gone.
    pub(super) fn holds(&self, now: Option<RouterNow>) -> bool {
        let joined = self.joined();
        joined.is_none_or(|joined| now == Some(RouterNow(joined.router)))
    }

    /// What it has.
    pub(in crate::backends) const fn joined(&self) -> Option<&Joined> {
        match self {
            Self::Joined(joined) => Some(joined),
            Self::Loopback | Self::Without(_) => None,
        }
    }
}

/// Joins a sandbox that asks for a network, as far as the daemon does that: a router is there, and an address is its own.
pub(in crate::backends) async fn join(
    networks: &Networks,
    launcher: &Launcher,
    wanted: &Network,
    accepted: bool,
) -> Result<Join, CreateError> {
    if *wanted == Network::None {
        return Ok(Join::Loopback);
    }
    let joined = match &networks.means {
        Ok(means) => make(networks, launcher, means).await,
        Err(why) => Err(why.clone()),
    };
    match joined {
        Ok(joined) => Ok(Join::Joined(joined)),
        Err(why) => without(why, accepted),
    }
}

/// What becomes of a wish that cannot be met.
pub(in crate::backends) fn without(why: String, accepted: bool) -> Result<Join, CreateError> {
    if accepted {
        return Ok(Join::Without(why));
    }
    Err(CreateError::Unenforceable {
        ceiling: Ceiling::Network,
        cause: format!("\"bridge\" is not possible: {why}"),
    })
}

/// What is in place, where it is another than the backend's answer for every sandbox; `possible` is what one has that is
/// joined.
pub(in crate::backends) fn enforced(
    join: &Join,
    possible: impl FnOnce() -> Enforcement,
) -> Option<Enforcement> {
    match join {
        Join::Loopback => None,
        Join::Joined(_) => Some(possible()),
        Join::Without(why) => Some(Enforcement::Unenforced(format!(
            "no network, although \"bridge\" was asked for: {why}"
        ))),
    }
}

async fn make(networks: &Networks, launcher: &Launcher, means: &Means) -> Result<Joined, String> {
    let mut made = networks.made.lock().await;
    let alive = made.as_ref().is_some_and(Made::is_alive);
    if !alive {
        let former = made.take();
        let number = former.as_ref().map_or(0, |former| former.number + 1);
        if former.is_some() {
            tracing::warn!(
                "the uplink of sandboxes has ended; sandboxes that had it need a new start"
            );
        }
        let resolvers = resolvers(&networks.egress.dns)?;
        let router = networks.router(means, &networks.directory, &resolvers);
        let rules = host_rules(means);
        note(networks, rules.clone()).await?;
        let lifeline = launcher
            .route(router, rules)
            .await
            .map_err(|error| match error {
                LaunchError::Failed { failure, .. } => failure.to_string(),
                other => other.to_string(),
            })?;
        *made = Some(Made {
            number,
            lifeline,
            resolvers,
        });
    }
    let there = made.as_ref();
    let there = there.map(|made| (made.number, made.resolvers.clone()));
    drop(made);
    let (router, resolvers) = there.unwrap_or_default();
    let number = lock(&networks.numbers).take();
    Ok(Joined {
        number: number.ok_or("all addresses are taken")?,
        resolvers,
        router,
    })
}

/// Writes down what is put on the host, before it is.
async fn note(networks: &Networks, rules: Option<HostRules>) -> Result<(), String> {
    let directory = networks.directory.clone();
    tokio::task::spawn_blocking(move || match rules {
        Some(rules) => instance::note_host_rules(&directory, &rules),
        None => Ok(()),
    })
    .await
    .map_err(|error| error.to_string())?
    .map_err(|error| format!("noting the rules: {error}"))
}

fn host_rules(means: &Means) -> Option<HostRules> {
    match &means.uplink {
        Uplink::Host { table } => Some(HostRules {
            nft: means.nft.clone(),
            table: table.clone(),
        }),
        Uplink::Pasta { .. } | Uplink::Slirp { .. } => None,
    }
}

/// Whether the other end of a line is gone.
pub(super) fn has_ended(lifeline: &OwnedFd) -> bool {
    let now = Timespec::default();
    let mut one = [PollFd::new(lifeline, PollFlags::IN)];
    poll(&mut one, Some(&now)).is_ok_and(|ready| ready > 0)
}

/// The name servers of sandboxes.
fn resolvers(dns: &Dns) -> Result<Vec<Ipv4Addr>, String> {
    // An address that can be bound is one of this host's.
    let is_own = |address: Ipv4Addr| UdpSocket::bind((address, 0)).is_ok();
    match dns {
        Dns::Servers(servers) => match servers.iter().find(|server| is_own(**server)) {
            Some(own) => Err(format!(
                "the name server {own} of network_dns is this host itself, which sandboxes do not reach"
            )),
            None => Ok(servers.clone()),
        },
        Dns::Host => {
            let found = RESOLVERS
                .iter()
                .filter_map(|path| std::fs::read_to_string(path).ok())
                .map(|text| name_servers(&text, is_own))
                .find(|servers| !servers.is_empty());
            found.ok_or_else(|| {
                "this host has no name server that a sandbox could reach; network_dns names others, or none"
                    .to_owned()
            })
        }
    }
}

/// How this host gives networks, or why it does not.
fn means(
    privileged: bool,
    instance: &str,
    find: impl Fn(&str) -> Option<String>,
) -> Result<Means, String> {
    let nft = find("nft").ok_or("nft is not installed (package nftables)")?;
    if privileged {
        if !super::probe::launcher_holds(CapabilitySet::NET_ADMIN) {
            return Err("root without CAP_NET_ADMIN changes no network".to_owned());
        }
        let table = format!("{}{instance}", instance::TABLE_PREFIX);
        return Ok(Means {
            nft,
            uplink: Uplink::Host { table },
        });
    }
    let pasta = find("pasta").map(|program| Uplink::Pasta { program });
    let uplink = pasta.or_else(|| find("slirp4netns").map(|program| Uplink::Slirp { program }));
    let uplink = uplink.ok_or(
        "as an ordinary user it needs pasta (package passt) or slirp4netns, and neither is installed",
    )?;
    let both = Access::READ_OK | Access::WRITE_OK;
    rustix::fs::accessat(rustix::fs::CWD, TUN, both, AtFlags::EACCESS)
        .map_err(|errno| format!("{TUN}: {}", std::io::Error::from(errno)))?;
    Ok(Means { nft, uplink })
}

/// A program by its name, where system programs lie: the environment has no say in what is run with power.
fn find(name: &str) -> Option<String> {
    PROGRAM_DIRECTORIES
        .iter()
        .map(|directory| format!("{directory}/{name}"))
        .find(|path| Path::new(path).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_nobody_elses_and_comes_back_last() {
        let mut numbers = Numbers::default();
        let first = numbers.take().unwrap();
        assert_eq!(first, NUMBER_MIN);
        numbers.taken.remove(&first);
        assert_eq!(numbers.take(), Some(NUMBER_MIN + 1));
        let all = usize::from(NUMBER_MAX - NUMBER_MIN) + 1;
        let rest: BTreeSet<u16> = std::iter::from_fn(|| numbers.take()).collect();
        assert_eq!(rest.len(), all - 1);
        assert!(rest.contains(&first));
        assert_eq!(numbers.take(), None);
        numbers.taken.remove(&77);
        assert_eq!(numbers.take(), Some(77));
    }

    #[test]
    fn what_is_missing_is_named() {
        let none = |_: &str| None;
        assert!(means(true, "x", none).unwrap_err().contains("nftables"));
        let only_nft = |name: &str| (name == "nft").then(|| "/usr/sbin/nft".to_owned());
        let why = means(false, "x", only_nft).unwrap_err();
        assert!(
            why.contains("passt") && why.contains("slirp4netns"),
            "{why}"
        );
    }

    #[test]
    fn configured_servers_are_taken_as_they_are_unless_they_are_this_host() {
        let servers = |server: Ipv4Addr| resolvers(&Dns::Servers(vec![server]));
        assert!(servers(Ipv4Addr::LOCALHOST).is_err());
        assert_eq!(resolvers(&Dns::Servers(Vec::new())), Ok(Vec::new()));
        let elsewhere = Ipv4Addr::new(9, 9, 9, 9);
        assert_eq!(servers(elsewhere), Ok(vec![elsewhere]));
    }
}
