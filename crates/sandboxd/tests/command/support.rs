//! A place of its own for each test, a user to run as, and waits that end.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write as _};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The longest that anything here may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);
/// The uid and gid of the ordinary user.
pub(crate) const ORDINARY: u32 = 65_534;

/// Who runs the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// Root.
    Root,
    /// An ordinary user.
    Ordinary,
}

/// Everybody whom this test process can be.
pub(crate) fn everyone() -> Vec<Who> {
    if is_root() {
        vec![Who::Root, Who::Ordinary]
    } else {
        vec![Who::Ordinary]
    }
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A home, a place for temporary files, and the command as this user can start it.
#[derive(Debug)]
pub(crate) struct Place {
    who: Who,
    dir: tempfile::TempDir,
    binary: PathBuf,
}

impl Place {
    pub(crate) fn of(who: Who) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("command-test-")
            .tempdir()
            .expect("a temporary directory");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
        let place = Self {
            who,
            binary: dir.path().join("sandboxd"),
            dir,
        };
        // The build's own directory may be closed to others. Another process makes the copy: a descriptor that writes it
        // would be inherited by what other tests start at that moment, and the copy could not be executed then.
        let copied = Command::new("cp")
            .arg(env!("CARGO_BIN_EXE_sandboxd"))
            .arg(&place.binary)
            .status();
        assert!(copied.expect("cp").success(), "a copy of the command");
        for name in ["home", "tmp"] {
            place.make_dir(name);
        }
        place
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A directory that belongs to the user.
    pub(crate) fn make_dir(&self, name: &str) -> PathBuf {
        let path = self.path().join(name);
        fs::create_dir(&path).expect("a directory");
        self.own(&path);
        path
    }

    /// Gives a file to the user.
    pub(crate) fn own(&self, path: &Path) {
        if is_root() && self.who == Who::Ordinary {
            chown(path, Some(ORDINARY), Some(ORDINARY)).expect("chown");
        }
    }

    /// The uid that the command runs as.
    pub(crate) fn uid(&self) -> u32 {
        match self.who {
            Who::Ordinary if is_root() => ORDINARY,
            Who::Root | Who::Ordinary => rustix::process::geteuid().as_raw(),
        }
    }

    /// The command, with nothing of this process's environment but where its own files go.
    pub(crate) fn command(&self) -> Command {
        let mut command = if is_root() && self.who == Who::Ordinary {
            let mut command = Command::new("/usr/bin/setpriv");
            command
                .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
                .arg(&self.binary);
            command
        } else {
            Command::new(&self.binary)
        };
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.path().join("home"))
            .env("TMPDIR", self.path().join("tmp"))
            .current_dir(self.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// `sandboxd run` with these words.
    pub(crate) fn run<I: IntoIterator<Item = W>, W: AsRef<OsStr>>(&self, words: I) -> Output {
        self.run_with_input(words, b"")
    }

    /// The same, with bytes on stdin.
    pub(crate) fn run_with_input<I: IntoIterator<Item = W>, W: AsRef<OsStr>>(
        &self,
        words: I,
        input: &[u8],
    ) -> Output {
        let mut command = self.command();
        command.arg("run").args(words);
        if !input.is_empty() {
            command.stdin(Stdio::piped());
        }
        finish(start(&mut command), input.to_vec())
    }

    /// Files below the home and the temporary directory.
    pub(crate) fn left_files(&self) -> Vec<String> {
        let mut left = Vec::new();
        for name in ["home", "tmp"] {
            walk(&self.path().join(name), &mut left);
        }
        left.retain(|path| !path.is_dir());
        left.iter().map(|path| path.display().to_string()).collect()
    }
}

fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            walk(&path, found);
        }
        found.push(path);
    }
}

pub(crate) fn start(command: &mut Command) -> Child {
    command.spawn().expect("the command starts")
}

/// Feeds a child, reads all it says, and waits for its end.
pub(crate) fn finish(mut child: Child, input: Vec<u8>) -> Output {
    let stdin = child.stdin.take();
    // A program that ends without reading closes the pipe; that is for the test's own assertions to find.
    let feeder = thread::spawn(move || {
        if let Some(mut stdin) = stdin {
            let _ = stdin.write_all(&input);
        }
    });
    let stdout = drain(child.stdout.take());
    let stderr = drain(child.stderr.take());
    let status = wait(&mut child);
    feeder.join().expect("the feeder");
    Output {
        status,
        stdout: stdout.join().expect("stdout"),
        stderr: stderr.join().expect("stderr"),
    }
}

fn drain(stream: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            stream.read_to_end(&mut bytes).expect("a stream");
        }
        bytes
    })
}

/// Waits for a child's end; one that does not come is a failure, and the child is killed.
pub(crate) fn wait(child: &mut Child) -> ExitStatus {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().expect("wait") {
            return status;
        }
        if Instant::now() > until {
            let _ = child.kill();
            panic!("no end within {PATIENCE:?}");
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until something holds.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "not within {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// The exit code, with all that was said where there is none.
pub(crate) fn code(output: &Output) -> i32 {
    output
        .status
        .code()
        .unwrap_or_else(|| panic!("ended by a signal: {output:?}"))
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Our own lines on stderr, without the one about ceilings that this host cannot enforce.
pub(crate) fn complaints(output: &Output) -> Vec<String> {
    text(&output.stderr)
        .lines()
        .filter(|line| line.starts_with("sandboxd: ") && !line.contains("not enforced here"))
        .map(str::to_owned)
        .collect()
}

/// A number of seconds that only this test sleeps, so that its processes can be told from all others.
pub(crate) fn unique_sleep() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("9{}.{number}", std::process::id())
}

/// Processes of this host whose command line has this word.
pub(crate) fn processes_with(word: &str) -> Vec<u32> {
    pids()
        .into_iter()
        .filter(|pid| {
            fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| {
                line.split(|byte| *byte == 0)
                    .any(|part| part == word.as_bytes())
            })
        })
        .collect()
}

fn pids() -> Vec<u32> {
    fs::read_dir("/proc")
        .expect("/proc")
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// A process, told from a later one of the same number by when it started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    started: String,
}

impl Process {
    fn of(pid: u32) -> Option<(u32, Self)> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in parentheses, may hold anything.
        let (_, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let parent = fields.get(1)?.parse().ok()?;
        let started = (*fields.get(19)?).to_owned();
        Some((parent, Self { pid, started }))
    }

    pub(crate) fn is_there(&self) -> bool {
        let zombie = fs::read_to_string(format!("/proc/{}/stat", self.pid)).is_ok_and(|stat| {
            stat.rsplit_once(')')
                .is_some_and(|(_, rest)| rest.starts_with(" Z"))
        });
        !zombie && Self::of(self.pid).is_some_and(|(_, found)| found == *self)
    }
}

/// All processes below one.
pub(crate) fn descendants(of: u32) -> Vec<Process> {
    let all: Vec<(u32, Process)> = pids().into_iter().filter_map(Process::of).collect();
    let mut found: Vec<Process> = Vec::new();
    let mut parents = vec![of];
    while let Some(parent) = parents.pop() {
        for (above, process) in &all {
            if *above == parent && !found.contains(process) {
                parents.push(process.pid);
                found.push(process.clone());
            }
        }
    }
    found
}

/// The directories of a process's cgroups, in every hierarchy that is mounted where it usually is.
pub(crate) fn cgroup_dirs(pid: u32) -> Vec<PathBuf> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            let path = path.trim_start_matches('/');
            // A process that has just ended is shown at the top.
            if path.is_empty() {
                return None;
            }
            ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
                .iter()
                .map(|root| match controllers {
                    "" => Path::new(root).join(path),
                    names => Path::new(root).join(names).join(path),
                })
                .find(|dir| dir.is_dir())
        })
        .collect()
}

/// Mounts of this process's namespace that mention a path.
pub(crate) fn mounts_with(path: &Path) -> Vec<String> {
    let path = path.to_str().expect("a plain path");
    fs::read_to_string("/proc/self/mountinfo")
        .expect("mountinfo")
        .lines()
        .filter(|line| line.contains(path))
        .map(str::to_owned)
        .collect()
}

pub(crate) fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).expect("a pid")).expect("a pid");
    rustix::process::kill_process(pid, signal).expect("kill");
}
