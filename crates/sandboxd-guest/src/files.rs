//! File operations, as the sandbox sees its files. What they do is in `sandboxd-files`; here they meet the link.
//!
//! The guest is one thread: whatever may take long is done in steps, with chances for other work in between.

use crate::guest::House;
use crate::limits::{FILE_READ_BYTES, FILE_READ_BYTES_LEAST, FILE_STEPS};
use rustix::io::Errno;
use sandboxd_files::{Files, NewFiles};
use sandboxd_protocol::message::{FileAnswer, FileError, FileOp, FileRequest, HandBack, PathRule};
use sandboxd_protocol::server::{FileExchange, LetGo};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use tokio::task::yield_now;

/// Why an operation came to no answer of its own.
enum Failed {
    /// The file system's word.
    File(FileError),
    /// Nobody listens any more.
    LetGo,
}

impl From<FileError> for Failed {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}

impl From<LetGo> for Failed {
    fn from(_: LetGo) -> Self {
        Self::LetGo
    }
}

/// Carries out one file operation.
pub(crate) async fn carry_out(house: &House, request: FileRequest, mut exchange: FileExchange) {
    if let Err(Failed::File(error)) = operation(house, request, &mut exchange).await {
        let _ = exchange.answer(FileAnswer::Error(error)).await;
    }
}

async fn operation(
    house: &House,
    request: FileRequest,
    exchange: &mut FileExchange,
) -> Result<(), Failed> {
    let files = files(house, &request.rule)?;
    let path = &request.path[..];
    let answer = match request.op {
        FileOp::Read { limit } => {
            read(&files, path, limit, exchange).await?;
            FileAnswer::Done
        }
        FileOp::Write {
            mode,
            parents,
            limit,
        } => {
            write(&files, path, (mode, parents, limit), exchange).await?;
            FileAnswer::Done
        }
        FileOp::Stat => FileAnswer::Entry(files.stat(path)?),
        FileOp::List { limit } => {
            let entries = files.list(path, limit)?;
            return Ok(exchange.entries(entries).await?);
        }
        FileOp::MakeDir => {
            files.make_dir(path)?;
            FileAnswer::Done
        }
        FileOp::Remove => {
            let mut removal = files.remove(path)?;
            while !removal.step(FILE_STEPS)? {
                yield_now().await;
            }
            FileAnswer::Done
        }
        FileOp::Rename { to } => {
            files.rename(path, &to)?;
            FileAnswer::Done
        }
        FileOp::RealPath => FileAnswer::Path(files.real_path(path)?),
    };
    Ok(exchange.answer(answer).await?)
}

/// The rule's root. New files belong to the one that runs have as their user.
fn files(house: &House, rule: &PathRule) -> Result<Files, FileError> {
    let new = NewFiles {
        owner: house.user,
        ..NewFiles::default()
    };
    let opened = match rule {
        PathRule::Beneath { root } => Files::beneath_path(Path::new(OsStr::from_bytes(root)), new),
        PathRule::Follow => Files::everywhere(new),
    };
    opened.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::NOENT) => FileError::NotFound,
        Some(Errno::NOTDIR) => FileError::NotADirectory,
        // The work directory itself was replaced.
        Some(Errno::LOOP) => HandBack::Link.into(),
        Some(errno) => FileError::Os(errno.raw_os_error()),
        None => HandBack::Os.into(),
    })
}

async fn read(
    files: &Files,
    path: &[u8],
    limit: u64,
    exchange: &mut FileExchange,
) -> Result<(), Failed> {
    let mut reading = files.read(path, limit)?;
    let size = reading.entry().size;
    exchange.answer(FileAnswer::Content { size }).await?;
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    let room = size.saturating_add(1);
    let mut buffer = vec![0; room.clamp(FILE_READ_BYTES_LEAST, FILE_READ_BYTES)];
    loop {
        let length = reading.next(&mut buffer)?;
        if length == 0 {
            break;
        }
        exchange.content(&buffer[..length]).await?;
    }
    Ok(())
}

async fn write(
    files: &Files,
    path: &[u8],
    (mode, parents, limit): (u32, bool, u64),
    exchange: &mut FileExchange,
) -> Result<(), Failed> {
    let mut writing = files.write(path, mode, parents, limit)?;
    // A write that is let go half-way is dropped, and leaves nothing.
    while let Some(content) = exchange.next_content().await? {
        writing.push(&content)?;
    }
    writing.finish()?;
    Ok(())
}
