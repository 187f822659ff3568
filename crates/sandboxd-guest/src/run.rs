//! One run, from its request to its terminal word.
//!
//! Three things go on side by side, and none may hold up another: the *pump* carries output and may wait for the daemon
//! to read; the *feed* carries stdin and may wait for the program to read; the *watch* listens for the exit, the deadline
//! and the daemon, and ends the tree. When the program has exited by itself, the run is over: what is in the pipes is
//! still delivered, and programs in the background that hold them open do not hold the answer back.

use crate::guest::House;
use crate::limits::{
    DRAIN_BYTES_MAX, DRAIN_GRACE, LAST_WORD_MAX, PLACES_FREE_MAX, STOP_GRACE, STREAM_READ_BYTES,
    TREE_PAUSE,
};
use crate::process::{Lost, Process, StartError};
use crate::room;
use crate::spawn;
use crate::sys::Plan;
use bytes::Bytes;
use rustix::fs::{Mode, OFlags};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;
use sandboxd_protocol::limits::STDIN_WINDOW_BYTES;
use sandboxd_protocol::message::{Ended, Exit, NotStarted, OutputLimit, Run, RunControl};
use sandboxd_protocol::server::{Command, Commands, LetGo, Reports};
use std::io;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// Carries out one run.
pub(crate) async fn carry_out(
    house: &House,
    run: Run,
    mut commands: Commands,
    mut reports: Reports,
) {
    let deadline = run
        .timeout_millis
        .and_then(|millis| Instant::now().checked_add(Duration::from_millis(millis)));
    let kills_before = house.ender.memory_kills();
    let (mut process, streams) = match start_with_room(house, &run).await {
        Ok(started) => started,
        Err(Refusal::NotStarted(why)) => {
            let _ = reports.not_started(why).await;
            return;
        }
        Err(Refusal::Lost) => return house.give_up(),
    };
    drop(run.argv);
    drop(run.env);
    let between = Between::default();
    let (feed_in, feed_out) = mpsc::unbounded_channel();
    let watch = Watch {
        house,
        process: &mut process,
        commands: &mut commands,
        feed: Some(feed_in),
        between: &between,
        deadline,
    };
    let pump = Pump {
        stdout: Some(streams.stdout),
        stderr: Some(streams.stderr),
        reports: &mut reports,
        between: &between,
        limit: run.output,
        told: 0,
        discarded: 0,
        buffer: Vec::new(),
    };
    let both = async { tokio::join!(watch.follow(), pump.carry()) };
    let feed = async {
        feed(streams.stdin, feed_out, &between).await;
        std::future::pending::<()>().await;
    };
    let (watched, pumped) = tokio::select! {
        both = both => both,
        () = feed => unreachable!("a feed goes on until its run is over"),
    };
    match watched {
        Err(Lost) => house.give_up(),
        Ok(None) => process.release(&house.ender),
        Ok(Some((status, ended))) => {
            let killed_for_memory = house.ender.memory_kills() > kills_before;
            let mut exit = exit(status, ended, pumped.discarded, killed_for_memory);
            if exit.ended == Ended::Itself && exit.code != 0 && room::is_used_up(&house.work_dir) {
                exit.ended = Ended::Disk;
            }
            let failed_by_itself = ended == Ended::Itself && exit.code != 0;
            // A keeper goes before the answer: whoever has that sees no process of ours. A leaf can wait.
            if !failed_by_itself && process.has_keeper() {
                process.release(&house.ender);
            }
            let told = reports.exited(exit).await;
            if failed_by_itself {
                let rest = match told {
                    Ok(()) => last_word(&mut commands).await,
                    Err(_) => Rest::Kept,
                };
                if rest != Rest::Kept && process.end_tree(&house.ender).await.is_err() {
                    return house.give_up();
                }
                process.release(&house.ender);
                if rest == Rest::EndedWithOthers {
                    // What does not end in time goes on, as before.
                    let _ = house.ender.end_leftovers(&house.children).await;
                }
            } else if !process.has_keeper() {
                // The link's turn first: that is where the answer is.
                tokio::task::yield_now().await;
                process.release(&house.ender);
            }
        }
    }
    for stream in pumped.left {
        house.sinks.take(stream);
    }
    house.ender.make_ready();
}

/// What becomes of what a failed program left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// It lives on.
    Kept,
    /// It is ended.
    Ended,
    /// It is ended, and what earlier runs left behind as well.
    EndedWithOthers,
}

/// The daemon's last word on a run whose program has failed: it knows of limits that only the host counts, and what a
/// program leaves behind that failed for one of them was not left on purpose. A kill ends that; a stop before it, what
/// earlier runs left as well, where that is what took the places. Letting the run go ends nothing.
async fn last_word(commands: &mut Commands) -> Rest {
    let word = async {
        let mut rest = Rest::Ended;
        loop {
            match commands.next().await {
                Some(Command::Control(RunControl::Stop)) => rest = Rest::EndedWithOthers,
                Some(Command::Control(RunControl::Kill)) => return rest,
                Some(_) => {}
                None => return Rest::Kept,
            }
        }
    };
    tokio::time::timeout(LAST_WORD_MAX, word)
        .await
        .unwrap_or(Rest::Kept)
}

enum Refusal {
    NotStarted(NotStarted),
    Lost,
}

/// The guest's ends of a program's streams.
struct Streams {
    stdin: Option<Sender>,
    stdout: Receiver,
    stderr: Receiver,
}

/// Starts a program. What earlier runs left behind has no claim to the places of a run that finds none under the process
/// ceiling: it is ended then.
async fn start_with_room(house: &House, run: &Run) -> Result<(Process, Streams), Refusal> {
    let no_place = |refusal: &Refusal| match refusal {
        Refusal::NotStarted(NotStarted::Resources(errno)) => *errno == libc::EAGAIN,
        Refusal::NotStarted(_) | Refusal::Lost => false,
    };
    let mut started = start(house, run);
    if started.as_ref().is_err_and(no_place) && house.ender.end_leftovers(&house.children).await {
        let end = Instant::now() + PLACES_FREE_MAX;
        while started.as_ref().is_err_and(no_place) && Instant::now() < end {
            tokio::time::sleep(TREE_PAUSE).await;
            started = start(house, run);
        }
    }
    started
}

fn start(house: &House, run: &Run) -> Result<(Process, Streams), Refusal> {
    let limit = spawn::granted_bytes();
    let words =
        spawn::words(run, &house.env, &house.work_dir, limit).map_err(Refusal::NotStarted)?;
    let resources = |error: io::Error| {
        let errno = error.raw_os_error().unwrap_or(libc::EMFILE);
        Refusal::NotStarted(NotStarted::Resources(errno))
    };
    let (stdin, streams) = if run.stdin {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| resources(e.into()))?;
        (reader, Some(writer))
    } else {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let null = rustix::fs::open("/dev/null", flags, Mode::empty());
        (null.map_err(|error| resources(error.into()))?, None)
    };
    let (stdout_reader, stdout) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| resources(e.into()))?;
    let (stderr_reader, stderr) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| resources(e.into()))?;
    let streams = Streams {
        stdin: streams
            .map(Sender::from_owned_fd)
            .transpose()
            .map_err(resources)?,
        stdout: Receiver::from_owned_fd(stdout_reader).map_err(resources)?,
        stderr: Receiver::from_owned_fd(stderr_reader).map_err(resources)?,
    };
    let plan = Plan {
        paths: words.paths,
        argv: words.argv,
        env: words.env,
        cwd: words.cwd,
        streams: [stdin, stdout, stderr],
        user: house.user,
        deny_clone3: house.deny_clone3,
        deny_openat2: house.deny_openat2,
    };
    let (bytes, limit) = (words.bytes, words.limit);
    match Process::start(&plan, &house.ender, &house.children) {
        Ok(process) => Ok((process, streams)),
        Err(StartError::Lost) => Err(Refusal::Lost),
        Err(StartError::NotBorn(error)) => Err(Refusal::NotStarted(spawn::not_started(
            error, &plan.cwd, bytes, limit,
        ))),
    }
}

/// What the three tell each other.
#[derive(Default)]
struct Between {
    /// The run is over: no more than what is in the pipes.
    over: CancellationToken,
    /// The daemon let the run go, or the sandbox is lost: nobody is told any more.
    let_go: CancellationToken,
    /// More output than allowed.
    flooded: Notify,
    /// Bytes of stdin taken since the daemon was last told.
    taken: AtomicU32,
    took: Notify,
    /// Bytes of stdin on their way to the program.
    queued: AtomicUsize,
}

impl Between {
    fn take(&self, bytes: usize) {
        self.queued.fetch_sub(bytes, Ordering::Relaxed);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.taken.fetch_add(bytes, Ordering::Relaxed);
        self.took.notify_one();
    }
}

/// Carries stdin. What a program does not want any more is thrown away.
async fn feed(
    mut stdin: Option<Sender>,
    mut from: mpsc::UnboundedReceiver<Bytes>,
    between: &Between,
) {
    while let Some(bytes) = from.recv().await {
        if let Some(pipe) = &mut stdin
            && pipe.write_all(&bytes).await.is_err()
        {
            stdin = None;
        }
        between.take(bytes.len());
    }
}

struct Watch<'a> {
    house: &'a House,
    process: &'a mut Process,
    commands: &'a mut Commands,
    feed: Option<mpsc::UnboundedSender<Bytes>>,
    between: &'a Between,
    deadline: Option<Instant>,
}

impl Watch<'_> {
    /// The program's wait status and who ended the run; nothing when the daemon let it go.
    async fn follow(mut self) -> Result<Option<(i32, Ended)>, Lost> {
        let watched = self.until_over().await;
        if !matches!(watched, Ok(Some(_))) {
            self.between.let_go.cancel();
        }
        self.between.over.cancel();
        watched
    }

    async fn until_over(&mut self) -> Result<Option<(i32, Ended)>, Lost> {
        let mut ended = Ended::Itself;
        let mut kill_at: Option<Instant> = None;
        loop {
            let deadline = self.deadline;
            tokio::select! {
                biased;
                status = self.process.exited() => {
                    let status = status?;
                    if let Some(at) = kill_at {
                        // The rest of the tree has its grace too.
                        let _ = tokio::time::timeout_at(at, self.process.emptied()).await;
                    }
                    if ended != Ended::Itself {
                        self.process.end_tree(&self.house.ender).await?;
                    }
                    return Ok(Some((status, ended)));
                }
                () = at(kill_at) => break,
                () = at(deadline) => {
                    ended = Ended::Timeout;
                    break;
                }
                () = self.between.flooded.notified() => {
                    ended = Ended::Output;
                    break;
                }
                command = self.commands.next() => match command {
                    None => {
                        self.process.end_tree(&self.house.ender).await?;
                        return Ok(None);
                    }
                    Some(Command::Stdin(bytes)) => self.stdin(bytes).await?,
                    Some(Command::Control(RunControl::StdinEnd)) => self.feed = None,
                    Some(Command::Control(RunControl::Stop)) => {
                        ended = Ended::Stopped;
                        if kill_at.is_none() {
                            self.process.signal_group(Signal::TERM);
                            kill_at = Some(Instant::now() + STOP_GRACE);
                        }
                    }
                    Some(Command::Control(RunControl::Kill)) => {
                        ended = Ended::Stopped;
                        break;
                    }
                    Some(Command::Control(RunControl::Signal(number))) => {
                        match Signal::from_named_raw(number) {
                            // As from a terminal: a shell that waits for a program leaves INT to it.
                            Some(signal @ (Signal::INT | Signal::QUIT)) => {
                                self.process.signal_group(signal);
                            }
                            Some(signal) => self.process.signal(signal),
                            None => {}
                        }
                    }
                },
            }
        }
        self.process.end_tree(&self.house.ender).await?;
        Ok(Some((self.process.exited().await?, ended)))
    }

    /// Hands stdin on. A daemon that sends more than was agreed has let the run go.
    async fn stdin(&mut self, bytes: Bytes) -> Result<(), Lost> {
        let queued = self
            .between
            .queued
            .fetch_add(bytes.len(), Ordering::Relaxed)
            + bytes.len();
        let handed = match &self.feed {
            Some(feed) if queued <= STDIN_WINDOW_BYTES => feed.send(bytes).is_ok(),
            Some(_) | None => false,
        };
        if !handed {
            self.feed = None;
        }
        Ok(())
    }
}

/// The moment, or never.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

struct Pump<'a> {
    stdout: Option<Receiver>,
    stderr: Option<Receiver>,
    reports: &'a mut Reports,
    between: &'a Between,
    limit: OutputLimit,
    told: u64,
    discarded: u64,
    buffer: Vec<u8>,
}

/// What a pump leaves behind.
struct Pumped {
    /// Streams that somebody in the background still holds open.
    left: Vec<Receiver>,
    discarded: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    Stdout,
    Stderr,
}

impl Pump<'_> {
    async fn carry(mut self) -> Pumped {
        let between = self.between;
        tokio::select! {
            // Failing means that the daemon has let go: the watch notices it too.
            _ = self.pump() => {}
            () = between.let_go.cancelled() => {}
        }
        let left = [self.stdout.take(), self.stderr.take()];
        Pumped {
            left: left.into_iter().flatten().collect(),
            discarded: self.discarded,
        }
    }

    async fn pump(&mut self) -> Result<(), LetGo> {
        self.reports.started().await?;
        let between = self.between;
        let mut drained_by = None;
        loop {
            if drained_by.is_some() && self.stdout.is_none() && self.stderr.is_none() {
                return Ok(());
            }
            let which = tokio::select! {
                () = readable(self.stdout.as_ref()) => Which::Stdout,
                () = readable(self.stderr.as_ref()) => Which::Stderr,
                () = between.took.notified() => {
                    let taken = between.taken.swap(0, Ordering::Relaxed);
                    self.reports.stdin_taken(taken).await?;
                    continue;
                }
                () = between.over.cancelled(), if drained_by.is_none() => {
                    drained_by = Some(Instant::now() + DRAIN_GRACE);
                    continue;
                }
                () = at(drained_by) => break,
            };
            self.read(which).await?;
        }
        // The grace is over, but what the program itself wrote is in the pipes and no more is waited for.
        for which in [Which::Stdout, Which::Stderr] {
            let mut drained = 0;
            while drained < DRAIN_BYTES_MAX {
                match self.read(which).await? {
                    0 => break,
                    read => drained += read,
                }
            }
        }
        Ok(())
    }

    /// Reads once, without waiting, and tells; the number of bytes.
    async fn read(&mut self, which: Which) -> Result<usize, LetGo> {
        let stream = match which {
            Which::Stdout => &mut self.stdout,
            Which::Stderr => &mut self.stderr,
        };
        let Some(pipe) = stream else {
            return Ok(0);
        };
        self.buffer.resize(STREAM_READ_BYTES, 0);
        let read = match pipe.try_read(&mut self.buffer) {
            Ok(0) => {
                *stream = None;
                return Ok(0);
            }
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(0),
            Err(_) => {
                *stream = None;
                return Ok(0);
            }
        };
        let length = u64::try_from(read).unwrap_or(u64::MAX);
        let room = match self.limit {
            OutputLimit::Unlimited => u64::MAX,
            OutputLimit::Stop(limit) | OutputLimit::Discard(limit) => limit - self.told.min(limit),
        };
        let told = length.min(room);
        self.told += told;
        if told < length {
            match self.limit {
                OutputLimit::Stop(_) => self.between.flooded.notify_one(),
                OutputLimit::Discard(_) | OutputLimit::Unlimited => self.discarded += length - told,
            }
        }
        let bytes = &self.buffer[..usize::try_from(told).unwrap_or(read)];
        if !bytes.is_empty() {
            match which {
                Which::Stdout => self.reports.stdout(bytes).await?,
                Which::Stderr => self.reports.stderr(bytes).await?,
            }
        }
        Ok(read)
    }
}

/// Ready when a stream has bytes or its end; never without one.
async fn readable(stream: Option<&Receiver>) {
    match stream {
        // An error shows when it is read.
        Some(stream) => drop(stream.readable().await),
        None => std::future::pending().await,
    }
}

/// A wait status in the words of the link.
fn exit(status: i32, ended: Ended, discarded_bytes: u64, killed_for_memory: bool) -> Exit {
    let low = |number: i32| u8::try_from(number & 0xff).unwrap_or(u8::MAX);
    let (code, signal) = if libc::WIFSIGNALED(status) {
        let signal = low(libc::WTERMSIG(status));
        (128_u8.wrapping_add(signal), Some(signal))
    } else {
        (low(libc::WEXITSTATUS(status)), None)
    };
    let by_the_kernel = ended == Ended::Itself
        && killed_for_memory
        && signal.is_some_and(|signal| i32::from(signal) == libc::SIGKILL);
    Exit {
        code,
        signal,
        ended: if by_the_kernel { Ended::Memory } else { ended },
        discarded_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_status_becomes_a_shells_code() {
        let itself = |status| exit(status, Ended::Itself, 0, false);
        assert_eq!((itself(0).code, itself(0).signal), (0, None));
        assert_eq!((itself(7 << 8).code, itself(7 << 8).signal), (7, None));
        assert_eq!((itself(9).code, itself(9).signal), (137, Some(9)));
        // A core dump's bit is no part of the signal.
        assert_eq!(
            (itself(0x80 | 11).code, itself(0x80 | 11).signal),
            (139, Some(11))
        );
    }

    #[test]
    fn only_a_kill_that_nobody_asked_for_is_for_memory() {
        assert_eq!(exit(9, Ended::Itself, 0, true).ended, Ended::Memory);
        assert_eq!(exit(9, Ended::Timeout, 0, true).ended, Ended::Timeout);
        assert_eq!(exit(15, Ended::Itself, 0, true).ended, Ended::Itself);
        assert_eq!(exit(9, Ended::Itself, 0, false).ended, Ended::Itself);
    }
}
