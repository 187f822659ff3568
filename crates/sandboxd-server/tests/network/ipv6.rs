//! The other family, which is easily forgotten: the host has it, and sandboxes do not.

use crate::home::{assert_online, bridged, house, python};
use crate::world::{World, in_containers};

pub(crate) async fn there_is_none_but_on_loopback(world: World) {
    let state = tempfile::tempdir().unwrap();
    let house = house(state.path()).await;
    // The twin: from the host the same addresses are reached.
    for address in ["[fd00:ec2::254]", "[2606:4700::1111]"] {
        world.as_root(&format!(
            "python3 -c 'import urllib.request as r; r.urlopen(\"http://{address}/\", timeout=20).read()'"
        ));
    }
    if world.is_root() {
        // Even where the host forwards it.
        world.as_root("echo 1 > /proc/sys/net/ipv6/conf/all/forwarding");
    }
    let sandbox = house.rent(&bridged()).await;
    let program = r"
found = [line.split() for line in open('/proc/net/if_inet6')]
assert all(line[-1] == 'lo' for line in found), found
routes = [line.split() for line in open('/proc/net/ipv6_route')]
assert not [r for r in routes if r[-1] != 'lo' and r[0] != 'ff000000000000000000000000000000'], routes
for address in ('fd00:ec2::254', '2606:4700::1111', '2001:db8:77::1', '2001:db8:77::2', 'fe80::1', 'ff02::1', '64:ff9b::5db8:d822'):
    for port, kind in ((80, 'tcp'), (53, 'udp')):
        came = reach(address, port, kind)
        assert came in ('ENETUNREACH', 'EADDRNOTAVAIL', 'EINVAL', 'EHOSTUNREACH'), (address, kind, came)
# What is IPv4 under another name is ruled as that.
assert reach('::ffff:169.254.169.254') == 'EHOSTUNREACH', reach('::ffff:169.254.169.254')
assert reach('::ffff:93.184.216.34') == 'reached'
if found:
    server = socket.create_server(('::1', 0), family=socket.AF_INET6)
    socket.create_connection(('::1', server.getsockname()[1]), 5).close()
print('none', len(found))
";
    // An engine takes that of loopback too.
    let expected = if in_containers() { "none 0" } else { "none 1" };
    assert_eq!(python(&sandbox, program).await, expected);
    assert_online(&sandbox).await;
    sandbox.end().await;
    house.close().await;
}
