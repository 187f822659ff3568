//! Networks by name: what an operator made, and what is never given.

use crate::place::{Home, has_engine};
use bollard::models::NetworkCreateRequest;
use sandboxd_server::backends::{Ceiling, Enforcement};
use sandboxd_server::id::SessionId;

async fn refused(home: &Home, network: &str, id: &SessionId) -> String {
    let place = home
        .service(|service| {
            service.ceilings.values.network_mode = Some(network.to_owned());
        })
        .await;
    let refused = place.open(id).await.unwrap_err().to_string();
    assert_eq!(place.backend.list().await.unwrap(), []);
    place.close().await;
    refused
}

#[tokio::test]
async fn a_network_of_the_operators_is_joined_by_its_name() {
    if !has_engine() {
        return;
    }
    let home = Home::new();
    let name = home.id("net").to_string();
    let client = home.client().await;
    let made = client.create_network(NetworkCreateRequest {
        name: name.clone(),
        internal: Some(true),
        ..NetworkCreateRequest::default()
    });
    made.await.unwrap();
    let network = name.clone();
    let place = home
        .service(|service| service.ceilings.values.network_mode = Some(network))
        .await;
    let id = home.id("a");
    let opened = place.open(&id).await.unwrap();
    let enforced = opened.session.enforced.get(&Ceiling::Network);
    assert!(
        matches!(enforced, Some(Enforcement::Enforced(how)) if how.contains(&name)),
        "{enforced:?}"
    );
    let devices = place.out(&id, "cat /proc/net/dev").await;
    assert!(devices.contains("eth0"), "{devices}");
    place.close().await;
    client.remove_network(&name).await.unwrap();
}

#[tokio::test]
async fn neither_the_hosts_network_nor_everybodys_is_given_by_any_name() {
    if !has_engine() {
        return;
    }
    let home = Home::new();
    let client = home.client().await;
    let id_of = async |name: &str| {
        let options = None::<bollard::query_parameters::InspectNetworkOptions>;
        let looked = client.inspect_network(name, options).await;
        looked.unwrap().id.unwrap()
    };
    let hosts = refused(&home, &id_of("host").await, &home.id("a")).await;
    assert!(hosts.contains("host's own network"), "{hosts}");
    let shared = refused(&home, &id_of("bridge").await, &home.id("b")).await;
    assert!(shared.contains("reach each other"), "{shared}");
    let missing = refused(&home, "no-such-net", &home.id("c")).await;
    assert!(missing.contains("no-such-net"), "{missing}");
}
