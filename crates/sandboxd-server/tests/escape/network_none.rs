//! Ways to a network where there is to be none: routes, resolvers, other families, and names that mean something else.

use crate::place::Place;

pub(crate) async fn there_is_loopback_and_no_way_out() {
    let place = Place::open().await;
    place.session("a").await;
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.set_nonblocking(true).unwrap();
    let port = udp.local_addr().unwrap().port();
    let program = r"
import errno, os, socket, struct, time
devices = sorted(line.split(':')[0].strip() for line in open('/proc/net/dev').readlines()[2:])
assert devices == ['lo'], devices
routes = open('/proc/net/route').readlines()[1:]
assert not routes, routes
# IPv6: nothing but what belongs to loopback.
assert all(line.split()[-1] == 'lo' for line in open('/proc/net/ipv6_route')), open('/proc/net/ipv6_route').read()
servers = [line for line in open('/etc/resolv.conf') if line.startswith('nameserver') and line.split()[1] != '127.0.0.1']
assert not servers, servers
tried = 0
begin = time.time()
for address in ('8.8.8.8', '1.1.1.1', '169.254.169.254', '10.0.0.1', '192.168.0.1', '172.17.0.1', '100.64.0.1', '224.0.0.1', '255.255.255.255'):
    for kind, port in ((socket.SOCK_STREAM, 443), (socket.SOCK_STREAM, 853), (socket.SOCK_DGRAM, 53), (socket.SOCK_DGRAM, 443)):
        with socket.socket(socket.AF_INET, kind) as s:
            s.settimeout(3)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            try: s.connect((address, port)); s.send(b'x')
            except OSError as error: assert error.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH), error; tried += 1; continue
            raise AssertionError((address, kind, port))
for address in ('2001:4860:4860::8888', 'fe80::1', 'fd00:ec2::254', '::ffff:8.8.8.8', 'ff02::1'):
    with socket.socket(socket.AF_INET6) as s:
        s.settimeout(3)
        try: s.connect((address, 53))
        except OSError: tried += 1; continue
        raise AssertionError(address)
# Other ways to write an address, and names.
for name in ('example.com', 'metadata.google.internal', '0x08080808', '134744072', '010.010.010.010', 'localhost.example.com',
             'xn--exmple-cua.com', 'a' * 63 + '.com', 'example.com.'):
    one = time.time()
    try:
        found = socket.getaddrinfo(name, 80)
        with socket.create_connection(found[0][4][:2], 3): raise AssertionError(name)
    except OSError: tried += 1
    assert time.time() - one < 1.5, (name, time.time() - one)
assert time.time() - begin < 20
# An interface, a route, a tunnel of one's own: not to be made.
import fcntl
for path in ('/dev/net/tun', '/dev/tun'): assert not os.path.exists(path)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    for request in (0x890b, 0x8914, 0x8916, 0x89a0):
        try: fcntl.ioctl(s, request, struct.pack('16s48s', b'lo', b''))
        except OSError as error: assert error.errno in (errno.EPERM, errno.EINVAL), (hex(request), error); tried += 1; continue
        raise AssertionError(hex(request))
# The host's loopback is another.
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s: s.sendto(b'out', ('127.0.0.1', PORT))
# The twins: its own is there, by name, number and both families (an engine may give one only).
for host, family in (('127.0.0.1', socket.AF_INET), ('localhost', socket.AF_INET), ('::1', socket.AF_INET6)):
    if host == '::1' and not open('/proc/net/if_inet6').read() and os.path.exists('/.dockerenv'): continue
    server = socket.socket(family); server.bind((host, 0)); server.listen()
    c = socket.create_connection((host, server.getsockname()[1]), 2); c.close(); server.close()
print(tried)
"
    .replace("PORT", &port.to_string());
    let tried: u32 = place.python_says("a", &program).await.parse().unwrap();
    assert!(tried > 45, "{tried}");
    let mut buffer = [0; 8];
    assert!(udp.recv(&mut buffer).is_err(), "a packet came out");
    // The twin: one that is sent outside does arrive.
    udp.send_to(b"own", udp.local_addr().unwrap()).unwrap();
    assert_eq!(udp.recv(&mut buffer).unwrap(), 3);
    place.close().await;
}
