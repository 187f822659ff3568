//! The work directory, and the workspace on it.

use crate::mounts;
use crate::spawn::on;
use crate::steps::entries;
use rustix::fd::OwnedFd;
use sandboxd_jail::plan::WorkDir;
use sandboxd_jail::report::{Failure, Step};

/// Mounts the workspace where there is one, and goes there.
pub(crate) fn mount(
    top: &OwnedFd,
    work_dir: &WorkDir,
    workspace: Option<&OwnedFd>,
) -> Result<(), Failure> {
    let fail = on(Step::WorkDir, &work_dir.path);
    let target =
        entries::owned_directory(top, &work_dir.path, 0o755, work_dir.owner).map_err(&fail)?;
    if let Some(workspace) = workspace {
        mounts::attach(workspace, target, "").map_err(&fail)?;
    }
    rustix::process::chdir(format!("/{}", work_dir.path)).map_err(&fail)
}
