//! The same test again as an ordinary user: one that no host has, with nothing but a home.

use std::os::unix::process::CommandExt as _;
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
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(case());
        return;
    }
    let home = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(home.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    // The build's own directory may be closed to others.
    let program = home.path().join("escape");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let output = Command::new(&program)
        .args(["--exact", name, "--nocapture", "--include-ignored"])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", home.path())
        .env("TMPDIR", home.path())
        .env("RUST_BACKTRACE", "1")
        .current_dir("/")
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap();
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "as user {NOBODY}: {said}");
    assert!(said.contains("1 passed"), "the case did not run: {said}");
}
