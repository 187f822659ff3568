//! The program that enters a sandbox, overwritten from inside by whoever catches it at its entry.

use crate::place::Place;
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
static void hunt(const char *path) {
  char target[256] = ""; readlink(path, target, 255);
  int file = open(path, O_WRONLY | O_CLOEXEC); tried++;
  if (file < 0) return;
  // Its own files, pipes and the null device may be written by everybody.
  int foreign = strstr(target, "memfd:") || strstr(target, "/usr") || strstr(target, "/bin") || strstr(target, "sandboxd");
  if (foreign) { won++; printf("won %s -> %s\n", path, target); }
  close(file);
}
int main(void) {
  signal(SIGTERM, end); signal(SIGALRM, end); alarm(20);
  FILE *ready = fopen("ready", "w"); fclose(ready);
  while (!over && access("stop", F_OK) != 0) {
    DIR *all = opendir("/proc"); struct dirent *entry;
    while ((entry = readdir(all))) {
      if (entry->d_name[0] < '0' || entry->d_name[0] > '9' || atoi(entry->d_name) == getpid()) continue;
      char path[300]; snprintf(path, sizeof path, "/proc/%s/exe", entry->d_name); hunt(path);
      for (int n = 0; n < 8; n++) { snprintf(path, sizeof path, "/proc/%s/fd/%d", entry->d_name, n); hunt(path); }
      snprintf(path, sizeof path, "/proc/%s/mem", entry->d_name);
      if (atoi(entry->d_name) == 1 && open(path, O_RDWR) >= 0) { won++; printf("won %s\n", path); }
    }
    closedir(all);
  }
  printf("%ld tried, %ld won\n", tried, won);
  return won != 0;
}
"##;

pub(crate) async fn nobody_catches_it() {
    let place = Place::open().await;
    place.session("a").await;
    place.compile("a", "hunter", HUNTER);
    let hunting = place.sh("a", "./hunter");
    let entering = async {
        crate::swapped_paths::wait_for("it is ready", || place.stored("a").join("ready").exists()).await;
        for _ in 0..100 {
            assert!(place.sh("a", "true").await.worked());
            place.run("a", &["/proc/self/exe"], json!({})).await;
            place.run("a", &["/proc/1/exe"], json!({})).await;
        }
        place.says("a", "touch stop").await;
    };
    let (did, ()) = tokio::join!(hunting, entering);
    assert!(did.worked(), "{did:?}");
    let tried: u64 = did.out.split(' ').next().unwrap().parse().unwrap();
    assert!(tried > 1_000, "{did:?}");
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
