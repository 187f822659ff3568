//! The double's guest: the real protocol's [`Guest`], over functions and a tree in memory.

use super::programs::{self, Redirect, Said, World};
use super::switches::SandboxSwitches;
use super::tree::{Tree, normal};
use crate::backends::SandboxSpec;
use crate::workspaces::HostFiles;
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use sandboxd_protocol::client::Duplex;
use sandboxd_protocol::message::{
    Ended, Entry, Exit, FileAnswer, FileError, FileOp, FileRequest, NotStarted, OutputLimit,
    PathRule, Run, RunControl, TreeEnd,
};
use sandboxd_protocol::server::{Command, Commands, FileExchange, Guest, LetGo, Reports};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// Longest single argument, as the kernel has it.
const ARGUMENT_BYTES_MAX: usize = 131_072;
/// Longest arguments and environment together.
const ARGUMENTS_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Chunks that a program may be ahead of its reader.
const SAID_AHEAD: usize = 8;
/// Chunks of stdin that may wait for a program.
const STDIN_AHEAD: usize = 1024;
/// From a stop to the kill, for a program that ignores the stop.
const KILLED: u8 = 137;
/// Ended by TERM.
const TERMINATED: u8 = 143;

/// The files that a sandbox of the double sees: a tree in memory, and the stored workspace where there is one.
#[derive(Debug, Clone)]
pub(super) struct Files {
    tree: Arc<Mutex<Tree>>,
    workspace: Option<HostFiles>,
    work_dir: String,
}

/// Where a path leads.
enum Place<'a> {
    Memory(&'a str),
    Host(&'a HostFiles, &'a str),
}

impl Files {
    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A plain absolute path; a relative one starts at `cwd`.
    pub(super) fn absolute(&self, cwd: &str, path: &str) -> String {
        normal(cwd, path)
    }

    fn place<'a>(&'a self, path: &'a str) -> Place<'a> {
        let inner = path.strip_prefix(self.work_dir.as_str());
        match (&self.workspace, inner) {
            (Some(host), Some("")) => Place::Host(host, ""),
            (Some(host), Some(inner)) if inner.starts_with('/') => Place::Host(host, &inner[1..]),
            _ => Place::Memory(path),
        }
    }

    pub(super) fn is_dir(&self, path: &str) -> bool {
        self.list(path, u32::MAX).is_ok()
    }

    pub(super) fn read(&self, path: &str) -> Result<Bytes, FileError> {
        match self.place(path) {
            Place::Memory(path) => self.tree().read(path),
            Place::Host(host, inner) => host.read(inner, u64::MAX),
        }
    }

    pub(super) fn write(
        &self,
        path: &str,
        content: Bytes,
        mode: u32,
        parents: bool,
    ) -> Result<(), FileError> {
        match self.place(path) {
            Place::Memory(path) => self.tree().write(path, content, mode, parents),
            Place::Host(host, inner) => host.write(inner, &content, mode, parents),
        }
    }

    pub(super) fn stat(&self, path: &str) -> Result<Entry, FileError> {
        match self.place(path) {
            Place::Memory(path) => self.tree().stat(path),
            Place::Host(host, inner) => host.stat(inner),
        }
    }

    fn list(&self, path: &str, limit: u32) -> Result<Vec<Entry>, FileError> {
        match self.place(path) {
            Place::Memory(path) => self.tree().list(path, limit),
            Place::Host(host, inner) => host.list(inner, limit),
        }
    }

    pub(super) fn make_dir(&self, path: &str) -> Result<(), FileError> {
        match self.place(path) {
            Place::Memory(path) => self.tree().make_dir(path),
            Place::Host(host, inner) => host.make_dir(inner),
        }
    }

    pub(super) fn remove(&self, path: &str) -> Result<(), FileError> {
        match self.place(path) {
            Place::Memory(path) => self.tree().remove(path),
            Place::Host(host, inner) => host.remove(inner),
        }
    }

    fn rename(&self, path: &str, to: &str) -> Result<(), FileError> {
        match (self.place(path), self.place(to)) {
            (Place::Memory(path), Place::Memory(to)) => self.tree().rename(path, to),
            (Place::Host(host, path), Place::Host(_, to)) => host.rename(path, to),
            _ => Err(FileError::Os(rustix::io::Errno::XDEV.raw_os_error())),
        }
    }
}

/// One sandbox's guest.
#[derive(Debug)]
pub(super) struct MemoryGuest {
    files: Files,
    switches: Arc<SandboxSwitches>,
    running: AtomicU64,
    started: AtomicU64,
}

impl MemoryGuest {
    pub(super) fn new(
        spec: &SandboxSpec,
        tree: Tree,
        switches: Arc<SandboxSwitches>,
    ) -> io::Result<Self> {
        let workspace = match &spec.workspace {
            Some(workspace) => Some(HostFiles::open(&workspace.path)?),
            None => None,
        };
        Ok(Self {
            files: Files {
                work_dir: tree.work_dir().to_owned(),
                tree: Arc::new(Mutex::new(tree)),
                workspace,
            },
            switches,
            running: AtomicU64::new(0),
            started: AtomicU64::new(0),
        })
    }

    /// Programs that run now.
    pub(super) fn running(&self) -> u64 {
        self.running.load(Ordering::Relaxed)
    }

    /// Programs that were ever started.
    pub(super) fn started(&self) -> u64 {
        self.started.load(Ordering::Relaxed)
    }

    /// A copy of the files in memory, for a layer that is kept.
    pub(super) fn take_tree(&self) -> Tree {
        self.files.tree().clone()
    }

    /// The program, its arguments and its world, or why it does not start.
    fn prepare(&self, run: &Run) -> Result<(&'static str, Vec<String>, World, Wires), NotStarted> {
        let strings = || {
            let env = run.env.iter().flat_map(|(name, value)| [name, value]);
            run.argv.iter().chain(env)
        };
        if run.argv.is_empty() {
            return Err(NotStarted::Invalid("argv is empty".to_owned()));
        }
        if strings().any(|text| text.contains(&0)) {
            return Err(NotStarted::Invalid("a NUL byte in argv or env".to_owned()));
        }
        let total: usize = strings().map(|text| text.len() + 1).sum();
        let longest = strings().map(Vec::len).max().unwrap_or(0);
        for (bytes, limit) in [(longest, ARGUMENT_BYTES_MAX), (total, ARGUMENTS_BYTES_MAX)] {
            if bytes > limit {
                return Err(NotStarted::TooLarge {
                    bytes: bytes as u64,
                    limit: limit as u64,
                });
            }
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let work_dir = self.files.work_dir.clone();
        let cwd = run.cwd.as_deref().map_or(work_dir.clone(), text);
        let cwd = normal(&work_dir, &cwd);
        if !self.files.is_dir(&cwd) {
            let no_entry = rustix::io::Errno::NOENT.raw_os_error();
            return Err(NotStarted::Cwd(cwd.into_bytes(), no_entry));
        }
        let name = text(&run.argv[0]);
        let Some(program) = programs::find(&name) else {
            let path = self.files.absolute(&cwd, &name);
            return Err(match self.files.stat(&path) {
                Ok(_) if name.contains('/') => {
                    NotStarted::NotExecutable(rustix::io::Errno::ACCESS.raw_os_error())
                }
                _ => NotStarted::NotFound,
            });
        };
        let mut env = self.files.tree().env().clone();
        env.extend(
            run.env
                .iter()
                .map(|(name, value)| (text(name), text(value))),
        );
        let args = run.argv[1..].iter().map(|arg| text(arg)).collect();
        let (said, heard) = mpsc::channel(SAID_AHEAD);
        let (stdin, taken) = mpsc::channel(STDIN_AHEAD);
        let world = World {
            files: self.files.clone(),
            env,
            cwd,
            said,
            stdin: Arc::new(tokio::sync::Mutex::new(taken)),
            redirect: Redirect::Nowhere,
        };
        let wires = Wires {
            heard,
            stdin: run.stdin.then_some(stdin),
        };
        Ok((program, args, world, wires))
    }
}

/// The other ends of a program's streams.
struct Wires {
    heard: mpsc::Receiver<Said>,
    stdin: Option<mpsc::Sender<Bytes>>,
}

/// Why a run ends.
enum End {
    Itself(u8),
    Timeout,
    Output,
    Stopped(u8),
    Signal(u8),
    LetGo,
}

/// Counts a run.
struct Counted<'a>(&'a AtomicU64);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Hears the daemon's words until one of them ends the run.
async fn listen(mut commands: Commands, mut stdin: Option<mpsc::Sender<Bytes>>, deaf: bool) -> End {
    loop {
        match commands.next().await {
            None => return End::LetGo,
            Some(_) if deaf => {}
            Some(Command::Stdin(bytes)) => {
                if let Some(to) = &stdin {
                    // A program that has gone reads no more.
                    let _ = to.send(bytes).await;
                }
            }
            Some(Command::Control(RunControl::StdinEnd)) => stdin = None,
            Some(Command::Control(RunControl::Stop)) => return End::Stopped(TERMINATED),
            Some(Command::Control(RunControl::Kill)) => return End::Stopped(KILLED),
            Some(Command::Control(RunControl::Signal(signal))) => {
                return End::Signal(u8::try_from(signal).unwrap_or(0));
            }
        }
    }
}

/// Output that was reported, and what is to happen to more.
struct Meter {
    limit: OutputLimit,
    bytes: u64,
    discarded: u64,
}

impl Meter {
    /// What of these bytes is reported, and whether the limit is reached.
    fn admit(&mut self, bytes: &Bytes) -> (Bytes, bool) {
        let (OutputLimit::Stop(limit) | OutputLimit::Discard(limit)) = self.limit else {
            return (bytes.clone(), false);
        };
        let room = usize::try_from(limit.saturating_sub(self.bytes)).unwrap_or(usize::MAX);
        let kept = bytes.slice(..bytes.len().min(room));
        self.bytes += kept.len() as u64;
        let over = (bytes.len() - kept.len()) as u64;
        self.discarded += over;
        (kept, over > 0 && matches!(self.limit, OutputLimit::Stop(_)))
    }
}

async fn deliver(reports: &mut Reports, meter: &mut Meter, said: Said) -> Result<bool, LetGo> {
    let over = match said {
        Said::Stdout(bytes) => {
            let (kept, over) = meter.admit(&bytes);
            reports.stdout(&kept).await?;
            over
        }
        Said::Stderr(bytes) => {
            let (kept, over) = meter.admit(&bytes);
            reports.stderr(&kept).await?;
            over
        }
        Said::Taken(bytes) => {
            reports
                .stdin_taken(u32::try_from(bytes).unwrap_or(u32::MAX))
                .await?;
            false
        }
    };
    Ok(over)
}

#[async_trait]
impl Guest for MemoryGuest {
    fn is_init(&self) -> bool {
        true
    }

    fn tree_end(&self) -> TreeEnd {
        TreeEnd::None
    }

    async fn run(&self, run: Run, commands: Commands, mut reports: Reports) {
        if self.switches.is_silent() {
            // Until the link ends.
            std::future::pending::<()>().await;
        }
        let deaf = self.switches.is_deaf();
        let (program, args, world, wires) = match self.prepare(&run) {
            Ok(ready) => ready,
            Err(why) => {
                let _ = reports.not_started(why).await;
                return;
            }
        };
        let Wires { mut heard, stdin } = wires;
        self.running.fetch_add(1, Ordering::Relaxed);
        let _counted = Counted(&self.running);
        self.started.fetch_add(1, Ordering::Relaxed);
        if reports.started().await.is_err() {
            return;
        }
        let deadline = run
            .timeout_millis
            .filter(|_| !deaf)
            .map(|millis| Instant::now() + Duration::from_millis(millis));
        let late = async {
            match deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        let mut meter = Meter {
            limit: if self.switches.floods() {
                OutputLimit::Unlimited
            } else {
                run.output
            },
            bytes: 0,
            discarded: 0,
        };
        // The world goes with the program, and with it the last sender: that is how the output's end is known.
        let program = async move { programs::run(program, &args, &world).await };
        let talk = async {
            let mut code = 0;
            tokio::pin!(program);
            let mut over = false;
            loop {
                tokio::select! {
                    biased;
                    said = heard.recv() => match said {
                        Some(said) => match deliver(&mut reports, &mut meter, said).await {
                            Ok(false) => {}
                            Ok(true) => return End::Output,
                            Err(LetGo) => return End::LetGo,
                        },
                        None => return End::Itself(code),
                    },
                    exit = &mut program, if !over => {
                        code = exit;
                        over = true;
                    }
                }
            }
        };
        let end = tokio::select! {
            biased;
            end = listen(commands, stdin, deaf) => end,
            () = late => End::Timeout,
            end = talk => end,
        };
        let (code, signal, ended) = match end {
            End::Itself(code) => (code, None, Ended::Itself),
            End::Timeout => (KILLED, Some(9), Ended::Timeout),
            End::Output => (KILLED, Some(9), Ended::Output),
            End::Stopped(code) => (code, Some(code - 128), Ended::Stopped),
            End::Signal(signal) => (128_u8.saturating_add(signal), Some(signal), Ended::Itself),
            End::LetGo => return,
        };
        let exit = Exit {
            code,
            signal,
            ended,
            discarded_bytes: meter.discarded,
        };
        let _ = reports.exited(exit).await;
    }

    async fn file(&self, request: FileRequest, mut exchange: FileExchange) {
        if self.switches.is_silent() {
            std::future::pending::<()>().await;
        }
        let answered = if self.switches.lies() {
            exchange
                .answer(FileAnswer::Path(b"/etc/shadow".to_vec()))
                .await
        } else {
            self.answer(request, &mut exchange).await
        };
        // A daemon that let go wants no answer.
        let _ = answered;
    }

    async fn dial(&self, _port: u16) -> Result<Box<dyn Duplex>, FileError> {
        // Nothing listens in here.
        Err(FileError::Os(rustix::io::Errno::CONNREFUSED.raw_os_error()))
    }
}

impl MemoryGuest {
    /// The absolute path meant by a request.
    fn path_of(&self, rule: &PathRule, path: &[u8]) -> Result<String, FileError> {
        let text = std::str::from_utf8(path)
            .map_err(|_| FileError::Invalid("this double knows text paths only".to_owned()))?;
        Ok(match rule {
            PathRule::Beneath { root } => {
                let root = String::from_utf8_lossy(root);
                normal(&root, text)
            }
            PathRule::Follow => normal("/", text),
        })
    }

    async fn answer(&self, request: FileRequest, exchange: &mut FileExchange) -> Result<(), LetGo> {
        let FileRequest { rule, path, op } = request;
        // The strict rule is the walk's: one function for both executors.
        if let (PathRule::Beneath { .. }, Some(host)) = (&rule, &self.files.workspace) {
            let inner = String::from_utf8_lossy(&path).into_owned();
            return answer_from_host(host, &inner, op, exchange).await;
        }
        let path = match self.path_of(&rule, &path) {
            Ok(path) => path,
            Err(error) => return exchange.answer(FileAnswer::Error(error)).await,
        };
        let files = &self.files;
        let answer = match op {
            FileOp::Read { limit } => return send(exchange, files.read(&path), limit).await,
            FileOp::Write {
                mode,
                parents,
                limit,
            } => {
                let Some(content) = receive(exchange, limit).await? else {
                    let error = FileError::TooLarge {
                        size: limit + 1,
                        limit,
                    };
                    return exchange.answer(FileAnswer::Error(error)).await;
                };
                files
                    .write(&path, content, mode, parents)
                    .map(|()| FileAnswer::Done)
            }
            FileOp::Stat => files.stat(&path).map(FileAnswer::Entry),
            FileOp::List { limit } => match files.list(&path, limit) {
                Ok(entries) => return exchange.entries(entries).await,
                Err(error) => Err(error),
            },
            FileOp::MakeDir => files.make_dir(&path).map(|()| FileAnswer::Done),
            FileOp::Remove => files.remove(&path).map(|()| FileAnswer::Done),
            FileOp::Rename { to } => self
                .path_of(&rule, &to)
                .and_then(|to| files.rename(&path, &to))
                .map(|()| FileAnswer::Done),
            FileOp::RealPath => Ok(FileAnswer::Path(match path.as_str() {
                "" => b"/".to_vec(),
                path => path.as_bytes().to_vec(),
            })),
        };
        exchange
            .answer(answer.unwrap_or_else(FileAnswer::Error))
            .await
    }
}

async fn answer_from_host(
    host: &HostFiles,
    inner: &str,
    op: FileOp,
    exchange: &mut FileExchange,
) -> Result<(), LetGo> {
    let answer = match op {
        FileOp::Read { limit } => {
            return send(exchange, host.read(inner, limit), limit).await;
        }
        FileOp::Write {
            mode,
            parents,
            limit,
        } => {
            let Some(content) = receive(exchange, limit).await? else {
                let error = FileError::TooLarge {
                    size: limit + 1,
                    limit,
                };
                return exchange.answer(FileAnswer::Error(error)).await;
            };
            host.write(inner, &content, mode, parents)
                .map(|()| FileAnswer::Done)
        }
        FileOp::Stat => host.stat(inner).map(FileAnswer::Entry),
        FileOp::List { limit } => match host.list(inner, limit) {
            Ok(entries) => return exchange.entries(entries).await,
            Err(error) => Err(error),
        },
        FileOp::MakeDir => host.make_dir(inner).map(|()| FileAnswer::Done),
        FileOp::Remove => host.remove(inner).map(|()| FileAnswer::Done),
        FileOp::Rename { to } => host
            .rename(inner, &String::from_utf8_lossy(&to))
            .map(|()| FileAnswer::Done),
        FileOp::RealPath => host.real_path(inner).map(FileAnswer::Path),
    };
    exchange
        .answer(answer.unwrap_or_else(FileAnswer::Error))
        .await
}

async fn send(
    exchange: &mut FileExchange,
    content: Result<Bytes, FileError>,
    limit: u64,
) -> Result<(), LetGo> {
    let content = content.and_then(|content| {
        let size = content.len() as u64;
        if size > limit {
            return Err(FileError::TooLarge { size, limit });
        }
        Ok(content)
    });
    match content {
        Ok(content) => {
            exchange.answer(FileAnswer::Content).await?;
            exchange.content(&content).await?;
            exchange.answer(FileAnswer::Done).await
        }
        Err(error) => exchange.answer(FileAnswer::Error(error)).await,
    }
}

/// The content of a write; `None` over the limit.
async fn receive(exchange: &mut FileExchange, limit: u64) -> Result<Option<Bytes>, LetGo> {
    let mut content = BytesMut::new();
    while let Some(bytes) = exchange.next_content().await? {
        content.extend_from_slice(&bytes);
        if content.len() as u64 > limit {
            return Ok(None);
        }
    }
    Ok(Some(content.freeze()))
}
