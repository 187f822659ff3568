//! Sockets without a file, which belong to a network namespace: reached by everybody who shares it.

use crate::place::Place;
use sandboxd_server::config::{Flags, Layers};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

pub(crate) async fn none_of_the_hosts_or_of_a_neighbours_is_reached() {
    let place = Place::open().await;
    for id in ["a", "b"] {
        place.session(id).await;
    }
    let name = format!("escape-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let _outside = UnixListener::bind_addr(&address).unwrap();
    UnixStream::connect_addr(&address).unwrap();
    let connect = |name: &str| {
        format!("import socket; socket.socket(socket.AF_UNIX).connect('\\0{name}'); print('reached')")
    };
    let did = place.python("a", &connect(&name)).await;
    assert!(!did.worked() && !did.out.contains("reached"), "{did:?}");
    // One that a listens on is a's, and its runs' among themselves.
    let listen = "import socket, time; s = socket.socket(socket.AF_UNIX); s.bind('\\0inside'); s.listen(); open('up', 'w'); time.sleep(60)";
    place
        .says("a", &format!("setsid /usr/bin/python3 -c \"{listen}\" > /dev/null 2>&1 &"))
        .await;
    crate::swapped_paths::wait_for("it listens", || place.stored("a").join("up").exists()).await;
    assert_eq!(place.python_says("a", &connect("inside")).await, "reached");
    assert!(!place.python("b", &connect("inside")).await.worked());
    for id in ["a", "b"] {
        let listed = place.says(id, "cat /proc/net/unix").await;
        assert!(!listed.contains(&name), "{listed}");
        assert_eq!(listed.contains("@inside"), id == "a", "{listed}");
    }
    place.close().await;
}

pub(crate) async fn the_hosts_network_is_refused_at_start() {
    for (name, value) in [
        ("SANDBOXD_NETWORK_MODE", "host"),
        ("SANDBOXD_NETWORK_MODE", "container:other"),
    ] {
        let layers = Layers {
            flags: Flags {
                state_dir: Some("/nowhere".into()),
                ..Flags::default()
            },
            env: vec![(name.into(), value.into())],
            file: None,
            root: crate::ordinary::is_root(),
        };
        let refused = layers.read().expect_err(value).to_string();
        assert!(refused.contains("network"), "{refused}");
    }
}
