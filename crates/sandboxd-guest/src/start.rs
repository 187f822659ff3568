//! From the exec to the served link, and to the end.

use crate::children::Children;
use crate::guest::House;
use crate::leaf::Leaves;
use crate::limits::{EVENTS_AT_ONCE, REST, SIGNAL_BYTES, TREE_END_MAX, TREE_PAUSE};
use crate::process::Ender;
use crate::sinks::Sinks;
use crate::sys;
use crate::tree::Proc;
use crate::work_dir;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::process::{DumpableBehavior, Signal, set_child_subreaper, set_dumpable_behavior};
use sandboxd_protocol::client::{Duplex, LinkError};
use sandboxd_protocol::server::serve;
use std::collections::HashSet;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::sync::Arc;
use std::time::Instant;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The descriptor that the link is inherited as.
const LINK: i32 = 3;

/// Why the guest ended other than with its link.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error("{0}: unknown or malformed argument")]
    Argument(String),
    #[error("descriptor {LINK} is no connected socket")]
    NoLink,
    #[error("stdin and stdout cannot be a link: {0}")]
    NoStdio(io::Error),
    #[error("{what}: {cause}")]
    System {
        what: &'static str,
        cause: io::Error,
    },
    #[error("the link: {0}")]
    Link(#[from] LinkError),
    #[error("a run got out of hand, and the sandbox ends with it")]
    Lost,
}

/// What the command line says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Arguments {
    cgroup: Option<i32>,
    work_dir: Option<Vec<u8>>,
    user: Option<(u32, u32)>,
    plain_modes: bool,
    /// Whether the work directory is made at the first start.
    make_work_dir: bool,
    /// The link is stdin and stdout, and no launcher has put anything else in order.
    stdio: bool,
}

/// What the link is made of.
enum Ends {
    /// One socket.
    Socket(OwnedFd),
    /// Where it is read, and where it is written.
    Pipes(OwnedFd, OwnedFd),
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> StartError {
    move |cause| StartError::System { what, cause }
}

/// Runs the guest until its link ends. `words` is its command line without its name.
pub(crate) fn start(words: Vec<Vec<u8>>) -> Result<(), StartError> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|error| system("making itself untraceable")(error.into()))?;
    sys::settle_signals();
    let arguments = arguments(words)?;
    let (link, cgroup) = if arguments.stdio {
        (standard_streams()?, None)
    } else {
        inherited(&arguments)?
    };
    occupy_standard_streams().map_err(system("opening /dev/null"))?;
    if let Some(path) = arguments
        .work_dir
        .as_ref()
        .filter(|_| arguments.make_work_dir)
    {
        let owner = arguments.user.unwrap_or((0, 0));
        work_dir::make_once(path, owner).map_err(system("making the work directory"))?;
    }
    let is_init = std::process::id() == 1;
    if !is_init {
        // What a run leaves behind comes here, and is ended with the guest.
        set_child_subreaper(rustix::process::Pid::from_raw(1))
            .map_err(|error| system("becoming a subreaper")(error.into()))?;
    }
    let house = Arc::new(House {
        is_init,
        env: std::env::vars_os()
            .map(|(name, value)| (name.into_vec(), value.into_vec()))
            .collect(),
        work_dir: arguments.work_dir.unwrap_or_else(|| b"/".to_vec()),
        user: arguments.user,
        deny_clone3: cgroup.is_some() && sys::has_clone3(),
        deny_openat2: arguments.plain_modes,
        ender: ender(cgroup)?,
        children: Children::default(),
        sinks: Sinks::default(),
        lost: CancellationToken::new(),
        worked: Notify::new(),
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_io_events_per_tick(EVENTS_AT_ONCE)
        .build()
        .map_err(system("starting"))?;
    let ended = runtime.block_on(live(link, house));
    if !is_init {
        end_descendants();
    }
    ended
}

/// The link and the cgroup directory that a launcher hands over.
fn inherited(arguments: &Arguments) -> Result<(Ends, Option<OwnedFd>), StartError> {
    let link = sys::inherited(LINK).ok_or(StartError::NoLink)?;
    let cgroup = arguments.cgroup.map(|number| {
        let missing = || StartError::Argument(format!("--cgroup-fd={number}"));
        sys::inherited(number).ok_or_else(missing)
    });
    let cgroup = cgroup.transpose()?;
    for descriptor in [Some(&link), cgroup.as_ref()].into_iter().flatten() {
        rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::CLOEXEC)
            .map_err(|error| system("closing descriptors on exec")(error.into()))?;
    }
    Ok((Ends::Socket(link), cgroup))
}

/// Stdin and stdout as the link, where a container engine starts the guest; stderr stays, for the engine's client reads
/// that. Whatever else the engine left open is closed.
fn standard_streams() -> Result<Ends, StartError> {
    sys::close_but_standard_streams().map_err(system("closing descriptors"))?;
    let away = |stream| {
        let copy = rustix::io::fcntl_dupfd_cloexec(stream, LINK)?;
        let flags = rustix::fs::fcntl_getfl(&copy)?;
        rustix::fs::fcntl_setfl(&copy, flags | OFlags::NONBLOCK)?;
        Ok::<_, rustix::io::Errno>(copy)
    };
    let unusable = |error: rustix::io::Errno| StartError::NoStdio(error.into());
    let (read, write) = (
        away(rustix::stdio::stdin()).map_err(unusable)?,
        away(rustix::stdio::stdout()).map_err(unusable)?,
    );
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| system("opening /dev/null")(error.into()))?;
    rustix::stdio::dup2_stdin(&null).map_err(unusable)?;
    rustix::stdio::dup2_stdout(&null).map_err(unusable)?;
    Ok(Ends::Pipes(read, write))
}

/// Either kind of link, as one stream.
fn stream(ends: Ends) -> Result<Box<dyn Duplex>, StartError> {
    match ends {
        Ends::Socket(link) => {
            let link = std::os::unix::net::UnixStream::from(link);
            link.peer_addr().map_err(|_| StartError::NoLink)?;
            link.set_nonblocking(true).map_err(system("the link"))?;
            let link = UnixStream::from_std(link).map_err(system("the link"))?;
            Ok(Box::new(link))
        }
        Ends::Pipes(read, write) => {
            // An engine may give sockets as well as pipes: both are read and written alike.
            let read = pipe::Receiver::from_owned_fd_unchecked(read);
            let write = pipe::Sender::from_owned_fd_unchecked(write);
            let joined = tokio::io::join(
                read.map_err(StartError::NoStdio)?,
                write.map_err(StartError::NoStdio)?,
            );
            Ok(Box::new(joined))
        }
    }
}

/// Serves the link and reaps, until the link ends or the sandbox is lost.
async fn live(link: Ends, house: Arc<House>) -> Result<(), StartError> {
    let link = stream(link)?;
    let ended = sys::child_signals().map_err(system("SIGCHLD"))?;
    let reap = async {
        while let Ok(mut ready) = ended.readable().await {
            let mut signals = [0; SIGNAL_BYTES];
            while rustix::io::read(&ended, &mut signals).is_ok() {}
            ready.clear_ready();
            house.children.reap();
        }
    };
    let rest = async {
        loop {
            house.worked.notified().await;
            tokio::time::sleep(REST).await;
            sys::give_back_memory();
        }
    };
    tokio::select! {
        served = serve(link, house.clone()) => Ok(served?),
        () = house.lost.cancelled() => Err(StartError::Lost),
        () = reap => Ok(()),
        () = rest => Ok(()),
    }
}

/// The way this guest ends trees: cgroups where it was given a directory and may be born into one, else keepers.
fn ender(cgroup: Option<OwnedFd>) -> Result<Ender, StartError> {
    if let Some(directory) = cgroup
        && sys::has_clone3()
        && let Ok(leaves) = Leaves::open(directory)
    {
        return Ok(Ender::Cgroup(leaves));
    }
    Proc::open().map(Ender::Keeper).map_err(system("/proc"))
}

/// Descriptors 0 to 2 must be something, or a pipe could get one of their numbers.
fn occupy_standard_streams() -> io::Result<()> {
    loop {
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        if null.as_raw_fd() > 2 {
            return Ok(());
        }
        // Kept for good.
        std::mem::forget(null);
    }
}

/// Without a PID namespace of its own, the guest ends by hand what it leaves behind.
fn end_descendants() {
    let Ok(proc) = Proc::open() else { return };
    let me = i32::try_from(std::process::id()).unwrap_or(0);
    let end = Instant::now() + TREE_END_MAX;
    let mut seen = HashSet::new();
    while Instant::now() < end {
        let look = proc.signal_below(me, Signal::STOP, &mut seen);
        if look.alive == 0 {
            return;
        }
        if look.new == 0 {
            proc.signal_below(me, Signal::KILL, &mut seen);
        }
        while let Ok(Some(_)) = rustix::process::wait(rustix::process::WaitOptions::NOHANG) {}
        std::thread::sleep(TREE_PAUSE);
    }
}

fn arguments(words: impl IntoIterator<Item = Vec<u8>>) -> Result<Arguments, StartError> {
    let mut arguments = Arguments::default();
    for word in words {
        let malformed = || StartError::Argument(String::from_utf8_lossy(&word).into_owned());
        let equals = word.iter().position(|byte| *byte == b'=');
        let (name, value) = word.split_at(equals.ok_or_else(malformed)?);
        let value = &value[1..];
        let text = || std::str::from_utf8(value).map_err(|_| malformed());
        match name {
            b"--cgroup-fd" => {
                let number: i32 = text()?.parse().map_err(|_| malformed())?;
                if number <= LINK {
                    return Err(malformed());
                }
                arguments.cgroup = Some(number);
            }
            b"--work-dir" if value.starts_with(b"/") => arguments.work_dir = Some(value.to_vec()),
            b"--plain-modes" if value == b"yes" => arguments.plain_modes = true,
            b"--make-work-dir" if value == b"yes" => arguments.make_work_dir = true,
            b"--link" if value == b"stdio" => arguments.stdio = true,
            b"--user" => arguments.user = Some(user(text()?).ok_or_else(malformed)?),
            _ => return Err(malformed()),
        }
    }
    if arguments.stdio && arguments.cgroup.is_some() {
        // Nothing but the three streams is inherited then.
        return Err(StartError::Argument("--cgroup-fd".to_owned()));
    }
    Ok(arguments)
}

/// A uid and a gid, with a colon between them; the uid alone stands for both.
fn user(text: &str) -> Option<(u32, u32)> {
    let (uid, gid) = text.split_once(':').unwrap_or((text, text));
    Some((uid.parse().ok()?, gid.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Option<Arguments> {
        arguments(words.iter().map(|word| word.as_bytes().to_vec())).ok()
    }

    #[test]
    fn arguments_are_optional_and_unknown_ones_refused() {
        assert_eq!(parse(&[]), Some(Arguments::default()));
        let all = parse(&[
            "--cgroup-fd=4",
            "--work-dir=/w",
            "--user=1000:50",
            "--plain-modes=yes",
            "--make-work-dir=yes",
        ]);
        let expected = Arguments {
            cgroup: Some(4),
            work_dir: Some(b"/w".to_vec()),
            user: Some((1000, 50)),
            plain_modes: true,
            make_work_dir: true,
            stdio: false,
        };
        assert_eq!(all, Some(expected));
        assert!(parse(&["--link=stdio"]).is_some_and(|parsed| parsed.stdio));
        assert_eq!(parse(&["--link=stdio", "--cgroup-fd=4"]), None);
        for wrong in [
            "--cgroup-fd=3",
            "--work-dir=w",
            "--user=x",
            "--user=1:",
            "--user=:1",
            "--other=1",
            "--make-work-dir=no",
            "--link=tcp",
            "x",
        ] {
            assert_eq!(parse(&[wrong]), None, "{wrong}");
        }
    }
}
