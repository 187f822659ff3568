//! The guest's half of the link: [`serve`] takes substreams off a link, reads what each asks for, and hands it to a
//! [`Guest`].
//!
//! A guest need not be a process in a sandbox; a double in memory is one too. What it does about a run or a file is its
//! own matter, the order of words is kept here.

use crate::channel::Channel;
use crate::client::{Duplex, LinkError};
use crate::frame::{self, Tag};
use crate::limits::{
    BATCH_BYTES, CLOSE_SECONDS_MAX, ENTRIES_PER_BATCH, HELLO_SECONDS_MAX, LINK_BUFFER_BYTES,
    MESSAGE_BYTES_MAX, STDIN_WINDOW_BYTES,
};
use crate::link;
use crate::message::{
    Entry, Exit, FileAnswer, FileError, FileRequest, GENERATION, NotStarted, Request, Run,
    RunControl, RunEvent, TreeEnd, Welcome, WriteControl,
};
use crate::substream::{Broken, FrameReader, FrameWriter, Hold, halves};
use async_trait::async_trait;
use bytes::Bytes;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use yamux::{Mode, Stream};

/// What runs programs and touches files inside a sandbox. Each call is one substream, in a task of its own; it is over
/// when the call returns, and the call is dropped when the link ends.
#[async_trait]
pub trait Guest: Send + Sync + 'static {
    /// Whether this guest is PID 1 of its PID namespace.
    fn is_init(&self) -> bool;
    /// How it ends the process tree of a run.
    fn tree_end(&self) -> TreeEnd;
    /// The daemon has been answered, and has asked for nothing yet.
    fn greeted(&self) {}
    /// Starts and follows one run, to its terminal event. [`Commands::next`] answering `None` means that the daemon let
    /// the run go: its whole tree must end.
    async fn run(&self, run: Run, commands: Commands, reports: Reports);
    /// One file operation, to its terminal answer.
    async fn file(&self, request: FileRequest, exchange: FileExchange);
    /// Connects to a TCP port on the loopback.
    ///
    /// # Errors
    /// [`FileError::Os`] with what connect(2) said.
    async fn dial(&self, port: u16) -> Result<Box<dyn Duplex>, FileError>;
}

/// The daemon let the substream go: nobody listens any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the daemon let go")]
pub struct LetGo;

impl From<Broken> for LetGo {
    fn from(_: Broken) -> Self {
        Self
    }
}

/// What the daemon says during a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Bytes for stdin. Never more than [`STDIN_WINDOW_BYTES`] that were not reported by [`Reports::stdin_taken`].
    Stdin(Bytes),
    /// Anything else.
    Control(RunControl),
}

/// The daemon's words during a run, in order. Always be listening: this is also how its going away is noticed.
pub struct Commands {
    reader: FrameReader,
    _hold: Arc<Hold>,
}

impl fmt::Debug for Commands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Commands").finish_non_exhaustive()
    }
}

impl Commands {
    /// The next word; `None` when the daemon let the run go, also by talking nonsense. Cancelling the wait loses nothing.
    pub async fn next(&mut self) -> Option<Command> {
        let frame = self.reader.next().await.ok().flatten()?;
        match frame.tag {
            Tag::Content if frame.payload.len() <= STDIN_WINDOW_BYTES => {
                Some(Command::Stdin(frame.payload))
            }
            Tag::Message => frame::message(&frame.payload).ok().map(Command::Control),
            Tag::Content | Tag::Stdout | Tag::Stderr => None,
        }
    }
}

/// What the guest says during a run. A cancelled report may or may not have been sent, but never in part.
pub struct Reports {
    writer: FrameWriter,
    _hold: Arc<Hold>,
}

impl fmt::Debug for Reports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reports").finish_non_exhaustive()
    }
}

impl Reports {
    /// The program runs. First.
    ///
    /// # Errors
    /// [`LetGo`], as of every other report.
    pub async fn started(&mut self) -> Result<(), LetGo> {
        Ok(self.writer.message(&RunEvent::Started).await?)
    }

    /// The program could not be started. First and last.
    ///
    /// # Errors
    /// [`LetGo`].
    pub async fn not_started(&mut self, why: NotStarted) -> Result<(), LetGo> {
        Ok(self.writer.message(&RunEvent::NotStarted(why)).await?)
    }

    /// Bytes from stdout; waits while the daemon does not read.
    ///
    /// # Errors
    /// [`LetGo`].
    pub async fn stdout(&mut self, bytes: &[u8]) -> Result<(), LetGo> {
        Ok(self.writer.raw(Tag::Stdout, bytes).await?)
    }

    /// Bytes from stderr; waits while the daemon does not read.
    ///
    /// # Errors
    /// [`LetGo`].
    pub async fn stderr(&mut self, bytes: &[u8]) -> Result<(), LetGo> {
        Ok(self.writer.raw(Tag::Stderr, bytes).await?)
    }

    /// As many bytes of stdin were read by the program, or thrown away: the daemon may send as many more.
    ///
    /// # Errors
    /// [`LetGo`].
    pub async fn stdin_taken(&mut self, bytes: u32) -> Result<(), LetGo> {
        Ok(self.writer.message(&RunEvent::StdinTaken(bytes)).await?)
    }

    /// The run is over. Last.
    ///
    /// # Errors
    /// [`LetGo`].
    pub async fn exited(&mut self, exit: Exit) -> Result<(), LetGo> {
        Ok(self.writer.message(&RunEvent::Exited(exit)).await?)
    }
}

/// One file operation's conversation.
pub struct FileExchange {
    reader: FrameReader,
    writer: FrameWriter,
    _hold: Arc<Hold>,
}

impl fmt::Debug for FileExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileExchange").finish_non_exhaustive()
    }
}

impl FileExchange {
    /// Answers.
    ///
    /// # Errors
    /// [`LetGo`].
    pub async fn answer(&mut self, answer: FileAnswer) -> Result<(), LetGo> {
        Ok(self.writer.message(&answer).await?)
    }

    /// Answers with a directory's entries, in batches.
    ///
    /// # Errors
    /// [`LetGo`].
    pub async fn entries(&mut self, entries: Vec<Entry>) -> Result<(), LetGo> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        let mut rest = entries.into_iter().peekable();
        while let Some(entry) = rest.next() {
            bytes += entry.name.len() + entry.target.as_ref().map_or(0, Vec::len);
            batch.push(entry);
            let full = batch.len() == ENTRIES_PER_BATCH || bytes >= BATCH_BYTES;
            if full && rest.peek().is_some() {
                let entries = std::mem::take(&mut batch);
                bytes = 0;
                self.answer(FileAnswer::Entries {
                    entries,
                    more: true,
                })
                .await?;
            }
        }
        self.answer(FileAnswer::Entries {
            entries: batch,
            more: false,
        })
        .await
    }

    /// Sends content of a read, after [`FileAnswer::Content`] and before [`FileAnswer::Done`].
    ///
    /// # Errors
    /// [`LetGo`].
    pub async fn content(&mut self, bytes: &[u8]) -> Result<(), LetGo> {
        Ok(self.writer.raw(Tag::Content, bytes).await?)
    }

    /// The next content of a write; `None` at its proper end.
    ///
    /// # Errors
    /// [`LetGo`], also by talking nonsense: the half-sent write is to be thrown away.
    pub async fn next_content(&mut self) -> Result<Option<Bytes>, LetGo> {
        let frame = self.reader.next().await.ok().flatten().ok_or(LetGo)?;
        match frame.tag {
            Tag::Content => Ok(Some(frame.payload)),
            Tag::Message => match frame::message(&frame.payload) {
                Ok(WriteControl::End) => Ok(None),
                Err(_) => Err(LetGo),
            },
            Tag::Stdout | Tag::Stderr => Err(LetGo),
        }
    }
}

/// Serves a link until it ends. Everything it started is then dropped.
///
/// # Errors
/// [`LinkError::Silent`] without a hello in time, [`LinkError::Generation`] and [`LinkError::Protocol`] for a wrong one.
/// A link that ended after a proper hello is no error.
pub async fn serve<L, G>(link: L, guest: Arc<G>) -> Result<(), LinkError>
where
    L: AsyncRead + AsyncWrite + Unpin,
    G: Guest,
{
    let mut wire = link::wire(link, Mode::Server);
    let over = CancellationToken::new();
    let _over = over.clone().drop_guard();
    let greeted = Arc::new(AtomicBool::new(false));
    let mut greeting = Some(guest.clone());
    let mut tasks: JoinSet<Result<(), LinkError>> = JoinSet::new();
    let silence = tokio::time::sleep(Duration::from_secs(HELLO_SECONDS_MAX));
    tokio::pin!(silence);
    let result = poll_fn(|cx| {
        loop {
            match wire.poll_next_inbound(cx) {
                Poll::Ready(Some(Ok(stream))) => match greeting.take() {
                    Some(guest) => {
                        tasks.spawn(greet(stream, guest, over.clone(), greeted.clone()));
                    }
                    None if greeted.load(Ordering::Relaxed) => {
                        tasks.spawn(operation(stream, guest.clone(), over.clone()));
                    }
                    None => return Poll::Ready(Err(protocol("an operation before the hello"))),
                },
                Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(Ok(())),
                Poll::Pending => break,
            }
        }
        while let Poll::Ready(Some(ended)) = tasks.poll_join_next(cx) {
            // A greeting that failed ends the link; an operation that failed ends itself.
            if let Ok(Err(error)) = ended {
                return Poll::Ready(Err(error));
            }
        }
        if !greeted.load(Ordering::Relaxed)
            && std::future::Future::poll(silence.as_mut(), cx).is_ready()
        {
            return Poll::Ready(Err(LinkError::Silent(HELLO_SECONDS_MAX * 1000)));
        }
        Poll::Pending
    })
    .await;
    link::close(&mut wire).await;
    drop(wire);
    if result.is_ok()
        && !greeted.load(Ordering::Relaxed)
        && let Some(Ok(greeting)) = tasks.join_next().await
    {
        // The link ended on a wrong hello, which tells more than its end. Without a link the greeting cannot wait.
        return greeting;
    }
    result
}

async fn greet<G: Guest>(
    stream: Stream,
    guest: Arc<G>,
    over: CancellationToken,
    greeted: Arc<AtomicBool>,
) -> Result<(), LinkError> {
    let (mut reader, mut writer, _hold) = halves(stream, over, MESSAGE_BYTES_MAX);
    let request: Request = reader.message().await?;
    let Request::Hello(hello) = request else {
        return Err(protocol("the first word is no hello"));
    };
    let welcome = Welcome {
        generation: GENERATION,
        is_init: guest.is_init(),
        tree_end: guest.tree_end(),
    };
    let agreed = hello.generation == GENERATION;
    // Set before the answer is on its way: the daemon may ask as soon as it has read it.
    greeted.store(agreed, Ordering::Relaxed);
    let told = writer.message(&welcome).await;
    if agreed {
        told.map_err(|_| LinkError::Gone)?;
        // The link's turn first: that is where the answer is.
        tokio::task::yield_now().await;
        guest.greeted();
        return Ok(());
    }
    // The daemon hears what we speak, and lets go.
    let farewell = Duration::from_secs(CLOSE_SECONDS_MAX);
    let _ = tokio::time::timeout(farewell, reader.next()).await;
    Err(LinkError::Generation {
        ours: GENERATION,
        theirs: hello.generation,
    })
}

async fn operation<G: Guest>(
    stream: Stream,
    guest: Arc<G>,
    over: CancellationToken,
) -> Result<(), LinkError> {
    let (mut reader, mut writer, hold) = halves(stream, over, MESSAGE_BYTES_MAX);
    let first = Duration::from_secs(HELLO_SECONDS_MAX);
    let Ok(Ok(request)) = tokio::time::timeout(first, reader.message::<Request>()).await else {
        // Nonsense or silence costs the one who sent it this substream only.
        return Ok(());
    };
    let hold = Arc::new(hold);
    match request {
        Request::Hello(_) => {}
        Request::Run(run) => {
            let commands = Commands {
                reader,
                _hold: hold.clone(),
            };
            let reports = Reports {
                writer,
                _hold: hold,
            };
            guest.run(run, commands, reports).await;
        }
        Request::File(request) => {
            let exchange = FileExchange {
                reader,
                writer,
                _hold: hold,
            };
            guest.file(request, exchange).await;
        }
        Request::Dial { port } => match guest.dial(port).await {
            Ok(mut far) => {
                if writer.message(&FileAnswer::Done).await.is_ok() {
                    let mut near = Channel::new(reader, writer, hold);
                    // Either side's end, also an untimely one, ends the copying.
                    let _ = tokio::io::copy_bidirectional_with_sizes(
                        &mut near,
                        &mut far,
                        LINK_BUFFER_BYTES,
                        LINK_BUFFER_BYTES,
                    )
                    .await;
                }
            }
            Err(error) => {
                let _ = writer.message(&FileAnswer::Error(error)).await;
            }
        },
    }
    Ok(())
}

fn protocol(how: &str) -> LinkError {
    LinkError::Protocol(how.to_owned())
}
