//! Sandboxes with a network that were made before anybody asked for one.

use crate::home::{assert_online, bridged, house, python};
use crate::lost_parts::end_below;
use crate::rented::{House, Rented};
use crate::world::{World, in_containers, without_root};
use sandboxd_server::backends::Kind;
use sandboxd_server::id::SandboxId;

async fn park(house: &House, count: usize) {
    let kind = kind(count);
    for _ in 0..count {
        house.backend.pool().unwrap().park(&kind).await.unwrap();
    }
    assert_eq!(ready(house), count);
}

fn kind(count: usize) -> Kind {
    Kind {
        name: "bridged".to_owned(),
        spec: bridged().kind(),
        count,
    }
}

fn ready(house: &House) -> usize {
    house.backend.pool().unwrap().ready().values().sum()
}

async fn take(house: &House) -> Option<Rented> {
    house.take(&SandboxId::generate(), &bridged()).await
}

async fn address(sandbox: &Rented) -> String {
    python(
        sandbox,
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('93.184.216.34', 9)); print(s.getsockname()[0])",
    )
    .await
}

pub(crate) async fn each_has_an_address_of_its_own_and_reaches_no_other(_: World) {
    let state = tempfile::tempdir().unwrap();
    let house = house(state.path()).await;
    if in_containers() {
        // That backend makes nothing before it is asked.
        assert!(house.backend.pool().is_none());
        house.close().await;
        return;
    }
    park(&house, 3).await;
    let one = take(&house).await.unwrap();
    let other = take(&house).await.unwrap();
    let fresh = house.rent(&bridged()).await;
    let mut addresses = Vec::new();
    for sandbox in [&one, &other, &fresh] {
        assert_online(sandbox).await;
        addresses.push(address(sandbox).await);
    }
    let [a, b, c] = addresses.as_slice() else {
        panic!("{addresses:?}");
    };
    assert!(a != b && b != c && a != c, "{addresses:?}");
    let serve = "import subprocess; subprocess.Popen(['python3', '-m', 'http.server', '8000'], start_new_session=True, \
                 stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
end = time.monotonic() + 20
while reach('127.0.0.1', 8000) != 'reached': assert time.monotonic() < end; time.sleep(0.02)
print('up')";
    for sandbox in [&one, &other, &fresh] {
        assert_eq!(python(sandbox, serve).await, "up");
    }
    // Whoever is still parked has an address too, and is as far away.
    let all = (2..12).map(|last| format!("198.18.0.{last}"));
    let all: Vec<String> = all.collect();
    for (sandbox, own) in [(&one, a), (&other, b), (&fresh, c)] {
        let program = format!(
            "for address in {all:?} + {addresses:?}:\n    if address != '{own}': refused(address, 8000)\n\
             assert reach('{own}', 8000) == 'reached'\nprint('alone')"
        );
        assert_eq!(python(sandbox, &program).await, "alone");
    }
    for sandbox in [one, other, fresh] {
        sandbox.end().await;
    }
    house.close().await;
}

#[test]
fn one_whose_way_out_has_ended_is_not_handed_out() {
    async fn case(_: World) {
        let state = tempfile::tempdir().unwrap();
        let house = house(state.path()).await;
        park(&house, 2).await;
        // The twin: as long as it is there they are.
        let sandbox = take(&house).await.expect("one is ready");
        assert_online(&sandbox).await;
        sandbox.end().await;
        park_more(&house).await;
        // What `pasta` calls itself.
        end_below("passt");
        assert!(take(&house).await.is_none());
        // Whoever asked gets a new one, with a way out of its own.
        let fresh = house.rent(&bridged()).await;
        assert_online(&fresh).await;
        assert!(take(&house).await.is_none(), "they hang on the former one");
        // And what is of no use is replaced.
        let pool = house.backend.pool().unwrap();
        pool.retain(&[kind(2)]).await;
        assert_eq!(ready(&house), 0);
        park(&house, 1).await;
        let sandbox = take(&house).await.expect("one is ready");
        assert_online(&sandbox).await;
        sandbox.end().await;
        fresh.end().await;
        house.close().await;
    }
    async fn park_more(house: &House) {
        house.backend.pool().unwrap().park(&kind(2)).await.unwrap();
        assert_eq!(ready(house), 2);
    }
    without_root(
        "parked::one_whose_way_out_has_ended_is_not_handed_out",
        &[],
        case,
    );
}
