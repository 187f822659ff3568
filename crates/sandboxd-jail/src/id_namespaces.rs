//! User namespaces that only carry a mapping of ids for mounts.
//!
//! A mount is idmapped by the map of a user namespace, and such a namespace needs a process to be made. The process is
//! ended at once; the descriptor keeps the namespace. Sessions that come and go use the same few ranges of ids, so the
//! last ones made are kept.

use crate::sys::{self, Cloned};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Signal, WaitId, WaitIdOptions};
use sandboxd_jail::plan::Extent;
use std::collections::VecDeque;
use std::rc::Rc;

/// How many are kept.
pub(crate) const KEPT_MAX: usize = 128;

type Maps = (Vec<Extent>, Vec<Extent>);

/// The namespaces made last.
#[derive(Debug, Default)]
pub(crate) struct IdNamespaces {
    kept: VecDeque<(Maps, Rc<OwnedFd>)>,
}

impl IdNamespaces {
    /// A namespace with this mapping.
    pub(crate) fn get(&mut self, uids: &[Extent], gids: &[Extent]) -> Result<Rc<OwnedFd>, Errno> {
        let found = self
            .kept
            .iter()
            .find(|(maps, _)| maps.0 == uids && maps.1 == gids);
        if let Some((_, namespace)) = found {
            return Ok(Rc::clone(namespace));
        }
        let namespace = Rc::new(make(uids, gids)?);
        if self.kept.len() == KEPT_MAX {
            self.kept.pop_front();
        }
        self.kept
            .push_back(((uids.to_vec(), gids.to_vec()), Rc::clone(&namespace)));
        Ok(namespace)
    }
}

fn make(uids: &[Extent], gids: &[Extent]) -> Result<OwnedFd, Errno> {
    let (pid, pidfd) = match sys::clone3(libc::CLONE_NEWUSER, libc::SIGCHLD, None)? {
        Cloned::Child => loop {
            sys::pause();
        },
        Cloned::Parent { pid, pidfd } => (pid, pidfd),
    };
    let made = write_maps(pid, uids, gids, true).and_then(|()| open_namespace(pid, "user"));
    rustix::process::pidfd_send_signal(&pidfd, Signal::KILL)?;
    rustix::process::waitid(
        WaitId::PidFd(rustix::fd::AsFd::as_fd(&pidfd)),
        WaitIdOptions::EXITED,
    )?;
    made
}

/// A namespace of a process, of a kind as `/proc` calls it.
pub(crate) fn open_namespace(pid: i32, kind: &str) -> Result<OwnedFd, Errno> {
    rustix::fs::open(
        format!("/proc/{pid}/ns/{kind}"),
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )
}

/// Writes the mapping of a new user namespace. Without privilege `setgroups` has to be given up first.
pub(crate) fn write_maps(
    pid: i32,
    uids: &[Extent],
    gids: &[Extent],
    privileged: bool,
) -> Result<(), Errno> {
    if !privileged {
        write(&format!("/proc/{pid}/setgroups"), "deny")?;
    }
    write(&format!("/proc/{pid}/uid_map"), &lines(uids))?;
    write(&format!("/proc/{pid}/gid_map"), &lines(gids))
}

fn lines(extents: &[Extent]) -> String {
    use std::fmt::Write as _;
    extents.iter().fold(String::new(), |mut text, extent| {
        let _ = writeln!(text, "{} {} {}", extent.on_disk, extent.seen, extent.count);
        text
    })
}

/// Writes a kernel file with one `write`, as such files want it.
pub(crate) fn write(path: &str, text: &str) -> Result<(), Errno> {
    let file = rustix::fs::open(
        path,
        rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )?;
    rustix::io::write(&file, text.as_bytes())?;
    Ok(())
}
