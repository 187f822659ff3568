//! Process trees that do what they can to outlive their run.

use crate::outside;
use crate::place::Place;
use crate::swapped_paths::wait_for;
use crate::wire::TOKEN;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt as _;

/// Leaves its session, its parents and its name behind, stops whom it can, traces whom it can, forks without end; then
/// waits, deaf to every signal that can be ignored.
const TREE: &str = r##"
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <unistd.h>
static void wait_for_ever(void) { for (;;) pause(); }
static void *thread(void *x) { wait_for_ever(); return x; }
static void misbehave(int kind) {
  pid_t child;
  switch (kind) {
  case 0: setsid(); break;
  case 1: if (fork()) _exit(0); setsid(); if (fork()) _exit(0); chdir("/"); break;
  case 2: setpgid(0, 0); kill(0, SIGSTOP); break;
  case 3: if ((child = fork()) == 0) { kill(getppid(), SIGSTOP); } break;
  case 4: if ((child = fork()) == 0) wait_for_ever(); ptrace(PTRACE_SEIZE, child, 0, 0); ptrace(PTRACE_INTERRUPT, child, 0, 0); break;
  case 5: { pthread_t t; for (int i = 0; i < 4; i++) pthread_create(&t, 0, thread, 0); pthread_exit(0); }
  case 6: for (int i = 0; ; i++) { if (fork()) _exit(0); if (i % 3 == 0) setsid(); usleep(500); }
  case 7: if (vfork() == 0) wait_for_ever(); break;
  case 8: if (syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0) == 0) setsid(); break;
  case 9: prctl(PR_SET_CHILD_SUBREAPER, 1); if (fork() == 0) { if (fork()) _exit(0); setsid(); } break;
  case 10: prctl(PR_SET_NAME, "(x) R 1 1"); prctl(PR_SET_PDEATHSIG, 0); close(0); close(1); close(2); break;
  case 11: signal(SIGCHLD, SIG_IGN); for (int i = 0; i < 3; i++) if (fork() == 0) { nice(19); break; } break;
  }
  wait_for_ever();
}
int main(int n, char **words) {
  int many = atoi(words[1]);
  for (int s = 1; s < 65; s++) signal(s, SIG_IGN);
  signal(SIGCHLD, SIG_DFL);
  for (int i = 0; i < many; i++) if (fork() == 0) misbehave(n > 2 && strcmp(words[2], "all") ? atoi(words[2]) : i % 12);
  usleep(20000); close(creat("ready", 0644));
  if (n > 3) for (;;) write(1, "flood flood flood flood flood flood\n", 36);
  wait_for_ever();
}
"##;

/// How often in a row.
const TIMES: u32 = 50;

/// Processes of the sandbox that are alive: its first, and what runs inside; zombies apart.
fn alive() -> usize {
    outside::descendants().iter().filter(|seen| seen.is_inside() && !seen.is_zombie()).count()
}

fn zombies() -> usize {
    outside::descendants().iter().filter(|seen| seen.is_zombie()).count()
}

async fn open() -> (Place, usize) {
    let place = Place::open_with(&[("SANDBOXD_PIDS_LIMIT", "4000"), ("SANDBOXD_ALLOW_UNENFORCED", "pids")]).await;
    place.session("a").await;
    place.compile("a", "tree", TREE);
    // Another run of the session, which has to go on through all of it.
    let bystander = "while :; do echo tick >> ticks; sleep 0.02; done";
    place.says("a", &format!("setsid sh -c '{bystander}' > /dev/null 2>&1 & echo $! > bystander")).await;
    let way = place.says("a", "grep -q run- /proc/self/cgroup && echo cgroup || echo keeper").await;
    println!("runs are ended by {way}");
    wait_for("it ticks", || place.stored("a").join("ticks").exists()).await;
    (place, outside::guests().len() + 1)
}

/// The bystander's shell, and now and then its `sleep`.
async fn only_the_rest_is_left(place: &Place, base: usize) {
    let left = alive();
    assert!((base..=base + 1).contains(&left), "{left} are alive, and {base} should be");
    wait_for("all are reaped", || zombies() <= 1).await;
    let count = || std::fs::read_to_string(place.stored("a").join("ticks")).unwrap().len();
    let before = count();
    wait_for("it goes on", || count() > before).await;
}

fn ask(place: &Place, argv: &[&str], seconds: f64, id: &str) -> Value {
    let _ = std::fs::remove_file(place.stored("a").join("ready"));
    json!({"argv": argv, "timeout_seconds": seconds, "run_id": id})
}

pub(crate) async fn none_outlives_its_deadline() {
    let (place, base) = open().await;
    let mut ready = 0;
    for time in 0..TIMES {
        // Each way alone, then all of them together.
        let kind = if time < 12 { time.to_string() } else { "all".to_owned() };
        let body = ask(&place, &["./tree", "24", &kind], 0.15, &place.run_id());
        let done = place.post("/sessions/a/run", body).await.ok();
        assert_eq!(done["timed_out"], true, "{done}");
        ready += u32::from(place.stored("a").join("ready").exists());
        only_the_rest_is_left(&place, base).await;
    }
    assert!(ready > TIMES / 4, "{ready} trees stood when they were ended");
    place.close().await;
}

pub(crate) async fn none_outlives_a_stop() {
    let (place, base) = open().await;
    for kind in ["all", "5", "6"] {
        let id = place.run_id();
        let body = ask(&place, &["./tree", "24", kind], 50.0, &id);
        let run = place.post("/sessions/a/run", body);
        let stop = async {
            wait_for("it is ready", || place.stored("a").join("ready").exists()).await;
            let path = format!("/sessions/a/runs/{id}/stop");
            let stopped = place.ask(TOKEN, "POST", &path, None).await;
            assert!([200, 204].contains(&stopped.status), "{}", stopped.text());
        };
        let (done, ()) = tokio::join!(run, stop);
        assert_eq!(done.status, 200, "{}", done.text());
        only_the_rest_is_left(&place, base).await;
    }
    place.close().await;
}

pub(crate) async fn none_outlives_too_much_output_a_hang_up_or_its_session() {
    let (place, base) = open().await;
    for _ in 0..3 {
        let body = ask(&place, &["./tree", "24", "all", "flood"], 50.0, &place.run_id());
        let done = place.post("/sessions/a/run", body).await.ok();
        assert_eq!(done["output_limited"], true);
        only_the_rest_is_left(&place, base).await;
    }
    // The caller goes away at once; the deadline is kept all the same.
    let body = ask(&place, &["./tree", "24"], 0.5, &place.run_id()).to_string();
    let head = format!(
        "POST /sessions/a/run HTTP/1.1\r\nHost: x\r\nX-Sandbox-Token: {TOKEN}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = tokio::net::TcpStream::connect(place.addr).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    wait_for("it is ready", || place.stored("a").join("ready").exists()).await;
    drop(stream);
    wait_for("the deadline is kept", || alive() <= base + 1).await;
    only_the_rest_is_left(&place, base).await;
    // The session's own end, in the middle of it.
    let body = ask(&place, &["./tree", "24"], 50.0, &place.run_id());
    let run = place.post("/sessions/a/run", body);
    let end = async {
        wait_for("it is ready", || place.stored("a").join("ready").exists()).await;
        place.purge("a").await;
    };
    let (_, ()) = tokio::join!(run, end);
    wait_for("all is gone", || alive() == 0 && zombies() == 0).await;
    place.close().await;
}

pub(crate) async fn what_a_finished_run_left_lives_until_the_session_sleeps() {
    let place = Place::open_with(&[("SANDBOXD_MAX_SESSIONS", "1"), ("SANDBOXD_EVICT_IDLE_AFTER", "0")]).await;
    place.session("a").await;
    let serve = "import http.server; http.server.HTTPServer(('127.0.0.1', 8080), http.server.SimpleHTTPRequestHandler).serve_forever()";
    place.says("a", &format!("setsid /usr/bin/python3 -c \"{serve}\" > log 2>&1 & echo started")).await;
    let fetch = "import urllib.request, time\nfor _ in range(100):\n  try: print(urllib.request.urlopen('http://127.0.0.1:8080/').status); break\n  except OSError: time.sleep(0.05)";
    for _ in 0..3 {
        assert_eq!(place.python_says("a", fetch).await, "200");
        // Runs that are ended by force beside it leave it alone.
        let body = json!({"argv": ["sleep", "60"], "timeout_seconds": 0.1, "run_id": place.run_id()});
        assert_eq!(place.post("/sessions/a/run", body).await.ok()["timed_out"], true);
    }
    // Room is made for another: the session sleeps, and nothing of it runs on.
    place.session("b").await;
    assert_eq!(place.get("/sessions/a").await.ok()["state"], "hibernated");
    wait_for("all but the other is gone", || alive() == 1 && zombies() == 0).await;
    place.purge("b").await;
    assert_eq!(place.says("a", "pgrep python3 || echo none").await, "none");
    place.close().await;
}

pub(crate) async fn a_tree_of_five_hundred_goes_whole() {
    let (place, base) = open().await;
    let mut took = Vec::new();
    for _ in 0..3 {
        let deadline = Duration::from_secs(1);
        let body = ask(&place, &["./tree", "500", "0"], 1.0, &place.run_id());
        let begin = Instant::now();
        let run = place.post("/sessions/a/run", body);
        let look = async {
            wait_for("it is ready", || place.stored("a").join("ready").exists()).await;
            alive()
        };
        let (done, stood) = tokio::join!(run, look);
        took.push(begin.elapsed().saturating_sub(deadline));
        assert_eq!(done.ok()["timed_out"], true);
        assert!(stood > 500, "{stood}");
        only_the_rest_is_left(&place, base).await;
    }
    println!("from the deadline to the answer: {took:?}");
    place.close().await;
}
