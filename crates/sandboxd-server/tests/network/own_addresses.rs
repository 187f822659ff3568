//! The host itself: whatever address it has, whatever listens there.

use crate::home::{assert_online, bridged, house, python};
use crate::world::{HOST, HOST_PUBLIC, World};
use std::net::{TcpListener, UdpSocket};

pub(crate) async fn none_of_the_hosts_is_reached_whatever_listens(_: World) {
    let state = tempfile::tempdir().unwrap();
    let house = house(state.path()).await;
    // As the service does that listens on all addresses, a container engine, and a resolver.
    let service = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = service.local_addr().unwrap().port();
    let datagrams = UdpSocket::bind("0.0.0.0:0").unwrap();
    let udp = datagrams.local_addr().unwrap().port();
    datagrams.set_nonblocking(true).unwrap();
    let sandbox = house.rent(&bridged()).await;
    let program = format!(
        r"
routes = [line.split() for line in open('/proc/net/route').readlines()[1:]]
gateway = socket.inet_ntoa(bytes.fromhex(routes[0][2])[::-1])
assert gateway == '198.18.0.1', gateway
addresses = ['{HOST}', '{HOST_PUBLIC}', gateway, '198.18.0.0', '192.168.77.255']
# The uplink's ends, and others' like it.
addresses += [f'198.19.{{a}}.{{b}}' for a in (0, 1, 127, 255) for b in (1, 2, 101)]
for address in addresses:
    for number in ({port}, 22, 2375, 2376, 2377, 10250, 5000, 6443): refused(address, number)
    refused(address, {udp}, 'udp')
for name in ('host.docker.internal', 'gateway.docker.internal', 'host.containers.internal'):
    try: socket.getaddrinfo(name, 80)
    except OSError: continue
    raise AssertionError(name)
for address in ('127.0.0.1', '127.0.1.1', '127.255.0.1'): assert reach(address, {port}) == 'ECONNREFUSED', address
print('none')
"
    );
    assert_eq!(python(&sandbox, &program).await, "none");
    let mut buffer = [0; 8];
    assert!(datagrams.recv(&mut buffer).is_err(), "a packet came out");
    // The twins: it listens there, and the Internet is reached.
    for address in [HOST, HOST_PUBLIC, "127.0.0.1"] {
        std::net::TcpStream::connect((address, port)).unwrap();
    }
    assert_online(&sandbox).await;
    sandbox.end().await;
    house.close().await;
}

pub(crate) async fn one_that_came_later_is_not_reached_either(world: World) {
    let state = tempfile::tempdir().unwrap();
    let house = house(state.path()).await;
    let service = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = service.local_addr().unwrap().port();
    let before = house.rent(&bridged()).await;
    world.as_root("ip addr add 198.51.100.99/32 dev up0");
    let after = house.rent(&bridged()).await;
    std::net::TcpStream::connect(("198.51.100.99", port)).unwrap();
    let program = format!("print(reach('198.51.100.99', {port}))");
    // The router's list is brought up to date with the next sandbox, for all; where there are rules on the host as well,
    // they need no list.
    for sandbox in [&before, &after] {
        assert_eq!(python(sandbox, &program).await, "EHOSTUNREACH");
        assert_online(sandbox).await;
    }
    world.as_root("ip addr add 198.51.100.98/32 dev up0");
    if world.is_root() {
        let program = format!("print(reach('198.51.100.98', {port}))");
        assert_eq!(python(&before, &program).await, "silence");
    }
    before.end().await;
    after.end().await;
    house.close().await;
}
