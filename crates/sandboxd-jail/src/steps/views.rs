//! What of the host is shown inside: collected by path before the root changes, put in place after it.

use crate::child::Shown;
use crate::mounts;
use crate::spawn::{at, image, on};
use crate::steps::descriptors::Held;
use crate::steps::entries;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::CWD;
use rustix::io::Errno;
use sandboxd_jail::plan::{Plan, Root, View};
use sandboxd_jail::report::{Failure, Step};

/// Collects everything. With a range of users the launcher has made root, views and workspace, since mapping owners
/// needs the host's privilege; with a single user they are made here.
pub(crate) fn collect(plan: &Plan, handed: Vec<OwnedFd>, held: &Held) -> Result<Shown, Failure> {
    let template = &plan.template;
    let mut handed = handed.into_iter();
    let privileged = template.users.is_range();
    let mut next = || handed.next().ok_or_else(|| at(Step::Handover)(Errno::BADF));
    let root = match &template.root {
        Root::Memory { bytes, inodes } => {
            mounts::memory(*bytes, *inodes, 0o755, mounts::INERT).map_err(at(Step::Root))?
        }
        Root::Layer | Root::Overlay { .. } if privileged => next()?,
        root => own_root(root, plan, held)?,
    };
    let mut views = Vec::new();
    for view in &template.views {
        views.push(if privileged {
            next()?
        } else {
            mounts::view(view).map_err(on(Step::View, &view.from))?
        });
    }
    let workspace = match &plan.assignment.work_dir.workspace {
        None => None,
        Some(_) if privileged => Some(next()?),
        Some(workspace) => Some(same(
            held.workspace.as_ref(),
            mounts::copy(CWD, &workspace.path, false, mounts::INERT, None)
                .map_err(on(Step::Workspace, &workspace.path))?,
            Step::Workspace,
        )?),
    };
    let leaves = match &plan.assignment.cgroup.leaves {
        None => None,
        // A mount of its own, whose root is the sandbox's directory: a descriptor from the host's mount would lead up.
        Some(path) => Some(
            mounts::copy(
                CWD,
                path,
                false,
                mounts::INERT | mounts::NOT_EXECUTABLE,
                None,
            )
            .map_err(on(Step::Leaves, path))?,
        ),
    };
    Ok(Shown {
        root,
        views,
        devices: devices(&template.devices)?,
        workspace,
        leaves,
    })
}

fn own_root(root: &Root, plan: &Plan, held: &Held) -> Result<OwnedFd, Failure> {
    // The descriptor's mount is the daemon's, and the kernel only copies mounts of one's own: it is opened again by its
    // path, and has to be the same directory.
    let path = plan.assignment.layer.as_deref().unwrap_or_default();
    let layer = mounts::directory(CWD, path).map_err(on(Step::Root, path))?;
    let layer = same(held.layer.as_ref(), layer, Step::Root)?;
    match root {
        Root::Overlay { lowers, .. } => {
            let image = image(lowers, None)?;
            // This namespace is nobody else's.
            mounts::overlay(&image, layer.as_fd(), |work| work()).map_err(on(Step::Root, "overlay"))
        }
        Root::Layer | Root::Memory { .. } => {
            let upper = mounts::copy(&layer, "upper", false, mounts::INERT, None);
            upper.map_err(on(Step::Root, path))
        }
    }
}

/// Refuses what has been exchanged under its path since the daemon opened it.
fn same(expected: Option<&OwnedFd>, found: OwnedFd, step: Step) -> Result<OwnedFd, Failure> {
    let expected = expected.ok_or_else(|| at(step)(Errno::BADF))?;
    let wanted = rustix::fs::fstat(expected).map_err(at(step))?;
    let status = rustix::fs::fstat(&found).map_err(at(step))?;
    if (wanted.st_dev, wanted.st_ino) == (status.st_dev, status.st_ino) {
        Ok(found)
    } else {
        Err(at(step)(Errno::STALE))
    }
}

fn devices(names: &[String]) -> Result<Vec<(String, OwnedFd)>, Failure> {
    let mut found = Vec::new();
    for name in names {
        let path = format!("/dev/{name}");
        match mounts::copy(CWD, &path, false, 0x2 | mounts::NOT_EXECUTABLE, None) {
            Ok(mount) => found.push((name.clone(), mount)),
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(on(Step::Devices, &path)(errno)),
        }
    }
    Ok(found)
}

/// Puts the views in place.
pub(crate) fn attach(top: &OwnedFd, views: &[View], mounts: &[OwnedFd]) -> Result<(), Failure> {
    for (view, mount) in views.iter().zip(mounts) {
        let target = if view.directory {
            entries::directory(top, &view.to, 0o755)
        } else {
            entries::file(top, &view.to)
        };
        target
            .and_then(|target| mounts::attach(mount, target, ""))
            .map_err(on(Step::View, &view.to))?;
    }
    Ok(())
}
