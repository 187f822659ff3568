//! The double's guest: the real protocol's [`Guest`], over functions and a tree in memory.

use super::files::Files;
use super::programs::{self, Redirect, Said, World};
use super::switches::SandboxSwitches;
use super::tree::{Tree, normal};
use crate::backends::SandboxSpec;
use crate::workspaces::HostFiles;
use async_trait::async_trait;
use bytes::Bytes;
use sandboxd_protocol::client::Duplex;
use sandboxd_protocol::message::{
    Ended, Exit, FileAnswer, FileError, FileRequest, NotStarted, OutputLimit, Run, RunControl,
    TreeEnd,
};
use sandboxd_protocol::server::{Command, Commands, FileExchange, Guest, LetGo, Reports};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
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

/// One sandbox's guest.
#[derive(Debug)]
pub(super) struct MemoryGuest {
    pub(super) files: Files,
    pub(super) switches: Arc<SandboxSwitches>,
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
