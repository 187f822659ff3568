//! What differs where sandboxes are containers: they are joined after their start, and anew after each.

use crate::home::{assert_online, bridged, house, plain, python};
use crate::on_the_host::{assert_clean, victim_at};
use crate::world::{World, says, wait_for, with_containers};
use sandboxd_server::backends::{Ceiling, CreateError, Enforcement, Start};
use sandboxd_server::id::SandboxId;

#[test]
fn one_that_is_woken_is_joined_again() {
    async fn case(_: World) {
        let state = tempfile::tempdir().unwrap();
        let house = house(state.path()).await;
        let mut spec = bridged();
        spec.keep_layer = true;
        let id = SandboxId::generate();
        let first = house.try_rent(&id, &spec, Start::Fresh).await.unwrap();
        assert_online(&first).await;
        first.says("echo kept > /root/f").await;
        first.sleep().await;
        let again = house.try_rent(&id, &spec, Start::KeptLayer).await.unwrap();
        assert_eq!(again.says("cat /root/f").await, "kept");
        assert_online(&again).await;
        let said = python(&again, "refused('169.254.169.254'); print('none')").await;
        assert_eq!(said, "none");
        again.end().await;
        house.close().await;
        assert_clean();
    }
    with_containers("containers::one_that_is_woken_is_joined_again", case);
}

#[test]
fn it_has_one_interface_and_no_say_over_it() {
    async fn case(_: World) {
        let state = tempfile::tempdir().unwrap();
        let house = house(state.path()).await;
        let sandbox = house.rent(&bridged()).await;
        let program = r"
import fcntl, struct
devices = sorted(line.split(':')[0].strip() for line in open('/proc/net/dev').readlines()[2:])
assert devices == ['eth0', 'lo'], devices
assert not [line for line in open('/proc/net/if_inet6') if 'eth0' in line]
# Another address, another route, the interface down: none of it is a program's to say.
with socket.socket() as s:
    down = struct.pack('16sh14x', b'eth0', 0)
    for request, data in ((0x8914, down), (0x8916, struct.pack('16sH2s4s8x', b'eth0', 2, b'', bytes([198, 18, 0, 9])))):
        try: fcntl.ioctl(s, request, data)
        except PermissionError: continue
        raise AssertionError(hex(request))
try: socket.socket(16, socket.SOCK_RAW, 0).send(struct.pack('=IHHII', 16, 24, 0x605, 1, 0))
except OSError: pass
print('none')
";
        assert_eq!(python(&sandbox, program).await, "none");
        assert_online(&sandbox).await;
        sandbox.end().await;
        house.close().await;
    }
    with_containers("containers::it_has_one_interface_and_no_say_over_it", case);
}

#[test]
fn an_address_is_given_again_when_its_container_has_gone() {
    async fn case(_: World) {
        let state = tempfile::tempdir().unwrap();
        let house = house(state.path()).await;
        let first = house.rent(&bridged()).await;
        let second = house.rent(&bridged()).await;
        for sandbox in [&first, &second] {
            assert_online(sandbox).await;
        }
        first.end().await;
        // What is made half is given back too.
        let mut spec = bridged();
        spec.image = sandboxd_server::backends::PreparedImage::Host;
        let id = SandboxId::generate();
        let refused = house.try_rent(&id, &spec, Start::Fresh);
        assert!(refused.await.is_err());
        let third = house.rent(&bridged()).await;
        assert_online(&third).await;
        assert_online(&second).await;
        second.end().await;
        third.end().await;
        house.close().await;
        assert_clean();
    }
    with_containers(
        "containers::an_address_is_given_again_when_its_container_has_gone",
        case,
    );
}

#[test]
fn another_network_stack_is_refused_by_its_name() {
    async fn case(_: World) {
        let state = tempfile::tempdir().unwrap();
        let house = house(state.path()).await;
        let mut spec = bridged();
        spec.oci_runtime = Some("runsc".to_owned());
        let id = SandboxId::generate();
        let refused = house.try_rent(&id, &spec, Start::Fresh);
        let Err(CreateError::Unenforceable { ceiling, cause }) = refused.await.map(|_| ()) else {
            panic!("it was given");
        };
        assert_eq!(ceiling, Ceiling::Network);
        assert!(
            cause.contains("bridge") && cause.contains("runsc"),
            "{cause}"
        );
        spec.allow_unenforced = vec![Ceiling::Network];
        spec.oci_runtime = None;
        // Whoever accepts that there is none has one where there can be one.
        let sandbox = house.rent(&spec).await;
        let said = sandbox.enforced.get(&Ceiling::Network);
        assert!(matches!(said, Some(Enforcement::Enforced(_))), "{said:?}");
        assert_online(&sandbox).await;
        sandbox.end().await;
        house.close().await;
    }
    with_containers(
        "containers::another_network_stack_is_refused_by_its_name",
        case,
    );
}

#[test]
fn what_a_killed_daemon_leaves_goes_with_its_containers() {
    async fn case(_: World) {
        let state = tempfile::tempdir().unwrap();
        let mut victim = victim_at(state.path());
        assert_ne!(says("nft list tables | grep sandboxd"), "");
        let name = std::fs::read_to_string(state.path().join("engine-state")).unwrap();
        let left = format!("docker ps --all --quiet --filter label=sandboxd.state={name}");
        assert_ne!(says(&left), "");
        victim.kill().unwrap();
        victim.wait().unwrap();
        wait_for(|| says(&left).is_empty());
        wait_for(|| says("nft list tables | grep sandboxd || true").is_empty());
        let instances = state.path().join("instances");
        wait_for(|| std::fs::read_dir(&instances).unwrap().count() == 0);
        assert_clean();
        let next = house(state.path()).await;
        let sandbox = next.rent(&bridged()).await;
        assert_online(&sandbox).await;
        sandbox.end().await;
        next.rent(&plain()).await.end().await;
        next.close().await;
        assert_clean();
    }
    with_containers(
        "containers::what_a_killed_daemon_leaves_goes_with_its_containers",
        case,
    );
}
