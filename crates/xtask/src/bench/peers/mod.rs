//! Who ours is measured beside: what the kernel alone takes, and others who do the same.
//!
//! - [`floor`], [`spawn`]: the kernel's own price of a sandbox, and of a program; [`cgroups`]: limits for who brings none.
//! - [`bwrap`], [`crun`], [`docker`]: others who make sandboxes; [`python`]: the service that ours can
//!   stand in for.
//! - [`static_files`]: our HTTP stack with nothing behind it.
//!
//! What is missing is installed from the system's packages. What cannot be had is left out, and that is said.

pub(crate) mod bwrap;
pub(crate) mod cgroups;
pub(crate) mod crun;
pub(crate) mod docker;
pub(crate) mod floor;
pub(crate) mod python;
pub(crate) mod spawn;
pub(crate) mod static_files;

use crate::report::{run, say, works};
use crate::tools::is_root;
use anyhow::{Context, bail};
use std::process::Command;

/// Installs the package of a program that is missing.
fn installed(program: &str, package: &str) -> anyhow::Result<()> {
    if works(program, &["--version"]) {
        return Ok(());
    }
    if !is_root() || !works("apt-get", &["--version"]) {
        bail!("{program} is not installed (package {package})");
    }
    say(&format!("installing {package}"));
    let mut install = Command::new("apt-get");
    install.args(["install", "-y", "-qq", "--no-install-recommends", package]);
    install.env("DEBIAN_FRONTEND", "noninteractive");
    run(&mut install).with_context(|| format!("{package} cannot be installed"))
}
