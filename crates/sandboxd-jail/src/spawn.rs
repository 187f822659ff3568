//! One plan: the child, its users, the mounts that need the host's privilege, and the handover.
//!
//! Nothing here waits for the child. What can be done in the child is done there, since children run side by side and
//! the launcher is one.

use crate::aside::aside;
use crate::child::{self, Belongings};
use crate::id_namespaces::{self, IdNamespaces};
use crate::launcher;
use crate::mounts;
use crate::netlink::PeerIn;
use crate::router::Router;
use crate::sys::{self, Cloned};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Signal;
use sandboxd_jail::plan::{Extent, Network, Owners, Plan, Root, Users};
use sandboxd_jail::report::{Failure, Step};
use sandboxd_jail::wire::Create;

/// There is no sandbox: why, and the child if one was cloned (it has been killed, and the daemon must reap it).
#[derive(Debug)]
pub(crate) struct Unmade {
    /// Why.
    pub(crate) failure: Failure,
    /// Its pidfd.
    pub(crate) child: Option<OwnedFd>,
}

/// A failure without a name.
pub(crate) fn at(step: Step) -> impl Fn(Errno) -> Failure {
    on(step, "")
}

/// A failure on something named.
pub(crate) fn on(step: Step, what: &str) -> impl Fn(Errno) -> Failure {
    move |errno| Failure {
        step,
        errno: errno.raw_os_error(),
        what: what.to_owned(),
    }
}

/// The descriptors that came beside a plan.
struct Given {
    belongings: Belongings,
    layer: Option<OwnedFd>,
    workspace: Option<OwnedFd>,
    cgroup: Option<OwnedFd>,
}

fn sort(plan: &Plan, descriptors: Vec<OwnedFd>) -> Result<Given, Failure> {
    let assignment = &plan.assignment;
    let mut all = descriptors.into_iter();
    let mut take = |wanted: bool, name: &str| match (wanted, wanted.then(|| all.next()).flatten()) {
        (true, None) => Err(on(Step::Receive, name)(Errno::BADF)),
        (_, descriptor) => Ok(descriptor),
    };
    let link = take(true, "link")?;
    let program = take(true, "guest")?;
    let report = take(true, "report pipe")?;
    let layer = take(assignment.layer.is_some(), "layer")?;
    let workspace = take(assignment.work_dir.workspace.is_some(), "workspace")?;
    let cgroup = take(assignment.cgroup.born_inside, "cgroup")?;
    let tasks: Vec<OwnedFd> = all.collect();
    let (Some(link), Some(program), Some(report)) = (link, program, report) else {
        return Err(at(Step::Receive)(Errno::BADF));
    };
    if tasks.len() != usize::from(assignment.cgroup.v1_tasks) {
        return Err(on(Step::Receive, "tasks files")(Errno::BADF));
    }
    Ok(Given {
        belongings: Belongings {
            link,
            program,
            report,
            tasks,
        },
        layer,
        workspace,
        cgroup,
    })
}

/// A child that goes on alone from here: its pidfd, and its mount namespace where its workspace comes later.
pub(crate) type Spawned = (OwnedFd, Option<OwnedFd>);

/// Makes the sandbox of one plan, up to the point from which its child goes on alone.
pub(crate) fn spawn(
    create: Create,
    descriptors: Vec<OwnedFd>,
    namespaces: &mut IdNamespaces,
    router: Option<&mut Router>,
) -> Result<Spawned, Unmade> {
    let (plan, parks) = (&create.plan, create.parks);
    let alone = |failure| Unmade {
        failure,
        child: None,
    };
    let given = sort(plan, descriptors).map_err(alone)?;
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(at(Step::Clone))
    .map_err(alone)?;
    // The daemon becomes the parent, so that it, and nobody else, learns of the end.
    let mut flags =
        libc::CLONE_PARENT | libc::CLONE_NEWUSER | libc::CLONE_NEWPID | libc::CLONE_NEWNS;
    if let Network::Routed { .. } = plan.assignment.network {
        // The launcher joins it to the router while the child goes on.
        flags |= libc::CLONE_NEWNET;
    }
    let cgroup = given.cgroup.as_ref().map(AsFd::as_fd);
    let cloned = sys::clone3(flags, 0, cgroup)
        .map_err(at(Step::Clone))
        .map_err(alone)?;
    let (pid, pidfd) = match cloned {
        Cloned::Child => {
            drop(ours);
            let Given {
                belongings,
                layer,
                workspace,
                ..
            } = given;
            child::run(create, belongings, theirs, layer, workspace)
        }
        Cloned::Parent { pid, pidfd } => (pid, pidfd),
    };
    // Before the child goes on: what it becomes is nobody's to look into.
    let mounts = mounts_of(pid, parks);
    let provided = mounts.and_then(|mounts| {
        provide(plan, &given, pid, ours.as_fd(), namespaces, router).map(|()| mounts)
    });
    match provided {
        Ok(mounts) => Ok((pidfd, mounts)),
        Err(failure) => {
            let _ = rustix::process::pidfd_send_signal(&pidfd, Signal::KILL);
            Err(Unmade {
                failure,
                child: Some(pidfd),
            })
        }
    }
}

fn mounts_of(pid: i32, parks: bool) -> Result<Option<OwnedFd>, Failure> {
    let open = || id_namespaces::open_namespace(pid, "mnt").map_err(at(Step::Assign));
    parks.then(open).transpose()
}

/// Gives the child its users and the mounts that it cannot make itself.
fn provide(
    plan: &Plan,
    given: &Given,
    pid: i32,
    child: BorrowedFd<'_>,
    namespaces: &mut IdNamespaces,
    router: Option<&mut Router>,
) -> Result<(), Failure> {
    let extent = |on_disk, seen, count| {
        vec![Extent {
            on_disk,
            seen,
            count,
        }]
    };
    let range = match plan.template.users {
        Users::Range { first, count } => {
            let map = extent(0, first, count);
            id_namespaces::write_maps(pid, &map, &map, true).map_err(at(Step::Users))?;
            true
        }
        Users::Single { inside } => {
            // As this process's own user namespace calls whom it runs as.
            let uid = rustix::process::geteuid().as_raw();
            let gid = rustix::process::getegid().as_raw();
            let (uids, gids) = (extent(inside, uid, 1), extent(inside, gid, 1));
            id_namespaces::write_maps(pid, &uids, &gids, false).map_err(at(Step::Users))?;
            false
        }
    };
    if let Network::Routed { number } = plan.assignment.network {
        let router = router.ok_or_else(|| at(Step::Network)(Errno::NOTCONN))?;
        router.attach(number, PeerIn::Process(pid))?;
    }
    let handed = if range {
        privileged_mounts(plan, given, pid, namespaces)?
    } else {
        Vec::new()
    };
    let handed: Vec<BorrowedFd<'_>> = handed.iter().map(AsFd::as_fd).collect();
    // A child that is gone already has told why.
    match launcher::send(child, b"go", &handed) {
        Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
        Err(errno) => Err(at(Step::Handover)(errno)),
    }
}

/// The layers of an image, each read-only; the topmost first.
pub(crate) fn image(
    lowers: &[String],
    owners: Option<BorrowedFd<'_>>,
) -> Result<Vec<OwnedFd>, Failure> {
    let attributes = mounts::READ_ONLY | mounts::INERT;
    let one = |lower: &String| {
        let copy = mounts::copy(rustix::fs::CWD, lower, false, attributes, owners);
        copy.map_err(|errno| match errno {
            Errno::INVAL if owners.is_some() => on(Step::ImageMapping, lower)(errno),
            errno => on(Step::Root, lower)(errno),
        })
    };
    lowers.iter().map(one).collect()
}

/// The root (unless it is memory), the views, the workspace: in this order, as [`child`] takes them.
fn privileged_mounts(
    plan: &Plan,
    given: &Given,
    pid: i32,
    namespaces: &mut IdNamespaces,
) -> Result<Vec<OwnedFd>, Failure> {
    let own = id_namespaces::open_namespace(pid, "user").map_err(at(Step::Users))?;
    let owners = Some(own.as_fd());
    let mut mounts = Vec::new();
    let layer = || {
        given
            .layer
            .as_ref()
            .ok_or_else(|| on(Step::Root, "layer")(Errno::BADF))
    };
    match &plan.template.root {
        Root::Memory { .. } => {}
        Root::Layer => {
            let upper = mounts::copy(layer()?, "upper", false, mounts::INERT, None);
            mounts.push(upper.map_err(on(Step::Root, "layer"))?);
        }
        Root::Overlay { lowers, mapped } => {
            let image = image(lowers, owners.filter(|_| *mapped))?;
            let overlay = mounts::overlay(&image, layer()?.as_fd(), aside);
            mounts.push(overlay.map_err(on(Step::Root, "overlay"))?);
        }
    }
    for view in &plan.template.views {
        mounts.push(mounts::view(view).map_err(on(Step::View, &view.from))?);
    }
    if let (Some(wanted), Some(directory)) = (&plan.assignment.work_dir.workspace, &given.workspace)
    {
        let path = &wanted.path;
        mounts.push(workspace(directory, path, &wanted.owners, namespaces)?);
    }
    Ok(mounts)
}

/// The workspace, attached nowhere yet. `name` is what a failure calls it.
pub(crate) fn workspace(
    directory: &OwnedFd,
    name: &str,
    owners: &Owners,
    namespaces: &mut IdNamespaces,
) -> Result<OwnedFd, Failure> {
    let map = match owners {
        Owners::AsOnDisk => None,
        Owners::Mapped { uids, gids } => {
            Some(namespaces.get(uids, gids).map_err(at(Step::IdNamespace))?)
        }
    };
    let step = if map.is_some() {
        Step::WorkspaceMapping
    } else {
        Step::Workspace
    };
    let owners = map.as_ref().map(|map| map.as_fd());
    let mount = mounts::copy(directory, "", false, mounts::INERT, owners);
    mount.map_err(on(step, name))
}
