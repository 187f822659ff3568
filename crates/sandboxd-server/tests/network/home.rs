//! Backends in a world, sandboxes in them, and programs that try what they reach.

use crate::rented::{House, Rented, host};
use crate::world::{RESOLVER, in_containers};
use sandboxd_server::backends::docker::Docker;
use sandboxd_server::backends::namespaces::Programs;
use sandboxd_server::backends::{ImageDefaults, Network, PreparedImage, SandboxSpec};
use sandboxd_server::config::{EngineAddress, Flags, Layers};
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
    reaching(state, egress()).await
}

/// A backend whose sandboxes with a network reach this: containers, where the case is about them.
pub(crate) async fn reaching(state: &Path, egress: Egress) -> House {
    if !in_containers() {
        return House::reaching(state, egress).await;
    }
    let programs = Programs::embedded().unwrap();
    let images = Default::default();
    let backend = Docker::start_with(state, programs, &engine(), None, egress, images).await;
    let backend = backend.expect("an engine answers; cargo xtask engine starts one");
    House::of(backend, state)
}

/// The engine of the tests.
fn engine() -> EngineAddress {
    let layers = Layers {
        flags: Flags::default(),
        env: std::env::vars_os()
            .filter(|(name, _)| name == "DOCKER_HOST" || name == "HOME")
            .collect(),
        file: None,
        root: true,
    };
    layers.read().unwrap().0.engine
}

/// A sandbox without a network: of the host's files, or of an image of the engine's that has as much.
pub(crate) fn plain() -> SandboxSpec {
    if !in_containers() {
        return host();
    }
    SandboxSpec {
        image: PreparedImage::Engine {
            id: image_id(),
            name: IMAGE.to_owned(),
            defaults: ImageDefaults {
                env: std::collections::BTreeMap::new(),
                user: Ok(None),
            },
        },
        ..host()
    }
}

/// The engine's own name for the image, which says its content.
fn image_id() -> String {
    crate::world::says(&format!(
        "docker image inspect --format '{{{{.Id}}}}' {IMAGE}"
    ))
    .trim()
    .to_owned()
}

/// The same, with a network.
pub(crate) fn bridged() -> SandboxSpec {
    SandboxSpec {
        network: Network::Bridge,
        ..plain()
    }
}

/// An image that the engine of the tests has.
const IMAGE: &str = "debian-with-git:1";

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
