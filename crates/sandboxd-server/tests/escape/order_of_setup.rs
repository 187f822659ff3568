//! What a caller chooses (environment, arguments, start-up files) used before the last wall stands.

use crate::place::Place;
use serde_json::json;

/// Says at its start, before the program proper, behind which walls it runs.
const EARLY: &str = r##"
#include <stdio.h>
#include <string.h>
#include <unistd.h>
__attribute__((constructor)) static void early(void) {
  char line[256]; FILE *status = fopen("/proc/self/status", "r"); if (!status) return;
  FILE *said = fopen("/workspace/said", "a"); if (!said) return;
  while (fgets(line, sizeof line, status))
    if (!strncmp(line, "NoNewPrivs", 10) || !strncmp(line, "Seccomp:", 8) || !strncmp(line, "CapBnd", 6)) fputs(line, said);
  char ns[64] = ""; readlink("/proc/self/ns/pid", ns, 63); fprintf(said, "%s\n", ns);
  fclose(said); fclose(status);
}
"##;

pub(crate) async fn it_is_used_behind_the_last_wall_only() {
    let place = Place::open().await;
    place.session("a").await;
    std::fs::write(place.home().join("early.c"), EARLY).unwrap();
    let built = std::process::Command::new("cc")
        .args(["-shared", "-fPIC", "-w", "-o"])
        .arg(place.stored("a").join("early.so"))
        .arg(place.home().join("early.c"))
        .status()
        .unwrap();
    assert!(built.success());
    let shell = "grep -E '^(NoNewPrivs|Seccomp:|CapBnd)' /proc/self/status >> /workspace/said; readlink /proc/self/ns/pid >> /workspace/said";
    let python = "import os\nfor line in open('/proc/self/status'):\n  if line.startswith(('NoNewPrivs', 'Seccomp:', 'CapBnd')): open('/workspace/said', 'a').write(line)\nopen('/workspace/said', 'a').write(os.readlink('/proc/self/ns/pid') + '\\n')\n";
    std::fs::write(place.stored("a").join("rc"), shell).unwrap();
    std::fs::write(place.stored("a").join("sitecustomize.py"), python).unwrap();
    std::fs::write(place.stored("a").join("Early.pm"), format!("system q({shell}); 1;")).unwrap();
    let ways: &[(&[&str], serde_json::Value)] = &[
        (&["/usr/bin/true"], json!({"LD_PRELOAD": "/workspace/early.so"})),
        (&["/usr/bin/true"], json!({"LD_AUDIT": "/workspace/early.so", "LD_PRELOAD": "/workspace/early.so"})),
        (&["/bin/bash", "-c", "true"], json!({"BASH_ENV": "/workspace/rc"})),
        (&["/bin/sh", "-i"], json!({"ENV": "/workspace/rc"})),
        (&["/bin/bash", "--rcfile", "rc", "-i"], json!({})),
        (&["/usr/bin/python3", "-c", ""], json!({"PYTHONPATH": "/workspace"})),
        (&["/usr/bin/python3", "-i"], json!({"PYTHONSTARTUP": "/workspace/sitecustomize.py"})),
        (&["/usr/bin/perl", "-e", "1"], json!({"PERL5OPT": "-MEarly", "PERL5LIB": "/workspace"})),
        (&["/workspace/early.so"], json!({})),
        (&["sh", "-c", shell], json!({"PATH": "/workspace:/usr/bin:/bin", "IFS": "/", "GCONV_PATH": "/workspace"})),
    ];
    let outside = std::fs::read_link("/proc/self/ns/pid").unwrap().display().to_string();
    let mut met = 0;
    for (argv, env) in ways {
        let _ = std::fs::remove_file(place.stored("a").join("said"));
        place.run("a", argv, env.clone()).await;
        let said = std::fs::read_to_string(place.stored("a").join("said")).unwrap_or_default();
        if said.is_empty() {
            // Not every host has every program; what did not come to run used nothing.
            continue;
        }
        met += 1;
        assert!(said.contains("NoNewPrivs:\t1") && !said.contains("NoNewPrivs:\t0"), "{argv:?}: {said}");
        assert!(said.contains("Seccomp:\t2") && !said.contains("Seccomp:\t0"), "{argv:?}: {said}");
        for line in said.lines().filter(|line| line.starts_with("CapBnd")) {
            assert_eq!(line, "CapBnd:\t00000000800405fb", "{argv:?}: {said}");
        }
        assert!(said.contains("pid:[") && !said.contains(&outside), "{argv:?}: {said}");
    }
    assert!(met >= 5, "{met} ways were taken");
    place.close().await;
}
