//! The launcher's loop: one request, one answer, and the clean-up when the daemon is gone.

use crate::assign::{self, Home};
use crate::id_namespaces::IdNamespaces;
use crate::join;
use crate::quota::{self, Tidied};
use crate::router::{self, OnHost, Router};
use crate::spawn;
use crate::steps::seccomp;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sandboxd_jail::network::{HostRules, Uplink};
use sandboxd_jail::remains;
use sandboxd_jail::report::Step;
use sandboxd_jail::wire::{
    self, DESCRIPTORS_MAX, Instance, MESSAGE_BYTES_MAX, MakeRouter, Reply, Request,
};
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
    seccomp::prepare();
    let mut state = State::default();
    let mut buffer = vec![0_u8; MESSAGE_BYTES_MAX];
    loop {
        let (length, descriptors) = match receive(socket.as_fd(), &mut buffer) {
            Ok((0, _)) | Err(Errno::CONNRESET | Errno::PIPE) => break,
            Ok(received) => received,
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        };
        match wire::decode::<Request>(&buffer[..length]) {
            Ok(request) => {
                let Some((reply, handed)) = state.serve(request, descriptors) else {
                    continue;
                };
                match answer(socket.as_fd(), &reply, &handed) {
                    Ok(()) => {}
                    Err(Errno::CONNRESET | Errno::PIPE) => break,
                    Err(errno) => return Err(errno.into()),
                }
            }
            Err(error) => {
                let failure = router::words(Step::Receive, Errno::INVAL, error.to_string());
                answer(socket.as_fd(), &Reply::Failed { number: 0, failure }, &[])?;
            }
        }
    }
    state.end();
    Ok(())
}

/// What the launcher knows between two requests.
#[derive(Debug, Default)]
struct State {
    /// Whom it cleans up after, and that one's lock.
    instance: Option<(Instance, Option<OwnedFd>)>,
    /// For mounts.
    namespaces: IdNamespaces,
    /// This process's own mounts, to come back to.
    home: Home,
    /// What sandboxes that reach the network hang on.
    router: Option<Router>,
    /// This process's own user namespace, where an ordinary user has a router.
    users: Option<OwnedFd>,
    /// Where no limits are left that nothing is under.
    tidied: Tidied,
}

impl State {
    /// Does what is asked; the answer, where there is one, and what goes beside it.
    fn serve(
        &mut self,
        request: Request,
        descriptors: Vec<OwnedFd>,
    ) -> Option<(Reply, Vec<OwnedFd>)> {
        match request {
            Request::Instance(told) => {
                self.know(told, descriptors);
                None
            }
            Request::Router(wanted) => Some(self.make_router(&wanted)),
            Request::Create(create) => {
                let number = create.number;
                let router = self.router.as_mut();
                let outcome = spawn::spawn(*create, descriptors, &mut self.namespaces, router);
                Some(match outcome {
                    Ok((pidfd, mounts)) => {
                        let mut handed = vec![pidfd];
                        handed.extend(mounts);
                        (Reply::Cloned { number }, handed)
                    }
                    Err(spawn::Unmade { failure, child }) => (
                        Reply::Failed { number, failure },
                        child.into_iter().collect(),
                    ),
                })
            }
            Request::Assign(wanted) => {
                let number = wanted.number;
                let Self {
                    namespaces, home, ..
                } = self;
                let reply = match assign::assign(&wanted, descriptors, namespaces, home) {
                    Ok(()) => Reply::Assigned { number },
                    Err(failure) => Reply::Failed { number, failure },
                };
                Some((reply, Vec::new()))
            }
            Request::Join(wanted) => {
                let number = wanted.number;
                let reply = match join::join(&wanted, self.router.as_mut()) {
                    Ok(()) => Reply::Joined { number },
                    Err(failure) => Reply::Failed { number, failure },
                };
                Some((reply, Vec::new()))
            }
            Request::Quota(wanted) => {
                let number = wanted.number;
                let reply = match quota::quota(&wanted, descriptors, &mut self.tidied) {
                    Ok(()) => Reply::Limited { number },
                    Err(failure) => Reply::Failed { number, failure },
                };
                Some((reply, Vec::new()))
            }
        }
    }

    /// Takes over from an earlier launcher, or begins.
    fn know(&mut self, told: Instance, descriptors: Vec<OwnedFd>) {
        let mut descriptors = descriptors.into_iter();
        let lock = descriptors.next();
        if let (Some(nft), Some(inside), Some(namespace)) =
            (&told.router, descriptors.next(), descriptors.next())
        {
            self.users = descriptors.next();
            let on_host = told.host_rules.as_ref();
            let on_host = on_host.map(|rules| OnHost::of(&rules.table, &told.scratch));
            let entered = self.users.as_ref().map_or(Ok(()), router::enter_users);
            // Without it a sandbox that needs the router is refused, and the daemon has another one made.
            self.router = entered
                .and_then(|()| Router::adopt(nft.clone(), on_host, inside, namespace))
                .ok();
        }
        self.instance = Some((told, lock));
    }

    fn make_router(&mut self, wanted: &MakeRouter) -> (Reply, Vec<OwnedFd>) {
        let number = wanted.number;
        if let (Some((instance, _)), Uplink::Host { table }) =
            (&mut self.instance, &wanted.router.uplink)
        {
            // Noted first: a table that is only half of a failed attempt goes too.
            instance.host_rules = Some(HostRules {
                nft: wanted.router.nft.clone(),
                table: table.clone(),
            });
        }
        if let Some(former) = self.router.take() {
            former.end();
        }
        match router::make(&wanted.router, &mut self.users) {
            Ok(made) => {
                self.router = Some(made.router);
                (Reply::Routed { number }, made.handed)
            }
            Err(failure) => (Reply::Failed { number, failure }, Vec::new()),
        }
    }

    /// The daemon is gone: so goes what it left.
    fn end(self) {
        if let Some((instance, lock)) = self.instance {
            if let Some(router) = self.router {
                router.end();
            }
            remains::remove_instance(&instance);
            // Only now may another daemon think that nobody cares for this instance.
            drop(lock);
        }
    }
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

fn answer(socket: BorrowedFd<'_>, reply: &Reply, handed: &[OwnedFd]) -> Result<(), Errno> {
    let bytes = wire::encode(reply).map_err(|_| Errno::MSGSIZE)?;
    let descriptors: Vec<BorrowedFd<'_>> = handed.iter().map(AsFd::as_fd).collect();
    send(socket, &bytes, &descriptors)
}
