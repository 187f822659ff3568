//! The child keeps what it was given and closes everything else that it inherited from the launcher.

use crate::child::Belongings;
use crate::id_namespaces::KEPT_MAX;
use crate::spawn::at;
use crate::sys;
use rustix::fd::{AsFd, OwnedFd, RawFd};
use rustix::io::Errno;
use rustix::io::fcntl_dupfd_cloexec;
use sandboxd_jail::report::{Failure, Step};
use sandboxd_jail::wire::DESCRIPTORS_MAX;

/// The first number of what is kept. All that the launcher ever holds lies below (its kept namespaces, one request's
/// descriptors, a few of its own), so that closing the numbers from 3 up to here closes everything of its.
pub(crate) const FIRST: RawFd = 220;

const _: () = assert!(KEPT_MAX + 2 * DESCRIPTORS_MAX + 16 < 220);

/// What the child holds.
#[derive(Debug)]
pub(crate) struct Held {
    /// The guest's end of the link.
    pub(crate) link: OwnedFd,
    /// The guest program.
    pub(crate) program: OwnedFd,
    /// Where failures are told.
    pub(crate) report: OwnedFd,
    /// The v1 `tasks` files.
    pub(crate) tasks: Vec<OwnedFd>,
    /// To the launcher.
    pub(crate) launcher: OwnedFd,
    /// The layer directory.
    pub(crate) layer: Option<OwnedFd>,
    /// The workspace.
    pub(crate) workspace: Option<OwnedFd>,
}

/// A copy of a descriptor among those that are kept.
pub(crate) fn lift(descriptor: impl AsFd) -> Result<OwnedFd, Errno> {
    fcntl_dupfd_cloexec(descriptor, FIRST)
}

/// Closes everything that the launcher holds.
pub(crate) fn close_low() -> Result<(), Errno> {
    sys::close_between(3, FIRST - 1)
}

/// Moves what is kept to high numbers and closes the rest.
pub(crate) fn take(
    belongings: Belongings,
    launcher: OwnedFd,
    layer: Option<OwnedFd>,
    workspace: Option<OwnedFd>,
) -> Result<Held, Failure> {
    let Belongings {
        link,
        program,
        report,
        tasks,
    } = belongings;
    let up = |descriptor: OwnedFd| {
        let copy = lift(&descriptor);
        // The originals lie in the range that is closed below.
        std::mem::forget(descriptor);
        copy.map_err(at(Step::Descriptors))
    };
    let held = Held {
        link: up(link)?,
        program: up(program)?,
        report: up(report)?,
        tasks: tasks.into_iter().map(up).collect::<Result<_, _>>()?,
        launcher: up(launcher)?,
        layer: layer.map(up).transpose()?,
        workspace: workspace.map(up).transpose()?,
    };
    close_low().map_err(at(Step::Descriptors))?;
    // Its own session: no terminal of the host's is its terminal.
    rustix::process::setsid().map_err(at(Step::Descriptors))?;
    let null = rustix::fs::open(
        "/dev/null",
        rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )
    .map_err(at(Step::Descriptors))?;
    rustix::stdio::dup2_stdin(&null).map_err(at(Step::Descriptors))?;
    rustix::stdio::dup2_stdout(&null).map_err(at(Step::Descriptors))?;
    rustix::stdio::dup2_stderr(&null).map_err(at(Step::Descriptors))?;
    Ok(held)
}
