//! Our own stdin, stdout and stderr, as bytes. They may be terminals, pipes, files, sockets or nothing, blocking or not,
//! so each direction has one plain thread that blocks; a bounded queue joins it to the run. Neither thread is waited for
//! when we end: a terminal that nobody types on must not hold us.

use crate::limits::{BACKGROUND_PAUSE_MILLIS, CHUNK_BYTES, CHUNKS_QUEUED_MAX};
use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::thread;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Where bytes of the program go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    /// Our stdout.
    Stdout,
    /// Our stderr.
    Stderr,
}

impl Stream {
    /// Its name in messages.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// Why output could not be passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum WriteFailure {
    /// The reader of this stream has gone.
    #[error("the reader of {} went away", .0.name())]
    ReaderGone(Stream),
    /// The system refused (no space left, say).
    #[error("cannot write to {}: {}", .0.name(), std::io::Error::from(*.1))]
    Refused(Stream, Errno),
}

/// Whether there can be anything on our stdin: `/dev/null`, which the runtime also puts in the place of a closed one,
/// has nothing.
pub(super) fn stdin_can_have_bytes() -> bool {
    let null = rustix::fs::stat("/dev/null");
    let stdin = rustix::fs::fstat(io::stdin());
    match (null, stdin) {
        (Ok(null), Ok(stdin)) => stdin.st_rdev != null.st_rdev || stdin.st_mode != null.st_mode,
        (Err(_), Ok(_)) => true,
        (_, Err(_)) => false,
    }
}

/// Reads our stdin until its end. A chunk is what one read gave: from a terminal, a line.
pub(super) fn read_stdin() -> mpsc::Receiver<Bytes> {
    let (sender, receiver) = mpsc::channel(CHUNKS_QUEUED_MAX);
    thread::spawn(move || {
        let stdin = io::stdin();
        let mut buffer = vec![0_u8; CHUNK_BYTES];
        let terminal = rustix::termios::isatty(&stdin);
        loop {
            if terminal {
                wait_for_foreground(stdin.as_fd());
            }
            match rustix::io::read(&stdin, &mut buffer) {
                // Also the end: a terminal that has gone (EIO), a directory in stdin's place.
                Ok(0) => break,
                Ok(count) => {
                    let chunk = Bytes::copy_from_slice(buffer.get(..count).unwrap_or_default());
                    if sender.blocking_send(chunk).is_err() {
                        break;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => wait_for(stdin.as_fd(), PollFlags::IN),
                Err(_) => break,
            }
        }
    });
    receiver
}

/// Passes output on, in the order in which it came.
#[derive(Debug)]
pub(super) struct Writer {
    queue: mpsc::Sender<(Stream, Bytes)>,
    ended: oneshot::Receiver<Result<(), WriteFailure>>,
}

impl Writer {
    /// Starts the thread.
    pub(super) fn start() -> Self {
        let (queue, mut chunks) = mpsc::channel::<(Stream, Bytes)>(CHUNKS_QUEUED_MAX);
        let (end, ended) = oneshot::channel();
        thread::spawn(move || {
            let mut result = Ok(());
            while let Some((stream, bytes)) = chunks.blocking_recv() {
                result = write_all(stream, &bytes);
                if result.is_err() {
                    break;
                }
            }
            // The queue closes before the result is sent, so whoever sees it closed finds the result.
            drop(chunks);
            let _ = end.send(result);
        });
        Self { queue, ended }
    }

    /// Hands bytes over; waits while the reader is slow. False where writing has failed: [`Writer::finish`] says why.
    pub(super) async fn write(&self, stream: Stream, bytes: Bytes) -> bool {
        self.queue.send((stream, bytes)).await.is_ok()
    }

    /// Resolves when writing has failed.
    pub(super) async fn failed(&self) {
        self.queue.closed().await;
    }

    /// Waits until everything is written.
    pub(super) async fn finish(self) -> Result<(), WriteFailure> {
        drop(self.queue);
        self.ended.await.unwrap_or(Ok(()))
    }
}

fn write_all(stream: Stream, mut bytes: &[u8]) -> Result<(), WriteFailure> {
    let (stdout, stderr) = (io::stdout(), io::stderr());
    let descriptor = match stream {
        Stream::Stdout => stdout.as_fd(),
        Stream::Stderr => stderr.as_fd(),
    };
    while !bytes.is_empty() {
        match rustix::io::write(descriptor, bytes) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait_for(descriptor, PollFlags::OUT),
            Err(Errno::PIPE) => return Err(WriteFailure::ReaderGone(stream)),
            Err(errno) => return Err(WriteFailure::Refused(stream, errno)),
        }
    }
    Ok(())
}

/// Waits until a terminal has something to read and is ours to read: a background job that reads is stopped by the
/// kernel, and with it the output of a program that never wanted input.
fn wait_for_foreground(terminal: BorrowedFd<'_>) {
    loop {
        wait_for(terminal, PollFlags::IN);
        match rustix::termios::tcgetpgrp(terminal) {
            Ok(foreground) if foreground != rustix::process::getpgrp() => {
                thread::sleep(Duration::from_millis(BACKGROUND_PAUSE_MILLIS));
            }
            // Also where it cannot be asked: it is then not the terminal that controls us.
            Ok(_) | Err(_) => return,
        }
    }
}

/// Waits on a descriptor that somebody made non-blocking. These threads may wait for ever; nobody waits for them.
fn wait_for(descriptor: BorrowedFd<'_>, flags: PollFlags) {
    let _ = poll(&mut [PollFd::new(&descriptor, flags)], None);
}
