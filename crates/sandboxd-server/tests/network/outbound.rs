//! What a sandbox with a network is for: without it none of the attacks would mean anything.

use crate::home::{assert_online, bridged, house, plain, python};
use crate::world::{HOST, World};
use sandboxd_server::backends::{Ceiling, Enforcement};

pub(crate) async fn the_internet_is_reached_and_names_are_found(world: World) {
    let state = tempfile::tempdir().unwrap();
    let house = house(state.path()).await;
    let sandbox = house.rent(&bridged()).await;
    assert_online(&sandbox).await;
    let said = python(
        &sandbox,
        r"
import urllib.request
assert open('/etc/resolv.conf').read().startswith('nameserver 9.9.9.9\n')
print(urllib.request.urlopen('http://internet.test/', timeout=20).read().decode())
try: socket.getaddrinfo('missing.test', 80)
except socket.gaierror as error: assert error.errno == socket.EAI_NONAME, error
else: raise AssertionError('a name that there is not')
assert reach('127.0.0.1', 1) == 'ECONNREFUSED'
",
    )
    .await;
    // Whoever is reached sees the host, and nothing of what is behind it.
    assert_eq!(said, format!("reached ::ffff:93.184.216.34 from ::ffff:{HOST}"));
    // A user inside reaches the same.
    let mut spec = bridged();
    spec.user = Some(1000);
    let other = house.rent(&spec).await;
    assert_online(&other).await;
    other.end().await;
    sandbox.end().await;
    house.close().await;
    drop(world);
}

pub(crate) async fn what_is_in_force_is_said(world: World) {
    let state = tempfile::tempdir().unwrap();
    let house = house(state.path()).await;
    let Enforcement::Enforced(possible) = house.backend.capabilities().await.bridge else {
        panic!("no network is possible");
    };
    let by = if world.is_root() {
        "address translation on the host"
    } else {
        "pasta"
    };
    assert!(possible.contains(by), "{possible}");
    let sandbox = house.rent(&bridged()).await;
    let said = sandbox.enforced.get(&Ceiling::Network);
    assert_eq!(said, Some(&Enforcement::Enforced(possible)));
    let without = house.rent(&plain()).await;
    let Some(Enforcement::Enforced(none)) = without.enforced.get(&Ceiling::Network) else {
        panic!("nothing is said");
    };
    assert!(none.contains("nothing but loopback"), "{none}");
    without.end().await;
    sandbox.end().await;
    house.close().await;
}

pub(crate) async fn beside_it_a_sandbox_without_a_network_has_none(_: World) {
    let state = tempfile::tempdir().unwrap();
    let house = house(state.path()).await;
    let online = house.rent(&bridged()).await;
    let alone = house.rent(&plain()).await;
    let program = r"
devices = sorted(line.split(':')[0].strip() for line in open('/proc/net/dev').readlines()[2:])
assert devices == ['lo'], devices
for address in ('93.184.216.34', '198.18.0.1', '198.18.0.2', '9.9.9.9'):
    for port, kind in ((80, 'tcp'), (53, 'udp')): assert reach(address, port, kind) == 'ENETUNREACH', address
begin = time.monotonic()
try: socket.getaddrinfo('internet.test', 80)
except OSError: pass
else: raise AssertionError('resolved')
assert time.monotonic() - begin < 5
assert not [line for line in open('/etc/resolv.conf') if line.startswith('nameserver') and '127.0.0.1' not in line]
print('alone')
";
    assert_eq!(python(&alone, program).await, "alone");
    assert_online(&online).await;
    alone.end().await;
    online.end().await;
    house.close().await;
}
