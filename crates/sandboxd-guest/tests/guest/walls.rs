//! What stands between the guest and what runs beside it.

use crate::house::{SOON, cgroup_house, house, init_house, outcome, run, sh, start, user_house};
use bytes::Bytes;
use sandboxd_protocol::client::Output;
use sandboxd_protocol::message::{Ended, NotStarted, PathRule};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

#[tokio::test]
async fn pid_1_cannot_be_signalled_from_inside() {
    let house = init_house().await;
    let script =
        "for s in KILL STOP TERM INT HUP QUIT SEGV ABRT USR1 PIPE; do kill -$s 1; done; echo sent";
    assert_eq!(house.run(sh(script)).await.out(), "sent\n");
    assert_eq!(house.run(run(&["echo", "well"])).await.out(), "well\n");
    // It is the one that everything falls to.
    let orphan = house
        .run(sh(
            "sh -c 'sleep 0.3; cut -d\" \" -f4 /proc/self/stat > ppid' & sleep 0.05",
        ))
        .await;
    assert_eq!(orphan.exit.ended, Ended::Itself);
    house.appears("ppid").await;
}

#[tokio::test]
async fn everything_inside_ends_with_the_link() {
    let house = init_house().await;
    let script = "setsid sh -c 'while :; do echo >> alive; sleep 0.02; done' & echo up";
    assert_eq!(house.run(sh(script)).await.out(), "up\n");
    house.appears("alive").await;
    house.client.close();
    timeout(SOON, house.client.closed()).await.expect("closed");
    for _ in 0..100 {
        if !house.grows("alive").await {
            return;
        }
    }
    panic!("something lives on");
}

#[tokio::test]
async fn killing_everything_in_sight_costs_the_sandbox_and_no_more() {
    let house = init_house().await;
    let (_input, mut events) = house
        .client
        .run(sh("kill -9 -1; sleep 60"))
        .await
        .expect("asked");
    let last = loop {
        match timeout(SOON, events.next()).await.expect("no hang") {
            Ok(Some(Output::Exited(exit))) => break Ok(exit),
            Ok(Some(_)) => {}
            Ok(None) => panic!("no terminal event"),
            Err(error) => break Err(error),
        }
    };
    assert!(last.is_err(), "{last:?}");
    timeout(SOON, house.client.closed()).await.expect("closed");
}

#[tokio::test]
async fn stopping_everything_in_sight_hangs_nobody() {
    let house = init_house().await;
    // Itself and PID 1 excepted; the shell's own builtin, so that it starts nothing that it could stop.
    let script = "echo up; while :; do for p in /proc/[0-9]*; do p=${p#/proc/}; \
                  [ $p = $$ ] || [ $p = 1 ] || kill -STOP $p; done; done 2>/dev/null";
    let (mut stopper, mut events) = house.client.run(sh(script)).await.expect("asked");
    assert_eq!(events.next().await, Ok(Some(Output::Started)));
    let up = timeout(SOON, events.next()).await.expect("no hang");
    assert_eq!(up, Ok(Some(Output::Stdout("up\n".into()))));
    for _ in 0..3 {
        let mut asked = run(&["true"]);
        asked.timeout_millis = Some(500);
        let (_input, mut other) = house.client.run(asked).await.expect("asked");
        // Started or not, in time or not, or with the sandbox gone: an answer comes.
        while let Ok(Some(_)) = timeout(SOON, other.next()).await.expect("no hang") {}
        if house.client.is_closed() {
            return;
        }
    }
    stopper.kill().await.ok();
    while let Ok(Some(_)) = timeout(SOON, events.next()).await.expect("no hang") {}
}

#[tokio::test]
async fn a_run_with_a_user_of_its_own_has_no_capability_and_its_files_are_its_own() {
    let Some(house) = user_house(4711).await else {
        return;
    };
    let script = "id -u; id -g; id -G; grep -E 'Cap(Inh|Prm|Eff|Amb)' /proc/self/status | tr -d 'A-Za-z:\t0\n'; echo; echo x > mine";
    assert_eq!(house.run(sh(script)).await.out(), "4711\n4711\n4711\n\n");
    let path = house.dir.path().join("new/f");
    let name = path.to_str().expect("text").as_bytes().to_vec();
    let written = house
        .client
        .write(
            PathRule::Follow,
            &name,
            Bytes::from_static(b"x"),
            0o666,
            true,
        )
        .await;
    assert_eq!(written, Ok(()));
    for made in ["mine", "new", "new/f"] {
        let data = std::fs::metadata(house.dir.path().join(made)).expect("there");
        assert_eq!((data.uid(), data.gid()), (4711, 4711), "{made}");
    }
    assert_eq!(
        house.run(sh("echo y > new/f; cat new/f")).await.out(),
        "y\n"
    );
    // The keeper is out of its reach, and so the whole tree is not.
    let mut asked = sh("kill -9 $PPID 2>/dev/null || echo refused; setsid sleep 60 & sleep 60");
    asked.timeout_millis = Some(300);
    let (_input, mut events) = house.client.run(asked).await.expect("asked");
    let ended = outcome(&mut events).await;
    assert_eq!(
        (ended.out(), ended.exit.ended),
        ("refused\n", Ended::Timeout)
    );
}

/// A link that a program planted is enough to choose a working directory, so it must find nothing of the guest's.
#[tokio::test]
async fn no_working_directory_leads_through_the_guests_descriptors() {
    for house in [Some(house().await), cgroup_house().await] {
        let Some(house) = house else { continue };
        for number in 3..24 {
            let link = house.dir.path().join(format!("to-{number}"));
            std::os::unix::fs::symlink(format!("/proc/self/fd/{number}"), &link).expect("made");
            let mut asked = sh("pwd; ls");
            asked.cwd = Some(link.to_str().expect("text").as_bytes().to_vec());
            let (_input, mut events) = house.client.run(asked).await.expect("asked");
            let first = timeout(SOON, events.next()).await.expect("no hang");
            assert!(
                matches!(
                    &first,
                    Ok(Some(Output::NotStarted(NotStarted::Cwd(_, libc::ENOENT))))
                ),
                "{number}: {first:?}"
            );
        }
    }
}

/// A daemon that talks nonsense, or not at all, costs only its own link.
#[tokio::test]
async fn nonsense_on_the_link_ends_the_guest() {
    let frames: [&[u8]; 4] = [
        // A yamux frame of a size that nobody may claim.
        &[0, 0, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff],
        // Another version.
        &[9; 64],
        // A substream that begins with a frame of no known tag.
        &[0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 5, 7, 1, 0, 0, 0],
        // A request before the hello: dial port 80.
        &[0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 7, 0, 2, 0, 0, 0, 3, 80],
    ];
    for frame in frames {
        let dir = TempDir::new().expect("directory");
        let (mut link, mut process) = start(&dir);
        link.write_all(frame).await.expect("written");
        let mut answer = Vec::new();
        let ended = timeout(SOON, link.read_to_end(&mut answer)).await;
        ended.expect("no hang").ok();
        for _ in 0..500 {
            if process.try_wait().expect("waits").is_some() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(process.try_wait().expect("waits").is_some(), "{frame:?}");
    }
}

#[tokio::test]
async fn a_daemon_that_goes_before_the_hello_leaves_no_guest() {
    let dir = TempDir::new().expect("directory");
    let (link, mut process) = start(&dir);
    drop(link);
    for _ in 0..1000 {
        if process.try_wait().expect("waits").is_some() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it waits for ever");
}
