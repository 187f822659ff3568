//! Finds what the tests need, and installs what is missing, saying what it does.
//!
//! Everything goes below `.cache/` in the project, but for system packages, which need root; an ordinary user is told in
//! one line what is missing.

use crate::report::{run, say, works};
use anyhow::{Context, bail};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of the project.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// Where what was installed for this project is kept.
pub(crate) fn cache() -> PathBuf {
    root().join(".cache")
}

/// A variable of this program's own environment.
#[expect(
    clippy::disallowed_methods,
    reason = "a build tool is told things by its environment"
)]
pub(crate) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// Whether this runs as root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// `cargo` with our own tools on its path.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(variable("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(arguments)
        .current_dir(root())
        .env("PATH", path());
    command
}

fn path() -> OsString {
    let ours = cache().join("tools/bin");
    let rest = variable("PATH").unwrap_or_default();
    let all = std::iter::once(ours).chain(std::env::split_paths(&rest));
    std::env::join_paths(all).unwrap_or(rest)
}

/// The directory that cargo builds into.
pub(crate) fn target() -> PathBuf {
    variable("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// A cargo subcommand, from the registry where it is missing.
pub(crate) fn cargo_tool(name: &str) -> anyhow::Result<()> {
    let subcommand = name.strip_prefix("cargo-").unwrap_or(name);
    let mut probe = cargo(&[subcommand, "--version"]);
    if probe.output().is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    say(&format!(
        "{name} is missing: installing it into .cache/tools"
    ));
    let tools = cache().join("tools");
    let mut install = cargo(&["install", name, "--locked", "--root"]);
    install
        .arg(&tools)
        .env("CARGO_TARGET_DIR", target().join("tools"));
    run(&mut install).with_context(|| format!("{name} cannot be installed"))
}

/// Something of the system that tests need: how to see whether it is there, and the Debian package that brings it.
struct SystemTool {
    probe: (&'static str, &'static [&'static str]),
    package: &'static str,
    needed_for: &'static str,
}

const SYSTEM_TOOLS: [SystemTool; 9] = [
    SystemTool {
        probe: ("cc", &["--version"]),
        package: "gcc",
        needed_for: "linking",
    },
    SystemTool {
        probe: ("c++", &["--version"]),
        package: "g++",
        needed_for: "the fuzzing engine",
    },
    SystemTool {
        probe: (
            "sh",
            &[
                "-c",
                "echo 'int main(){return 0;}' | cc -static -x c -o /dev/null -",
            ],
        ),
        package: "libc6-dev",
        needed_for: "the static programs inside the command",
    },
    SystemTool {
        probe: ("python3", &["-c", "import ensurepip, venv"]),
        package: "python3-venv",
        needed_for: "the Python clients",
    },
    SystemTool {
        probe: ("setpriv", &["--version"]),
        package: "util-linux",
        needed_for: "tests as an ordinary user",
    },
    SystemTool {
        probe: ("git", &["--version"]),
        package: "git",
        needed_for: "git inside a sandbox",
    },
    SystemTool {
        probe: ("docker-registry", &["--version"]),
        package: "docker-registry",
        needed_for: "pulling images",
    },
    SystemTool {
        probe: ("musl-gcc", &["--version"]),
        package: "musl-tools",
        needed_for: "programs of another C library inside a sandbox",
    },
    SystemTool {
        probe: ("bsdtar", &["--version"]),
        package: "libarchive-tools",
        needed_for: "comparing readers of tar files",
    },
];

/// What only tests need that only root can run.
const TOOLS_OF_ROOT: [SystemTool; 6] = [
    SystemTool {
        probe: ("mkfs.ext3", &["-V"]),
        package: "e2fsprogs",
        needed_for: "a file system without idmapped mounts",
    },
    SystemTool {
        probe: ("ip", &["-V"]),
        package: "iproute2",
        needed_for: "hosts and networks of tests",
    },
    SystemTool {
        probe: ("nft", &["--version"]),
        package: "nftables",
        needed_for: "sandboxes with a network",
    },
    SystemTool {
        probe: ("pasta", &["--version"]),
        package: "passt",
        needed_for: "sandboxes with a network, as an ordinary user",
    },
    SystemTool {
        probe: ("slirp4netns", &["--version"]),
        package: "slirp4netns",
        needed_for: "the same, in the other way",
    },
    SystemTool {
        probe: ("ps", &["--version"]),
        package: "procps",
        needed_for: "tests that look at processes",
    },
];

/// What a container engine needs, where none answers.
const TOOLS_OF_ENGINE: [SystemTool; 2] = [
    SystemTool {
        probe: ("dockerd", &["--version"]),
        package: "docker.io",
        needed_for: "a container engine",
    },
    SystemTool {
        probe: ("docker", &["--version"]),
        package: "docker.io",
        needed_for: "talking to it",
    },
];

/// What tests make engines of their own with.
const TOOLS_OF_OWN_ENGINES: [SystemTool; 3] = [
    SystemTool {
        probe: ("podman", &["--version"]),
        package: "podman",
        needed_for: "an engine that is not Docker",
    },
    SystemTool {
        probe: ("openssl", &["version"]),
        package: "openssl",
        needed_for: "certificates of an engine over TCP",
    },
    SystemTool {
        probe: ("test", &["-x", "/usr/sbin/sshd"]),
        package: "openssh-server",
        needed_for: "an engine over SSH",
    },
];

/// What the engine's second runtimes are.
const TOOLS_OF_RUNTIMES: [SystemTool; 2] = [
    SystemTool {
        probe: ("crun", &["--version"]),
        package: "crun",
        needed_for: "sandboxes with an OCI runtime by name",
    },
    SystemTool {
        probe: ("unshare", &["--version"]),
        package: "util-linux",
        needed_for: "the same",
    },
];

/// What a machine of another kind needs.
const TOOLS_OF_MACHINE: [SystemTool; 5] = [
    SystemTool {
        probe: ("qemu-system-x86_64", &["--version"]),
        package: "qemu-system-x86",
        needed_for: "a machine of another kind",
    },
    SystemTool {
        probe: ("busybox", &["true"]),
        package: "busybox-static",
        needed_for: "what it begins with",
    },
    SystemTool {
        probe: ("cpio", &["--version"]),
        package: "cpio",
        needed_for: "packing that",
    },
    SystemTool {
        probe: ("mkfs.ext4", &["-V"]),
        package: "e2fsprogs",
        needed_for: "its disk",
    },
    SystemTool {
        probe: ("mkfs.xfs", &["-V"]),
        package: "xfsprogs",
        needed_for: "file systems with project quotas",
    },
];

/// Installs what is missing of the system; as an ordinary user says what it is.
pub(crate) fn system_packages() -> anyhow::Result<()> {
    let of_root = TOOLS_OF_ROOT.iter().filter(|_| is_root());
    install(SYSTEM_TOOLS.iter().chain(of_root))
}

/// Installs a container engine where there is none.
pub(crate) fn engine_packages() -> anyhow::Result<()> {
    install(TOOLS_OF_ENGINE.iter())
}

/// Installs what tests make engines of their own with.
pub(crate) fn own_engine_packages() -> anyhow::Result<()> {
    install(TOOLS_OF_ENGINE.iter().chain(&TOOLS_OF_OWN_ENGINES))
}

/// Installs the OCI runtimes that are packages.
pub(crate) fn runtime_packages() -> anyhow::Result<()> {
    install(TOOLS_OF_RUNTIMES.iter())
}

/// Installs what a machine of another kind needs.
pub(crate) fn machine_packages() -> anyhow::Result<()> {
    install(TOOLS_OF_MACHINE.iter())
}

/// A Debian root with git and Python, made once and kept; only root can make it.
pub(crate) fn debian_root() -> anyhow::Result<PathBuf> {
    let cache = cache().join("peer");
    let mut make = Command::new("python3");
    make.arg(root().join("tests/peer/rootfs.py"))
        .arg("--cache")
        .arg(&cache)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    run(&mut make)?;
    Ok(cache.join("rootfs"))
}

fn install<'a>(tools: impl Iterator<Item = &'a SystemTool>) -> anyhow::Result<()> {
    let missing: Vec<_> = tools.filter(|t| !works(t.probe.0, t.probe.1)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<&str> = missing.iter().map(|tool| tool.package).collect();
    let what: Vec<String> = missing
        .iter()
        .map(|t| format!("{} (for {})", t.package, t.needed_for))
        .collect();
    if !is_root() {
        bail!(
            "missing, and only root can install them: {}",
            what.join(", ")
        );
    }
    if !works("apt-get", &["--version"]) {
        bail!(
            "missing, and there is no apt-get to install them: {}",
            what.join(", ")
        );
    }
    say(&format!("installing system packages: {}", what.join(", ")));
    run(Command::new("apt-get").args(["update", "-qq"]))?;
    let mut install = Command::new("apt-get");
    install
        .args(["install", "-y", "-qq", "--no-install-recommends"])
        .args(packages);
    run(install.env("DEBIAN_FRONTEND", "noninteractive"))
}

/// A virtual environment with what `tests/python/{name}.txt` lists, made anew when the list has changed; its Python.
pub(crate) fn python(name: &str) -> anyhow::Result<PathBuf> {
    python_with(
        name,
        &root().join("tests/python").join(format!("{name}.txt")),
    )
}

/// The same with what `list` lists.
pub(crate) fn python_with(name: &str, list: &Path) -> anyhow::Result<PathBuf> {
    let wanted = fs::read_to_string(list).with_context(|| list.display().to_string())?;
    let place = cache().join("python").join(name);
    let stamp = place.join("installed.txt");
    let python = place.join("bin/python");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(python);
    }
    say(&format!(
        "installing the Python packages of {} into .cache/python",
        list.display()
    ));
    if place.exists() {
        fs::remove_dir_all(&place).with_context(|| place.display().to_string())?;
    }
    run(Command::new("python3").args(["-m", "venv"]).arg(&place))?;
    let mut install = Command::new(&python);
    install.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]);
    run(install.args(["--no-input", "--requirement"]).arg(list))?;
    fs::write(&stamp, wanted).with_context(|| stamp.display().to_string())?;
    Ok(python)
}
