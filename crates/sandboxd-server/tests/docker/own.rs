//! An engine of a test's own, which can be restarted, killed and filled without harm to others: on a bridge of its own,
//! without any packet rule, and with one small image.

use crate::place::until;
use crate::rented::small_root;
use sandboxd_server::config::EngineAddress;
use std::fs::{File, Permissions};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The image: a shell and a few programs.
pub(crate) const SMALL: &str = "sandboxd-test/small:1";
/// How long an engine may take to end.
const END_MAX: Duration = Duration::from_secs(60);
/// Older releases of `crun` refuse a host that has both kinds of cgroups, so it does not see the newer kind. And Podman
/// raises a limit of processes to a million, which a root without that right may not.
const CRUN: &str = r#"#!/bin/sh
before=
for word in "$@"; do
    [ "$before" = --bundle ] && bundle=$word
    before=$word
done
most=$(awk '/^Max processes/ {print $4}' /proc/self/limits)
if [ -n "$bundle" ] && [ "$most" != unlimited ] && [ "$most" -lt 1048576 ]; then
    sed -i "s/1048576/$most/g" "$bundle/config.json"
fi
if mountpoint --quiet /sys/fs/cgroup/unified; then
    exec unshare --mount --propagation private \
        sh -c 'umount /sys/fs/cgroup/unified && exec crun "$@"' crun "$@"
fi
exec crun "$@"
"#;

enum Kind {
    /// With more words for its command line, and no more space than this, in MiB.
    Docker(Vec<String>, Option<u32>),
    Podman,
}

pub(crate) struct OwnEngine {
    place: TempDir,
    kind: Kind,
    daemon: Option<Child>,
}

impl OwnEngine {
    /// Docker; `words` are for its command line.
    pub(crate) async fn docker(words: &[String]) -> Self {
        Self::start(Kind::Docker(words.to_vec(), None)).await
    }

    /// Docker with no more space for images and containers than this, in MiB.
    pub(crate) async fn docker_within(mib: u32) -> Self {
        Self::start(Kind::Docker(Vec::new(), Some(mib))).await
    }

    /// Podman's service.
    pub(crate) async fn podman() -> Self {
        Self::start(Kind::Podman).await
    }

    async fn start(kind: Kind) -> Self {
        let mut engine = Self {
            place: tempfile::Builder::new()
                .prefix("sbx")
                .tempdir_in("/tmp")
                .unwrap(),
            kind,
            daemon: None,
        };
        engine.begin().await;
        engine.import();
        engine
    }

    fn at(&self, name: &str) -> String {
        self.place.path().join(name).display().to_string()
    }

    fn socket(&self) -> PathBuf {
        self.place.path().join("engine.sock")
    }

    fn host(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    pub(crate) fn address(&self) -> EngineAddress {
        EngineAddress::Sockets(vec![self.socket()])
    }

    /// What its bridge is called, where it has one: as its place, which nobody else has.
    fn bridge(&self) -> String {
        let name = self.place.path().file_name().unwrap();
        name.to_string_lossy().into_owned()
    }

    /// Makes the bridge, where it is not there yet. No container is ever on it.
    fn make_bridge(&self) {
        let bridge = self.bridge();
        if Path::new("/sys/class/net").join(&bridge).exists() {
            return;
        }
        for words in [
            ["link", "add", &bridge, "type", "bridge"],
            ["address", "add", "192.0.2.1/24", "dev", &bridge],
        ] {
            let made = Command::new("ip").args(words).status().unwrap();
            assert!(made.success(), "{words:?}");
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM"]);
        match &self.kind {
            Kind::Docker(words, space) => {
                std::fs::create_dir_all(self.at("data")).unwrap();
                if let Some(mib) = space {
                    let script = format!(
                        "mount -t tmpfs -o size={mib}m none {} && exec \"$@\"",
                        self.at("data")
                    );
                    command.args(["unshare", "--mount", "--propagation", "private"]);
                    command.args(["sh", "-c", &script, "sh"]);
                }
                command.args(["dockerd", "--host", &self.host()]);
                command.args(["--data-root", &self.at("data")]);
                command.args([
                    "--exec-root",
                    &self.at("exec"),
                    "--pidfile",
                    &self.at("pid"),
                ]);
                // One without a bridge removes the bridge of every other engine of this host.
                command.args(["--bridge", &self.bridge()]);
                command.args(["--iptables=false", "--ip6tables=false"]);
                command.args(["--ip-forward=false", "--ip-masq=false"]);
                command.args(words);
            }
            Kind::Podman => {
                let crun = self.at("crun");
                std::fs::write(&crun, CRUN).unwrap();
                std::fs::set_permissions(&crun, Permissions::from_mode(0o755)).unwrap();
                let settings = format!(
                    "[engine]\nruntime = \"crun\"\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\n\
                     [engine.runtimes]\ncrun = [\"{crun}\"]\n"
                );
                std::fs::write(self.at("containers.conf"), settings).unwrap();
                command.env("CONTAINERS_CONF", self.at("containers.conf"));
                command.args(["podman", "--root", &self.at("data")]);
                command.args(["--runroot", &self.at("run"), "--tmpdir", &self.at("tmp")]);
                command.args(["system", "service", "--time", "0", &self.host()]);
            }
        }
        command
    }

    /// Starts it, also once more, and waits until it answers.
    pub(crate) async fn begin(&mut self) {
        if matches!(self.kind, Kind::Docker(..)) {
            self.make_bridge();
        }
        let log = File::create(self.at("log")).unwrap();
        let mut command = self.command();
        command.stdin(Stdio::null()).process_group(0);
        command.stdout(log.try_clone().unwrap()).stderr(log);
        self.daemon = Some(command.spawn().unwrap());
        until("the test's own engine answers", async || {
            self.says(&["version"]).is_ok()
        })
        .await;
    }

    fn says(&self, words: &[&str]) -> Result<String, String> {
        let done = Command::new("docker")
            .args(["--host", &self.host()])
            .args(words)
            .output()
            .unwrap();
        if done.status.success() {
            return Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned());
        }
        let mut log = String::new();
        let _ = File::open(self.at("log")).and_then(|mut file| file.read_to_string(&mut log));
        Err(format!("{words:?}: {done:?}: {log}"))
    }

    /// What Docker's command says on this engine.
    pub(crate) fn docker_says(&self, words: &[&str]) -> String {
        self.says(words).unwrap()
    }

    /// Gives it the image.
    pub(crate) fn import(&self) {
        let root = tempfile::tempdir().unwrap();
        small_root(root.path());
        let mut tar = Command::new("tar")
            .arg("-C")
            .arg(root.path())
            .args(["-c", "."])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let imported = Command::new("docker")
            .args(["--host", &self.host(), "import", "-", SMALL])
            .stdin(tar.stdout.take().unwrap())
            .output()
            .unwrap();
        assert!(tar.wait().unwrap().success());
        assert!(imported.status.success(), "{imported:?}");
    }

    /// Ends it in order.
    pub(crate) fn stop(&mut self) {
        self.end(rustix::process::Signal::TERM);
    }

    /// Ends it as a crash does: what it started goes on.
    pub(crate) fn kill(&mut self) {
        let below = std::fs::read_to_string(self.at("exec/containerd/containerd.pid"));
        self.end(rustix::process::Signal::KILL);
        // The program below it is killed by that too, and the next one must not take it for one that lives.
        let below = below.map(|pid| format!("/proc/{}", pid.trim()));
        let deadline = Instant::now() + END_MAX;
        while below.as_ref().is_ok_and(|path| Path::new(path).exists()) && Instant::now() < deadline
        {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn end(&mut self, signal: rustix::process::Signal) {
        let Some(mut daemon) = self.daemon.take() else {
            return;
        };
        let pid = rustix::process::Pid::from_child(&daemon);
        let _ = rustix::process::kill_process(pid, signal);
        let deadline = Instant::now() + END_MAX;
        while daemon.try_wait().unwrap().is_none() {
            if Instant::now() > deadline {
                let _ = daemon.kill();
                let _ = daemon.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for OwnEngine {
    fn drop(&mut self) {
        // Only an engine that runs takes its own processes with it.
        if self.daemon.is_none()
            && let Ok(daemon) = self.command().stdin(Stdio::null()).spawn()
        {
            self.daemon = Some(daemon);
            let deadline = Instant::now() + END_MAX;
            while self.says(&["version"]).is_err() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        let all = self.says(&["ps", "--all", "--quiet"]).unwrap_or_default();
        for container in all.lines() {
            let _ = self.says(&["rm", "--force", container]);
        }
        self.stop();
        let _ = Command::new("ip")
            .args(["link", "delete", &self.bridge()])
            .stderr(Stdio::null())
            .status();
        // What it mounted for itself, where it left that.
        for name in ["data/overlay", "data", "exec", "run"] {
            let _ = Command::new("umount")
                .arg("--quiet")
                .arg("--lazy")
                .arg(self.at(name))
                .stderr(Stdio::null())
                .status();
        }
    }
}
