//! Second OCI runtimes for an engine of our own: `crun`, and gVisor's `runsc`.

use crate::report::{run, say};
use crate::tools::{self, cache};
use anyhow::{Context, bail};
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Debian's stable release has one that is too old for new kernels.
const SUITE: &str = "bookworm-backports";
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Older releases of it refuse a host that has both kinds of cgroups, so it does not see the newer kind: in a mount
/// namespace of its own, never on the host's mounts.
const CRUN: &str = r#"#!/bin/sh
if mountpoint --quiet /sys/fs/cgroup/unified; then
    exec unshare --mount --propagation private \
        sh -c 'umount /sys/fs/cgroup/unified && exec crun "$@"' crun "$@"
fi
exec crun "$@"
"#;

/// Installs both, and writes what an engine's configuration says of them.
pub(super) fn configure(place: &Path) -> anyhow::Result<PathBuf> {
    tools::runtime_packages()?;
    let crun = place.join("crun");
    fs::write(&crun, CRUN)?;
    fs::set_permissions(&crun, fs::Permissions::from_mode(0o755))?;
    let configuration = json!({
        "runtimes": {
            "crun": { "path": crun },
            // Its own network would need the engine's; sandboxes of the tests have none.
            "runsc": { "path": runsc()?, "runtimeArgs": ["--platform=systrap", "--network=none"] },
        },
    });
    let file = place.join("daemon.json");
    fs::write(&file, configuration.to_string())?;
    Ok(file)
}

/// The static program of gVisor, out of Debian's package and kept; nothing is installed, and the host's list of package
/// sources stays as it is.
fn runsc() -> anyhow::Result<PathBuf> {
    let kept = cache().join("runsc");
    let program = kept.join("root/usr/bin/runsc");
    if program.is_file() {
        return Ok(program);
    }
    say(&format!("fetching runsc of {SUITE} into .cache/runsc"));
    if kept.exists() {
        fs::remove_dir_all(&kept)?;
    }
    for folder in ["lists/partial", "archives/partial", "unfinished"] {
        fs::create_dir_all(kept.join(folder))?;
    }
    let list = kept.join("sources.list");
    let line = format!("deb [signed-by={KEYS}] {} {SUITE} main\n", mirror()?);
    fs::write(&list, line)?;
    let apt = || {
        let mut command = Command::new("apt-get");
        for (option, value) in [
            ("Dir::Etc::SourceList", list.as_path()),
            ("Dir::Etc::SourceParts", Path::new("-")),
            ("Dir::State::Lists", &kept.join("lists")),
            ("Dir::Cache", &kept),
            ("APT::Sandbox::User", Path::new("root")),
        ] {
            command
                .arg("-o")
                .arg(format!("{option}={}", value.display()));
        }
        command.arg("-qq").current_dir(&kept);
        command
    };
    run(apt().arg("update"))?;
    run(apt().arg("download").arg(format!("runsc/{SUITE}")))?;
    let package = fs::read_dir(&kept)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|end| end == "deb"))
        .context("no package was fetched")?;
    let unfinished = kept.join("unfinished");
    run(Command::new("dpkg-deb")
        .arg("--extract")
        .arg(package)
        .arg(&unfinished))?;
    fs::rename(unfinished, kept.join("root"))?;
    if !program.is_file() {
        bail!("the package has no {}", program.display());
    }
    Ok(program)
}

/// The mirror of Debian that this machine uses.
fn mirror() -> anyhow::Result<String> {
    let shown = Command::new("apt-get")
        .args(["indextargets", "--format", "$(REPO_URI) $(ORIGIN) $(LABEL)"])
        .arg("Created-By: Packages")
        .output()?;
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let debians = shown
        .lines()
        .find_map(|line| line.strip_suffix(" Debian Debian"));
    debians
        .map(str::to_owned)
        .context("apt names no mirror of Debian")
}
