//! How sandboxes of one daemon reach the network, as data.
//!
//! All sandboxes of an instance that may reach anything hang on one *router*: a network namespace of the instance's own,
//! in which nothing runs. Each sandbox is joined to it by a pair of virtual interfaces; the router lets through what
//! [`Reach`] says, and hands it to the *uplink*, the one way out (see [`Uplink`]). It goes when nobody holds it any more.

use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

/// The router's name for its side of the uplink.
pub const UPLINK: &str = "uplink";
/// What names of the router's interfaces to sandboxes begin with.
pub const LINK_PREFIX: &str = "s-";
/// What names of uplinks begin with on the host.
pub const HOST_PREFIX: &str = "sbx-";
/// A sandbox's one interface beside loopback.
pub const INSIDE: &str = "eth0";
/// The router, as sandboxes see it.
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// The least number that a sandbox's address may be made from.
pub const NUMBER_MIN: u16 = 2;
/// The greatest.
pub const NUMBER_MAX: u16 = 65_534;
/// How many uplinks of different instances fit on one host.
pub const SLOTS: u32 = 16_384;

/// A sandbox's address. They lie in 198.18.0.0/15, which the Internet does not route; every instance uses the same ones,
/// since they are seen nowhere but in its own router.
pub const fn address_of(number: u16) -> Ipv4Addr {
    let [high, low] = number.to_be_bytes();
    Ipv4Addr::new(198, 18, high, low)
}

/// The two ends of an uplink of an instance, on the host and in the router: a network of four addresses of its own.
pub const fn uplink_addresses(slot: u32) -> (Ipv4Addr, Ipv4Addr) {
    let first = u32::from_be_bytes([198, 19, 0, 0]) + (slot % SLOTS) * 4;
    (
        Ipv4Addr::from_bits(first + 1),
        Ipv4Addr::from_bits(first + 2),
    )
}

/// A network: an address and how many of its leading bits count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Range {
    /// Any address in it.
    pub address: Ipv4Addr,
    /// 0 to 32.
    pub bits: u8,
}

impl Range {
    /// Whether it is one single address.
    pub const fn is_single(self) -> bool {
        self.bits == 32
    }

    /// Whether an address lies in it.
    pub const fn holds(self, address: Ipv4Addr) -> bool {
        let shift = 32 - self.bits as u32;
        shift == 32 || self.address.to_bits() >> shift == address.to_bits() >> shift
    }
}

/// A destination that is allowed although its range is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allowed {
    /// Where.
    pub range: Range,
    /// The one port, of TCP and UDP; absent means all.
    pub port: Option<u16>,
}

/// What sandboxes may reach: every IPv4 address but the denied ones and the host's own, and nothing of IPv6.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reach {
    /// Destinations that are refused.
    pub denied: Vec<Range>,
    /// Exceptions. One that is a single address may be one of the host's own.
    pub allowed: Vec<Allowed>,
    /// Name servers, which may be asked (port 53) wherever they are, but on the host itself.
    pub resolvers: Vec<Ipv4Addr>,
    /// Connections that one sandbox may hold at once.
    pub connections_max: u32,
}

/// The way out of the router.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Uplink {
    /// A pair of interfaces to the host's own network namespace, which forwards and translates. Needs root.
    Host {
        /// The table of rules on the host that is this instance's.
        table: String,
    },
    /// `pasta`: an ordinary process turns what comes into sockets of its user.
    Pasta {
        /// The program, absolute.
        program: String,
    },
    /// `slirp4netns`, likewise.
    Slirp {
        /// The program, absolute.
        program: String,
    },
}

/// Everything that is needed to make a router.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Router {
    /// The program that loads rules, absolute.
    pub nft: String,
    /// The way out.
    pub uplink: Uplink,
    /// What may be reached.
    pub reach: Reach,
    /// A directory of the instance's own, where the router can be given a name.
    pub scratch: String,
}

/// What an instance has put into the host's own rules, and how it goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRules {
    /// The program that loads rules, absolute.
    pub nft: String,
    /// The table.
    pub table: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uplinks_share_no_address() {
        assert_eq!(
            uplink_addresses(0),
            (Ipv4Addr::new(198, 19, 0, 1), Ipv4Addr::new(198, 19, 0, 2))
        );
        assert_eq!(
            uplink_addresses(SLOTS - 1).1,
            Ipv4Addr::new(198, 19, 255, 254)
        );
        assert_eq!(uplink_addresses(SLOTS), uplink_addresses(0));
    }

    #[test]
    fn no_sandbox_has_the_gateways_address() {
        assert!((NUMBER_MIN..=NUMBER_MAX).all(|number| address_of(number) != GATEWAY));
    }

    #[test]
    fn a_range_holds_what_its_leading_bits_say() {
        let range = |text: [u8; 4], bits| Range {
            address: text.into(),
            bits,
        };
        assert!(range([10, 0, 0, 0], 8).holds([10, 9, 8, 7].into()));
        assert!(!range([10, 0, 0, 0], 8).holds([11, 0, 0, 0].into()));
        assert!(range([1, 2, 3, 4], 0).holds([200, 0, 0, 1].into()));
        assert!(!range([1, 2, 3, 4], 32).holds([1, 2, 3, 5].into()));
    }
}
