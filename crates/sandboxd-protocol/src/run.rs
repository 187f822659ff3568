//! The daemon's handles on one run: what goes in, and what comes out.
//!
//! Stdin and words of control share a direction, so stdin goes only as far ahead as the guest promised to buffer
//! ([`STDIN_WINDOW_BYTES`]): a stop is never stuck behind bytes that a program does not read.

use crate::client::{Keep, LinkError, Opened, sent};
use crate::frame::{self, Tag};
use crate::limits::{RAW_BYTES_MAX, STDIN_WINDOW_BYTES};
use crate::message::{Exit, NotStarted, RunControl, RunEvent};
use crate::substream::{FrameReader, FrameWriter, Hold};
use bytes::Bytes;
use std::fmt;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// What goes into a run.
pub struct RunInput {
    writer: FrameWriter,
    window: Arc<Semaphore>,
    open: bool,
    _keep: Keep,
}

/// What comes out of a run. Dropping it ends the run's whole tree.
pub struct RunEvents {
    reader: FrameReader,
    window: Arc<Semaphore>,
    stage: Stage,
    refused: Option<NotStarted>,
    _hold: Hold,
    _keep: Keep,
}

/// One event of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// The program runs.
    Started,
    /// Bytes from its stdout.
    Stdout(Bytes),
    /// Bytes from its stderr.
    Stderr(Bytes),
    /// It could not be started. Terminal.
    NotStarted(NotStarted),
    /// It is over. Terminal.
    Exited(Exit),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Asked,
    Started,
    Over,
}

/// The two halves of a fresh substream. `refused`: nothing was sent on it, since this is already the answer.
pub(crate) fn halves(
    opened: Opened,
    stdin: bool,
    refused: Option<NotStarted>,
) -> (RunInput, RunEvents) {
    let window = Arc::new(Semaphore::new(STDIN_WINDOW_BYTES));
    let input = RunInput {
        writer: opened.writer,
        window: window.clone(),
        open: stdin,
        _keep: opened.keep.clone(),
    };
    let events = RunEvents {
        reader: opened.reader,
        window,
        stage: Stage::Asked,
        refused,
        _hold: opened.hold,
        _keep: opened.keep,
    };
    (input, events)
}

impl fmt::Debug for RunInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunInput")
            .field("open", &self.open)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for RunEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunEvents")
            .field("stage", &self.stage)
            .finish_non_exhaustive()
    }
}

impl RunInput {
    /// Sends stdin bytes; waits while the program does not read. That a program has read is one of the run's events, so
    /// more than [`STDIN_WINDOW_BYTES`] go through only while somebody polls [`RunEvents::next`].
    ///
    /// # Errors
    /// [`LinkError::Gone`] when the run is over or its stdin was never asked for or was ended.
    pub async fn stdin(&mut self, bytes: &[u8]) -> Result<(), LinkError> {
        for piece in bytes.chunks(RAW_BYTES_MAX) {
            if !self.open {
                return Err(LinkError::Gone);
            }
            let length = u32::try_from(piece.len()).map_err(|_| LinkError::Gone)?;
            let room = self.window.acquire_many(length).await;
            room.map_err(|_| LinkError::Gone)?.forget();
            sent(self.writer.raw(Tag::Content, piece).await)?;
        }
        Ok(())
    }

    /// Ends stdin. Ending it twice, or where there was none, is fine.
    ///
    /// # Errors
    /// [`LinkError::Gone`] when the run is over.
    pub async fn end_stdin(&mut self) -> Result<(), LinkError> {
        if !self.open {
            return Ok(());
        }
        self.open = false;
        self.say(RunControl::StdinEnd).await
    }

    /// TERM, a grace, then the whole tree is killed.
    ///
    /// # Errors
    /// [`LinkError::Gone`] when the run is over.
    pub async fn stop(&mut self) -> Result<(), LinkError> {
        self.say(RunControl::Stop).await
    }

    /// The whole tree is killed at once.
    ///
    /// # Errors
    /// [`LinkError::Gone`] when the run is over.
    pub async fn kill(&mut self) -> Result<(), LinkError> {
        self.say(RunControl::Kill).await
    }

    /// One signal to the program itself.
    ///
    /// # Errors
    /// [`LinkError::Gone`] when the run is over.
    pub async fn signal(&mut self, signal: i32) -> Result<(), LinkError> {
        self.say(RunControl::Signal(signal)).await
    }

    async fn say(&mut self, control: RunControl) -> Result<(), LinkError> {
        sent(self.writer.message(&control).await)
    }
}

impl RunEvents {
    /// The next event; `None` after the terminal one. Cancelling the wait loses nothing.
    ///
    /// A program may be silent for as long as it likes, so this wait has no bound of its own: a caller with a deadline
    /// puts it around this, and drops the run when it passes.
    ///
    /// # Errors
    /// [`LinkError::Gone`] when the sandbox went, [`LinkError::Protocol`] when the guest talks nonsense.
    pub async fn next(&mut self) -> Result<Option<Output>, LinkError> {
        if self.stage == Stage::Over {
            return Ok(None);
        }
        match self.advance().await {
            Ok(output) => {
                if matches!(output, Output::Exited(_) | Output::NotStarted(_)) {
                    self.finish();
                }
                Ok(Some(output))
            }
            Err(error) => {
                self.finish();
                Err(error)
            }
        }
    }

    /// Waits, after the terminal event, until the guest has let the run go: what a last [`RunInput::kill`] asked for is then
    /// done. A guest that never lets go is waited for without end: a caller puts a deadline around this.
    pub async fn let_go(&mut self) {
        while self.reader.expect().await.is_ok() {}
    }

    fn finish(&mut self) {
        self.stage = Stage::Over;
        self.window.close();
    }

    async fn advance(&mut self) -> Result<Output, LinkError> {
        if let Some(why) = self.refused.take() {
            return Ok(Output::NotStarted(why));
        }
        loop {
            let frame = self.reader.expect().await?;
            let event = match frame.tag {
                Tag::Stdout | Tag::Stderr if self.stage != Stage::Started => {
                    return Err(wrong_order());
                }
                Tag::Stdout => return Ok(Output::Stdout(frame.payload)),
                Tag::Stderr => return Ok(Output::Stderr(frame.payload)),
                Tag::Content => return Err(wrong_order()),
                Tag::Message => frame::message::<RunEvent>(&frame.payload)
                    .map_err(|error| LinkError::Protocol(error.to_string()))?,
            };
            match (event, self.stage) {
                (RunEvent::Started, Stage::Asked) => {
                    self.stage = Stage::Started;
                    return Ok(Output::Started);
                }
                (RunEvent::NotStarted(why), Stage::Asked) => return Ok(Output::NotStarted(why)),
                (RunEvent::Exited(exit), Stage::Started) => return Ok(Output::Exited(exit)),
                (RunEvent::StdinTaken(bytes), Stage::Started) => self.taken(bytes)?,
                _ => return Err(wrong_order()),
            }
        }
    }

    fn taken(&self, bytes: u32) -> Result<(), LinkError> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        if bytes.saturating_add(self.window.available_permits()) > STDIN_WINDOW_BYTES {
            return Err(LinkError::Protocol(
                "more stdin taken than given".to_owned(),
            ));
        }
        self.window.add_permits(bytes);
        Ok(())
    }
}

fn wrong_order() -> LinkError {
    LinkError::Protocol("a run's events in a wrong order".to_owned())
}

impl Drop for RunEvents {
    fn drop(&mut self) {
        self.window.close();
    }
}
