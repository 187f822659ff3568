//! As an ordinary user: the other program, and a program that ends.

use crate::home::{assert_online, bridged, house, python};
use crate::lost_parts::{below, end_below};
use crate::world::{FORBIDDEN, HOST, HOST_PUBLIC, World, wait_for, without_root};
use sandboxd_server::backends::{Ceiling, Enforcement};

/// What `pasta` calls itself, under whichever name it was started.
const PASTA: &str = "passt";

#[test]
fn where_there_is_no_pasta_slirp4netns_holds_the_same() {
    async fn case(world: World) {
        let state = tempfile::tempdir().unwrap();
        let house = house(state.path()).await;
        let service = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
        let port = service.local_addr().unwrap().port();
        let sandbox = house.rent(&bridged()).await;
        let Some(Enforcement::Enforced(how)) = sandbox.enforced.get(&Ceiling::Network) else {
            panic!("nothing is said");
        };
        assert!(how.contains("slirp4netns"), "{how}");
        assert_online(&sandbox).await;
        let program = format!(
            r"
import urllib.request
assert 'reached' in urllib.request.urlopen('http://internet.test/', timeout=20).read().decode()
for address in {FORBIDDEN:?}: refused(address)
for address in ('{HOST}', '{HOST_PUBLIC}', '198.18.0.1', '198.19.0.2', '198.19.0.3', '198.19.0.100'):
    refused(address, {port}); refused(address, 53, 'udp')
assert reach('127.0.0.1', {port}) == 'ECONNREFUSED'
assert reach('fd00:ec2::254') == 'ENETUNREACH'
print('none')
"
        );
        assert_eq!(python(&sandbox, &program).await, "none");
        world.as_root("ip addr add 198.51.100.99/32 dev up0");
        let next = house.rent(&bridged()).await;
        let program = format!("refused('198.51.100.99', {port}); print('none')");
        assert_eq!(python(&sandbox, &program).await, "none");
        sandbox.end().await;
        next.end().await;
        house.close().await;
        wait_for(|| below("slirp4netns").is_empty());
    }
    let hidden = ["/usr/bin/pasta"];
    without_root(
        "other_uplinks::where_there_is_no_pasta_slirp4netns_holds_the_same",
        &hidden,
        case,
    );
}

#[test]
fn a_program_that_ends_is_started_again_for_the_next() {
    async fn case(_: World) {
        let state = tempfile::tempdir().unwrap();
        let house = house(state.path()).await;
        let before = house.rent(&bridged()).await;
        assert_online(&before).await;
        end_below(PASTA);
        let after = house.rent(&bridged()).await;
        assert_online(&after).await;
        // Cut off, and nothing else.
        assert_eq!(before.says("echo alive").await, "alive");
        let cut = python(&before, "print(reach('93.184.216.34'))").await;
        assert_ne!(cut, "reached");
        before.end().await;
        after.end().await;
        house.close().await;
        wait_for(|| below(PASTA).is_empty() && below("sandboxd-uplink").is_empty());
    }
    without_root(
        "other_uplinks::a_program_that_ends_is_started_again_for_the_next",
        &[],
        case,
    );
}
