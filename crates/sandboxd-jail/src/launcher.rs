//! The launcher's loop: one request, one answer, and the clean-up when the daemon is gone.

use crate::id_namespaces::IdNamespaces;
use crate::spawn;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sandboxd_jail::remains;
use sandboxd_jail::report::{Failure, Step};
use sandboxd_jail::wire::{self, DESCRIPTORS_MAX, Instance, MESSAGE_BYTES_MAX, Reply, Request};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

/// Why the launcher cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LauncherError {
    /// The socket failed otherwise than by its end.
    #[error("the socket to the daemon: {0}")]
    Socket(#[from] Errno),
}

/// Serves plans until the daemon is gone, then removes what it left.
pub(crate) fn run() -> Result<(), LauncherError> {
    let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    // Descriptors 0 to 2 stay taken, so that none of ours ever gets such a number.
    let null = rustix::fs::open(
        "/dev/null",
        rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    // Executed by descriptor, it would be called by that.
    let _ = rustix::thread::set_name(c"sandboxd-jail");
    // The daemon's terminal and its Ctrl-C are the daemon's: it decides when we end.
    let _ = rustix::process::setsid();
    raise_core_limit();
    let mut instance: Option<(Instance, Vec<OwnedFd>)> = None;
    let mut namespaces = IdNamespaces::default();
    let mut buffer = vec![0_u8; MESSAGE_BYTES_MAX];
    loop {
        let (length, descriptors) = match receive(socket.as_fd(), &mut buffer) {
            Ok((0, _)) | Err(Errno::CONNRESET | Errno::PIPE) => break,
            Ok(received) => received,
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        };
        match wire::decode::<Request>(&buffer[..length]) {
            Ok(Request::Instance(told)) => instance = Some((told, descriptors)),
            Ok(Request::Create(create)) => {
                let number = create.number;
                let outcome = spawn::spawn(*create, descriptors, &mut namespaces);
                let (reply, pidfd) = match outcome {
                    Ok(pidfd) => (Reply::Cloned { number }, Some(pidfd)),
                    Err(spawn::Unmade { failure, child }) => {
                        (Reply::Failed { number, failure }, child)
                    }
                };
                match answer(socket.as_fd(), &reply, pidfd.as_ref()) {
                    Ok(()) => {}
                    Err(Errno::CONNRESET | Errno::PIPE) => break,
                    Err(errno) => return Err(errno.into()),
                }
            }
            Err(error) => {
                let failure = Failure {
                    step: Step::Receive,
                    errno: Errno::INVAL.raw_os_error(),
                    what: error.to_string(),
                };
                answer(socket.as_fd(), &Reply::Failed { number: 0, failure }, None)?;
            }
        }
    }
    if let Some((instance, lock)) = instance {
        remains::remove_instance(&instance);
        // Only now may another daemon think that nobody cares for this instance.
        drop(lock);
    }
    Ok(())
}

/// Makes room for the one byte of core that sandboxes are limited to. A daemon that was started with a limit of none
/// would hand that on, and with none the kernel still starts the host's core helper. Without privilege it stays so.
fn raise_core_limit() {
    let limit = getrlimit(Resource::Core);
    if limit.maximum == Some(0) {
        let raised = Rlimit {
            current: Some(0),
            maximum: Some(1),
        };
        let _ = setrlimit(Resource::Core, raised);
    }
}

/// One packet and the descriptors beside it.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> Result<(usize, Vec<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let message = rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(buffer)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let mut descriptors = Vec::new();
    for item in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = item {
            descriptors.extend(received);
        }
    }
    if message
        .flags
        .intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC)
    {
        return Err(Errno::MSGSIZE);
    }
    Ok((message.bytes, descriptors))
}

/// Sends bytes with descriptors beside them.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::TOOBIG);
    }
    rustix::io::retry_on_intr(|| {
        rustix::net::sendmsg(
            socket,
            &[IoSlice::new(bytes)],
            &mut ancillary,
            SendFlags::NOSIGNAL,
        )
    })?;
    Ok(())
}

fn answer(socket: BorrowedFd<'_>, reply: &Reply, pidfd: Option<&OwnedFd>) -> Result<(), Errno> {
    let bytes = wire::encode(reply).map_err(|_| Errno::MSGSIZE)?;
    let descriptors: Vec<BorrowedFd<'_>> = pidfd.iter().map(|fd| fd.as_fd()).collect();
    send(socket, &bytes, &descriptors)
}
