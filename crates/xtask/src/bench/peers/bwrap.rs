//! `bwrap`, with the same walls over the host's `/usr`, and in cgroups with the same limits.

use super::cgroups::{self, Groups};
use crate::sys::{self, Side};
use anyhow::{Context, bail};
use rustix::process::{Pid, WaitOptions, waitpid};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What rows with it are called.
pub(crate) const BWRAP: &str = "bwrap, same cgroups";

const WALLS: [&str; 33] = [
    "--unshare-user",
    "--unshare-pid",
    "--unshare-net",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup",
    "--die-with-parent",
    "--uid",
    "0",
    "--gid",
    "0",
    "--ro-bind",
    "/usr",
    "/usr",
    "--symlink",
    "usr/bin",
    "/bin",
    "--symlink",
    "usr/lib",
    "/lib",
    "--symlink",
    "usr/lib64",
    "/lib64",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
    "--tmpfs",
    "/tmp",
    "--dir",
    "/workspace",
    "--chdir",
    "/workspace",
];

/// Ready to run.
pub(crate) struct Bwrap {
    cgroups: Vec<PathBuf>,
}

impl Bwrap {
    /// Where it is installed.
    pub(crate) fn new() -> anyhow::Result<Self> {
        super::installed("bwrap", "bubblewrap")?;
        Ok(Self {
            cgroups: cgroups::hierarchies(),
        })
    }

    /// From nothing to the output of `/bin/echo hi`. To be called while this process has one thread.
    pub(crate) fn round(&self) -> anyhow::Result<Duration> {
        let began = Instant::now();
        let (mut output, inside) = std::io::pipe()?;
        let groups = Groups::make(&self.cgroups, "bwrap")?;
        let pid = match sys::clone(0).context("clone")? {
            Side::Parent(pid) => pid,
            Side::Child => {
                drop(output);
                let error = match groups.enter() {
                    Ok(()) => Command::new("bwrap")
                        .args(WALLS)
                        .args(["/bin/echo", "hi"])
                        .stdin(Stdio::null())
                        .stdout(inside)
                        .exec(),
                    Err(error) => error,
                };
                // The parent sees no output, and this text.
                let _ = writeln!(std::io::stderr(), "bwrap: {error}");
                std::process::abort();
            }
        };
        drop(inside);
        let mut text = [0; 3];
        let outcome = output.read_exact(&mut text).context("no output from bwrap");
        let took = began.elapsed();
        let pid = Pid::from_raw(pid).context("a child has a number")?;
        waitpid(Some(pid), WaitOptions::empty())?;
        groups.remove()?;
        outcome?;
        if &text != b"hi\n" {
            bail!("bwrap said {text:?}");
        }
        Ok(took)
    }
}
