//! Programs: how they start, what they are given, how they end.

use crate::house::{Outcome, SOON, deaf_house, house, outcome, run, sh};
use sandboxd_protocol::client::Output;
use sandboxd_protocol::message::{Ended, NotStarted, OutputLimit, Run};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};
use tokio::time::timeout;

fn itself(outcome: &Outcome) -> u8 {
    assert_eq!(outcome.exit.ended, Ended::Itself);
    outcome.exit.code
}

#[tokio::test]
async fn a_program_gets_its_arguments_literally_and_its_streams_apart() {
    let house = house().await;
    let printed = house
        .run(run(&["printf", "%s|", "a b", "$HOME", "*", ""]))
        .await;
    assert_eq!(printed.out(), "a b|$HOME|*||");
    let both = house.run(sh("echo out; echo err >&2; exit 7")).await;
    assert_eq!(
        (&both.stdout[..], &both.stderr[..]),
        (&b"out\n"[..], &b"err\n"[..])
    );
    assert_eq!(itself(&both), 7);
    let killed = house.run(sh("kill -9 $$")).await;
    assert_eq!((itself(&killed), killed.exit.signal), (137, Some(9)));
}

#[tokio::test]
async fn a_program_starts_in_the_work_directory_with_its_own_session_and_nothing_of_ours() {
    let house = house().await;
    let here = house.run(run(&["pwd"])).await;
    assert_eq!(here.out().trim(), house.dir.path().to_str().expect("text"));
    let mut there = run(&["pwd"]);
    there.cwd = Some(b"/usr".to_vec());
    assert_eq!(house.run(there).await.out(), "/usr\n");
    // Descriptors: the three streams, and the one that ls reads the directory with.
    let open = house.run(run(&["ls", "/proc/self/fd"])).await;
    assert_eq!(open.out(), "0\n1\n2\n3\n");
    let session = house
        .run(sh("cat /proc/self/stat | cut -d' ' -f6; echo $$"))
        .await;
    let ids: Vec<&str> = session.out().lines().collect();
    assert_eq!(ids[0], ids[1]);
    // The files in /proc of what is not dumpable belong to the root of its user namespace. In a sandbox that is the guest; in
    // this test, which makes no namespace, it is the host's root.
    if rustix::process::geteuid().is_root() {
        let score = house.run(run(&["cat", "/proc/self/oom_score_adj"])).await;
        assert_eq!(score.out(), "500\n");
    }
    let empty = house.run(run(&["cat"])).await;
    assert_eq!((empty.out(), itself(&empty)), ("", 0));
}

#[tokio::test]
async fn a_program_has_no_signal_blocked_or_ignored_whatever_the_guest_was_started_with() {
    for house in [house().await, deaf_house().await] {
        let masks = house
            .run(run(&["grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"]))
            .await;
        assert_eq!(
            masks.out(),
            "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n"
        );
        // The guest itself outlives whoever does not read any more.
        let asked = run(&["sh", "-c", "kill -PIPE $PPID; kill -HUP $$"]);
        assert_eq!(house.run(asked).await.exit.signal, Some(1));
    }
}

#[tokio::test]
async fn the_environment_is_the_sandboxs_and_the_callers() {
    let house = house().await;
    let mut asked = sh("echo $OWN $ADDED");
    asked.env = vec![(b"ADDED".to_vec(), b"by \xffcaller".to_vec())];
    assert_eq!(house.run(asked).await.stdout, b"sandbox by \xffcaller\n");
    let mut asked = run(&["env"]);
    asked.env = vec![(b"OWN".to_vec(), b"caller".to_vec())];
    let text = house.run(asked).await;
    let mut lines: Vec<&str> = text
        .out()
        .lines()
        .filter(|line| !line.starts_with("PWD="))
        .collect();
    lines.sort_unstable();
    assert_eq!(lines, ["OWN=caller", "PATH=/usr/local/bin:/usr/bin:/bin"]);
}

async fn refusal(run: Run) -> NotStarted {
    let house = house().await;
    let (_input, mut events) = house.client.run(run).await.expect("asked");
    let event = timeout(SOON, events.next()).await.expect("no hang");
    // The guest is as well as before.
    assert_eq!(itself(&house.run(crate::house::run(&["true"])).await), 0);
    match event {
        Ok(Some(Output::NotStarted(why))) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_cannot_start_says_why() {
    assert_eq!(
        refusal(run(&["no-such-program"])).await,
        NotStarted::NotFound
    );
    assert_eq!(
        refusal(run(&["/no/such/program"])).await,
        NotStarted::NotFound
    );
    assert_eq!(refusal(run(&["/etc/passwd/x"])).await, NotStarted::NotFound);
    assert_eq!(
        refusal(run(&["/etc/passwd"])).await,
        NotStarted::NotExecutable(13)
    );
    assert_eq!(refusal(run(&["/usr"])).await, NotStarted::NotExecutable(13));
    let mut lost = run(&["true"]);
    lost.cwd = Some(b"/no/such/place".to_vec());
    assert_eq!(
        refusal(lost).await,
        NotStarted::Cwd(b"/no/such/place".to_vec(), 2)
    );
    assert!(matches!(refusal(run(&[])).await, NotStarted::Invalid(_)));
    assert!(matches!(
        refusal(run(&["echo", "a\0b"])).await,
        NotStarted::Invalid(_)
    ));
    let long = "x".repeat(128 * 1024);
    assert_eq!(
        refusal(run(&["echo", &long])).await,
        NotStarted::TooLarge {
            bytes: 131_073,
            limit: 131_072
        }
    );
    let many: Vec<&str> = std::iter::repeat_n(&long[1..], 20).collect();
    assert!(matches!(
        refusal(run(&[&["echo"], &many[..]].concat())).await,
        NotStarted::TooLarge { bytes, limit } if bytes > limit
    ));
    // More than a message of the link holds.
    let many: Vec<&str> = std::iter::repeat_n(&long[1..], 40).collect();
    assert!(matches!(
        refusal(run(&[&["echo"], &many[..]].concat())).await,
        NotStarted::TooLarge { bytes, limit } if bytes > limit
    ));
}

#[tokio::test]
async fn arguments_just_under_the_limit_arrive() {
    let house = house().await;
    let long = "x".repeat(128 * 1024 - 1);
    let counted = house
        .run(run(&["sh", "-c", "printf %s \"$1\" | wc -c", "sh", &long]))
        .await;
    assert_eq!(counted.out().trim(), "131071");
}

#[tokio::test]
async fn a_script_without_a_first_line_is_a_shells() {
    let house = house().await;
    let path = house.dir.path().join("script");
    std::fs::write(&path, "echo \"$0 $1\"\n").expect("written");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("mode");
    let ran = house.run(run(&["./script", "x"])).await;
    assert_eq!(ran.out(), "./script x\n");
}

#[tokio::test]
async fn binary_output_arrives_intact() {
    let house = house().await;
    let script = "awk 'BEGIN { for (i = 0; i < 256; i++) printf \"%c\", i }' | head -c 300 >/dev/null; \
                  printf '\\000\\001\\377\\376\\200'; head -c 1000000 /dev/zero";
    let outcome = house.run(sh(script)).await;
    assert_eq!(&outcome.stdout[..5], b"\0\x01\xff\xfe\x80");
    assert_eq!(outcome.stdout.len(), 1_000_005);
    assert!(outcome.stdout[5..].iter().all(|byte| *byte == 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stdin_streams_both_ways_with_back_pressure() {
    let house = house().await;
    let mut asked = run(&["cat"]);
    asked.stdin = true;
    let (mut input, mut events) = house.client.run(asked).await.expect("asked");
    let sent: Vec<u8> = (0..3_000_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    let expected = sent.clone();
    let feed = tokio::spawn(async move {
        input.stdin(&sent).await.expect("sent");
        input.end_stdin().await.expect("ended");
    });
    let got = outcome(&mut events).await;
    assert!(got.stdout == expected);
    feed.await.expect("fed");
}

#[tokio::test]
async fn a_program_that_does_not_want_its_stdin_does_not_hold_it_up() {
    let house = house().await;
    let mut asked = sh("exec <&-; read x </dev/null; sleep 0.2; echo done");
    asked.stdin = true;
    let (mut input, mut events) = house.client.run(asked).await.expect("asked");
    let feed = tokio::spawn(async move {
        // More than every window: it must be thrown away, or the run ends first.
        let _ = input.stdin(&vec![0; 2_000_000]).await;
    });
    assert_eq!(outcome(&mut events).await.out(), "done\n");
    timeout(SOON, feed).await.expect("no hang").expect("joins");
}

#[tokio::test]
async fn output_over_the_limit_ends_the_run() {
    let house = house().await;
    let mut asked = run(&["yes"]);
    asked.output = OutputLimit::Stop(10 * 1024 * 1024);
    let outcome = house.run(asked).await;
    assert_eq!(outcome.exit.ended, Ended::Output);
    assert_eq!(outcome.stdout.len(), 10 * 1024 * 1024);
    let mut exact = sh("printf 12345; printf 678 >&2");
    exact.output = OutputLimit::Stop(8);
    let outcome = house.run(exact).await;
    assert_eq!(
        (itself(&outcome), outcome.stdout.len(), outcome.stderr.len()),
        (0, 5, 3)
    );
}

#[tokio::test]
async fn output_without_end_can_be_thrown_away_until_the_deadline() {
    let house = house().await;
    let mut asked = run(&["yes"]);
    asked.output = OutputLimit::Discard(1000);
    asked.timeout_millis = Some(300);
    let begun = Instant::now();
    let outcome = house.run(asked).await;
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert_eq!(outcome.exit.ended, Ended::Timeout);
    assert_eq!(outcome.stdout.len(), 1000);
    assert!(outcome.exit.discarded_bytes > 0);
    let mut counted = sh("head -c 5000 /dev/zero");
    counted.output = OutputLimit::Discard(1000);
    let outcome = house.run(counted).await;
    assert_eq!((itself(&outcome), outcome.exit.discarded_bytes), (0, 4000));
}

#[tokio::test]
async fn a_deadline_keeps_what_was_printed() {
    let house = house().await;
    let mut asked = sh("echo before; sleep 60; echo after");
    asked.timeout_millis = Some(300);
    let outcome = house.run(asked).await;
    assert_eq!(outcome.out(), "before\n");
    assert_eq!(outcome.exit.ended, Ended::Timeout);
    assert_eq!(outcome.exit.signal, Some(9));
}

#[tokio::test]
async fn a_reader_that_does_not_read_holds_up_neither_the_deadline_nor_others() {
    let house = house().await;
    let mut asked = sh("echo $$ > pid; exec yes");
    asked.timeout_millis = Some(400);
    let (_input, mut events) = house.client.run(asked).await.expect("asked");
    house.appears("pid").await;
    assert_eq!(house.run(run(&["echo", "hi"])).await.out(), "hi\n");
    let pid = std::fs::read_to_string(house.dir.path().join("pid")).expect("pid");
    let process = format!("/proc/{}", pid.trim());
    for _ in 0..500 {
        if !std::path::Path::new(&process).exists() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(
        !std::path::Path::new(&process).exists(),
        "it outlived its deadline"
    );
    assert_eq!(outcome(&mut events).await.exit.ended, Ended::Timeout);
}

#[tokio::test]
async fn a_signal_goes_to_the_program_itself() {
    let house = house().await;
    let script = "trap 'echo got; exit 3' USR1; echo up; while :; do sleep 0.01; done";
    let (mut input, mut events) = house.client.run(sh(script)).await.expect("asked");
    assert_eq!(events.next().await, Ok(Some(Output::Started)));
    let up = timeout(SOON, events.next()).await.expect("no hang");
    assert_eq!(up, Ok(Some(Output::Stdout("up\n".into()))));
    input.signal(10).await.expect("sent");
    let ended = outcome(&mut events).await;
    assert_eq!((ended.out(), itself(&ended)), ("got\n", 3));
}

#[tokio::test]
async fn many_runs_at_once_all_end() {
    let house = house().await;
    let mut all = tokio::task::JoinSet::new();
    for number in 0..60 {
        let client = house.client.clone();
        all.spawn(async move {
            let text = number.to_string();
            let (_input, mut events) = client.run(run(&["echo", &text])).await.expect("asked");
            (number, outcome(&mut events).await)
        });
    }
    while let Some(done) = timeout(SOON, all.join_next()).await.expect("no hang") {
        let (number, outcome) = done.expect("joins");
        assert_eq!(outcome.out(), format!("{number}\n"));
    }
}

#[tokio::test]
async fn the_guest_ends_with_its_link_and_leaves_nothing() {
    let mut house = house().await;
    let script = "setsid sh -c 'while :; do echo >> alive; sleep 0.02; done' & sleep 60";
    let (_input, mut events) = house.client.run(sh(script)).await.expect("asked");
    assert_eq!(events.next().await, Ok(Some(Output::Started)));
    house.appears("alive").await;
    house.client.close();
    for _ in 0..500 {
        if house.process.try_wait().expect("waits").is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(house.process.try_wait().expect("waits").is_some());
    assert!(!house.grows("alive").await);
    let _ = &house.welcome;
}
