//! The bare floor: the walls of a sandbox made by the shortest program that makes them, around `/bin/echo hi`.
//!
//! What is made is what a sandbox has: seven namespaces with mapped users, limits in the host's cgroups, a root on tmpfs
//! with the host's `/usr` read-only, private `/proc`, `/dev`, `/dev/shm`, `/dev/pts`, `/tmp` and a work directory, masks
//! over parts of `/proc`, its own loopback. What is left out is what only a service needs: a guest, a protocol, a filter
//! for system calls, capabilities, HTTP.

use super::cgroups::{self, Groups};
use crate::sys::{self, NAMESPACES, Side};
use anyhow::{Context, bail};
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

/// What rows with it are called.
pub(crate) const FLOOR: &str = "bare namespaces, mounts, cgroups, exec";

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
            cgroups: cgroups::hierarchies(),
        })
    }

    /// Makes the walls, runs the program, reads its output, and cleans up; how long it took until the output was there.
    pub(crate) fn round(&self) -> anyhow::Result<Duration> {
        let began = Instant::now();
        let (mut output, output_inside) = std::io::pipe()?;
        let (go_inside, mut go) = std::io::pipe()?;
        let groups = Groups::make(&self.cgroups, "floor")?;
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
        groups.remove()?;
        outcome?;
        if &text != b"hi\n" {
            bail!("the floor said {text:?}");
        }
        Ok(took)
    }

    /// The child: walls, then the program. Comes back only with an error.
    fn inside(
        &self,
        mut go: impl Read,
        groups: &Groups,
        output: std::io::PipeWriter,
    ) -> anyhow::Error {
        let walls = go
            .read_exact(&mut [0])
            .and_then(|()| groups.enter())
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
