//! Builds the two programs that travel inside the daemon, the guest and the jail program, static and small.
//!
//! They are built by cargo in a target directory of their own (the outer one is locked while this runs), for an
//! explicit target triple (so that the flags below do not reach build scripts and procedural macros), in an environment
//! without the outer build's settings. Variables, for packagers and tools:
//!
//! - `SANDBOXD_EMBED_GUEST`, `SANDBOXD_EMBED_JAIL`: ready files to embed instead of building.
//! - `SANDBOXD_EMBED=empty`: embed nothing; the namespaces backend then refuses to start. For linters and document builds.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Static, and at a fixed address: a position-independent executable costs every sandbox a private copy of its
/// relocated data.
const RUSTFLAGS: &str = "-Ctarget-feature=+crt-static\u{1f}-Crelocation-model=static";

#[expect(
    clippy::disallowed_methods,
    reason = "a build script is told everything by its environment"
)]
fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let workspace = manifest.join("../..");
    for variable in [
        "SANDBOXD_EMBED",
        "SANDBOXD_EMBED_GUEST",
        "SANDBOXD_EMBED_JAIL",
    ] {
        tell(&format!("cargo::rerun-if-env-changed={variable}"));
    }
    let empty = env::var_os("SANDBOXD_EMBED").is_some_and(|value| value == "empty");
    for (name, variable) in [
        ("guest", "SANDBOXD_EMBED_GUEST"),
        ("jail", "SANDBOXD_EMBED_JAIL"),
    ] {
        let content = if empty {
            Vec::new()
        } else if let Some(ready) = env::var_os(variable) {
            tell(&format!(
                "cargo::rerun-if-changed={}",
                Path::new(&ready).display()
            ));
            read(Path::new(&ready))
        } else {
            for source in [
                "sandboxd-guest",
                "sandboxd-jail",
                "sandboxd-protocol",
                "sandboxd-files",
            ] {
                let path = workspace.join("crates").join(source);
                tell(&format!(
                    "cargo::rerun-if-changed={}",
                    path.join("src").display()
                ));
                tell(&format!(
                    "cargo::rerun-if-changed={}",
                    path.join("Cargo.toml").display()
                ));
            }
            tell(&format!(
                "cargo::rerun-if-changed={}",
                workspace.join("Cargo.toml").display()
            ));
            tell(&format!(
                "cargo::rerun-if-changed={}",
                workspace.join("Cargo.lock").display()
            ));
            read(&build(
                &workspace,
                &out.join("programs"),
                &format!("sandboxd-{name}"),
            ))
        };
        // An unchanged file keeps its time, so that the crate is not compiled again for nothing.
        let target = out.join(name);
        if fs::read(&target).ok().as_ref() != Some(&content) {
            fs::write(&target, &content).expect("OUT_DIR is writable");
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a build script is told everything by its environment"
)]
fn build(workspace: &Path, target_dir: &Path, package: &str) -> PathBuf {
    let triple = env::var("TARGET").expect("cargo sets TARGET");
    let cargo = env::var_os("CARGO").expect("cargo sets CARGO");
    let mut command = Command::new(cargo);
    command.env_clear();
    for (name, value) in env::vars_os() {
        let text = name.to_string_lossy();
        // Of cargo's own variables only those reach the inner build that say where things come from.
        let source = matches!(
            &*text,
            "CARGO_HOME" | "CARGO_NET_OFFLINE" | "CARGO_HTTP_PROXY" | "CARGO_HTTP_CAINFO"
        ) || text.starts_with("CARGO_REGISTRIES_")
            || text.starts_with("CARGO_SOURCE_");
        let linker = text.starts_with("CARGO_TARGET_") && text.ends_with("_LINKER");
        let outer = text.starts_with("CARGO_") && !source && !linker;
        let compiler = text.starts_with("RUSTC") || text.starts_with("RUSTFLAGS");
        let ours = matches!(
            &*text,
            "OUT_DIR"
                | "TARGET"
                | "HOST"
                | "PROFILE"
                | "OPT_LEVEL"
                | "DEBUG"
                | "NUM_JOBS"
                | "MAKEFLAGS"
                | "CARGO"
        ) || text.starts_with("DEP_");
        if !(outer || compiler || ours) {
            command.env(name, value);
        }
    }
    command
        .env("CARGO_ENCODED_RUSTFLAGS", RUSTFLAGS)
        .current_dir(workspace)
        .args([
            "build",
            "--locked",
            "--profile",
            "embedded",
            "--package",
            package,
        ])
        .args(["--bin", package, "--target", &triple, "--target-dir"])
        .arg(target_dir);
    if env::var("PROFILE").is_ok_and(|profile| profile == "debug") {
        // What is built ten times an hour is built quickly; only the size differs.
        command.env("CARGO_PROFILE_EMBEDDED_LTO", "off");
        command.env("CARGO_PROFILE_EMBEDDED_CODEGEN_UNITS", "16");
    }
    let status = command
        .status()
        .unwrap_or_else(|error| panic!("cargo does not start: {error}"));
    assert!(status.success(), "building {package} failed: {status}");
    target_dir.join(triple).join("embedded").join(package)
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
}

/// Says something to cargo.
fn tell(line: &str) {
    println!("{line}");
}
