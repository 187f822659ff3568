//! `crun run`, on a bundle with the same root filesystem and the same limits.
//!
//! It refuses a host whose second cgroup hierarchy owns a controller beside those of version 1. So it runs in a mount
//! namespace of its own, without that hierarchy; in a shell that is there before the clock starts.

use anyhow::{Context, bail};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// What rows with it are called.
pub(crate) const CRUN: &str = "crun run";

/// Runs a container for each name that it reads, and says when one is over.
const SHELL: &str = "umount /sys/fs/cgroup/unified 2>/dev/null
while read name; do crun run --bundle \"$0\" \"$name\" </dev/null 2>\"$0/log.txt\"; echo over; done";

/// A shell that runs containers.
pub(crate) struct Crun {
    shell: Child,
    names: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    bundle: PathBuf,
    round: u32,
}

impl Crun {
    /// Writes the bundle, over `root`.
    pub(crate) fn new(root: &Path) -> anyhow::Result<Self> {
        super::installed("crun", "crun")?;
        super::installed("unshare", "util-linux")?;
        let bundle = crate::bench::place::own_folder("crun")?;
        let spec = Command::new("crun")
            .arg("spec")
            .current_dir(&bundle)
            .output()?;
        if !spec.status.success() {
            bail!(
                "crun spec: {}",
                String::from_utf8_lossy(&spec.stderr).trim()
            );
        }
        let path = bundle.join("config.json");
        let mut config: serde_json::Value = serde_json::from_slice(&fs::read(&path)?)?;
        config["process"]["args"] = serde_json::json!(["/bin/echo", "hi"]);
        config["process"]["terminal"] = false.into();
        config["root"] = serde_json::json!({ "path": root, "readonly": true });
        config["linux"]["resources"] = serde_json::json!({
            "memory": { "limit": 536_870_912 }, "pids": { "limit": 256 },
            "cpu": { "quota": 100_000, "period": 100_000 },
        });
        fs::write(&path, serde_json::to_vec(&config)?)?;
        let mut shell = Command::new("unshare")
            .args(["--mount", "sh", "-c", SHELL])
            .arg(&bundle)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let output = shell.stdout.take().context("no output")?;
        Ok(Self {
            names: shell.stdin.take(),
            output: BufReader::new(output),
            shell,
            bundle,
            round: 0,
        })
    }

    /// From the command to the output of `/bin/echo hi`.
    pub(crate) fn round(&mut self) -> anyhow::Result<Duration> {
        self.round += 1;
        let name = format!("sandboxd-bench-{}-{}\n", std::process::id(), self.round);
        let began = Instant::now();
        let names = self.names.as_mut().context("the shell has ended")?;
        names.write_all(name.as_bytes())?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        let took = began.elapsed();
        if line != "hi\n" {
            let log = fs::read_to_string(self.bundle.join("log.txt")).unwrap_or_default();
            bail!("crun run: {}", log.trim());
        }
        self.output.read_line(&mut line)?;
        Ok(took)
    }
}

impl Drop for Crun {
    fn drop(&mut self) {
        // The shell ends when there are no more names.
        drop(self.names.take());
        let _ = self.shell.wait();
        let _ = fs::remove_dir_all(&self.bundle);
    }
}
