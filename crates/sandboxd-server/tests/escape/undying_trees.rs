//! Process trees that do what they can to outlive their run.

use crate::outside;
use crate::place::Place;
use crate::swapped_paths::wait_for;
use crate::wire::TOKEN;
use serde_json::{Value, json};
use std::path::PathBuf;
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
static void tick(void) {
  int ticks = open("ticks", O_WRONLY | O_CREAT | O_APPEND, 0644);
  for (;;) { write(ticks, "tick\n", 5); usleep(20000); }
}
int main(int n, char **words) {
  if (!strcmp(words[1], "ticks")) tick();
  int many = atoi(words[1]);
  for (int s = 1; s < 65; s++) signal(s, SIG_IGN);
  signal(SIGCHLD, SIG_DFL);
  for (int i = 0; i < many; i++) if (fork() == 0) misbehave(n > 2 && strcmp(words[2], "all") ? atoi(words[2]) : i % 12);
  // The first of them may obey, so that it is gone when the others are to go.
  if (n > 3 && !strcmp(words[3], "obeys")) signal(SIGTERM, SIG_DFL);
  char ready[32]; snprintf(ready, sizeof ready, "ready-%d", getpid());
  usleep(20000); close(creat(ready, 0644));
  if (n > 3 && !strcmp(words[3], "floods")) for (;;) write(1, "flood flood flood flood flood flood\n", 36);
  wait_for_ever();
}
"##;

/// How often in a row.
const TIMES: u32 = 50;
/// How many ways the program has.
const KINDS: u32 = 12;

/// A session in which a tree is grown again and again, beside another run that has to go on through all of it.
struct Grove {
    place: Place,
    /// The sandbox's PID namespace, by which its processes are known on the host.
    namespace: String,
    /// Processes that are alive while no tree is: the guest, and the other run.
    base: usize,
}

impl Grove {
    async fn open() -> Self {
        let place = Place::open_with(&[("SANDBOXD_PIDS_LIMIT", "4000"), ("SANDBOXD_ALLOW_UNENFORCED", "pids")]).await;
        let mut grove = Self { place, namespace: String::new(), base: 0 };
        grove.plant().await;
        let way = grove.place.says("a", "grep -q run- /proc/self/cgroup && echo cgroup || echo keeper").await;
        println!("runs are ended by {way}");
        grove
    }

    /// Opens the session, with the program and the bystander.
    async fn plant(&mut self) {
        self.place.session("a").await;
        if !self.at("tree").exists() {
            self.place.compile("a", "tree", TREE);
        }
        // It starts no process: trees of many take every place that the session has, which is nothing that ends another run.
        self.place.says("a", "rm -f ticks; setsid ./tree ticks > /dev/null 2>&1 &").await;
        wait_for("it ticks", || self.at("ticks").exists()).await;
        self.namespace = self.place.says("a", "readlink /proc/self/ns/pid").await;
        self.base = 2;
        self.only_the_rest_is_left().await;
    }

    fn at(&self, name: &str) -> PathBuf {
        self.place.stored("a").join(name)
    }

    /// The sandbox's processes that are alive, and those that are dead and not reaped.
    fn count(&self) -> (usize, usize) {
        outside::in_pid_namespace(&self.namespace)
    }

    async fn only_the_rest_is_left(&self) {
        self.forget_the_grown();
        let (left, _) = self.count();
        assert_eq!(left, self.base, "so many are alive, and so many should be");
        wait_for("all are reaped", || self.count().1 <= 1).await;
        let ticks = || std::fs::read_to_string(self.at("ticks")).unwrap().len();
        let before = ticks();
        wait_for("the other run goes on", || ticks() > before).await;
    }

    /// The body of a run that grows a tree: each way alone, then all of them together.
    fn tree(&self, time: u32, seconds: f64, more: &[&str]) -> (String, Value) {
        let kind = if time < KINDS { time.to_string() } else { "all".to_owned() };
        let mut argv = vec!["./tree", "24", kind.as_str()];
        argv.extend(more);
        let id = self.place.run_id();
        (id.clone(), json!({"argv": argv, "timeout_seconds": seconds, "run_id": id}))
    }

    /// How many trees have grown since they were last forgotten.
    fn grown(&self) -> usize {
        self.ready().count()
    }

    fn ready(&self) -> impl Iterator<Item = PathBuf> {
        let entries = std::fs::read_dir(self.place.stored("a")).unwrap().flatten();
        entries
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("ready-"))
            .map(|entry| entry.path())
    }

    fn forget_the_grown(&self) {
        self.ready().for_each(|path| std::fs::remove_file(path).unwrap());
    }

    async fn stand(&self, trees: usize) {
        wait_for("they stand", || self.grown() >= trees).await;
    }
}

pub(crate) async fn none_outlives_its_deadline() {
    let grove = Grove::open().await;
    let mut stood = 0;
    for time in 0..TIMES {
        let (_, body) = grove.tree(time, 0.15, &[]);
        let done = grove.place.post("/sessions/a/run", body).await.ok();
        assert_eq!(done["timed_out"], true, "{done}");
        stood += u32::from(grove.grown() > 0);
        grove.only_the_rest_is_left().await;
    }
    assert!(stood > TIMES / 4, "{stood} trees stood when they were ended");
    grove.place.close().await;
}

pub(crate) async fn none_outlives_a_stop() {
    /// At once: what does not obey is given two seconds to do so.
    const TREES: u32 = 5;
    let grove = Grove::open().await;
    for first in (0..TIMES).step_by(TREES as usize) {
        let trees = (first..first + TREES).map(|time| {
            let more: &[&str] = if time % 2 == 0 { &[] } else { &["obeys"] };
            let (id, body) = grove.tree(time, 50.0, more);
            let run = grove.place.post("/sessions/a/run", body);
            let grove = &grove;
            let stop = async move {
                grove.stand(TREES as usize).await;
                let path = format!("/sessions/a/runs/{id}/stop");
                let stopped = grove.place.ask(TOKEN, "POST", &path, None).await;
                assert!([200, 204].contains(&stopped.status), "{}", stopped.text());
            };
            async move {
                let (done, ()) = tokio::join!(run, stop);
                assert_eq!(done.status, 200, "{}", done.text());
            }
        });
        futures::future::join_all(trees).await;
        grove.only_the_rest_is_left().await;
    }
    grove.place.close().await;
}

pub(crate) async fn none_outlives_too_much_output() {
    let grove = Grove::open().await;
    for time in 0..TIMES {
        let (_, body) = grove.tree(time, 50.0, &["floods"]);
        let done = grove.place.post("/sessions/a/run", body).await.ok();
        assert_eq!(done["output_limited"], true);
        assert_eq!(done["killed_for"], "output");
        grove.only_the_rest_is_left().await;
    }
    grove.place.close().await;
}

pub(crate) async fn none_outlives_its_deadline_after_a_hang_up() {
    const DEADLINE: Duration = Duration::from_millis(300);
    let grove = Grove::open().await;
    let mut stood = 0;
    for time in 0..TIMES {
        let (_, body) = grove.tree(time, DEADLINE.as_secs_f64(), &[]);
        let body = body.to_string();
        let head = format!(
            "POST /sessions/a/run HTTP/1.1\r\nHost: x\r\nX-Sandbox-Token: {TOKEN}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut stream = tokio::net::TcpStream::connect(grove.place.addr).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        // The caller goes away once it stands, or should have long ago; the deadline is kept all the same.
        let sent = Instant::now();
        let late = || sent.elapsed() > Duration::from_secs(2);
        wait_for("it stands", || grove.grown() > 0 || late()).await;
        stood += u32::from(grove.grown() > 0);
        drop(stream);
        // Before it, few are alive also where the tree has only begun to grow.
        let is_over = || sent.elapsed() > DEADLINE + Duration::from_millis(100);
        wait_for("the deadline is kept", || is_over() && grove.count().0 <= grove.base).await;
        grove.only_the_rest_is_left().await;
    }
    assert!(stood > TIMES / 4, "{stood} trees stood when they were left");
    grove.place.close().await;
}

pub(crate) async fn none_outlives_its_session() {
    let mut grove = Grove::open().await;
    for time in 0..TIMES {
        let (_, body) = grove.tree(time, 50.0, &[]);
        let run = grove.place.post("/sessions/a/run", body);
        let end = async {
            grove.stand(1).await;
            // Its files stay, for the next time.
            grove.place.ask(TOKEN, "DELETE", "/sessions/a", None).await.nothing();
        };
        let (_, ()) = tokio::join!(run, end);
        wait_for("all is gone", || grove.count() == (0, 0)).await;
        grove.plant().await;
    }
    grove.place.close().await;
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
    wait_for("all but the other is gone", || {
        let left = outside::descendants().into_iter().filter(outside::Seen::is_inside);
        left.count() == 1
    })
    .await;
    place.purge("b").await;
    assert_eq!(place.says("a", "pgrep python3 || echo none").await, "none");
    place.close().await;
}

pub(crate) async fn trees_of_hundreds_go_whole() {
    let grove = Grove::open().await;
    let mut took = Vec::new();
    // Those of the last are as many as they can be at once, whatever their parents do.
    for (many, kind) in [(500, "0"), (500, "0"), (500, "all"), (2_000, "0")] {
        let id = grove.place.run_id();
        let body = json!({"argv": ["./tree", many.to_string(), kind, "obeys"], "timeout_seconds": 50.0, "run_id": id});
        let run = grove.place.post("/sessions/a/run", body);
        let end = async {
            grove.stand(1).await;
            let stood = grove.count().0;
            let begin = Instant::now();
            let path = format!("/sessions/a/runs/{id}/stop");
            let stopped = grove.place.ask(TOKEN, "POST", &path, None).await;
            assert!([200, 204].contains(&stopped.status), "{}", stopped.text());
            (stood, begin)
        };
        let (done, (stood, begin)) = tokio::join!(run, end);
        took.push((many, begin.elapsed()));
        assert_eq!(done.status, 200, "{}", done.text());
        assert!(stood > many / 2, "{stood} of {many}");
        grove.only_the_rest_is_left().await;
    }
    println!("from the stop to the answer: {took:?}");
    grove.place.close().await;
}
