//! The bare floor: the walls of a sandbox made by the shortest program that makes them, around `/bin/echo hi`.
//!
//! What is made is what a sandbox has: seven namespaces with mapped users, limits in the host's cgroups, a root on tmpfs
//! with the host's `/usr` read-only, private `/proc`, `/dev`, `/dev/shm`, `/dev/pts`, `/tmp` and a work directory, masks
//! over parts of `/proc`, its own loopback. What is left out is what only a service needs: a guest, a protocol, a filter
//! for system calls, capabilities, HTTP.

use crate::sys::{self, NAMESPACES, Side};
use anyhow::{Context, bail};
use rustix::fs::CWD;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive,
    mount_change, unmount,
};
use rustix::net::{AddressFamily, SocketType};
use rustix::process::{WaitOptions, pivot_root, waitpid};
use std::ffi::CString;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// How many host users a sandbox's users are mapped onto, and from where.
const UID_BASE: u32 = 2_000_000_000;
const UID_COUNT: u32 = 65_536;
/// Parts of `/proc` that a sandbox does not see.
const MASKED: [&str; 4] = [
    "proc/kcore",
    "proc/keys",
    "proc/timer_list",
    "proc/sysrq-trigger",
];
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// A cgroup directory, and the file by which a process enters it.
struct Group {
    folder: PathBuf,
    entry: fs::File,
}

impl Group {
    /// Moves this process into it.
    fn enter(&self) -> std::io::Result<()> {
        (&self.entry).write_all(b"0")
    }
}

/// A place to make walls in.
pub(crate) struct Floor {
    folder: PathBuf,
    cgroups: Vec<PathBuf>,
}

impl Floor {
    /// Prepares what a service would have prepared before the first request.
    pub(crate) fn new() -> anyhow::Result<Self> {
        if !crate::tools::is_root() {
            bail!("the floor is measured as root: cgroups and mapped users need it");
        }
        let folder = std::env::temp_dir().join(format!("sandboxd-floor-{}", std::process::id()));
        fs::create_dir_all(folder.join("root"))?;
        fs::create_dir_all(folder.join("work"))?;
        Ok(Self {
            folder,
            cgroups: cgroup_hierarchies(),
        })
    }

    /// Makes the walls, runs the program, reads its output, and cleans up; how long it took until the output was there.
    pub(crate) fn round(&self) -> anyhow::Result<Duration> {
        let began = Instant::now();
        let (mut output, output_inside) = std::io::pipe()?;
        let (go_inside, mut go) = std::io::pipe()?;
        let groups = self.make_cgroups()?;
        let pid = match sys::clone(NAMESPACES).context("clone")? {
            Side::Parent(pid) => pid,
            Side::Child => {
                drop((output, go));
                let error = self.inside(go_inside, &groups, output_inside);
                // The parent sees no output, and this text.
                let _ = writeln!(std::io::stderr(), "floor: {error:#}");
                std::process::abort();
            }
        };
        drop((output_inside, go_inside));
        for map in ["uid_map", "gid_map"] {
            fs::write(
                format!("/proc/{pid}/{map}"),
                format!("0 {UID_BASE} {UID_COUNT}"),
            )?;
        }
        go.write_all(b"g")?;
        drop(go);
        let mut text = [0; 3];
        let outcome = output
            .read_exact(&mut text)
            .context("no output from the floor");
        let took = began.elapsed();
        let pid = rustix::process::Pid::from_raw(pid).context("a child has a number")?;
        waitpid(Some(pid), WaitOptions::empty())?;
        for group in &groups {
            remove_group(&group.folder)?;
        }
        outcome?;
        if &text != b"hi\n" {
            bail!("the floor said {text:?}");
        }
        Ok(took)
    }

    fn make_cgroups(&self) -> anyhow::Result<Vec<Group>> {
        let mut made = Vec::new();
        for hierarchy in &self.cgroups {
            let group = hierarchy.join(format!("sandboxd-floor-{}", std::process::id()));
            fs::create_dir(&group).with_context(|| group.display().to_string())?;
            for (file, value) in [
                ("memory.limit_in_bytes", "536870912"),
                ("memory.max", "536870912"),
                ("pids.max", "256"),
                ("cpu.cfs_quota_us", "100000"),
                ("cpu.max", "100000 100000"),
            ] {
                let file = group.join(file);
                if file.exists() {
                    fs::write(&file, value).with_context(|| file.display().to_string())?;
                }
            }
            // A thread that moves itself by `tasks` (version 1) does not wait for the whole machine, as others do.
            let first = group.join("tasks");
            let entry = if first.exists() {
                first
            } else {
                group.join("cgroup.procs")
            };
            made.push(Group {
                entry: fs::OpenOptions::new().write(true).open(entry)?,
                folder: group,
            });
        }
        Ok(made)
    }

    /// The child: walls, then the program. Comes back only with an error.
    fn inside(
        &self,
        mut go: impl Read,
        groups: &[Group],
        output: std::io::PipeWriter,
    ) -> anyhow::Error {
        let walls = go
            .read_exact(&mut [0])
            .and_then(|()| groups.iter().try_for_each(Group::enter))
            .map_err(Into::into)
            .and_then(|()| self.walls());
        if let Err(error) = walls {
            return error;
        }
        Command::new("/bin/echo")
            .arg("hi")
            .stdout(output)
            .exec()
            .into()
    }

    fn walls(&self) -> anyhow::Result<()> {
        rustix::thread::set_thread_gid(rustix::process::Gid::ROOT)?;
        rustix::thread::set_thread_uid(rustix::process::Uid::ROOT)?;
        mount_change(
            "/",
            MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
        )?;
        let root = self.folder.join("root");
        let quiet = MountFlags::NOSUID | MountFlags::NODEV;
        mount("tmpfs", &root, "tmpfs", quiet, c"mode=0755,size=16m")?;
        for folder in ["usr", "etc", "proc", "dev", "tmp", "workspace"] {
            fs::create_dir(root.join(folder))?;
        }
        for link in ["bin", "lib", "lib64", "sbin"] {
            std::os::unix::fs::symlink(format!("usr/{link}"), root.join(link))?;
        }
        bind_read_only(Path::new("/usr"), &root.join("usr"))?;
        mount(
            "proc",
            root.join("proc"),
            "proc",
            quiet | MountFlags::NOEXEC,
            None,
        )?;
        mount(
            "tmpfs",
            root.join("tmp"),
            "tmpfs",
            quiet,
            c"mode=1777,size=64m",
        )?;
        let dev = root.join("dev");
        mount(
            "tmpfs",
            &dev,
            "tmpfs",
            MountFlags::NOSUID,
            c"mode=0755,size=64k",
        )?;
        for device in DEVICES {
            fs::File::create(dev.join(device))?;
            mount_bind(Path::new("/dev").join(device), dev.join(device))?;
        }
        for folder in ["shm", "pts"] {
            fs::create_dir(dev.join(folder))?;
        }
        mount(
            "tmpfs",
            dev.join("shm"),
            "tmpfs",
            quiet,
            c"mode=1777,size=64m",
        )?;
        let terminals = c"newinstance,ptmxmode=0666,mode=0620";
        mount(
            "devpts",
            dev.join("pts"),
            "devpts",
            MountFlags::NOSUID,
            terminals,
        )?;
        mount_bind(self.folder.join("work"), root.join("workspace"))?;
        for masked in MASKED {
            let place = root.join(masked);
            if place.exists() {
                mount_bind("/dev/null", place)?;
            }
        }
        std::env::set_current_dir(&root)?;
        pivot_root(".", ".")?;
        unmount(".", UnmountFlags::DETACH)?;
        rustix::system::sethostname(b"sandbox")?;
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
        sys::loopback_up(socket.as_fd())?;
        std::env::set_current_dir("/workspace")?;
        Ok(())
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        // Everything mounted was mounted in a namespace that is gone.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn bind_read_only(from: &Path, to: &Path) -> anyhow::Result<()> {
    mount_bind_recursive(from, to)?;
    sys::read_only(&CString::new(to.as_os_str().as_bytes())?)?;
    Ok(())
}

/// Where limits can be set: one directory per hierarchy with version 1, one for all with version 2.
fn cgroup_hierarchies() -> Vec<PathBuf> {
    let base = Path::new("/sys/fs/cgroup");
    let first = ["memory", "pids", "cpu"].map(|controller| base.join(controller));
    let found: Vec<PathBuf> = first.into_iter().filter(|path| path.is_dir()).collect();
    let second = rustix::fs::accessat(
        CWD,
        base.join("cgroup.controllers"),
        rustix::fs::Access::EXISTS,
        rustix::fs::AtFlags::empty(),
    );
    if found.is_empty() && second.is_ok() {
        vec![base.to_owned()]
    } else {
        found
    }
}

/// Removes a cgroup; the kernel may need a moment after its last process has gone.
fn remove_group(group: &Path) -> anyhow::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(2);
    loop {
        match fs::remove_dir(group) {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() > deadline => {
                return Err(error).with_context(|| group.display().to_string());
            }
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}
