//! The one way out of a router: a pair of interfaces to the host, or a process of the user's.
//!
//! The pair's name on the host is the lock on its addresses: the kernel gives a name once, to whichever daemon is first,
//! and takes it back with the router, however that ends. The process lives in a PID namespace whose first process holds
//! a line to the daemon: when the line is cut, it ends, and the kernel ends the other with it.

use crate::launcher;
use crate::netlink::{PeerIn, Requests, Routing};
use crate::router::{OnHost, in_child, readable, words};
use crate::spawn::{at, on};
use crate::steps::descriptors;
use crate::sys::{self, Cloned};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::MountPropagationFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, PidfdFlags};
use sandboxd_jail::network::{self, HOST_PREFIX, Router, SLOTS, UPLINK, Uplink};
use sandboxd_jail::report::{Failure, Step};
use sandboxd_jail::{host_rules, rules};
use std::io::Read as _;
use std::net::Ipv4Addr;
use std::process::{ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

/// How long the process may take to make its interface.
const PROCESS_WAIT: Duration = Duration::from_secs(10);
/// How often it is looked for.
const PROCESS_PAUSE: Duration = Duration::from_millis(2);
/// How many names are tried on the host.
const ATTEMPTS: u32 = 256;
/// Bytes of a process's complaint that are repeated.
const COMPLAINT_BYTES_MAX: usize = 800;

/// What `slirp4netns` gives its side of the network 198.19.0.0/24.
const SLIRP: (Ipv4Addr, Ipv4Addr, u8) = (
    Ipv4Addr::new(198, 19, 0, 100),
    Ipv4Addr::new(198, 19, 0, 2),
    24,
);

/// Joins the router to the host: the host's rules first, then the wire.
pub(crate) fn to_host(
    wanted: &Router,
    noted: &OnHost,
    host: &Routing,
    inside: &Routing,
    namespace: BorrowedFd<'_>,
) -> Result<(), Failure> {
    let (slot, name) = take_name(&noted.table, host, namespace)?;
    let (ours, theirs) = network::uplink_addresses(slot);
    let index = host.index(&name).map_err(on(Step::Router, &name))?;
    in_child(0, || {
        let apart = host_rules::forward().map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            words(Step::Router, errno, "switching forwarding on")
        })?;
        let text = rules::host(&noted.table, &name, theirs, &wanted.reach, &apart);
        std::fs::write(&noted.text, &text)
            .map_err(|error| words(Step::Router, Errno::IO, format!("{}: {error}", noted.text)))?;
        host_rules::load(&wanted.nft, &text)
            .map_err(|why| words(Step::Router, Errno::INVAL, why))
            .map(|()| Vec::new())
    })?;
    let requests = Requests::default().address(index, ours, 30).up(index);
    host.carry_out(&requests).map_err(on(Step::Router, &name))?;
    configure(inside, theirs, 30, ours)
}

/// A pair of interfaces whose name on the host nobody has.
fn take_name(
    table: &str,
    host: &Routing,
    namespace: BorrowedFd<'_>,
) -> Result<(u32, String), Failure> {
    let taken = host.addresses().map_err(at(Step::Router))?;
    let first = table.bytes().fold(5_381_u32, |hash, byte| {
        hash.wrapping_mul(33).wrapping_add(u32::from(byte))
    });
    for attempt in 0..ATTEMPTS {
        let slot = first.wrapping_add(attempt.wrapping_mul(61)) % SLOTS;
        let (ours, theirs) = network::uplink_addresses(slot);
        let network = network::Range {
            address: ours,
            bits: 30,
        };
        if taken.iter().any(|found| network.holds(found.address)) {
            continue;
        }
        let name = format!("{HOST_PREFIX}{slot}");
        let pair = Requests::default().pair(&name, 0, UPLINK, PeerIn::Namespace(namespace));
        match host.carry_out(&pair) {
            Ok(()) => return Ok((slot, name)),
            Err(Errno::EXIST) => {}
            Err(errno) => {
                let what = format!("{name}, with {theirs} behind it");
                return Err(words(Step::Router, errno, what));
            }
        }
    }
    let what = "no free name for an uplink on this host";
    Err(words(Step::Router, Errno::EXIST, what))
}

/// The router's end of the uplink.
fn configure(
    inside: &Routing,
    address: Ipv4Addr,
    bits: u8,
    gateway: Ipv4Addr,
) -> Result<(), Failure> {
    let index = inside.index(UPLINK).map_err(on(Step::Router, UPLINK))?;
    let requests = Requests::default()
        .up(index)
        .address(index, address, bits)
        .default_route(gateway, index);
    inside
        .carry_out(&requests)
        .map_err(on(Step::Router, UPLINK))
}

/// Removes the pair at once; else it goes when the kernel finds that nobody holds the router.
pub(crate) fn remove_from_host(inside: &Routing) {
    if let Ok(index) = inside.index(UPLINK) {
        let _ = inside.carry_out(&Requests::default().remove(index));
    }
}

/// Starts the process and waits for its interface. The answer is its lifeline, which the daemon keeps.
pub(crate) fn by_process(
    wanted: &Router,
    inside: &Routing,
    namespace: BorrowedFd<'_>,
) -> Result<OwnedFd, Failure> {
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(at(Step::Router))?;
    let flags = libc::CLONE_NEWPID | libc::CLONE_NEWNS;
    match sys::clone3(flags, libc::SIGCHLD, None).map_err(at(Step::Router))? {
        Cloned::Child => {
            drop(ours);
            hold(wanted, theirs, namespace)
        }
        // Its end is its daemon's to see, by the lifeline.
        Cloned::Parent { .. } => drop(theirs),
    }
    let deadline = Instant::now() + PROCESS_WAIT;
    while inside.index(UPLINK).is_err() {
        if readable(&ours, PROCESS_PAUSE).map_err(at(Step::Router))? {
            return Err(complaint(&ours));
        }
        if Instant::now() > deadline {
            return Err(words(Step::Router, Errno::TIMEDOUT, "its uplink"));
        }
    }
    let (address, gateway, bits) = addresses(&wanted.uplink);
    configure(inside, address, bits, gateway)?;
    Ok(ours)
}

fn addresses(uplink: &Uplink) -> (Ipv4Addr, Ipv4Addr, u8) {
    match uplink {
        Uplink::Slirp { .. } => SLIRP,
        Uplink::Host { .. } | Uplink::Pasta { .. } => {
            let (gateway, address) = network::uplink_addresses(0);
            (address, gateway, 30)
        }
    }
}

/// What the process said before it ended.
fn complaint(lifeline: &OwnedFd) -> Failure {
    let mut buffer = vec![0_u8; COMPLAINT_BYTES_MAX * 2];
    let length = launcher::receive(lifeline.as_fd(), &mut buffer).map_or(0, |(length, _)| length);
    let said = String::from_utf8_lossy(buffer.get(..length).unwrap_or_default()).into_owned();
    words(Step::Router, Errno::IO, said)
}

/// The first process of the PID namespace: starts the other, and ends when the line is cut or the other ends.
fn hold(wanted: &Router, lifeline: OwnedFd, namespace: BorrowedFd<'_>) -> ! {
    let lifted = descriptors::lift(&lifeline).and_then(|line| {
        let namespace = descriptors::lift(namespace)?;
        // The original lies in the range that is closed.
        std::mem::forget(lifeline);
        // Nothing of the launcher's stays open here: its end is to be seen by others.
        descriptors::close_low().map(|()| (line, namespace))
    });
    if let Ok((lifeline, namespace)) = lifted {
        let said = held(wanted, &lifeline, namespace).unwrap_or_else(|failure| failure);
        let _ = launcher::send(lifeline.as_fd(), said.as_bytes(), &[]);
    }
    sys::leave(0)
}

fn held(wanted: &Router, lifeline: &OwnedFd, namespace: OwnedFd) -> Result<String, String> {
    let _ = rustix::process::setsid();
    let _ = rustix::thread::set_name(c"sandboxd-uplink");
    let path = name_namespace(wanted, &namespace)
        .map_err(|errno| format!("naming the router in {}: {errno}", wanted.scratch))?;
    drop(namespace);
    let program = program(&wanted.uplink);
    let mut child = command(&wanted.uplink, &path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{program}: {error}"))?;
    let pidfd = rustix::process::pidfd_open(Pid::from_child(&child), PidfdFlags::empty())
        .map_err(|errno| format!("{program}: {errno}"))?;
    let said = watch(child.stderr.take(), &pidfd, lifeline);
    Ok(format!("{program} ended: {said}"))
}

/// Gives the router's namespace a path, in this process's own mount namespace.
fn name_namespace(wanted: &Router, namespace: &OwnedFd) -> Result<String, Errno> {
    let path = format!("{}/router", wanted.scratch);
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600))?;
    rustix::mount::mount_change(
        "/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )?;
    let from = format!("/proc/self/fd/{}", namespace.as_raw_fd());
    rustix::mount::mount_bind(from, &path)?;
    Ok(path)
}

fn program(uplink: &Uplink) -> &str {
    match uplink {
        Uplink::Host { .. } => "",
        Uplink::Pasta { program } | Uplink::Slirp { program } => program,
    }
}

fn command(uplink: &Uplink, namespace: &str) -> Command {
    let mut command = Command::new(program(uplink));
    command.env_clear().current_dir("/");
    match uplink {
        Uplink::Slirp { .. } => {
            command.args(["--mtu=1500", "--disable-host-loopback", "--disable-dns"]);
            command.args(["--cidr=198.19.0.0/24", "--netns-type=path"]);
            command.args([namespace, UPLINK]);
        }
        Uplink::Host { .. } | Uplink::Pasta { .. } => {
            let (address, gateway, bits) = addresses(uplink);
            command.args(["--foreground", "--quiet", "--ipv4-only", "--no-map-gw"]);
            command.args(["--no-dhcp", "--no-dhcpv6", "--no-ndp", "--no-ra"]);
            // No port is forwarded, neither in nor to the host's loopback.
            command.args(["-t", "none", "-u", "none", "-T", "none", "-U", "none"]);
            command.args(["--ns-ifname", UPLINK, "--mtu", "1500"]);
            command.args(["--address", &address.to_string()]);
            command.args(["--netmask", &bits.to_string()]);
            command.args(["--gateway", &gateway.to_string()]);
            command.args(["--netns-only", "--netns", namespace]);
        }
    }
    command
}

/// Waits for the end of the line or of the process, and reads what that says; the last of it is the answer.
fn watch(mut errors: Option<ChildStderr>, process: &OwnedFd, lifeline: &OwnedFd) -> String {
    let mut said = Vec::new();
    loop {
        let mut watched = vec![
            PollFd::new(lifeline, PollFlags::IN),
            PollFd::new(process, PollFlags::IN),
        ];
        watched.extend(errors.iter().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        match poll(&mut watched, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => break,
        }
        let ready: Vec<bool> = watched
            .iter()
            .map(|one| !one.revents().is_empty())
            .collect();
        if ready.get(2) == Some(&true)
            && let Some(pipe) = &mut errors
        {
            let mut buffer = [0_u8; 4096];
            match pipe.read(&mut buffer) {
                Ok(0) | Err(_) => errors = None,
                Ok(length) => said.extend_from_slice(buffer.get(..length).unwrap_or_default()),
            }
            let surplus = said.len().saturating_sub(COMPLAINT_BYTES_MAX);
            said.drain(..surplus);
        } else if ready.iter().take(2).any(|ready| *ready) {
            // With this process the kernel ends every other of its namespace.
            break;
        }
    }
    let said = String::from_utf8_lossy(&said);
    // That it has no log to write to is not what it died of.
    let lines = said.lines().map(str::trim);
    let lines: Vec<&str> = lines
        .filter(|line| !line.is_empty() && !line.contains("syslog"))
        .collect();
    lines.join("; ")
}
