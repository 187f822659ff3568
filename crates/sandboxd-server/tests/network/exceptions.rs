//! What the operator allows and denies: that much, and no more.

use crate::home::{assert_online, bridged, egress, python, reaching};
use crate::world::{HOST, World};
use sandboxd_server::backends::{Ceiling, Enforcement};
use sandboxd_server::egress::Egress;
use std::net::TcpListener;

pub(crate) async fn what_is_allowed_is_reached_and_nothing_beside_it(world: World) {
    let state = tempfile::tempdir().unwrap();
    let service = TcpListener::bind("0.0.0.0:8099").unwrap();
    let answering = std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        let (mut stream, _) = service.accept().unwrap();
        let _ = stream.read(&mut [0; 100]);
        let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n");
        service
    });
    let allowed = format!("172.16.0.0/12 169.254.170.2:8080 192.168.0.0/16 {HOST}:8099");
    let allowing = Egress {
        allow: allowed.split(' ').map(|text| text.parse().unwrap()).collect(),
        ..egress()
    };
    let house = reaching(state.path(), allowing).await;
    let sandbox = house.rent(&bridged()).await;
    let program = format!(
        r"
for address, port in (('172.17.0.1', 80), ('172.31.255.254', 8080), ('169.254.170.2', 8080), ('192.168.65.7', 80), ('192.168.77.1', 80)):
    assert reach(address, port) == 'reached', (address, port, reach(address, port))
# A port beside it, an address beside it; and a network is not this machine.
for address, port in (('169.254.170.2', 80), ('169.254.169.254', 8080), ('10.9.9.9', 80), ('100.64.0.9', 80), ('100.100.100.200', 80)):
    refused(address, port)
assert reach('{HOST}', 8098) != 'reached'
came = reach('198.51.100.2', 8099)
assert came in ('EHOSTUNREACH', 'silence'), came
print(reach('{HOST}', 8099))
"
    );
    let said = python(&sandbox, &program).await;
    assert_eq!(said, "reached");
    drop(answering.join().unwrap());
    let Some(Enforcement::Enforced(how)) = sandbox.enforced.get(&Ceiling::Network) else {
        panic!("nothing is said");
    };
    assert!(how.contains(&format!("{HOST}:8099")), "{how}");
    assert_online(&sandbox).await;
    sandbox.end().await;
    house.close().await;
    drop(world);
}

pub(crate) async fn what_is_denied_is_not_reached(_: World) {
    let state = tempfile::tempdir().unwrap();
    let denying = Egress {
        deny: vec!["93.184.216.0/24".parse().unwrap()],
        ..egress()
    };
    let house = reaching(state.path(), denying).await;
    let sandbox = house.rent(&bridged()).await;
    let program = r"
for port, kind in ((80, 'tcp'), (7777, 'udp')): refused('93.184.216.34', port, kind)
print(reach('9.9.9.9', 80))
";
    assert_eq!(python(&sandbox, program).await, "reached");
    sandbox.end().await;
    house.close().await;
}
