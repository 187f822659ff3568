//! The router of an instance, and how sandboxes are joined to it.
//!
//! A router is a network namespace in which nothing runs. A child of the launcher makes it, loads its rules and hands
//! back a socket in it; by that socket the launcher reaches it without ever entering it. It is kept by that socket and by
//! the daemon's copies, so that it outlives a launcher, and goes with everything in it when both are gone.

use crate::id_namespaces::{self, write};
use crate::netlink::{self, PeerIn, Requests, Routing};
use crate::spawn::{at, on};
use crate::sys::{self, Cloned};
use crate::{launcher, uplink};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Signal, WaitId, WaitIdOptions};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};
use sandboxd_jail::network::{self, Reach, Uplink};
use sandboxd_jail::plan::Extent;
use sandboxd_jail::report::{Failure, REPORT_BYTES_MAX, Step};
use sandboxd_jail::{host_rules, rules};
use std::net::Ipv4Addr;
use std::time::Duration;

/// How long a child may take that loads rules.
pub(crate) const CHILD_WAIT: Duration = Duration::from_secs(10);
/// Numbers of the router's interfaces begin after these.
const INDEX_BASE: u32 = 16;
/// The loopback interface's number in every namespace.
const LOOPBACK: u32 = 1;

/// What the launcher holds of a router.
#[derive(Debug)]
pub(crate) struct Router {
    /// A socket in it.
    inside: Routing,
    /// Itself.
    namespace: OwnedFd,
    /// A socket in the host's namespace.
    host: Routing,
    /// The host's addresses, as the rules know them.
    own: Vec<Ipv4Addr>,
    /// The program that loads rules.
    nft: String,
    /// What was put into the host's rules, where something was.
    on_host: Option<OnHost>,
}

/// A table of the host's rules that is ours.
#[derive(Debug)]
pub(crate) struct OnHost {
    /// Its name.
    pub(crate) table: String,
    /// A file with what it says.
    pub(crate) text: String,
}

impl OnHost {
    /// That of an instance, by the directory of its own.
    pub(crate) fn of(table: &str, scratch: &str) -> Self {
        Self {
            table: table.to_owned(),
            text: format!("{scratch}/table"),
        }
    }

    /// Puts the table back if somebody has removed it with all others, as a firewall does that is loaded anew.
    fn stay(&self, nft: &str) -> Result<(), Failure> {
        let there = netlink::has_table(&self.table).map_err(on(Step::Router, &self.table))?;
        if there {
            return Ok(());
        }
        in_child(0, || {
            let failed = |why| words(Step::Router, Errno::IO, why);
            let text = std::fs::read_to_string(&self.text)
                .map_err(|error| failed(format!("{}: {error}", self.text)))?;
            host_rules::load(nft, &text).map_err(failed)?;
            Ok(Vec::new())
        })
        .map(drop)
    }
}

/// A router, and what the daemon is to keep for the next launcher.
#[derive(Debug)]
pub(crate) struct Made {
    /// The router.
    pub(crate) router: Router,
    /// A socket in it, itself; where the uplink is a process also that process's lifeline and its users.
    pub(crate) handed: Vec<OwnedFd>,
}

/// A failure in words.
pub(crate) fn words(step: Step, errno: Errno, what: impl Into<String>) -> Failure {
    Failure {
        step,
        errno: errno.raw_os_error(),
        what: what.into(),
    }
}

/// Makes the router of an instance with its uplink. `users` are the launcher's own user namespace, where it has one.
pub(crate) fn make(wanted: &network::Router, users: &mut Option<OwnedFd>) -> Result<Made, Failure> {
    reap();
    let host = Routing::open().map_err(at(Step::Router))?;
    let own = own_addresses(&host)?;
    let by_process = !matches!(wanted.uplink, Uplink::Host { .. });
    if by_process && users.is_none() {
        *users = Some(own_users().map_err(on(Step::Router, "users of its own"))?);
    }
    let mut made = in_child(libc::CLONE_NEWNET, || {
        set_up(&wanted.nft, &wanted.reach, &own)
    })?;
    let (Some(namespace), Some(inside)) = (made.pop(), made.pop()) else {
        return Err(on(Step::Router, "its descriptors")(Errno::BADMSG));
    };
    let inside = Routing::from(inside);
    let copy = |descriptor: BorrowedFd<'_>| {
        rustix::io::fcntl_dupfd_cloexec(descriptor, 3).map_err(at(Step::Router))
    };
    let mut handed = vec![copy(inside.as_fd())?, copy(namespace.as_fd())?];
    let mut on_host = None;
    match &wanted.uplink {
        Uplink::Host { table } => {
            let noted = OnHost::of(table, &wanted.scratch);
            uplink::to_host(wanted, &noted, &host, &inside, namespace.as_fd())?;
            on_host = Some(noted);
        }
        Uplink::Pasta { .. } | Uplink::Slirp { .. } => {
            handed.push(uplink::by_process(wanted, &inside, namespace.as_fd())?);
            if let Some(users) = users {
                handed.push(copy(users.as_fd())?);
            }
        }
    }
    let router = Router {
        inside,
        namespace,
        host,
        own,
        nft: wanted.nft.clone(),
        on_host,
    };
    Ok(Made { router, handed })
}

impl Router {
    /// Takes over the router that an earlier launcher made.
    pub(crate) fn adopt(
        nft: String,
        on_host: Option<OnHost>,
        inside: OwnedFd,
        namespace: OwnedFd,
    ) -> Result<Self, Errno> {
        Ok(Self {
            inside: inside.into(),
            namespace,
            host: Routing::open()?,
            // Whatever they are: the next sandbox has them loaded.
            own: Vec::new(),
            nft,
            on_host,
        })
    }

    /// Joins a network namespace to it, whose end of the pair has no address yet.
    pub(crate) fn attach(&mut self, number: u16, peer: PeerIn<'_>) -> Result<(), Failure> {
        self.follow_own_addresses()?;
        if let Some(on_host) = &self.on_host {
            on_host.stay(&self.nft)?;
        }
        let index = INDEX_BASE + u32::from(number);
        let name = format!("{}{number}", network::LINK_PREFIX);
        let requests = Requests::default()
            .pair(&name, index, network::INSIDE, peer)
            .up(index)
            .route_to(network::address_of(number), index);
        self.inside
            .carry_out(&requests)
            .map_err(on(Step::Network, &name))
    }

    /// The host may have got an address since: what the router refuses is brought up to date before anybody is joined.
    fn follow_own_addresses(&mut self) -> Result<(), Failure> {
        let own = own_addresses(&self.host)?;
        if own == self.own {
            return Ok(());
        }
        let (nft, text) = (&self.nft, rules::router_own(&own));
        let namespace = self.namespace.as_fd();
        in_child(0, || {
            rustix::thread::move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))
                .map_err(on(Step::Router, "entering it"))?;
            host_rules::load(nft, &text)
                .map_err(|why| words(Step::Router, Errno::INVAL, why))
                .map(|()| Vec::new())
        })?;
        self.own = own;
        Ok(())
    }

    /// Takes the uplink off the host, and lets go.
    pub(crate) fn end(self) {
        uplink::remove_from_host(&self.inside);
    }
}

/// Former uplinks that have ended are children of ours.
fn reap() {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    while let Ok(Some(_)) = rustix::process::waitid(WaitId::All, options) {}
}

/// The addresses that are the host's own, but for loopback, which nobody reaches by a wire.
fn own_addresses(host: &Routing) -> Result<Vec<Ipv4Addr>, Failure> {
    let found = host.addresses().map_err(at(Step::Router))?;
    let mut own: Vec<Ipv4Addr> = found.iter().map(|found| found.address).collect();
    own.retain(|address| !address.is_loopback());
    own.dedup();
    Ok(own)
}

/// Makes the namespace that this child was born in the router: nothing passes before the rules are loaded, since
/// nothing is joined before.
fn set_up(nft: &str, reach: &Reach, own: &[Ipv4Addr]) -> Result<Vec<OwnedFd>, Failure> {
    for (name, value) in [
        ("ip_forward", "1"),
        // Whoever claims another's address is not heard.
        ("conf/all/rp_filter", "1"),
        ("conf/default/rp_filter", "1"),
        ("conf/all/accept_redirects", "0"),
        ("conf/all/send_redirects", "0"),
        ("conf/default/send_redirects", "0"),
        ("conf/all/accept_source_route", "0"),
        // Whoever is refused hears it each time, and does not wait.
        ("icmp_ratelimit", "0"),
    ] {
        let path = format!("/proc/sys/net/ipv4/{name}");
        write(&path, value).map_err(on(Step::Router, &path))?;
    }
    let inside = Routing::open().map_err(at(Step::Router))?;
    host_rules::load(nft, &rules::router(reach, own))
        .map_err(|why| words(Step::Router, Errno::INVAL, why))?;
    let gateway = Requests::default()
        .plain_up(LOOPBACK)
        .address(LOOPBACK, network::GATEWAY, 32);
    inside
        .carry_out(&gateway)
        .map_err(on(Step::Router, "loopback"))?;
    let namespace = rustix::fs::open(
        "/proc/self/ns/net",
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )
    .map_err(at(Step::Router))?;
    Ok(vec![inside.into(), namespace])
}

/// A user namespace for the launcher itself, in which an ordinary user is root: all that it makes from then on belongs to
/// that. It cannot go back, and need not.
fn own_users() -> Result<OwnedFd, Errno> {
    let one = |seen| {
        vec![Extent {
            on_disk: 0,
            seen,
            count: 1,
        }]
    };
    let uids = one(rustix::process::geteuid().as_raw());
    let gids = one(rustix::process::getegid().as_raw());
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    sys::unshare(UnshareFlags::NEWUSER)?;
    id_namespaces::write_maps(pid, &uids, &gids, false)?;
    id_namespaces::open_namespace(pid, "user")
}

/// Enters the user namespace of an earlier launcher.
pub(crate) fn enter_users(users: &OwnedFd) -> Result<(), Errno> {
    rustix::thread::move_into_link_name_space(users.as_fd(), Some(LinkNameSpaceType::User))
}

/// Does something in a child, in namespaces of its own where `flags` say so; what it hands back, or why it failed.
pub(crate) fn in_child(
    flags: std::ffi::c_int,
    work: impl FnOnce() -> Result<Vec<OwnedFd>, Failure>,
) -> Result<Vec<OwnedFd>, Failure> {
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(at(Step::Router))?;
    let pidfd = match sys::clone3(flags, libc::SIGCHLD, None).map_err(at(Step::Router))? {
        Cloned::Child => {
            drop(ours);
            let _ = match work() {
                Ok(handed) => {
                    let handed: Vec<BorrowedFd<'_>> = handed.iter().map(AsFd::as_fd).collect();
                    launcher::send(theirs.as_fd(), b"+", &handed)
                }
                Err(failure) => launcher::send(theirs.as_fd(), &failure.encode(), &[]),
            };
            sys::leave(0)
        }
        Cloned::Parent { pidfd, .. } => pidfd,
    };
    drop(theirs);
    let answer = answer_of(&ours);
    let _ = rustix::process::pidfd_send_signal(&pidfd, Signal::KILL);
    let _ = rustix::process::waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED);
    answer
}

/// What a child said within its time.
fn answer_of(socket: &OwnedFd) -> Result<Vec<OwnedFd>, Failure> {
    if !readable(socket, CHILD_WAIT).map_err(at(Step::Router))? {
        return Err(on(Step::Router, "a child of the launcher")(Errno::TIMEDOUT));
    }
    let mut buffer = vec![0_u8; REPORT_BYTES_MAX];
    let (length, handed) =
        launcher::receive(socket.as_fd(), &mut buffer).map_err(at(Step::Router))?;
    match buffer.get(..length) {
        Some(b"+") => Ok(handed),
        Some([]) | None => Err(on(Step::Router, "a child of the launcher died")(
            Errno::PIPE,
        )),
        Some(report) => Err(Failure::decode(report)
            .unwrap_or_else(|_| on(Step::Router, "a child's report")(Errno::BADMSG))),
    }
}

/// Waits until something is to be read; whether it is.
pub(crate) fn readable(descriptor: impl AsFd, limit: Duration) -> Result<bool, Errno> {
    let limit = Timespec::try_from(limit).map_err(|_| Errno::OVERFLOW)?;
    let mut one = [PollFd::new(&descriptor, PollFlags::IN)];
    rustix::io::retry_on_intr(|| poll(&mut one, Some(&limit))).map(|ready| ready > 0)
}
