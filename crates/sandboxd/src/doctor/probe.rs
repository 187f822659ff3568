//! What has to be tried inside namespaces. Doctor starts itself once per probe; that process enters its own namespaces,
//! mounts there, answers in one line and ends, and the kernel takes everything away with it.

use crate::limits::PROBE_SECONDS_MAX;
use crate::sys;
use crate::values::system_words;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{MountFlags, MountPropagationFlags, OpenTreeFlags};
use rustix::process::{getegid, geteuid};
use rustix::thread::UnshareFlags;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What can be probed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Probe {
    /// A user namespace with a mount namespace in it, in which something can be mounted.
    UserNamespace,
    /// Network, PID, IPC, UTS and cgroup namespaces.
    OtherNamespaces,
    /// An overlay made with the powers that this process has.
    Overlay,
    /// An overlay made inside a user namespace.
    OverlayInUserNamespace,
    /// A mount of the given directory whose owners are mapped.
    MappedOwners,
    /// Waits in a fresh user namespace for the end of its stdin; a part of [`Probe::MappedOwners`].
    WaitInUserNamespace,
}

const ALL: [(Probe, &str); 6] = [
    (Probe::UserNamespace, "user-namespace"),
    (Probe::OtherNamespaces, "other-namespaces"),
    (Probe::Overlay, "overlay"),
    (Probe::OverlayInUserNamespace, "overlay-in-user-namespace"),
    (Probe::MappedOwners, "mapped-owners"),
    (Probe::WaitInUserNamespace, "wait-in-user-namespace"),
];

/// What a probe's process says when all went well.
const GOOD: &str = "ok";

/// A step that failed, and what the system said.
type Failed = (&'static str, io::Error);

impl Probe {
    fn name(self) -> &'static str {
        ALL.iter()
            .find(|(probe, _)| *probe == self)
            .map_or("", |(_, name)| name)
    }

    /// Tries it in a process of its own.
    pub(super) fn run(self, dir: Option<&Path>) -> Result<(), String> {
        let mut child = start(self, dir, Stdio::null())?;
        let until = Instant::now() + Duration::from_secs(PROBE_SECONDS_MAX);
        while child
            .try_wait()
            .map_err(|error| system_words(&error))?
            .is_none()
        {
            if Instant::now() > until {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("no answer within {PROBE_SECONDS_MAX} s"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut said = String::new();
        if let Some(stdout) = child.stdout.take() {
            let _ = stdout.take(4096).read_to_string(&mut said);
        }
        match said.trim_end() {
            GOOD => Ok(()),
            "" => Err("the probe died".to_owned()),
            why => Err(why.to_owned()),
        }
    }
}

fn start(probe: Probe, dir: Option<&Path>, stdin: Stdio) -> Result<Child, String> {
    let mut command = Command::new("/proc/self/exe");
    command.args(["doctor", "--probe", probe.name()]);
    if let Some(dir) = dir {
        command.arg("--state-dir").arg(dir);
    }
    command
        .env_clear()
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("cannot start a probe: {}", system_words(&error)))
}

/// The answer of a probe's process.
pub(super) fn answer(name: &str, dir: Option<&Path>) -> String {
    let Some((probe, _)) = ALL.iter().find(|(_, known)| *known == name) else {
        return format!("no probe {name:?}");
    };
    let tried = match probe {
        Probe::UserNamespace => user_namespace().and_then(|()| own_tmpfs()),
        Probe::OtherNamespaces => other_namespaces(),
        Probe::Overlay => overlay(UnshareFlags::NEWNS),
        Probe::OverlayInUserNamespace => {
            user_namespace().and_then(|()| overlay(UnshareFlags::empty()))
        }
        Probe::MappedOwners => mapped_owners(dir.unwrap_or(Path::new("/"))),
        Probe::WaitInUserNamespace => wait_in_user_namespace(),
    };
    match tried {
        Ok(()) => GOOD.to_owned(),
        Err((step, error)) => format!("{step}: {}", system_words(&error)),
    }
}

/// Enters a user namespace in which we are root, and a mount namespace.
fn user_namespace() -> Result<(), Failed> {
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    sys::unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)
        .map_err(|error| ("unshare", error))?;
    let write = |path: &str, text: String| {
        fs::write(path, text).map_err(|error| ("mapping the user", error))
    };
    write("/proc/self/setgroups", "deny".to_owned())?;
    write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    write("/proc/self/gid_map", format!("0 {gid} 1"))
}

fn other_namespaces() -> Result<(), Failed> {
    if !geteuid().is_root() {
        user_namespace()?;
    }
    sys::unshare(
        UnshareFlags::NEWNS
            | UnshareFlags::NEWNET
            | UnshareFlags::NEWPID
            | UnshareFlags::NEWIPC
            | UnshareFlags::NEWUTS
            | UnshareFlags::NEWCGROUP,
    )
    .map_err(|error| ("unshare", error))
}

/// A file system in memory, over `/tmp` of a mount namespace of our own.
fn own_tmpfs() -> Result<(), Failed> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private)
        .map_err(|errno| ("making mounts private", errno.into()))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount("tmpfs", "/tmp", "tmpfs", flags, None)
        .map_err(|errno| ("mounting tmpfs", errno.into()))
}

fn overlay(namespaces: UnshareFlags) -> Result<(), Failed> {
    if !namespaces.is_empty() {
        sys::unshare(namespaces).map_err(|error| ("unshare", error))?;
    }
    own_tmpfs()?;
    for dir in ["lower", "upper", "work", "merged"] {
        fs::create_dir(Path::new("/tmp").join(dir))
            .map_err(|error| ("making directories", error))?;
    }
    let options = c"lowerdir=/tmp/lower,upperdir=/tmp/upper,workdir=/tmp/work,userxattr";
    let flags = MountFlags::empty();
    rustix::mount::mount("overlay", "/tmp/merged", "overlay", flags, options)
        .map_err(|errno| ("mounting overlay", errno.into()))?;
    fs::write("/tmp/merged/file", "").map_err(|error| ("writing to the overlay", error))
}

/// A detached copy of the directory's mount, with its owners mapped through a user namespace that a process of its own
/// holds for us.
fn mapped_owners(dir: &Path) -> Result<(), Failed> {
    let mut holder = start(Probe::WaitInUserNamespace, None, Stdio::piped())
        .map_err(|why| ("starting a process", io::Error::other(why)))?;
    let mapped = map_through(&mut holder, dir);
    // The end of its stdin is the holder's end.
    drop(holder.stdin.take());
    let _ = holder.wait();
    mapped
}

fn map_through(holder: &mut Child, dir: &Path) -> Result<(), Failed> {
    let mut ready = [0_u8; 1];
    if let Some(stdout) = &mut holder.stdout {
        let read = stdout.read_exact(&mut ready);
        read.map_err(|error| ("waiting for a process", error))?;
    }
    if ready != *b"+" {
        return Err(("unshare", io::Error::other("refused")));
    }
    let pid = holder.id();
    for map in ["uid_map", "gid_map"] {
        fs::write(format!("/proc/{pid}/{map}"), "0 100000 65536")
            .map_err(|error| ("mapping users", error))?;
    }
    let namespace = File::open(format!("/proc/{pid}/ns/user"))
        .map_err(|error| ("opening a namespace", error))?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let mount = rustix::mount::open_tree(CWD, dir, flags)
        .map_err(|errno| ("copying the mount", errno.into()))?;
    sys::map_owners(&mount, &namespace).map_err(|error| ("mount_setattr", error))
}

fn wait_in_user_namespace() -> Result<(), Failed> {
    sys::unshare(UnshareFlags::NEWUSER).map_err(|error| ("unshare", error))?;
    let mut stdout = io::stdout().lock();
    stdout
        .write_all(b"+")
        .and_then(|()| stdout.flush())
        .map_err(|error| ("answering", error))?;
    let mut nothing = Vec::new();
    let _ = io::stdin().take(1).read_to_end(&mut nothing);
    Ok(())
}

/// Whether a directory can be made in another, where one is made and removed again.
pub(super) fn can_make_directory_in(dir: &Path) -> io::Result<()> {
    let name = dir.join(format!("sandboxd-doctor-{}", std::process::id()));
    fs::create_dir(&name)?;
    fs::remove_dir(&name)
}

/// Whether a directory made in another takes the mark by which a layer of an image hides what is below it; it is removed
/// again.
pub(super) fn can_mark_directory_in(dir: &Path) -> io::Result<()> {
    let name = dir.join(format!("sandboxd-doctor-marks-{}", std::process::id()));
    fs::create_dir(&name)?;
    let flags = rustix::fs::XattrFlags::empty();
    let marked = rustix::fs::lsetxattr(&name, "user.overlay.opaque", b"y", flags);
    fs::remove_dir(&name)?;
    Ok(marked?)
}

/// Whether a device can be opened for reading and writing.
pub(super) fn open_device(path: &str) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let descriptor = rustix::fs::open(path, flags, Mode::empty())?;
    Ok(File::from(descriptor))
}
