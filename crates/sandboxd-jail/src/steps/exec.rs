//! What the guest starts with: its arguments, its environment, and no descriptor but its own.

use crate::spawn::at;
use crate::steps::descriptors::{self, Held};
use crate::sys;
use rustix::fd::OwnedFd;
use sandboxd_jail::plan::Assignment;
use sandboxd_jail::report::{Failure, Step};
use std::ffi::CString;

/// The guest's link.
const LINK: i32 = 3;
/// The guest's cgroup directory.
const LEAVES: i32 = 4;

/// Arguments and environment in the kernel's form.
#[derive(Debug)]
pub(crate) struct Ready {
    /// Arguments, the name first.
    pub(crate) argv: Vec<CString>,
    /// Environment.
    pub(crate) env: Vec<CString>,
}

/// Puts the guest's descriptors where it looks for them; all others close on exec.
pub(crate) fn prepare(
    assignment: &Assignment,
    held: &Held,
    leaves: Option<&OwnedFd>,
) -> Result<Ready, Failure> {
    let step = at(Step::Descriptors);
    // It was made after the low numbers had been freed, and may have got one of those that are given out here.
    let leaves = leaves
        .map(|leaves| rustix::io::fcntl_dupfd_cloexec(leaves, descriptors::FIRST))
        .transpose()
        .map_err(&step)?;
    sys::close_from(LINK, true).map_err(&step)?;
    sys::place_descriptor(&held.link, LINK).map_err(&step)?;
    let mut argv = strings(&assignment.argv)?;
    if let Some(leaves) = leaves {
        sys::place_descriptor(&leaves, LEAVES).map_err(&step)?;
        argv.push(sys::c_string(&format!("--cgroup-fd={LEAVES}")).map_err(at(Step::Exec))?);
    }
    Ok(Ready {
        argv,
        env: strings(&assignment.env)?,
    })
}

fn strings(texts: &[String]) -> Result<Vec<CString>, Failure> {
    texts
        .iter()
        .map(|text| sys::c_string(text).map_err(at(Step::Exec)))
        .collect()
}
