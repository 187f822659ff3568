//! The same test again as an ordinary user: one that no host has, with nothing but a home.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A user that no host has.
const NOBODY: u32 = 54_321;

/// Whether this process is root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs a case as a user without privileges: here, if this process has none, else in another process of this test.
pub(crate) fn as_ordinary_user<F: Future<Output = ()>>(name: &str, case: impl FnOnce() -> F) {
    if !is_root() {
        return here(case);
    }
    as_nobody(name, &[]);
}

/// The same, as a user who was given a cgroup; says what the case printed. Only root can give one.
pub(crate) fn with_a_cgroup_of_its_own<F: Future<Output = ()>>(
    name: &str,
    case: impl FnOnce() -> F,
) -> Option<String> {
    if !is_root() {
        // It was this process's own, where it is the one that was started for this.
        here(case);
        return None;
    }
    let Some(cgroup) = Cgroup::give() else {
        println!("left out: this host has no cgroups of the second generation");
        return None;
    };
    let enter = "echo $$ > \"$0\"/cgroup.procs && exec \"$@\"";
    let words = ["/bin/sh", "-c", enter, cgroup.at.to_str().unwrap()];
    let said = as_nobody(name, &words);
    drop(cgroup);
    Some(said)
}

fn here<F: Future<Output = ()>>(case: impl FnOnce() -> F) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(case());
}

/// Starts this test again as nobody, behind these words if there are any; gives what it printed.
fn as_nobody(name: &str, before: &[&str]) -> String {
    let home = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(home.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    // The build's own directory may be closed to others.
    let program = home.path().join("escape");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let mut words: Vec<&OsStr> = before.iter().map(OsStr::new).collect();
    let user = NOBODY.to_string();
    let become_nobody = [
        "setpriv",
        "--reuid",
        &user,
        "--regid",
        &user,
        "--clear-groups",
    ];
    words.extend(become_nobody.map(OsStr::new));
    words.push(program.as_os_str());
    words.extend(["--exact", name, "--nocapture", "--include-ignored"].map(OsStr::new));
    let output = Command::new(words[0])
        .args(&words[1..])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", home.path())
        .env("TMPDIR", home.path())
        .env("RUST_BACKTRACE", "1")
        .current_dir("/")
        .output()
        .unwrap();
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "as user {NOBODY}: {said}");
    assert!(said.contains("1 passed"), "the case did not run: {said}");
    said
}

/// A cgroup of the second generation that is nobody's own; it has to be empty at the end.
struct Cgroup {
    at: PathBuf,
}

impl Cgroup {
    fn give() -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mount = mounts.lines().find_map(|line| {
            let (left, right) = line.split_once(" - ")?;
            right
                .starts_with("cgroup2 ")
                .then(|| left.split(' ').nth(4))?
        })?;
        let at = Path::new(mount).join(format!("sandboxd-escape-{}", std::process::id()));
        std::fs::create_dir(&at).unwrap();
        for name in [
            "",
            "cgroup.procs",
            "cgroup.threads",
            "cgroup.subtree_control",
        ] {
            std::os::unix::fs::chown(at.join(name), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        Some(Self { at })
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // What the service moved itself to, and nothing of its sandboxes: each directory has to go by itself.
        let below = |at: &Path| -> Vec<PathBuf> {
            let entries = std::fs::read_dir(at).into_iter().flatten().flatten();
            entries
                .map(|entry| entry.path())
                .filter(|path| path.is_dir())
                .collect()
        };
        for path in below(&self.at) {
            let _ = std::fs::remove_dir(path);
        }
        let left = below(&self.at);
        let gone = std::fs::remove_dir(&self.at);
        if !std::thread::panicking() {
            assert!(gone.is_ok(), "{}: {gone:?} {left:?}", self.at.display());
        }
    }
}
