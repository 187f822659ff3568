//! The launcher, seen from the daemon: started from the embedded file, asked over a socket, started again if it is lost.
//!
//! One task reads its answers and hands each to whoever asked. When the launcher ends, every waiting question is
//! answered with that, and the next question starts another launcher: it holds nothing that a running sandbox needs.

use super::program_file::ProgramFile;
use super::{ending, sys};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use sandboxd_jail::network::{HostRules, Router};
use sandboxd_jail::plan::{Owners, Plan};
use sandboxd_jail::projects::Most;
use sandboxd_jail::report::Failure;
use sandboxd_jail::wire::{
    self, Assign, Create, DESCRIPTORS_MAX, Instance, Join, MakeRouter, Quota, Reply, Request, Tie,
    WireError,
};
use std::collections::HashMap;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Longest answer in bytes: a failure with its path.
const REPLY_BYTES_MAX: usize = 8 * 1024;
/// How long a launcher that was told to end may take: it removes what is left of this instance.
const END_WAIT: Duration = Duration::from_secs(15);

/// How long a router may take: rules are loaded, and a process may have to start.
const ROUTER_WAIT: Duration = Duration::from_secs(25);

/// Why a plan got no child.
#[derive(Debug, thiserror::Error)]
pub(in crate::backends) enum LaunchError {
    /// The launcher cannot be started.
    #[error("the launcher does not start: {0}")]
    Start(std::io::Error),
    /// It ended before it answered.
    #[error("the launcher ended before it answered")]
    Lost,
    /// The plan is too long.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// It is still busy.
    #[error("the launcher has not answered within {} s", ROUTER_WAIT.as_secs())]
    Slow,
    /// It said why.
    #[error("{failure}")]
    Failed {
        /// Why.
        failure: Failure,
        /// A child that is to be reaped.
        child: Option<OwnedFd>,
    },
    /// The socket.
    #[error("the launcher's socket: {0}")]
    Socket(#[from] std::io::Error),
}

/// A child that was cloned.
#[derive(Debug)]
pub(super) struct Child {
    /// Its pidfd.
    pub(super) pidfd: OwnedFd,
    /// Its mount namespace, where its workspace comes later.
    pub(super) mounts: Option<OwnedFd>,
}

/// The descriptors beside an answer, or why there are none.
type Answer = Result<Vec<OwnedFd>, LaunchError>;
type Waiting = Arc<Mutex<Option<HashMap<u64, oneshot::Sender<Answer>>>>>;

/// The launcher that runs now, and how to start another.
#[derive(Debug)]
pub(in crate::backends) struct Launcher {
    program: ProgramFile,
    instance: Instance,
    /// Kept open by the launcher too, so that the instance counts as alive while it still cleans up.
    lock: OwnedFd,
    /// The router, for the next launcher; held only while it is looked at.
    kept: Mutex<Kept>,
    numbers: AtomicU64,
    /// Locked while one is started; never over an answer.
    current: tokio::sync::Mutex<Option<Arc<Process>>>,
}

/// What one launcher made and the next takes over.
#[derive(Debug, Default)]
struct Kept {
    /// What is to be taken off the host at the end.
    host_rules: Option<HostRules>,
    /// The program that loads rules, where there is a router.
    nft: Option<String>,
    /// A socket in the router, the router, and the user namespace of launchers where they have one.
    descriptors: Vec<OwnedFd>,
}

#[derive(Debug)]
struct Process {
    socket: Arc<AsyncFd<OwnedFd>>,
    waiting: Waiting,
    /// Reads answers; ends with the socket, and is ended with the process.
    reader: JoinHandle<()>,
    child: Mutex<std::process::Child>,
}

impl Launcher {
    /// Knows how to start one, and starts none yet.
    pub(in crate::backends) fn new(
        program: ProgramFile,
        instance: Instance,
        lock: OwnedFd,
    ) -> Self {
        Self {
            program,
            instance,
            lock,
            kept: Mutex::new(Kept::default()),
            numbers: AtomicU64::new(1),
            current: tokio::sync::Mutex::new(None),
        }
    }

    /// Starts one if none runs.
    pub(super) async fn start(&self) -> Result<(), LaunchError> {
        self.process().await.map(drop)
    }

    /// A child for a plan. Where it parks its workspace comes later.
    pub(super) async fn launch(
        &self,
        plan: Plan,
        parks: bool,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Child, LaunchError> {
        let number = self.number();
        let request = Request::Create(Box::new(Create {
            number,
            plan,
            parks,
        }));
        let answer = self.ask(number, &request, descriptors).await?;
        let mut answer = answer.into_iter();
        let pidfd = answer.next().ok_or(LaunchError::Lost)?;
        let mounts = answer.next();
        Ok(Child { pidfd, mounts })
    }

    /// Mounts a workspace at a directory of a sandbox that was parked without one.
    pub(super) async fn assign(
        &self,
        mounts: &OwnedFd,
        workspace: &OwnedFd,
        at: &str,
        owners: Owners,
    ) -> Result<(), LaunchError> {
        let number = self.number();
        let request = Request::Assign(Box::new(Assign {
            number,
            at: at.to_owned(),
            owners,
        }));
        let descriptors = [mounts.as_fd(), workspace.as_fd()];
        self.ask(number, &request, &descriptors).await.map(drop)
    }

    /// Limits what the files of a project store on the file system of a directory. A number that is taken for it is given to
    /// the directory.
    pub(super) async fn limit(
        &self,
        lock: &OwnedFd,
        directory: &OwnedFd,
        tie: Tie,
        most: Most,
    ) -> Result<(), LaunchError> {
        let number = self.number();
        let request = Request::Quota(Box::new(Quota {
            number,
            tie,
            bytes: most.bytes,
            files: most.files,
        }));
        let descriptors = [lock.as_fd(), directory.as_fd()];
        self.ask(number, &request, &descriptors).await.map(drop)
    }

    /// A router, which stays for as long as this lives. The answer is the lifeline of its uplink, where that is a process.
    pub(super) async fn route(
        &self,
        router: Router,
        host_rules: Option<HostRules>,
    ) -> Result<Option<OwnedFd>, LaunchError> {
        lock(&self.kept).host_rules = host_rules;
        let number = self.number();
        let nft = router.nft.clone();
        let request = Request::Router(Box::new(MakeRouter { number, router }));
        let asked = self.ask(number, &request, &[]);
        let answer = tokio::time::timeout(ROUTER_WAIT, asked).await;
        let mut descriptors = answer.map_err(|_| LaunchError::Slow)??;
        if descriptors.len() < 2 {
            return Err(LaunchError::Lost);
        }
        let mut others = descriptors.split_off(2).into_iter();
        let lifeline = others.next();
        descriptors.extend(others);
        let mut kept = lock(&self.kept);
        kept.nft = Some(nft);
        kept.descriptors = descriptors;
        Ok(lifeline)
    }

    /// Joins a container that runs to the router: its first process, the engine's id for it, and what its address is made
    /// from.
    pub(in crate::backends) async fn join(
        &self,
        pid: i32,
        container: &str,
        address: u16,
    ) -> Result<(), LaunchError> {
        let number = self.number();
        let request = Request::Join(Join {
            number,
            pid,
            mark: container.to_owned(),
            address,
        });
        let asked = self.ask(number, &request, &[]);
        let answer = tokio::time::timeout(ROUTER_WAIT, asked).await;
        answer.map_err(|_| LaunchError::Slow)?.map(drop)
    }

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    async fn ask(&self, number: u64, request: &Request, descriptors: &[BorrowedFd<'_>]) -> Answer {
        let bytes = wire::encode(request)?;
        let process = self.process().await?;
        let (sender, receiver) = oneshot::channel();
        match &mut *lock(&process.waiting) {
            Some(waiting) => waiting.insert(number, sender),
            None => return Err(LaunchError::Lost),
        };
        if let Err(error) = send(&process.socket, &bytes, descriptors).await {
            if let Some(waiting) = &mut *lock(&process.waiting) {
                waiting.remove(&number);
            }
            return Err(error.into());
        }
        receiver.await.unwrap_or(Err(LaunchError::Lost))
    }

    async fn process(&self) -> Result<Arc<Process>, LaunchError> {
        let mut current = self.current.lock().await;
        if let Some(process) = &*current {
            if lock(&process.waiting).is_some() {
                return Ok(Arc::clone(process));
            }
            tracing::warn!("the launcher has ended; another is started");
            process.reap();
        }
        let process = Arc::new(self.begin().await?);
        *current = Some(Arc::clone(&process));
        Ok(process)
    }

    async fn begin(&self) -> Result<Process, LaunchError> {
        let (ours, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(std::io::Error::from)?;
        rustix::io::ioctl_fionbio(&ours, true).map_err(std::io::Error::from)?;
        let child = Command::new(self.program.path())
            .arg0("sandboxd-jail")
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .map_err(LaunchError::Start)?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        let socket = Arc::new(sys::watch(ours, interest)?);
        let (hello, descriptors) = self.hello()?;
        let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
        send(&socket, &hello, &descriptors).await?;
        let waiting: Waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        let reader = tokio::spawn(read(Arc::clone(&socket), Arc::clone(&waiting)));
        Ok(Process {
            socket,
            waiting,
            reader,
            child: Mutex::new(child),
        })
    }

    /// What a new launcher has to know, and has to hold.
    fn hello(&self) -> Result<(Vec<u8>, Vec<OwnedFd>), LaunchError> {
        let mut instance = self.instance.clone();
        let mut descriptors = vec![self.lock.try_clone()?];
        {
            let kept = lock(&self.kept);
            instance.host_rules.clone_from(&kept.host_rules);
            instance.router.clone_from(&kept.nft);
            for descriptor in &kept.descriptors {
                descriptors.push(descriptor.try_clone()?);
            }
        }
        Ok((wire::encode(&Request::Instance(instance))?, descriptors))
    }

    /// Lets the launcher end, which removes what is left of this instance, and waits for it.
    pub(in crate::backends) async fn end(&self) {
        let Some(process) = self.current.lock().await.take() else {
            return;
        };
        let _ = rustix::net::shutdown(process.socket.get_ref(), rustix::net::Shutdown::Both);
        process.reader.abort();
        let ended = tokio::task::spawn_blocking(move || {
            let deadline = std::time::Instant::now() + END_WAIT;
            while std::time::Instant::now() < deadline {
                if !matches!(lock(&process.child).try_wait(), Ok(None)) {
                    return true;
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            false
        });
        if !ended.await.unwrap_or(false) {
            tracing::warn!("the launcher still cleans up; it goes on without us");
        }
    }
}

impl Process {
    fn reap(&self) {
        let _ = lock(&self.child).try_wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads answers until the launcher ends; then nobody is left waiting.
async fn read(socket: Arc<AsyncFd<OwnedFd>>, waiting: Waiting) {
    let mut abandoned = tokio::task::JoinSet::new();
    loop {
        let received = socket
            .async_io(Interest::READABLE, |socket| Ok(receive(socket.as_fd())?))
            .await;
        let Ok(Some((reply, mut descriptors))) = received else {
            break;
        };
        let cloned = matches!(reply, Reply::Cloned { .. });
        let (number, answer) = match reply {
            Reply::Cloned { number } if !descriptors.is_empty() => (number, Ok(descriptors)),
            Reply::Cloned { number } => (number, Err(LaunchError::Lost)),
            Reply::Routed { number }
            | Reply::Assigned { number }
            | Reply::Joined { number }
            | Reply::Limited { number } => (number, Ok(descriptors)),
            Reply::Failed { number, failure } => (
                number,
                Err(LaunchError::Failed {
                    failure,
                    child: descriptors.pop(),
                }),
            ),
        };
        let sender = lock(&waiting).as_mut().and_then(|all| all.remove(&number));
        let undelivered = match sender {
            Some(sender) => sender.send(answer).err(),
            None => Some(answer),
        };
        // Whoever asked has given up: the child is nobody's but ours.
        let child = match undelivered {
            Some(Ok(descriptors)) if cloned => descriptors.into_iter().next(),
            Some(Err(LaunchError::Failed { child, .. })) => child,
            _ => None,
        };
        if let Some(pidfd) = child {
            abandoned.spawn(async move {
                if let Err(error) = ending::kill_and_reap(&pidfd).await {
                    tracing::warn!(error, "a process that nobody waited for");
                }
            });
        }
        while abandoned.try_join_next().is_some() {}
    }
    lock(&waiting).take();
}

fn receive(socket: BorrowedFd<'_>) -> Result<Option<(Reply, Vec<OwnedFd>)>, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut buffer = [0_u8; REPLY_BYTES_MAX];
    let message = rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut buffer)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    if message.bytes == 0 {
        return Ok(None);
    }
    let mut descriptors = Vec::new();
    for item in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = item {
            descriptors.extend(received);
        }
    }
    let reply = wire::decode(buffer.get(..message.bytes).unwrap_or_default());
    Ok(Some((reply.map_err(|_| Errno::BADMSG)?, descriptors)))
}

async fn send(
    socket: &AsyncFd<OwnedFd>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> std::io::Result<()> {
    socket
        .async_io(Interest::WRITABLE, |socket| {
            let mut space =
                [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
                return Err(Errno::TOOBIG.into());
            }
            rustix::net::sendmsg(
                socket,
                &[IoSlice::new(bytes)],
                &mut ancillary,
                SendFlags::NOSIGNAL,
            )?;
            Ok(())
        })
        .await
}
