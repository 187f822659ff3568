//! Sockets by which the host is controlled: its own services, container engines, and this service.

use crate::place::Place;
use crate::wire::TOKEN;
use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};

pub(crate) async fn none_answers_inside() {
    let place = Place::open().await;
    place.session("a").await;
    // What listens outside, on a port and on paths that a program might guess.
    let service = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = service.local_addr().unwrap().port();
    let named = place.home().join("outside.sock");
    let _named = UnixListener::bind(&named).unwrap();
    let program = format!(
        r"
import os, socket, stat
for path in ('{}', '/var/run/docker.sock', '/run/docker.sock', '/run/containerd/containerd.sock', '/run/podman/podman.sock',
             '/run/systemd/private', '/run/dbus/system_bus_socket', '/nix/var/nix/daemon-socket/socket', '/tmp/.X11-unix/X0'):
    try: socket.socket(socket.AF_UNIX).connect(path)
    except OSError: continue
    raise AssertionError(path)
found = []
for top, below, names in os.walk('/'):
    # What the kernel shows, and the host's programs: large, and no place for sockets.
    if top in ('/proc', '/sys', '/usr'):
        below.clear()
        continue
    for name in names:
        try: kind = os.lstat(os.path.join(top, name)).st_mode
        except OSError: continue
        if stat.S_ISSOCK(kind): found.append(os.path.join(top, name))
assert not found, found
addresses = ('127.0.0.1', '127.0.1.1', '::1', '10.0.2.2', '172.17.0.1', '192.168.65.7', '192.168.65.254', '169.254.169.254',
             '169.254.1.1', '100.100.100.200', 'fd00:ec2::254', '0.0.0.0')
tried = 0
for address in addresses:
    for port in ({}, {port}, 2375, 2376, 2377, 5000, 10250, 6443, 8080, 22, 53, 80, 443):
        family = socket.AF_INET6 if ':' in address else socket.AF_INET
        with socket.socket(family) as s:
            s.settimeout(20)
            try: s.connect((address, port))
            except TimeoutError: raise AssertionError(('something took it', address, port))
            except OSError: tried += 1; continue
            raise AssertionError((address, port))
for name in ('host.docker.internal', 'gateway.docker.internal', 'metadata.google.internal', 'host.containers.internal'):
    try: socket.getaddrinfo(name, 80)
    except OSError: tried += 1; continue
    raise AssertionError(name)
# The twin: its own service answers itself.
own = socket.create_server(('127.0.0.1', 8080)); socket.create_connection(('127.0.0.1', 8080), 2).close()
print(tried)
",
        named.display(),
        place.addr.port()
    );
    let tried: u32 = place.python_says("a", &program).await.parse().unwrap();
    assert!(tried > 150, "{tried}");
    // The twins outside: there they do answer.
    UnixStream::connect(&named).unwrap();
    std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    assert_eq!(place.ask(TOKEN, "GET", "/healthz", None).await.status, 200);
    place.close().await;
}
