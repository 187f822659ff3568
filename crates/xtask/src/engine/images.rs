//! The images that the tests start, each made where the engine has none of that name.
//!
//! - the Debian root of [`tools::debian_root`], under the names that clients and recordings ask for;
//! - one with a single program in it: no shell, no C library;
//! - one with an entrypoint and a user of its own.

use super::docker;
use crate::report::{run, say};
use crate::tools::{self, target};
use anyhow::{Context, bail};
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// The names of the Debian root.
const DEBIAN: [&str; 3] = ["python:3.12-slim", "node:20-slim", "debian-with-git:1"];
const PATH: &str = "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The image with one program.
const STATIC: &str = "sandboxd-test/static:1";
/// That program: prints its arguments one a line; `/only exit N` ends with N.
const ONLY: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "exit") == 0)
        return atoi(argv[2]);
    for (int i = 1; i < argc; i++)
        puts(argv[i]);
    return 0;
}
"#;

/// The image with an entrypoint, which is not to run, and a user, who is to be the one of every run.
const ENTRYPOINT: &str = "sandboxd-test/entrypoint:1";
const ENTRYPOINT_FILE: &str = r#"FROM debian-with-git:1
ENV OWN=1
USER 1234:1234
WORKDIR /srv
ENTRYPOINT ["/bin/sh", "-c", "echo entry; exit 3"]
"#;

/// Makes those that are missing, and adds the names of what it made.
pub(super) fn make(host: &str, made: &mut Vec<String>) -> anyhow::Result<()> {
    let missing = |name: &str| {
        let mut inspect = docker(host);
        inspect
            .args(["image", "inspect", name])
            .stdout(Stdio::null());
        let status = inspect.stderr(Stdio::null()).status();
        !status.is_ok_and(|status| status.success())
    };
    let debian: Vec<_> = DEBIAN.iter().filter(|name| missing(name)).collect();
    if let Some((first, others)) = debian.split_first() {
        let root = tools::debian_root()?;
        import(
            host,
            &root,
            ".",
            &["--change", PATH, "--change", "CMD [\"python3\"]"],
            first,
        )?;
        made.push((**first).to_owned());
        for name in others {
            run(docker(host).args(["image", "tag", first, name]))?;
            made.push((**name).to_owned());
        }
    }
    if missing(STATIC) {
        let place = target().join("engine-image");
        only(&place)?;
        import(
            host,
            &place,
            "only",
            &["--change", "CMD [\"/only\"]"],
            STATIC,
        )?;
        made.push(STATIC.to_owned());
        fs::remove_dir_all(&place)?;
    }
    if missing(ENTRYPOINT) {
        let mut build = docker(host);
        build.args(["build", "--quiet", "--tag", ENTRYPOINT, "-"]);
        fed(&mut build, ENTRYPOINT_FILE)?;
        made.push(ENTRYPOINT.to_owned());
    }
    // Who is there first goes last.
    made.reverse();
    Ok(())
}

/// Compiles the one program into `place`.
fn only(place: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(place)?;
    let mut compile = Command::new("cc");
    compile.args(["-static", "-Os", "-s", "-x", "c", "-o"]);
    compile.arg(place.join("only")).arg("-");
    fed(&mut compile, ONLY)
}

/// An image with what `member` of `root` is.
fn import(host: &str, root: &Path, member: &str, words: &[&str], name: &str) -> anyhow::Result<()> {
    say(&format!("making the image {name}"));
    let mut tar = Command::new("tar");
    tar.arg("-C")
        .arg(root)
        .args(["-c", member])
        .stdout(Stdio::piped());
    let mut packing = tar.spawn().context("tar does not start")?;
    let packed = packing.stdout.take().context("tar has no output")?;
    let mut import = docker(host);
    import.arg("import").args(words).args(["-", name]);
    let imported = import.stdin(packed).stdout(Stdio::null()).status();
    let packed = packing.wait()?;
    let imported = imported.context("docker does not start")?;
    if !imported.success() || !packed.success() {
        bail!("{name}: tar ended with {packed}, docker import with {imported}");
    }
    Ok(())
}

/// Runs a command with this input.
fn fed(command: &mut Command, input: &str) -> anyhow::Result<()> {
    let mut child = command.stdin(Stdio::piped()).spawn()?;
    let mut pipe = child.stdin.take().context("no way in")?;
    pipe.write_all(input.as_bytes())?;
    drop(pipe);
    let status = child.wait()?;
    if !status.success() {
        bail!("{} ended with {status}", command.get_program().display());
    }
    Ok(())
}
