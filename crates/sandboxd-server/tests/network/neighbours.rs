//! Sandboxes among themselves, and whoever would come in from outside.

use crate::home::{assert_online, bridged, house, python};
use crate::rented::Rented;
use crate::world::{World, says, sh};

/// A server that answers on all addresses of a sandbox, and its address.
async fn listening(sandbox: &Rented) -> String {
    let program = r##"
import subprocess
server = """
import http.server
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self): self.send_response(200); self.end_headers()
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(('0.0.0.0', 8000), Page).serve_forever()
"""
subprocess.Popen(['python3', '-c', server], start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
end = time.monotonic() + 20
while reach('127.0.0.1', 8000) != 'reached': assert time.monotonic() < end; time.sleep(0.02)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s: s.connect(('93.184.216.34', 9)); print(s.getsockname()[0])
"##;
    python(sandbox, program).await
}

pub(crate) async fn no_sandbox_reaches_another(_: World) {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // Two of one daemon's, and one of another's on the same host.
    let (house, others) = (house(one.path()).await, crate::home::house(two.path()).await);
    let a = house.rent(&bridged()).await;
    let b = house.rent(&bridged()).await;
    let c = others.rent(&bridged()).await;
    let at = listening(&b).await;
    let also = listening(&c).await;
    assert_ne!(at, "198.18.0.1");
    let program = format!(
        r"
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); own.connect(('93.184.216.34', 9)); own = own.getsockname()[0]
assert own != '{at}'
for address in ('{at}', '{also}', '198.18.0.2', '198.18.0.3', '198.18.0.4', '198.18.255.255'):
    if address == own: continue
    refused(address, 8000); refused(address, 8000, 'udp')
# No packet says that it comes from another, and none is made by hand.
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    try: s.bind(('{at}', 0)); raise AssertionError('bound to a neighbour')
    except OSError as error: assert error.errno == errno.EADDRNOTAVAIL, error
    try: s.setsockopt(socket.IPPROTO_IP, 19, 1); raise AssertionError('transparent')
    except OSError as error: assert error.errno == errno.EPERM, error
    # Whoever may call itself as it likes is not heard as that.
    s.setsockopt(socket.IPPROTO_IP, 15, 1); s.bind(('{at}', 0))
    try: s.sendto(b'x', ('93.184.216.34', 7777)); raise AssertionError('sent as a neighbour')
    except OSError as error: assert error.errno in (errno.EINVAL, errno.ENETUNREACH), error
for family, kind, protocol in ((socket.AF_INET, socket.SOCK_RAW, 255), (socket.AF_INET, socket.SOCK_RAW, 1), (17, socket.SOCK_RAW, 0x300), (17, socket.SOCK_DGRAM, 0x300)):
    try: socket.socket(family, kind, protocol)
    except OSError: continue
    raise AssertionError((family, kind))
print('alone')
"
    );
    assert_eq!(python(&a, &program).await, "alone");
    assert!(a.says("cat /proc/net/unix | tail -n +2 | grep -c @ || true").await == "0");
    for sandbox in [&a, &b, &c] {
        assert_online(sandbox).await;
    }
    for sandbox in [a, b, c] {
        sandbox.end().await;
    }
    house.close().await;
    others.close().await;
}

pub(crate) async fn nobody_outside_reaches_a_sandbox(world: World) {
    let state = tempfile::tempdir().unwrap();
    let house = house(state.path()).await;
    let sandbox = house.rent(&bridged()).await;
    let at = listening(&sandbox).await;
    assert_online(&sandbox).await;
    // From the host, and from the Internet, as if they knew the way.
    let attempt = format!(
        "if python3 -c 'import socket; socket.create_connection((\"{at}\", 8000), 2)' 2>/dev/null; then exit 1; fi"
    );
    world.as_root(&attempt);
    if world.is_root() {
        let uplink = says("ip -o link | sed -n 's/.* \\(sbx-[0-9]*\\)@.*/\\1/p'");
        sh(&format!("ip route add {at}/32 dev {}", uplink.trim()));
        sh(&attempt);
        sh(&format!(
            "nsenter -t {} -n sh -ec '
             ip route add 198.18.0.0/15 via 192.168.77.2
             {}'",
            world.internet(),
            attempt.replace('\'', "'\\''")
        ));
    }
    assert_online(&sandbox).await;
    sandbox.end().await;
    house.close().await;
}
