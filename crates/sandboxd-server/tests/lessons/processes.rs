//! What only a kernel can show.

use crate::real::{Real, is_root};
use crate::wire::{Request, TOKEN, run_id};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use tokio::task::JoinSet;

/// No timing is asserted; this only ends a test that would hang.
const PATIENCE: Duration = Duration::from_secs(60);
/// Commands that sleep at once.
const SLEEPERS: u32 = 100;
/// Times that a sandbox is killed and healed.
const HEALINGS: usize = 60;
/// Memory and swap together, a number that nobody else on this host has.
const ODD_BYTES: u64 = 24_416 * 4_096;

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_orphans_leave_room_to_fork() {
    let real = Real::start(&[("SANDBOXD_PIDS_LIMIT", "200")]).await;
    real.open("a").await;
    let orphans = "i=0; while [ $i -lt 250 ]; do (true &); i=$((i+1)); done; echo $i";
    for _ in 0..4 {
        assert_eq!(real.says("a", orphans).await, "250\n");
    }
    // Those that outlive their run are somebody's too.
    let later =
        "i=0; while [ $i -lt 50 ]; do (setsid sleep 0.1 >/dev/null 2>&1 &); i=$((i+1)); done";
    for _ in 0..5 {
        real.says("a", later).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert_eq!(
        real.says("a", "for n in 1 2 3; do /bin/echo $n | cat; done")
            .await,
        "1\n2\n3\n"
    );
    real.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_sleeping_commands_hold_nobody_up() {
    let real = std::sync::Arc::new(Real::start(&[]).await);
    real.open("busy").await;
    real.open("other").await;
    let mut sleepers = JoinSet::new();
    for n in 0..SLEEPERS {
        let real = real.clone();
        sleepers.spawn(async move {
            let script = format!("touch begun-{n}; exec sleep 600");
            let body = json!({"argv": ["/bin/sh", "-c", script], "run_id": run_id(n + 1)});
            real.send("POST", "/sessions/busy/run", Some(body)).await
        });
    }
    let all_begun = async {
        loop {
            let path = json!({"path": "/workspace"});
            let listed = real
                .send("POST", "/sessions/busy/files/list", Some(path))
                .await;
            if listed.ok().as_array().map(Vec::len) == usize::try_from(SLEEPERS).ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, all_begun)
        .await
        .expect("all begin, also the hundredth");
    // Each of these is answered while all of the others still sleep.
    let listing = real.ask("other", "ls", json!({"path": "."})).await;
    assert_eq!(listing, json!([]));
    assert_eq!(real.says("other", "echo on").await, "on\n");
    assert_eq!(real.says("busy", "echo on").await, "on\n");
    real.send("GET", "/healthz", None).await.ok();
    assert!(sleepers.try_join_next().is_none(), "nobody woke up");
    // And the end of the session is the end of them all.
    real.delete("busy").await;
    while let Some(ended) = sleepers.join_next().await {
        assert_eq!(ended.expect("no panic").status, 410);
    }
    let real = std::sync::Arc::into_inner(real).expect("nobody else has it");
    real.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_sandbox_can_commit() {
    let mut kinds: Vec<&[(&str, &str)]> = vec![&[]];
    if is_root() {
        kinds.push(&[("SANDBOXD_SANDBOX_UID", "1000")]);
    }
    for env in kinds {
        let real = Real::start(env).await;
        real.open("a").await;
        let script = "git init -q . && echo x > f && git status --porcelain && git add f \
             && git -c user.name=n -c user.email=n@example.org commit -qm one && git log --oneline | wc -l";
        let said = real.says("a", script).await;
        let words: Vec<&str> = said.split_whitespace().collect();
        assert_eq!(words, ["??", "f", "1"], "{env:?}");
        // The name of whoever runs is known, and what is not theirs is refused.
        real.says("a", "whoami").await;
        if !env.is_empty() {
            assert_eq!(real.says("a", "id -u; stat -c %u f").await, "1000\n1000\n");
            let done = real.run("a", "touch /etc/mine").await.ok();
            assert_eq!(done["exit_code"], 1, "{done}");
        }
        real.delete("a").await;
        real.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pattern_is_data_and_the_search_stays_in_the_work_directory() {
    let real = Real::start(&[]).await;
    real.open("a").await;
    let prepare = "printf '%s\\n' \"don't\" '-x marks' \"'; touch /tmp/x; '\" '$(touch /tmp/x)' > quotes \
                   && echo \"don't\" > /tmp/elsewhere";
    real.says("a", prepare).await;
    for (pattern, line) in [
        ("don't", 1),
        ("-x", 2),
        ("'; touch /tmp/x; '", 3),
        ("touch /tmp/x)", 4),
    ] {
        let found = real.ask("a", "grep", json!({ "pattern": pattern })).await;
        let rows = found["matches"].as_array().expect("rows");
        assert_eq!(rows.len(), 1, "{pattern}: {found}");
        assert_eq!(rows[0]["line_number"], line, "{pattern}: {found}");
    }
    for pattern in ["`touch /tmp/x`", "--help", "-f/etc/passwd"] {
        let found = real.ask("a", "grep", json!({ "pattern": pattern })).await;
        assert_eq!(found["matches"], json!([]), "{pattern}");
        assert_eq!(found["error"], Value::Null, "{pattern}");
    }
    for pattern in ["'; touch /tmp/x; '", "$(touch /tmp/x)", "-delete", "q*"] {
        let found = real.ask("a", "glob", json!({ "pattern": pattern })).await;
        let rows = found.as_array().map(Vec::len);
        assert_eq!(
            rows,
            Some(usize::from(pattern == "q*")),
            "{pattern}: {found}"
        );
    }
    let made = real.says("a", "test ! -e /tmp/x && ls").await;
    assert_eq!(made, "quotes\n");
    real.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_healed_many_times_costs_no_descriptors() {
    let real = Real::start(&[]).await;
    real.open("a").await;
    let open = || std::fs::read_dir("/proc/self/fd").expect("listed").count();
    // The first rounds may make what stays for all.
    let mut before = 0;
    for round in 0..HEALINGS + 5 {
        if round == 5 {
            before = open();
        }
        // Everything inside, the guest with it.
        let ended = real.run("a", "kill -9 -1").await;
        assert!([200, 410].contains(&ended.status), "{}", ended.text());
        assert_eq!(real.says("a", "echo on").await, "on\n", "{round}");
    }
    let after = open();
    assert!(
        after < before + HEALINGS / 3,
        "{before} before, {after} after"
    );
    real.close().await;
}

/// Every file called `name` below the control groups, with the number in it.
fn numbers(below: &Path, name: &str, found: &mut Vec<u64>) {
    let Ok(entries) = std::fs::read_dir(below) else {
        return;
    };
    for entry in entries.flatten() {
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_dir {
            numbers(&entry.path(), name, found);
        } else if entry.file_name() == name
            && let Ok(text) = std::fs::read_to_string(entry.path())
            && let Ok(number) = text.trim().parse()
        {
            found.push(number);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ceiling_of_memory_and_swap_reaches_the_sandbox() {
    if !is_root() {
        println!("needs root");
        return;
    }
    let both = format!("{ODD_BYTES}b");
    let real = Real::start(&[
        ("SANDBOXD_MEM_LIMIT", "64m"),
        ("SANDBOXD_MEMSWAP_LIMIT", &both),
    ])
    .await;
    real.open("a").await;
    let memory = 64 << 20;
    let (mut first, mut second) = (Vec::new(), Vec::new());
    let top = Path::new("/sys/fs/cgroup");
    numbers(top, "memory.memsw.limit_in_bytes", &mut first);
    numbers(top, "memory.swap.max", &mut second);
    if first.is_empty() && second.is_empty() {
        println!("swap is not accounted on this host");
    } else {
        let there = first.contains(&ODD_BYTES) || second.contains(&(ODD_BYTES - memory));
        assert!(there, "{first:?} {second:?}");
    }
    real.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ceiling_of_swap_without_one_of_memory_is_refused_and_not_ignored() {
    let real = Real::start(&[
        ("SANDBOXD_MEM_LIMIT", ""),
        ("SANDBOXD_MEMSWAP_LIMIT", "96m"),
    ])
    .await;
    let body = json!({"session_id": "a"});
    let words = real
        .send("POST", "/sessions", Some(body))
        .await
        .refused(502);
    assert!(words.contains("memory"), "{words}");
    real.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn native_writes_of_an_images_own_user_are_handed_back() {
    if !is_root() {
        return;
    }
    let real = Real::start(&[("SANDBOXD_RUNTIMES", "app=app:1,host=host")]).await;
    let root = tempfile::tempdir().expect("a directory");
    crate::rented::small_root(root.path());
    std::fs::write(
        root.path().join("etc/passwd"),
        "app:x:7:7::/home/app:/bin/sh\n",
    )
    .expect("a file");
    real.image("app:1", root.path(), "app");
    let body = json!({"session_id": "a", "runtime": "app"});
    real.send("POST", "/sessions", Some(body)).await.ok();
    assert_eq!(
        real.says("a", "id -u; echo $HOME; echo x > made; stat -c %u made")
            .await,
        "7\n/home/app\n7\n"
    );
    let put = |id: &'static str| {
        let path = format!("/sessions/{id}/files/write?path=/workspace/note.txt");
        let request = Request::new(real.addr, "POST", &path).token(TOKEN);
        async move { request.body(b"x").send().await.status }
    };
    assert_eq!(put("a").await, 409);
    // Its harmless twin.
    let body = json!({"session_id": "b", "runtime": "host"});
    real.send("POST", "/sessions", Some(body)).await.ok();
    assert_eq!(put("b").await, 204);
    real.close().await;
}
