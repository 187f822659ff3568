//! The double's programs: functions with streams, an environment and a directory.

use super::files::Files;
use super::shell;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::mpsc;

/// Bytes that `yes` writes at once.
const YES_BYTES: usize = 8 * 1024;

/// What a program says.
#[derive(Debug)]
pub(super) enum Said {
    Stdout(Bytes),
    Stderr(Bytes),
    /// It has read so many bytes of stdin.
    Taken(usize),
}

/// What a program has.
#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) files: Files,
    pub(super) env: BTreeMap<String, String>,
    pub(super) cwd: String,
    pub(super) said: mpsc::Sender<Said>,
    pub(super) stdin: std::sync::Arc<tokio::sync::Mutex<mpsc::Receiver<Bytes>>>,
    /// Where stdout goes instead.
    pub(super) redirect: Redirect,
}

/// Where a program's stdout goes.
#[derive(Debug, Clone, Default)]
pub(super) enum Redirect {
    #[default]
    Nowhere,
    ToStderr,
    /// Collected for a file.
    Collected(std::sync::Arc<std::sync::Mutex<Vec<u8>>>),
}

impl World {
    pub(super) async fn stdout(&self, bytes: impl Into<Bytes>) {
        match &self.redirect {
            Redirect::Nowhere => self.say(Said::Stdout(bytes.into())).await,
            Redirect::ToStderr => self.say(Said::Stderr(bytes.into())).await,
            Redirect::Collected(content) => {
                let mut content = content
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
                content.extend_from_slice(&bytes.into());
            }
        }
    }

    pub(super) async fn stderr(&self, text: String) {
        self.say(Said::Stderr(text.into())).await;
    }

    /// A listener that is gone ends the program elsewhere.
    async fn say(&self, said: Said) {
        let _ = self.said.send(said).await;
    }

    /// The next bytes of stdin.
    async fn read_stdin(&self) -> Option<Bytes> {
        let bytes = self.stdin.lock().await.recv().await?;
        self.say(Said::Taken(bytes.len())).await;
        Some(bytes)
    }
}

/// The names that can be run, bare or under a usual directory.
const NAMES: &[&str] = &[
    "true", "false", "echo", "printf", "cat", "env", "printenv", "pwd", "sleep", "yes", "sh",
    "bash", "mkdir", "rm", "test",
];

/// The program of this name, if there is one.
pub(super) fn find(program: &str) -> Option<&'static str> {
    let bare = ["/bin/", "/usr/bin/"]
        .iter()
        .find_map(|dir| program.strip_prefix(dir))
        .unwrap_or(program);
    NAMES.iter().find(|name| **name == bare).copied()
}

/// Runs one to its exit code.
pub(super) async fn run(name: &str, args: &[String], world: &World) -> u8 {
    match name {
        "true" => 0,
        "false" => 1,
        "echo" => echo(args, world).await,
        "printf" => printf(args, world).await,
        "cat" => cat(args, world).await,
        "env" => env(world).await,
        "printenv" => printenv(args, world).await,
        "pwd" => {
            let cwd = if world.cwd.is_empty() {
                "/"
            } else {
                &world.cwd
            };
            world.stdout(format!("{cwd}\n")).await;
            0
        }
        "sleep" => sleep(args, world).await,
        "yes" => yes(args, world).await,
        "sh" | "bash" => match args {
            [flag, script, ..] if flag == "-c" || flag == "-lc" => {
                Box::pin(shell::run(script, world)).await
            }
            _ => {
                world
                    .stderr(format!("{name}: only -c is known here\n"))
                    .await;
                2
            }
        },
        "mkdir" => {
            let dirs = args.iter().filter(|arg| !arg.starts_with('-'));
            each_path(name, dirs, world, |path| world.files.make_dir(&path)).await
        }
        "rm" => {
            let paths = args.iter().filter(|arg| !arg.starts_with('-'));
            each_path(name, paths, world, |path| world.files.remove(&path)).await
        }
        "test" => test(args, world),
        _ => 127,
    }
}

async fn each_path<'a>(
    name: &str,
    paths: impl Iterator<Item = &'a String>,
    world: &World,
    act: impl Fn(String) -> Result<(), sandboxd_protocol::message::FileError>,
) -> u8 {
    let mut code = 0;
    for path in paths {
        if let Err(error) = act(world.files.absolute(&world.cwd, path)) {
            world.stderr(format!("{name}: {path}: {error}\n")).await;
            code = 1;
        }
    }
    code
}

fn test(args: &[String], world: &World) -> u8 {
    match args {
        [flag, path] if matches!(flag.as_str(), "-e" | "-f" | "-d") => {
            let found = world.files.stat(&world.files.absolute(&world.cwd, path));
            let is_dir = |kind| kind == sandboxd_protocol::message::Kind::Directory;
            u8::from(!found.is_ok_and(|entry| match flag.as_str() {
                "-f" => !is_dir(entry.kind),
                "-d" => is_dir(entry.kind),
                _ => true,
            }))
        }
        _ => 2,
    }
}

async fn echo(args: &[String], world: &World) -> u8 {
    let (end, words) = match args.split_first() {
        Some((flag, rest)) if flag == "-n" => ("", rest),
        _ => ("\n", args),
    };
    world.stdout(format!("{}{end}", words.join(" "))).await;
    0
}

/// `%s`, `%d`, `%%`, and the usual escapes with octal bytes.
async fn printf(args: &[String], world: &World) -> u8 {
    let Some((format, rest)) = args.split_first() else {
        world.stderr("printf: missing operand\n".to_owned()).await;
        return 2;
    };
    let mut out = Vec::new();
    let mut words = rest.iter();
    let mut chars = format.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek().copied()) {
            ('%', Some('s' | 'd')) => {
                chars.next();
                out.extend_from_slice(words.next().map_or(b"", |word| word.as_bytes()));
            }
            ('%', Some('%')) => {
                chars.next();
                out.push(b'%');
            }
            ('\\', Some('n')) => {
                chars.next();
                out.push(b'\n');
            }
            ('\\', Some('t')) => {
                chars.next();
                out.push(b'\t');
            }
            ('\\', Some('\\')) => {
                chars.next();
                out.push(b'\\');
            }
            ('\\', Some('0'..='7')) => {
                let mut byte = 0_u32;
                for _ in 0..3 {
                    let Some(digit) = chars.peek().and_then(|c| c.to_digit(8)) else {
                        break;
                    };
                    chars.next();
                    byte = byte * 8 + digit;
                }
                out.push(u8::try_from(byte & 0xff).unwrap_or(0));
            }
            _ => {
                let mut buffer = [0; 4];
                out.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes());
            }
        }
    }
    world.stdout(out).await;
    0
}

async fn cat(args: &[String], world: &World) -> u8 {
    let mut code = 0;
    if args.is_empty() {
        while let Some(bytes) = world.read_stdin().await {
            world.stdout(bytes).await;
        }
    }
    for path in args {
        match world.files.read(&world.files.absolute(&world.cwd, path)) {
            Ok(content) => world.stdout(content).await,
            Err(error) => {
                world.stderr(format!("cat: {path}: {error}\n")).await;
                code = 1;
            }
        }
    }
    code
}

async fn env(world: &World) -> u8 {
    let mut text = String::new();
    for (name, value) in &world.env {
        text.push_str(&format!("{name}={value}\n"));
    }
    world.stdout(text).await;
    0
}

async fn printenv(args: &[String], world: &World) -> u8 {
    let Some(name) = args.first() else {
        return env(world).await;
    };
    match world.env.get(name) {
        Some(value) => {
            world.stdout(format!("{value}\n")).await;
            0
        }
        None => 1,
    }
}

async fn sleep(args: &[String], world: &World) -> u8 {
    let seconds = args.first().and_then(|text| text.parse::<f64>().ok());
    match seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
        Some(time) => {
            tokio::time::sleep(time).await;
            0
        }
        None => {
            world
                .stderr("sleep: invalid time interval\n".to_owned())
                .await;
            1
        }
    }
}

/// Without end.
async fn yes(args: &[String], world: &World) -> u8 {
    let word = args.first().map_or("y", String::as_str);
    let line = format!("{word}\n");
    let chunk = Bytes::from(line.repeat((YES_BYTES / line.len()).max(1)));
    loop {
        world.stdout(chunk.clone()).await;
        tokio::task::yield_now().await;
    }
}
