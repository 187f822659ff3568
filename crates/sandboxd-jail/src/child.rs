//! The child: the steps in their order.
//!
//! Each step is a file under [`crate::steps`]. The order matters, and why is said at each line. Every byte that a client
//! chose (environment, arguments) is used only by the last step, when every wall stands.

use crate::steps::{
    capabilities, cgroup, descriptors, devices, entries, exec, handover, identity, keyring,
    landlock, limits, loopback, memory, namespaces, nested, network, proc, root, seccomp, views,
    work_dir,
};
use crate::sys;
use rustix::fd::OwnedFd;
use rustix::fs::Mode;
use sandboxd_jail::plan::Plan;
use sandboxd_jail::report::{Failure, Step, executing};
use sandboxd_jail::wire::Create;

/// What the child keeps to its end.
#[derive(Debug)]
pub(crate) struct Belongings {
    /// The guest's end of the link.
    pub(crate) link: OwnedFd,
    /// The guest program.
    pub(crate) program: OwnedFd,
    /// Where failures are told.
    pub(crate) report: OwnedFd,
    /// The v1 `tasks` files.
    pub(crate) tasks: Vec<OwnedFd>,
}

/// Makes the walls and becomes the guest; if that fails, says why and ends.
pub(crate) fn run(
    create: Create,
    belongings: Belongings,
    launcher: OwnedFd,
    layer: Option<OwnedFd>,
    workspace: Option<OwnedFd>,
) -> ! {
    let plan = create.plan;
    let report = rustix::io::fcntl_dupfd_cloexec(&belongings.report, descriptors::FIRST);
    let Err(failure) = walls(&plan, belongings, launcher, layer, workspace);
    if let Ok(report) = report {
        let _ = rustix::io::write(report, &failure.encode());
    }
    sys::leave(125)
}

fn walls(
    plan: &Plan,
    belongings: Belongings,
    launcher: OwnedFd,
    layer: Option<OwnedFd>,
    workspace: Option<OwnedFd>,
) -> Result<std::convert::Infallible, Failure> {
    let Plan {
        template,
        assignment,
    } = plan;
    // What is made gets the mode that the plan says; what runs inside has the umask that the daemon was started with.
    let umask = rustix::process::umask(Mode::empty());
    // First of all nothing of the launcher's own (its socket, cached namespaces) stays open.
    let mut held = descriptors::take(belongings, launcher, layer, workspace)?;
    // Before anything that takes memory, so that it is charged here.
    cgroup::enter(&held.tasks)?;
    held.tasks.clear();
    // These need no users, so they are made while the launcher writes the mapping and makes mounts.
    namespaces::make(assignment.network)?;
    loopback::up()?;
    let handed = handover::wait(&held.launcher)?;
    identity::take(template.users)?;
    network::configure(assignment.network)?;
    namespaces::name(&assignment.hostname)?;
    // The last look at the host's paths: what is shown inside is copied out of it, then it goes.
    let shown = views::collect(plan, handed, &held)?;
    let proc_mount = proc::make()?;
    root::enter(&shown.root)?;
    let top = root::open()?;
    entries::make(&top, &template.entries)?;
    let null = devices::mount(&top, &template.root, &shown.devices)?;
    proc::mount(&top, &proc_mount)?;
    // The limits lie below /proc/sys, which the next step makes read-only.
    let namespace_limits = nested::open(&proc_mount)?;
    memory::mount(&top, &template.root, &template.memory_mounts)?;
    proc::restrict(&top, &proc_mount, &template.proc, &null)?;
    views::attach(&top, &template.views, &shown.views)?;
    // Last of the mounts, since the work directory may lie below any of the others.
    work_dir::mount(&top, &assignment.work_dir, shown.workspace.as_ref())?;
    nested::forbid(&namespace_limits)?;
    drop((top, proc_mount, null, namespace_limits));
    limits::set(&assignment.limits)?;
    keyring::leave_behind()?;
    // From here on nothing may be gained any more; the filter is last, since it forbids what the others need.
    capabilities::drop_to(&template.capabilities)?;
    capabilities::gain_no_more()?;
    let landlock = landlock::restrict()?;
    rustix::process::umask(umask);
    let clone3 = shown.leaves.is_some();
    let ready = exec::prepare(assignment, &held, shown.leaves.as_ref())?;
    seccomp::install(clone3, template.plain_modes)?;
    let _ = rustix::io::write(&held.report, &executing(landlock));
    let errno = sys::execveat(&held.program, &ready.argv, &ready.env);
    Err(Failure {
        step: Step::Exec,
        errno: errno.raw_os_error(),
        what: String::new(),
    })
}

/// What the child shows inside, still attached nowhere.
#[derive(Debug)]
pub(crate) struct Shown {
    /// The root directory.
    pub(crate) root: OwnedFd,
    /// The views, in the plan's order.
    pub(crate) views: Vec<OwnedFd>,
    /// The device files, by their name.
    pub(crate) devices: Vec<(String, OwnedFd)>,
    /// The workspace.
    pub(crate) workspace: Option<OwnedFd>,
    /// The cgroup directory for runs.
    pub(crate) leaves: Option<OwnedFd>,
}
