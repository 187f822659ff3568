//! Backends in a world, sandboxes in them, and programs that try what they reach.

use crate::rented::{House, Rented, host};
use crate::world::RESOLVER;
use sandboxd_server::backends::{Network, SandboxSpec};
use sandboxd_server::egress::{Dns, Egress};
use std::path::Path;

/// What sandboxes of these tests may reach where a test says nothing else: the default, and the world's name server.
pub(crate) fn egress() -> Egress {
    Egress {
        dns: Dns::Servers(vec![RESOLVER.parse().unwrap()]),
        ..Egress::default()
    }
}

/// A backend with that.
pub(crate) async fn house(state: &Path) -> House {
    House::reaching(state, egress()).await
}

/// A sandbox of the host's files, with a network.
pub(crate) fn bridged() -> SandboxSpec {
    SandboxSpec {
        network: Network::Bridge,
        ..host()
    }
}

/// What programs inside begin with: `reach` says what came of it, in a word, and never waits long.
const TRYING: &str = r"
import errno, http.client, os, socket, sys, time
def reach(address, port=80, kind='tcp', wait=4):
    family = socket.AF_INET6 if ':' in address else socket.AF_INET
    came = 'silence'
    try:
        if kind == 'udp':
            with socket.socket(family, socket.SOCK_DGRAM) as s:
                s.settimeout(wait); s.connect((address, port)); s.send(b'ping'); return s.recv(100).decode()
        with socket.socket(family) as s:
            s.settimeout(wait); s.connect((address, port)); came = 'connected'
            s.sendall(b'GET / HTTP/1.0\r\n\r\n')
            data = b''
            while True:
                part = s.recv(1000)
                if not part: break
                data += part
            return 'reached' if b'200 OK' in data else 'answered ' + repr(data)
    except TimeoutError: return came
    except OSError as error: return errno.errorcode.get(error.errno, repr(error))
def refused(address, port=80, kind='tcp'):
    # A datagram's refusal may be left out where there are too many; a connection asks again.
    came = reach(address, port, kind, 1 if kind == 'udp' else 20)
    expected = ('EHOSTUNREACH', 'ENETUNREACH', 'ECONNREFUSED', 'EACCES') + ('silence',) * (kind == 'udp')
    assert came in expected, (address, port, kind, came)
";

/// What a Python program that succeeds prints.
pub(crate) async fn python(sandbox: &Rented, program: &str) -> String {
    let did = sandbox.python(&format!("{TRYING}\n{program}")).await;
    assert_eq!(did.exit.code, 0, "{program}: {did:?}");
    did.out.trim_end().to_owned()
}

/// Asserts that the Internet is reached: the twin of everything that is not.
pub(crate) async fn assert_online(sandbox: &Rented) {
    let said = python(
        sandbox,
        "print(reach('93.184.216.34'), reach('93.184.216.34', 7777, 'udp'))",
    )
    .await;
    assert_eq!(said, "reached back ping");
}
