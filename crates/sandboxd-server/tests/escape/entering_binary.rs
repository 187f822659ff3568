//! The program that enters a sandbox, overwritten from inside by whoever catches it at its entry.

use crate::ordinary::is_root;
use crate::outside;
use crate::place::{self, Place};
use serde_json::json;

/// Tries to write every program and every open file of every process that it sees, again and again; says what it got.
const HUNTER: &str = r##"
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static volatile int over;
static void end(int s) { over = 1; }
static long tried, won;
static int own_programs;
static void hunt(const char *path, int first) {
  char target[256] = ""; readlink(path, target, 255);
  int file = open(path, O_WRONLY | O_CLOEXEC); tried++;
  if (file < 0) return;
  // Its own files, pipes and the null device may be written by everybody; so may the programs of an image that is its own.
  int program = !own_programs && (strstr(target, "/usr") || strstr(target, "/bin"));
  int foreign = first || program || strstr(target, "memfd:") || strstr(target, "sandboxd");
  if (foreign) { won++; printf("won %s -> %s\n", path, target); }
  close(file);
}
int main(int n, char **words) {
  own_programs = n > 1;
  signal(SIGTERM, end); signal(SIGALRM, end); alarm(45);
  FILE *ready = fopen("ready", "w"); fclose(ready);
  do {
    DIR *all = opendir("/proc"); struct dirent *entry;
    while ((entry = readdir(all))) {
      if (entry->d_name[0] < '0' || entry->d_name[0] > '9' || atoi(entry->d_name) == getpid()) continue;
      char path[300]; snprintf(path, sizeof path, "/proc/%s/exe", entry->d_name); hunt(path, atoi(entry->d_name) == 1);
      for (int n = 0; n < 8; n++) { snprintf(path, sizeof path, "/proc/%s/fd/%d", entry->d_name, n); hunt(path, 0); }
      snprintf(path, sizeof path, "/proc/%s/mem", entry->d_name);
      if (atoi(entry->d_name) == 1 && open(path, O_RDWR) >= 0) { won++; printf("won %s\n", path); }
    }
    closedir(all);
  } while (!over && access("stop", F_OK) != 0);
  printf("%ld tried, %ld won\n", tried, won);
  return won != 0;
}
"##;

/// Of the programs that are in this test's sandboxes as their first process, byte for byte; only root may look.
fn entered() -> Vec<Vec<u8>> {
    let guests = outside::guests();
    let read = |guest: &outside::Seen| std::fs::read(guest.path("exe")).unwrap();
    guests.iter().filter(|_| is_root()).map(read).collect()
}

/// How often the service enters while somebody hunts, for each way to start something.
const ENTRIES: u32 = 250;

pub(crate) async fn nobody_catches_it() {
    let place = Place::open().await;
    place.session("a").await;
    place.compile("a", "hunter", HUNTER);
    place.says("a", "printf '#!/proc/self/exe\\n' > script; chmod +x script").await;
    // The programs of an engine's image are the sandbox's own.
    let hunt = if place::on_docker() { "./hunter own" } else { "./hunter" };
    let before = entered();
    let hunting = place.sh("a", hunt);
    let entering = async {
        crate::swapped_paths::wait_for("it is ready", || place.stored("a").join("ready").exists()).await;
        for _ in 0..ENTRIES {
            assert!(place.sh("a", "true").await.worked());
            for program in ["/proc/self/exe", "/proc/1/exe", "./script"] {
                place.run("a", &[program], json!({})).await;
            }
        }
        place.says("a", "touch stop").await;
    };
    let (did, ()) = tokio::join!(hunting, entering);
    assert!(did.worked(), "{did:?}");
    let tried: u64 = did.out.split(' ').next().unwrap().parse().unwrap();
    assert!(tried > 1_000, "{did:?}");
    assert_eq!(entered(), before);
    // The twin: where a neighbour in the same sandbox leaves a program open, not sealed, the hunter has it in one round.
    let twin = "import os, time; f = os.memfd_create('open'); open('up', 'w').close(); time.sleep(60)";
    place
        .says("a", &format!("setsid /usr/bin/python3 -c \"{twin}\" > /dev/null 2>&1 &"))
        .await;
    crate::swapped_paths::wait_for("it is open", || place.stored("a").join("up").exists()).await;
    let did = place.sh("a", hunt).await;
    assert!(!did.worked() && did.out.contains("memfd:open"), "{did:?}");
    place.close().await;
}

pub(crate) async fn a_script_that_names_it_as_its_interpreter_gains_nothing() {
    let place = Place::open().await;
    place.session("a").await;
    let make = "printf '#!/proc/self/exe\\n' > script; chmod +x script; printf '#!/proc/1/exe\\n' > other; chmod +x other; \
                printf '#!/bin/sh\\necho ran\\n' > twin; chmod +x twin";
    place.says("a", make).await;
    for name in ["./script", "./other", "/proc/self/exe", "/proc/self/fd/3", "/proc/1/exe"] {
        let did = place.run("a", &[name], json!({})).await;
        assert!(!did.worked(), "{name}: {did:?}");
        assert!(!did.out.contains("ran"), "{name}: {did:?}");
    }
    // It is whole, and goes on.
    assert_eq!(place.says("a", "./twin").await, "ran");
    place.close().await;
}
