//! The packet rules, as text for `nft -f -`. Each text is one transaction: all of it is in force, or none.
//!
//! Two tables say the same thing from two sides. The router's holds whatever the host does with its own rules; the
//! host's holds for addresses that the host got since. In both, what is not said to pass does not.

use crate::network::{HOST_PREFIX, LINK_PREFIX, Reach, UPLINK};
use std::fmt::Write as _;
use std::net::Ipv4Addr;

/// The router's table; its namespace is ours alone.
pub const ROUTER_TABLE: &str = "sandboxd";
/// The router's set of the host's own addresses.
pub const OWN: &str = "own";

/// The rules inside the router. `own` are the host's addresses.
pub fn router(reach: &Reach, own: &[Ipv4Addr]) -> String {
    let mut text = format!("table inet {ROUTER_TABLE} {{\n");
    let _ = writeln!(text, "set {OWN} {{\ntype ipv4_addr\n{}}}", elements(own));
    text.push_str("set busy {\ntype ipv4_addr\nsize 65536\nflags dynamic\n}\n");
    // Nothing is to be had from the router itself.
    text.push_str("chain inbound {\ntype filter hook input priority filter; policy drop;\n");
    let _ = writeln!(
        text,
        "iifname \"{LINK_PREFIX}*\" meta nfproto ipv4 reject with icmp type admin-prohibited\n}}"
    );
    text.push_str("chain through {\ntype filter hook forward priority filter; policy drop;\n");
    text.push_str("meta nfproto != ipv4 drop\n");
    let _ = writeln!(
        text,
        "iifname \"{UPLINK}\" oifname \"{LINK_PREFIX}*\" ct state established,related accept"
    );
    let _ = writeln!(
        text,
        "iifname \"{LINK_PREFIX}*\" oifname \"{UPLINK}\" goto outbound"
    );
    // From one sandbox to another: refused at once, and not left to wait.
    let _ = writeln!(
        text,
        "iifname \"{LINK_PREFIX}*\" reject with icmp type admin-prohibited\n}}"
    );
    text.push_str("chain outbound {\nct state invalid drop\nct state established,related accept\n");
    let _ = writeln!(
        text,
        "add @busy {{ ip saddr ct count over {} }} reject with icmp type admin-prohibited",
        reach.connections_max
    );
    text.push_str(&single_addresses(reach));
    let _ = writeln!(
        text,
        "ip daddr @{OWN} reject with icmp type admin-prohibited"
    );
    outbound(&mut text, reach);
    text.push_str("accept\n}\n");
    text.push_str("chain translate {\ntype nat hook postrouting priority srcnat; policy accept;\n");
    let _ = writeln!(text, "oifname \"{UPLINK}\" masquerade\n}}\n}}");
    text
}

/// What puts other addresses of the host into the router's set.
pub fn router_own(own: &[Ipv4Addr]) -> String {
    let mut text = format!("flush set inet {ROUTER_TABLE} {OWN}\n");
    if !own.is_empty() {
        let _ = writeln!(
            text,
            "add element inet {ROUTER_TABLE} {OWN} {{ {} }}",
            list(own)
        );
    }
    text
}

/// The rules on the host for the uplink of one instance, whose router has `address` there. `apart` are interfaces
/// between which the host did not forward before we asked it to forward; it still does not.
pub fn host(
    table: &str,
    interface: &str,
    address: Ipv4Addr,
    reach: &Reach,
    apart: &[String],
) -> String {
    // A table of this name that somebody has left is replaced, in the same transaction.
    let mut text =
        format!("table inet {table} {{\n}}\ndelete table inet {table}\ntable inet {table} {{\n");
    // Before any other rule of the host could change a destination.
    text.push_str("chain early {\ntype filter hook prerouting priority raw; policy accept;\n");
    let _ = writeln!(text, "iifname != \"{interface}\" accept");
    let _ = writeln!(
        text,
        "meta nfproto != ipv4 drop\nip saddr != {address} drop"
    );
    text.push_str(&single_addresses(reach));
    text.push_str("fib daddr type != unicast drop\n}\n");
    text.push_str("chain inbound {\ntype filter hook input priority filter; policy accept;\n");
    let _ = writeln!(text, "iifname != \"{interface}\" accept");
    text.push_str(&single_addresses(reach));
    text.push_str("drop\n}\n");
    text.push_str("chain through {\ntype filter hook forward priority filter; policy accept;\n");
    let _ = writeln!(text, "iifname \"{interface}\" jump outbound");
    let _ = writeln!(
        text,
        "oifname \"{interface}\" ct state established,related accept\noifname \"{interface}\" drop"
    );
    if !apart.is_empty() {
        let names: Vec<String> = apart.iter().map(|name| format!("\"{name}\"")).collect();
        let names = names.join(", ");
        let _ = writeln!(
            text,
            "meta nfproto ipv4 iifname {{ {names} }} oifname {{ {names} }} drop"
        );
    }
    text.push_str("}\n");
    text.push_str("chain outbound {\nct state invalid drop\nct state established,related accept\n");
    // Another instance's sandboxes are not to be reached either.
    let _ = writeln!(text, "oifname \"{HOST_PREFIX}*\" drop");
    text.push_str("tcp flags syn tcp option maxseg size set rt mtu\n");
    outbound(&mut text, reach);
    text.push_str("accept\n}\n");
    text.push_str("chain translate {\ntype nat hook postrouting priority srcnat; policy accept;\n");
    let _ = writeln!(text, "ip saddr {address} masquerade\n}}\n}}");
    text
}

/// Exceptions, then what is refused.
fn outbound(text: &mut String, reach: &Reach) {
    if !reach.resolvers.is_empty() {
        let _ = writeln!(
            text,
            "ip daddr {{ {} }} meta l4proto {{ tcp, udp }} th dport 53 accept",
            list(&reach.resolvers)
        );
    }
    for allowed in &reach.allowed {
        let range = allowed.range;
        let _ = write!(text, "ip daddr {}/{}", range.address, range.bits);
        if let Some(port) = allowed.port {
            let _ = write!(text, " meta l4proto {{ tcp, udp }} th dport {port}");
        }
        text.push_str(" accept\n");
    }
    for range in &reach.denied {
        let _ = writeln!(
            text,
            "ip daddr {}/{} reject with icmp type admin-prohibited",
            range.address, range.bits
        );
    }
}

/// The exceptions that may be addresses of the host itself: whoever allows a range does not mean this machine.
fn single_addresses(reach: &Reach) -> String {
    let mut text = String::new();
    for allowed in reach.allowed.iter().filter(|one| one.range.is_single()) {
        let _ = write!(text, "ip daddr {}", allowed.range.address);
        if let Some(port) = allowed.port {
            let _ = write!(text, " meta l4proto {{ tcp, udp }} th dport {port}");
        }
        text.push_str(" accept\n");
    }
    text
}

fn elements(addresses: &[Ipv4Addr]) -> String {
    if addresses.is_empty() {
        return String::new();
    }
    format!("elements = {{ {} }}\n", list(addresses))
}

fn list(addresses: &[Ipv4Addr]) -> String {
    let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::{Allowed, Range};

    fn range(address: [u8; 4], bits: u8) -> Range {
        Range {
            address: address.into(),
            bits,
        }
    }

    fn reach() -> Reach {
        Reach {
            denied: vec![range([10, 0, 0, 0], 8), range([169, 254, 0, 0], 16)],
            allowed: vec![
                Allowed {
                    range: range([10, 1, 0, 0], 16),
                    port: None,
                },
                Allowed {
                    range: range([10, 2, 3, 4], 32),
                    port: Some(5432),
                },
            ],
            resolvers: vec![[10, 0, 0, 53].into(), [9, 9, 9, 9].into()],
            connections_max: 1024,
        }
    }

    #[test]
    fn the_routers_rules() {
        let own = [[192, 0, 2, 2].into(), [10, 1, 0, 9].into()];
        insta::assert_snapshot!(router(&reach(), &own));
    }

    #[test]
    fn the_hosts_rules() {
        let apart = ["eth0".to_owned(), "eth1".to_owned()];
        let address = [198, 19, 0, 6].into();
        insta::assert_snapshot!(host("sandboxd-x", "sbx-1", address, &reach(), &apart));
    }

    #[test]
    fn without_exceptions_there_is_none() {
        let nothing = Reach {
            allowed: Vec::new(),
            resolvers: Vec::new(),
            ..reach()
        };
        let text = router(&nothing, &[]);
        let outbound = text.split("chain outbound").nth(1).unwrap();
        let outbound = outbound.split('}').next().unwrap();
        assert!(!outbound.contains("ip daddr 10.1"), "{text}");
        assert_eq!(text.matches("dport").count(), 0, "{text}");
        let text = host("t", "sbx-1", [198, 19, 0, 6].into(), &nothing, &[]);
        assert_eq!(text.matches("dport").count(), 0, "{text}");
    }

    #[test]
    fn other_addresses_of_the_host_take_the_place_of_the_former() {
        assert_eq!(
            router_own(&[[192, 0, 2, 9].into()]),
            "flush set inet sandboxd own\nadd element inet sandboxd own { 192.0.2.9 }\n"
        );
        assert_eq!(router_own(&[]), "flush set inet sandboxd own\n");
    }
}
