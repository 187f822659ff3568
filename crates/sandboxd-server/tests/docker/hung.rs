//! An engine that hangs: it takes what it is sent, and answers nothing. Whoever asks hears so within a deadline, whichever
//! call it was that hung, and what was begun is ended once the engine goes on.

use crate::leftovers::named;
use crate::place::{Home, has_engine, socket, until};
use sandboxd_server::backends::docker::Docker;
use sandboxd_server::backends::namespaces::Programs;
use sandboxd_server::config::EngineAddress;
use sandboxd_server::sessions::{RunAsk, RunDone, UsageView};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// Longer than every deadline of a request together: what takes longer hangs.
const HANGS: Duration = Duration::from_secs(150);

/// What hangs now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hung {
    Nothing,
    /// Calls by this method whose path contains this, and whatever follows on their connections.
    Call(&'static str, &'static str),
    /// Likewise, and they are passed on when nothing hangs any more.
    Late(&'static str, &'static str),
    /// Everything, also what is under way.
    All,
}

impl Hung {
    /// Whether this begins such a call. The client sends the head of a request in one piece.
    fn is(self, piece: &[u8]) -> bool {
        let (Self::Call(method, part) | Self::Late(method, part)) = self else {
            return false;
        };
        let line = piece
            .split(|byte| *byte == b'\r')
            .next()
            .unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        let mut words = line.split(' ');
        words.next() == Some(method) && words.next().is_some_and(|path| path.contains(part))
    }
}

/// Passes on what connects to the engine of the tests, but for what hangs.
struct Front {
    path: PathBuf,
    hung: watch::Sender<Hung>,
    /// Whether a call waits to be passed on.
    waits: Arc<AtomicBool>,
    passing: JoinHandle<()>,
}

impl Front {
    fn new(home: &Path) -> Self {
        let path = home.join("engine.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let (hung, now) = watch::channel(Hung::Nothing);
        let waits = Arc::new(AtomicBool::new(false));
        let waiting = Arc::clone(&waits);
        let passing = tokio::spawn(async move {
            let mut all = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                let (now, waiting) = (now.clone(), Arc::clone(&waiting));
                all.spawn(async move {
                    let far = UnixStream::connect(socket()).await.unwrap();
                    let ((near_in, near_out), (far_in, far_out)) =
                        (near.into_split(), far.into_split());
                    tokio::join!(
                        pass(near_in, far_out, now.clone(), Some(&waiting)),
                        pass(far_in, near_out, now, None)
                    )
                });
            }
        });
        Self {
            path,
            hung,
            waits,
            passing,
        }
    }

    fn address(&self) -> EngineAddress {
        EngineAddress::Sockets(vec![self.path.clone()])
    }

    fn hang(&self, what: Hung) {
        self.hung.send_replace(what);
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.passing.abort();
    }
}

async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut hung: watch::Receiver<Hung>,
    asks: Option<&AtomicBool>,
) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let piece = &buffer[..length];
        let now = *hung.borrow();
        if let Some(waits) = asks.filter(|_| now.is(piece)) {
            if matches!(now, Hung::Late(..)) {
                waits.store(true, Ordering::Relaxed);
                let _ = hung.wait_for(|hung| *hung == Hung::Nothing).await;
                if to.write_all(piece).await.is_err() {
                    return;
                }
                continue;
            }
            // It was taken, and nobody has read it. The connection stays as long as the client keeps it.
            while let Ok(1..) = from.read(&mut buffer).await {}
            return;
        }
        let _ = hung.wait_for(|hung| *hung != Hung::All).await;
        if to.write_all(piece).await.is_err() {
            return;
        }
    }
}

/// The calls of an open, each with the word for it in what is said.
const OPENING: [(&str, &str, &str); 6] = [
    ("GET", "/images/", "image"),
    ("POST", "/containers/create", "making the container"),
    ("PUT", "/archive", "copying the guest"),
    ("POST", "/attach", "attaching to the container"),
    ("POST", "/start", "starting the container"),
    ("GET", "/containers/", "container"),
];

#[tokio::test]
async fn an_open_says_which_call_hung_and_leaves_nothing() {
    if !has_engine() {
        return;
    }
    let all = OPENING.map(|(method, part, said)| opens(method, part, said));
    futures::future::join_all(all).await;
}

async fn opens(method: &'static str, part: &'static str, said: &str) {
    let home = Home::new();
    let front = Front::new(home.dir.path());
    let place = home.service_at(&front.address(), |_| {}).await;
    front.hang(Hung::Call(method, part));
    let opening = tokio::time::timeout(HANGS, place.open(&home.id("a"))).await;
    let refused = opening
        .unwrap_or_else(|_| panic!("{method} {part}: the open hangs"))
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("did not answer within") && refused.contains(said),
        "{method} {part}: {refused}"
    );
    assert!(place.sessions.get(&home.id("a")).is_none());
    front.hang(Hung::Nothing);
    // The same id can be had once it goes on, and what was half made is gone.
    place.open(&home.id("a")).await.unwrap();
    assert_eq!(place.out(&home.id("a"), "echo here").await, "here\n");
    until("one container is left", async || {
        place.backend.list().await.unwrap().len() == 1
    })
    .await;
    place.purge(&home.id("a")).await;
    assert_eq!(place.backend.list().await.unwrap(), []);
    place.close().await;
}

#[tokio::test]
async fn an_open_session_is_answered_for_while_the_engine_hangs() {
    if !has_engine() {
        return;
    }
    let home = Home::new();
    let front = Front::new(home.dir.path());
    let place = home.service_at(&front.address(), |_| {}).await;
    let id = home.id("a");
    place.open(&id).await.unwrap();
    place.out(&id, "echo kept > f").await;
    front.hang(Hung::All);
    let ask = RunAsk {
        argv: ["/bin/sh", "-c", "echo out"].map(str::to_owned).to_vec(),
        env: Vec::new(),
        timeout: Some(Duration::from_secs(1)),
        id: None,
    };
    let run = tokio::time::timeout(HANGS, place.sessions.run(&id, ask)).await;
    let run = run.expect("a run does not hang").unwrap();
    assert!(matches!(run, RunDone::TimedOut { .. }), "{run:?}");
    let usage = place.sessions.usage(std::slice::from_ref(&id));
    let usage: Vec<Option<UsageView>> = tokio::time::timeout(HANGS, usage)
        .await
        .expect("a question for what is used does not hang");
    assert_eq!(usage.len(), 1);
    let other = tokio::time::timeout(HANGS, place.open(&home.id("b"))).await;
    let refused = other.expect("an open does not hang").unwrap_err();
    assert!(
        refused.to_string().contains("did not answer within"),
        "{refused}"
    );
    front.hang(Hung::Nothing);
    assert_eq!(place.out(&id, "cat f").await, "kept\n");
    place.purge(&id).await;
    place.close().await;
}

#[tokio::test]
async fn sleep_and_the_end_are_refused_or_done_while_the_engine_hangs() {
    if !has_engine() {
        return;
    }
    let home = Home::new();
    let front = Front::new(home.dir.path());
    let place = home
        .service_at(&front.address(), |service| {
            service.persist_containers = true
        })
        .await;
    let (a, b) = (home.id("a"), home.id("b"));
    for id in [&a, &b] {
        place.open(id).await.unwrap();
        place.out(id, "echo kept > f").await;
    }
    front.hang(Hung::All);
    let asleep = tokio::time::timeout(HANGS, place.sessions.hibernate(&a)).await;
    let _ = asleep.expect("sleep does not hang");
    let deleted = tokio::time::timeout(HANGS, place.sessions.delete(&b, false)).await;
    let _ = deleted.expect("the end does not hang");
    front.hang(Hung::Nothing);
    // Whatever was said: it goes on, with its files.
    assert_eq!(place.out(&a, "cat f").await, "kept\n");
    place.purge(&a).await;
    let _ = place.sessions.delete(&b, true).await;
    until("no container is left", async || {
        place.backend.list().await.unwrap().is_empty()
    })
    .await;
    place.close().await;
}

#[tokio::test]
async fn a_start_beside_an_engine_that_hangs_ends_with_the_reason() {
    if !has_engine() {
        return;
    }
    let home = Home::new();
    for part in ["/version", "/info", "/containers/json"] {
        let place = tempfile::tempdir().unwrap();
        let front = Front::new(place.path());
        front.hang(Hung::Call("GET", part));
        let (state, address) = (home.state(), front.address());
        let starting = Docker::start(&state, Programs::embedded().unwrap(), &address);
        let started = tokio::time::timeout(HANGS, starting).await;
        let started = started.unwrap_or_else(|_| panic!("{part}: the start hangs"));
        let why = started.map(drop).unwrap_err().to_string();
        assert!(
            ["not within", "did not answer within"]
                .iter()
                .any(|said| why.contains(said)),
            "{part}: {why}"
        );
    }
}

/// What a daemon that is killed had asked the engine for may come to pass after the next one has looked.
#[tokio::test]
async fn a_container_that_a_dead_daemon_had_asked_for_is_in_nobodys_way() {
    if !has_engine() {
        return;
    }
    let home = Home::new();
    let front = Front::new(home.dir.path());
    let place = home
        .service_at(&front.address(), |service| {
            service.persist_containers = true
        })
        .await;
    let id = home.id("a");
    let name = format!("sandboxd-{id}");
    front.hang(Hung::Late("POST", "/containers/create"));
    let comes = async {
        until("the making is asked for", async || {
            front.waits.load(Ordering::Relaxed)
        })
        .await;
        let state = std::fs::read_to_string(home.state().join("engine-state")).unwrap();
        let labels = [
            ("sandboxd.state", state.as_str()),
            ("sandboxd.instance", "0000000000000000"),
            ("sandboxd.sandbox", "00000000000000a1"),
            ("sandboxd.keep", "yes"),
        ];
        let old = named(&home, &labels, &name).await;
        front.hang(Hung::Nothing);
        old
    };
    let (opened, old) = tokio::join!(place.open(&id), comes);
    opened.unwrap();
    assert_eq!(place.out(&id, "echo here").await, "here\n");
    assert!(home.inspect(&old).await.is_none());
    place.purge(&id).await;
    // Another's stays, and is said.
    front.waits.store(false, Ordering::Relaxed);
    front.hang(Hung::Late("POST", "/containers/create"));
    let comes = async {
        until("the making is asked for", async || {
            front.waits.load(Ordering::Relaxed)
        })
        .await;
        let others = home.container(&name, &["sleep", "98759"], None).await;
        front.hang(Hung::Nothing);
        others
    };
    let (opened, others) = tokio::join!(place.open(&id), comes);
    let refused = opened.unwrap_err().to_string();
    assert!(refused.contains(&name), "{refused}");
    assert!(home.inspect(&others).await.is_some());
    home.remove(&others).await;
    place.close().await;
}
