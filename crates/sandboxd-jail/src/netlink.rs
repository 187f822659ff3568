//! What the launcher asks the kernel about interfaces, addresses and routes: a handful of messages of `NETLINK_ROUTE`.
//!
//! A handful is no reason for a library that knows all of them, in the program that holds the most rights.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send,
    socket_with,
};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// How long the kernel may take to answer.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// A part of a dump fits in this.
const BUFFER_BYTES: usize = 64 * 1024;

const HEADER_BYTES: usize = 16;
const ADDRESS_BYTES: usize = 8;

// Kinds of messages.
const DONE: u16 = 3;
const ERROR: u16 = 2;
const NEW_LINK: u16 = 16;
const DELETE_LINK: u16 = 17;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const GET_ADDRESS: u16 = 22;
const NEW_ROUTE: u16 = 24;
/// Of packet rules: the question for a table.
const GET_TABLE: u16 = 10 << 8 | 1;

// Flags of messages.
const REQUEST: u16 = 0x1;
const ACKNOWLEDGE: u16 = 0x4;
const DUMP: u16 = 0x300;
const CREATE_NEW: u16 = 0x600;

// Attributes of links.
const IFLA_IFNAME: u16 = 3;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_PID: u16 = 19;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_NET_NS_FD: u16 = 28;
const INFO_KIND: u16 = 1;
const INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const INET6_ADDR_GEN_MODE: u16 = 8;
/// No address is made up for the interface.
const ADDR_GEN_NONE: u8 = 1;
// Attributes of addresses and routes.
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;

// Of tables of packet rules.
const TABLE_NAME: u16 = 1;
const FAMILY_INET: u8 = 1;

const IFF_UP: u32 = 1;
const RT_TABLE_MAIN: u8 = 254;
const RTPROT_STATIC: u8 = 4;
const RT_SCOPE_LINK: u8 = 253;
const RTN_UNICAST: u8 = 1;
const RTNH_F_ONLINK: u32 = 4;

/// One request, or several that are carried out in order.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    bytes: Vec<u8>,
    count: usize,
}

/// Whose namespace the other end of a pair of interfaces goes to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PeerIn<'a> {
    /// That of a process.
    Process(i32),
    /// This one.
    Namespace(BorrowedFd<'a>),
}

impl Requests {
    fn begin(&mut self, kind: u16, flags: u16) -> usize {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes
            .extend_from_slice(&(flags | REQUEST).to_ne_bytes());
        self.count += 1;
        let sequence = u32::try_from(self.count).unwrap_or(u32::MAX);
        self.bytes.extend_from_slice(&sequence.to_ne_bytes());
        self.bytes.extend_from_slice(&[0; 4]);
        at
    }

    fn end(&mut self, at: usize) {
        let length = u32::try_from(self.bytes.len() - at).unwrap_or(u32::MAX);
        if let Some(field) = self.bytes.get_mut(at..at + 4) {
            field.copy_from_slice(&length.to_ne_bytes());
        }
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        let at = self.nest(kind);
        self.bytes.extend_from_slice(value);
        self.close(at);
    }

    fn nest(&mut self, kind: u16) -> usize {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 2]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        at
    }

    fn close(&mut self, at: usize) {
        let length = u16::try_from(self.bytes.len() - at).unwrap_or(u16::MAX);
        if let Some(field) = self.bytes.get_mut(at..at + 2) {
            field.copy_from_slice(&length.to_ne_bytes());
        }
        while !self.bytes.len().is_multiple_of(4) {
            self.bytes.push(0);
        }
    }

    fn link_header(&mut self, index: u32, flags: u32) {
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&index.to_ne_bytes());
        self.bytes.extend_from_slice(&flags.to_ne_bytes());
        // Which flags change.
        self.bytes.extend_from_slice(&flags.to_ne_bytes());
    }

    fn name(&mut self, name: &str) {
        let mut bytes = name.as_bytes().to_vec();
        bytes.push(0);
        self.attribute(IFLA_IFNAME, &bytes);
    }

    /// A new pair of interfaces: this end, with a number of our choice (0 leaves it to the kernel), and the other.
    pub(crate) fn pair(mut self, name: &str, index: u32, peer: &str, peer_in: PeerIn<'_>) -> Self {
        let at = self.begin(NEW_LINK, CREATE_NEW | ACKNOWLEDGE);
        self.link_header(index, 0);
        self.name(name);
        let info = self.nest(IFLA_LINKINFO);
        self.attribute(INFO_KIND, b"veth");
        let data = self.nest(INFO_DATA);
        let other = self.nest(VETH_INFO_PEER);
        self.link_header(0, 0);
        self.name(peer);
        match peer_in {
            PeerIn::Process(pid) => {
                self.attribute(IFLA_NET_NS_PID, &pid.to_ne_bytes());
            }
            PeerIn::Namespace(namespace) => {
                use rustix::fd::AsRawFd as _;
                self.attribute(IFLA_NET_NS_FD, &namespace.as_raw_fd().to_ne_bytes());
            }
        }
        self.close(other);
        self.close(data);
        self.close(info);
        self.end(at);
        self
    }

    /// Brings an interface up, without an IPv6 address of the kernel's making.
    pub(crate) fn up(mut self, index: u32) -> Self {
        let at = self.begin(NEW_LINK, ACKNOWLEDGE);
        self.link_header(index, 0);
        let families = self.nest(IFLA_AF_SPEC);
        let family = self.nest(u16::from(AddressFamily::INET6.as_raw().to_ne_bytes()[0]));
        self.attribute(INET6_ADDR_GEN_MODE, &[ADDR_GEN_NONE]);
        self.close(family);
        self.close(families);
        self.end(at);
        self.plain_up(index)
    }

    /// Brings an interface up.
    pub(crate) fn plain_up(mut self, index: u32) -> Self {
        let at = self.begin(NEW_LINK, ACKNOWLEDGE);
        self.link_header(index, IFF_UP);
        self.end(at);
        self
    }

    /// Removes an interface.
    pub(crate) fn remove(mut self, index: u32) -> Self {
        let at = self.begin(DELETE_LINK, ACKNOWLEDGE);
        self.link_header(index, 0);
        self.end(at);
        self
    }

    /// Gives an interface an address.
    pub(crate) fn address(mut self, index: u32, address: Ipv4Addr, bits: u8) -> Self {
        let at = self.begin(NEW_ADDRESS, CREATE_NEW | ACKNOWLEDGE);
        self.bytes.extend_from_slice(&[inet(), bits, 0, 0]);
        self.bytes.extend_from_slice(&index.to_ne_bytes());
        self.attribute(IFA_LOCAL, &address.octets());
        self.attribute(IFA_ADDRESS, &address.octets());
        self.end(at);
        self
    }

    /// A route to one address that is right behind an interface.
    pub(crate) fn route_to(mut self, address: Ipv4Addr, index: u32) -> Self {
        let at = self.begin(NEW_ROUTE, CREATE_NEW | ACKNOWLEDGE);
        self.route_header(32, RT_SCOPE_LINK, 0);
        self.attribute(RTA_DST, &address.octets());
        self.attribute(RTA_OIF, &index.to_ne_bytes());
        self.end(at);
        self
    }

    /// The route to everything else, by a gateway that is right behind an interface.
    pub(crate) fn default_route(mut self, gateway: Ipv4Addr, index: u32) -> Self {
        let at = self.begin(NEW_ROUTE, CREATE_NEW | ACKNOWLEDGE);
        self.route_header(0, 0, RTNH_F_ONLINK);
        self.attribute(RTA_GATEWAY, &gateway.octets());
        self.attribute(RTA_OIF, &index.to_ne_bytes());
        self.end(at);
        self
    }

    fn route_header(&mut self, bits: u8, scope: u8, flags: u32) {
        self.bytes.extend_from_slice(&[
            inet(),
            bits,
            0,
            0,
            RT_TABLE_MAIN,
            RTPROT_STATIC,
            scope,
            RTN_UNICAST,
        ]);
        self.bytes.extend_from_slice(&flags.to_ne_bytes());
    }
}

const fn inet() -> u8 {
    libc::AF_INET.to_ne_bytes()[0]
}

/// An address of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Address {
    /// Which address.
    pub(crate) address: Ipv4Addr,
    /// The interface's number.
    pub(crate) index: u32,
}

/// Whether the host's packet rules have a table of this name.
pub(crate) fn has_table(name: &str) -> Result<bool, Errno> {
    let netfilter = netlink::NETFILTER;
    let socket = Routing::open_for(Some(netfilter))?;
    let mut requests = Requests::default();
    let at = requests.begin(GET_TABLE, 0);
    requests.bytes.extend_from_slice(&[FAMILY_INET, 0, 0, 0]);
    let mut text = name.as_bytes().to_vec();
    text.push(0);
    requests.attribute(TABLE_NAME, &text);
    requests.end(at);
    socket.ask(&requests)?;
    let mut found = Ok(false);
    socket.messages(|kind, body| {
        found = match kind {
            ERROR => verdict(body).map(|()| true),
            _ => Ok(true),
        };
    })?;
    match found {
        Err(Errno::NOENT) => Ok(false),
        other => other,
    }
}

/// A socket to the kernel's routing, in the network namespace where it was opened, whoever uses it later.
#[derive(Debug)]
pub(crate) struct Routing(OwnedFd);

impl AsFd for Routing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<OwnedFd> for Routing {
    fn from(socket: OwnedFd) -> Self {
        Self(socket)
    }
}

impl From<Routing> for OwnedFd {
    fn from(routing: Routing) -> Self {
        routing.0
    }
}

impl Routing {
    /// Opens one in this thread's network namespace.
    pub(crate) fn open() -> Result<Self, Errno> {
        // The first protocol of the family is that of interfaces and routes.
        Self::open_for(None)
    }

    fn open_for(protocol: Option<Protocol>) -> Result<Self, Errno> {
        let kind = SocketType::RAW;
        socket_with(AddressFamily::NETLINK, kind, SocketFlags::CLOEXEC, protocol).map(Self)
    }

    /// Asks, once nothing is left that an earlier question was answered too late.
    fn ask(&self, requests: &Requests) -> Result<(), Errno> {
        let mut late = [0_u8; 16];
        while recv(&self.0, &mut late[..], RecvFlags::DONTWAIT).is_ok() {}
        send(&self.0, &requests.bytes, SendFlags::empty())?;
        Ok(())
    }

    /// Carries requests out; the first that fails says why, and those after it may have been done.
    pub(crate) fn carry_out(&self, requests: &Requests) -> Result<(), Errno> {
        self.ask(requests)?;
        let mut answered = 0;
        let mut first = Ok(());
        while answered < requests.count {
            self.messages(|kind, body| {
                if kind == ERROR {
                    answered += 1;
                    if let (Ok(()), Err(errno)) = (first, verdict(body)) {
                        first = Err(errno);
                    }
                }
            })?;
        }
        first
    }

    /// The number of an interface by its name.
    pub(crate) fn index(&self, name: &str) -> Result<u32, Errno> {
        let mut requests = Requests::default();
        let at = requests.begin(GET_LINK, 0);
        requests.link_header(0, 0);
        requests.name(name);
        requests.end(at);
        self.ask(&requests)?;
        let mut found = Err(Errno::NODEV);
        self.messages(|kind, body| match kind {
            NEW_LINK => found = word(body, 4).ok_or(Errno::BADMSG),
            ERROR => found = verdict(body).and(Err(Errno::NODEV)),
            _ => {}
        })?;
        found
    }

    /// All IPv4 addresses of this namespace, in order.
    pub(crate) fn addresses(&self) -> Result<Vec<Address>, Errno> {
        let mut requests = Requests::default();
        let at = requests.begin(GET_ADDRESS, DUMP);
        requests
            .bytes
            .extend_from_slice(&[inet(), 0, 0, 0, 0, 0, 0, 0]);
        requests.end(at);
        self.ask(&requests)?;
        let mut found = Vec::new();
        let mut ended = None;
        while ended.is_none() {
            self.messages(|kind, body| match kind {
                NEW_ADDRESS => found.extend(local_address(body)),
                DONE => ended = Some(Ok(())),
                ERROR => ended = Some(verdict(body)),
                _ => {}
            })?;
        }
        found.sort_unstable();
        ended.unwrap_or(Ok(())).map(|()| found)
    }

    /// Reads one datagram, and shows each message in it: its kind and what follows its header.
    fn messages(&self, mut show: impl FnMut(u16, &[u8])) -> Result<(), Errno> {
        self.wait()?;
        let mut buffer = vec![0_u8; BUFFER_BYTES];
        let (read, whole) = recv(&self.0, &mut buffer[..], RecvFlags::TRUNC)?;
        if whole > BUFFER_BYTES {
            return Err(Errno::MSGSIZE);
        }
        let mut rest = buffer.get(..read).unwrap_or_default();
        while let (Some(length), Some(kind)) = (word(rest, 0), half(rest, 4)) {
            let length = usize::try_from(length).map_err(|_| Errno::BADMSG)?;
            let message = rest.get(HEADER_BYTES..length).ok_or(Errno::BADMSG)?;
            show(kind, message);
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        Ok(())
    }

    fn wait(&self) -> Result<(), Errno> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let deadline = Instant::now() + ANSWER_WAIT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).map_err(|_| Errno::OVERFLOW)?;
            let mut one = [PollFd::new(&self.0, PollFlags::IN)];
            match poll(&mut one, Some(&left)) {
                Ok(0) => return Err(Errno::TIMEDOUT),
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

fn verdict(body: &[u8]) -> Result<(), Errno> {
    match word(body, 0).map(u32::cast_signed) {
        Some(0) => Ok(()),
        Some(code) => Err(Errno::from_raw_os_error(code.wrapping_neg())),
        None => Err(Errno::BADMSG),
    }
}

/// The address that a message about one says is the interface's own.
fn local_address(body: &[u8]) -> Option<Address> {
    let index = word(body, 4)?;
    let mut rest = body.get(ADDRESS_BYTES..)?;
    while let (Some(length), Some(kind)) = (half(rest, 0), half(rest, 2)) {
        let length = usize::from(length);
        let value = rest.get(4..length)?;
        if kind == IFA_LOCAL {
            let octets: [u8; 4] = value.try_into().ok()?;
            return Some(Address {
                address: octets.into(),
                index,
            });
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    None
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_ne_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK_BYTES: usize = 16;

    #[test]
    fn messages_and_attributes_say_their_own_length() {
        let requests = Requests::default()
            .pair("s-7", 23, "eth0", PeerIn::Process(77))
            .up(23);
        let mut rest = &requests.bytes[..];
        let mut kinds = Vec::new();
        while let Some(length) = word(rest, 0) {
            kinds.push(half(rest, 4).unwrap());
            let mut attributes = &rest[HEADER_BYTES + LINK_BYTES..length as usize];
            while let Some(length) = half(attributes, 0) {
                assert!(length >= 4);
                attributes = attributes
                    .get(usize::from(length).next_multiple_of(4)..)
                    .unwrap();
            }
            rest = &rest[(length as usize).next_multiple_of(4)..];
        }
        assert_eq!(kinds, [NEW_LINK; 3]);
        assert_eq!(requests.count, 3);
    }

    #[test]
    fn an_answer_is_read_and_a_liar_is_not_believed() {
        assert_eq!(verdict(&0_i32.to_ne_bytes()), Ok(()));
        assert_eq!(verdict(&(-17_i32).to_ne_bytes()), Err(Errno::EXIST));
        assert_eq!(verdict(&[]), Err(Errno::BADMSG));
        let mut body = vec![0; ADDRESS_BYTES];
        body[4] = 3;
        body.extend_from_slice(&8_u16.to_ne_bytes());
        body.extend_from_slice(&IFA_LOCAL.to_ne_bytes());
        body.extend_from_slice(&[192, 0, 2, 2]);
        let found = local_address(&body).unwrap();
        assert_eq!(
            (found.address, found.index),
            (Ipv4Addr::new(192, 0, 2, 2), 3)
        );
        body.truncate(ADDRESS_BYTES + 6);
        assert_eq!(local_address(&body), None);
    }

    #[test]
    fn the_kernel_tells_of_this_namespace() {
        let routing = Routing::open().unwrap();
        let loopback = routing.index("lo").unwrap();
        assert!(
            routing
                .addresses()
                .unwrap()
                .iter()
                .all(|found| found.index > 0)
        );
        assert!(loopback > 0);
        assert_eq!(routing.index("no-such-one"), Err(Errno::NODEV));
        if rustix::process::geteuid().is_root() {
            assert_eq!(has_table("no-such-table"), Ok(false));
        }
    }
}
