//! What a sandbox may reach on the network, as the operator says it: pure.
//!
//! Only addresses count, since only they are what a packet goes to: how a program spelled a destination, what a name
//! resolved to, and where an answer redirected it are all decided by the same few rules, in the kernel.

use crate::limits::DNS_SERVERS_MAX;
use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// What is refused to every sandbox with a network, and why. What is left is the public Internet.
pub const DENIED: &[(&str, &str)] = &[
    ("0.0.0.0/8", "this host, to itself"),
    ("10.0.0.0/8", "private networks"),
    (
        "100.64.0.0/10",
        "addresses between providers and customers; cloud metadata at 100.100.100.200",
    ),
    ("127.0.0.0/8", "loopback"),
    (
        "169.254.0.0/16",
        "link-local; cloud metadata at 169.254.169.254",
    ),
    ("172.16.0.0/12", "private networks; container engines"),
    (
        "192.0.0.0/24",
        "assigned to protocols; cloud metadata at 192.0.0.192",
    ),
    ("192.168.0.0/16", "private networks; virtual machines"),
    ("198.18.0.0/15", "sandboxes and their routers"),
    ("224.0.0.0/4", "groups of receivers"),
    ("240.0.0.0/4", "reserved, and everybody at once"),
];

/// A network: an address and how many of its leading bits count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// Its first address.
    pub address: Ipv4Addr,
    /// 0 to 32.
    pub bits: u8,
}

/// A destination that is allowed although it lies in a denied network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Destination {
    /// Where.
    pub network: Network,
    /// The one port, of TCP and UDP; absent means all.
    pub port: Option<u16>,
}

/// What sandboxes with a network may reach.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Egress {
    /// Exceptions from what is denied. An empty list is no exception.
    pub allow: Vec<Destination>,
    /// Denied beside [`DENIED`].
    pub deny: Vec<Network>,
    /// The name servers of sandboxes.
    pub dns: Dns,
}

/// Which name servers sandboxes have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Dns {
    /// Those of the host that a sandbox can reach.
    #[default]
    Host,
    /// These; none is none.
    Servers(Vec<Ipv4Addr>),
}

impl Egress {
    /// Everything that is denied.
    pub fn denied(&self) -> Vec<Network> {
        let built_in = DENIED.iter().filter_map(|(text, _)| text.parse().ok());
        built_in.chain(self.deny.iter().copied()).collect()
    }
}

/// The name servers of a `resolv.conf` that can be reached over IPv4 from elsewhere than the host itself.
pub fn name_servers(text: &str, is_own: impl Fn(Ipv4Addr) -> bool) -> Vec<Ipv4Addr> {
    let mut servers: Vec<Ipv4Addr> = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if words.next() == Some("nameserver")
            && let Some(Ok(server)) = words.next().map(Ipv4Addr::from_str)
            && !server.is_loopback()
            && !server.is_unspecified()
            && !is_own(server)
            && !servers.contains(&server)
        {
            servers.push(server);
        }
    }
    servers.truncate(DNS_SERVERS_MAX);
    servers
}

impl FromStr for Network {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str =
            "expected IPv4 addresses or networks such as 10.1.2.3 or 10.1.0.0/16";
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) if bits.bytes().all(|byte| byte.is_ascii_digit()) => {
                (address, bits.parse::<u8>().map_err(|_| EXPECTED)?)
            }
            Some(_) => return Err(EXPECTED),
            None => (text, 32),
        };
        let address: Ipv4Addr = address.parse().map_err(|_| EXPECTED)?;
        let rest = u32::MAX.checked_shr(u32::from(bits)).unwrap_or(0);
        if bits > 32 {
            return Err(EXPECTED);
        }
        if address.to_bits() & rest != 0 {
            return Err("expected the first address of a network, as in 10.1.0.0/16");
        }
        Ok(Self { address, bits })
    }
}

impl FromStr for Destination {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (network, port) = match text.split_once(':') {
            None => (text, None),
            Some((network, port)) => {
                let digits = port.bytes().all(|byte| byte.is_ascii_digit());
                let port = port.parse::<u16>().ok().filter(|port| digits && *port > 0);
                let port = port.ok_or("expected a port, 1 to 65535, after the colon")?;
                (network, Some(port))
            }
        };
        let network: Network = network.parse()?;
        if network.address.is_loopback() || network.address.is_multicast() {
            return Err("loopback and groups of receivers are no destination outside a sandbox");
        }
        Ok(Self { network, port })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bits {
            32 => self.address.fmt(f),
            bits => write!(f, "{}/{bits}", self.address),
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            None => self.network.fmt(f),
            Some(port) => write!(f, "{}:{port}", self.network),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(network: Network, address: [u8; 4]) -> bool {
        let shift = 32 - u32::from(network.bits);
        let part = |address: Ipv4Addr| u64::from(address.to_bits()) >> shift;
        part(network.address) == part(address.into())
    }

    #[test]
    fn what_is_denied_covers_what_must_never_be_reached() {
        let denied = Egress::default().denied();
        assert_eq!(denied.len(), DENIED.len(), "each one parses");
        let reached = |address: [u8; 4]| !denied.iter().any(|network| holds(*network, address));
        for address in [
            [169, 254, 169, 254],
            [100, 100, 100, 200],
            [192, 0, 0, 192],
            [10, 0, 0, 1],
            [172, 17, 0, 1],
            [172, 31, 255, 255],
            [192, 168, 65, 7],
            [100, 64, 0, 1],
            [100, 127, 255, 255],
            [127, 0, 0, 1],
            [0, 0, 0, 0],
            [198, 18, 0, 1],
            [198, 19, 255, 255],
            [224, 0, 0, 1],
            [255, 255, 255, 255],
        ] {
            assert!(!reached(address), "{address:?}");
        }
        for address in [
            [8, 8, 8, 8],
            [172, 32, 0, 1],
            [100, 128, 0, 1],
            [198, 20, 0, 0],
        ] {
            assert!(reached(address), "{address:?}");
        }
    }

    #[test]
    fn an_empty_list_is_no_exception() {
        let empty = Egress {
            allow: Vec::new(),
            ..Egress::default()
        };
        assert_eq!(empty.denied().len(), DENIED.len());
    }

    #[test]
    fn a_destination_is_spelled_in_one_way() {
        for good in [
            "10.1.2.3",
            "10.1.0.0/16",
            "10.1.2.3:5432",
            "10.1.0.0/16:443",
        ] {
            let parsed: Destination = good.parse().unwrap();
            assert_eq!(parsed.to_string(), good);
        }
        for bad in [
            "",
            "10.1",
            "10.1.2.3/8",
            "10.1.2.3/33",
            "10.1.2.3/+8",
            "10.1.2.3/",
            "012.1.2.3",
            "0x0a.1.2.3",
            "167772161",
            "10.1.2.3:",
            "10.1.2.3:0",
            "10.1.2.3:+80",
            "10.1.2.3:65536",
            "10.1.2.3\0",
            "10.1.2.3\r\n",
            " 10.1.2.3",
            "fd00:ec2::254",
            "[::1]",
            "example.com",
            "*",
            "127.0.0.1",
            "224.0.0.1",
        ] {
            assert!(bad.parse::<Destination>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_server_that_only_the_host_reaches_is_no_server() {
        let text = "# made by hand\nnameserver 127.0.0.53\nnameserver fe80::1%eth0\nnameserver 192.168.1.1\nsearch x\n\
                    nameserver 10.0.0.2\nnameserver 192.168.1.1\nnameserver 9.9.9.9\nnameserver 8.8.8.8\nnameserver\n";
        let own = |address: Ipv4Addr| address == Ipv4Addr::new(10, 0, 0, 2);
        let servers: Vec<String> = name_servers(text, own)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(servers, ["192.168.1.1", "9.9.9.9", "8.8.8.8"]);
        assert!(name_servers("", own).is_empty());
    }
}
