//! What cannot be had is refused by its name, and nothing weaker is given in its place.

use crate::home::{bridged, house};
use crate::world::{World, as_root, sh, without_root};
use sandboxd_server::backends::{Ceiling, CreateError, Enforcement, Start};
use sandboxd_server::config::{Flags, Layers};
use sandboxd_server::id::SandboxId;
use sandboxd_server::sessions::sandbox_spec;

/// Asserts that a network is refused here, in words with this one; and what somebody gets who accepts that.
async fn refused_with(word: &str) {
    let state = tempfile::tempdir().unwrap();
    let house = house(state.path()).await;
    let id = SandboxId::generate();
    let refused = house.try_rent(&id, &bridged(), Start::Fresh).await;
    let Err(CreateError::Unenforceable { ceiling, cause }) = refused.map(|_| ()) else {
        panic!("it was given");
    };
    assert_eq!(ceiling, Ceiling::Network);
    assert!(cause.contains("bridge") && cause.contains(word), "{cause}");
    let mut accepting = bridged();
    accepting.allow_unenforced = vec![Ceiling::Network];
    let sandbox = house.rent(&accepting).await;
    let devices = sandbox.says("tail -n +3 /proc/net/dev | cut -d: -f1").await;
    assert_eq!(devices.trim(), "lo");
    let Some(Enforcement::Unenforced(why)) = sandbox.enforced.get(&Ceiling::Network) else {
        panic!("it is said to be there");
    };
    assert!(why.contains(word), "{why}");
    sandbox.end().await;
    // The twin: without a network there is nothing to refuse.
    let plain = house.rent(&crate::rented::host()).await;
    plain.end().await;
    house.close().await;
}

#[test]
fn without_nft() {
    async fn case(_: World) {
        sh("mount --bind /dev/null \"$(readlink -f /usr/sbin/nft)\"");
        refused_with("nftables").await;
    }
    as_root("refused::without_nft", case);
}

#[test]
fn without_a_program_that_leads_out() {
    async fn case(_: World) {
        refused_with("slirp4netns").await;
    }
    let hidden = ["/usr/bin/pasta", "/usr/bin/slirp4netns"];
    without_root("refused::without_a_program_that_leads_out", &hidden, case);
}

#[test]
fn without_a_device_for_it() {
    async fn case(world: World) {
        world.as_root("f=$(mktemp); chmod 600 $f; mount --bind $f /dev/net/tun; rm $f");
        refused_with("/dev/net/tun").await;
    }
    without_root("refused::without_a_device_for_it", &[], case);
}

#[test]
fn by_the_words_of_the_program_that_cannot_lead_out() {
    async fn case(world: World) {
        world.as_root("ip route del default");
        refused_with("pasta").await;
    }
    without_root(
        "refused::by_the_words_of_the_program_that_cannot_lead_out",
        &[],
        case,
    );
}

#[test]
fn networks_of_a_container_engine_and_the_hosts_own() {
    let read = |mode: &str| {
        let layers = Layers {
            flags: Flags::default(),
            env: vec![
                ("HOME".into(), "/nonexistent".into()),
                (
                    "SANDBOXD_RUNTIMES".into(),
                    format!("x=host;network_mode={mode}").into(),
                ),
            ],
            file: None,
            root: true,
        };
        layers.read().map(|(config, _)| config.service)
    };
    for mode in ["host", "container:other"] {
        assert!(read(mode).is_err(), "{mode}");
    }
    for mode in [
        "my-network",
        "Bridge",
        "bridge2",
        "nat",
        "slirp4netns",
        "pasta",
        "all",
        "*",
    ] {
        let service = read(mode).unwrap();
        let image = sandboxd_server::backends::PreparedImage::Host;
        // An engine's network by that name, which backends that are none refuse.
        let spec = sandbox_spec(&service, &service.runtimes["x"], image, None).unwrap();
        let named = sandboxd_server::backends::Network::Named(mode.to_owned());
        assert_eq!(spec.network, named);
    }
    let service = read("bridge").unwrap();
    let image = sandboxd_server::backends::PreparedImage::Host;
    assert!(sandbox_spec(&service, &service.runtimes["x"], image, None).is_ok());
}
