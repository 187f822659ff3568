//! From a request to a plan that only has to be carried out: the environment put together, the program's possible
//! places, and everything refused that the kernel would refuse, with its size.

use crate::limits::{ARG_BYTES_MAX, ARGS_BYTES_LEAST, ARGS_BYTES_MOST};
use crate::sys::{NotBorn, Stage};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use sandboxd_protocol::message::{NotStarted, Run};
use std::ffi::{CStr, CString};

/// Where programs are looked for when the environment does not say.
const DEFAULT_PATH: &[u8] = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What a run is made of, apart from its streams.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Words {
    pub(crate) paths: Vec<CString>,
    pub(crate) argv: Vec<CString>,
    pub(crate) env: Vec<CString>,
    pub(crate) cwd: CString,
    /// Bytes of arguments and environment as the kernel counts them, and what it grants.
    pub(crate) bytes: u64,
    pub(crate) limit: u64,
}

/// A sandbox's own environment: names and values.
pub(crate) type Environment = Vec<(Vec<u8>, Vec<u8>)>;

/// Bytes that the kernel grants arguments and environment together, here and now.
pub(crate) fn granted_bytes() -> u64 {
    let stack = getrlimit(Resource::Stack).current.unwrap_or(u64::MAX);
    (stack / 4).clamp(ARGS_BYTES_LEAST, ARGS_BYTES_MOST)
}

/// Puts a run's words together, or says why the program cannot start.
pub(crate) fn words(
    run: &Run,
    own: &Environment,
    work_dir: &[u8],
    limit: u64,
) -> Result<Words, NotStarted> {
    let Some(program) = run.argv.first() else {
        return Err(NotStarted::Invalid("argv is empty".to_owned()));
    };
    for (position, argument) in run.argv.iter().enumerate() {
        if argument.contains(&0) {
            let what = format!("argv[{position}] contains a NUL byte");
            return Err(NotStarted::Invalid(what));
        }
    }
    for (name, value) in &run.env {
        let shown = String::from_utf8_lossy(name);
        if name.is_empty() || name.contains(&b'=') || name.contains(&0) {
            let what = format!("{shown:?} is no name of an environment variable");
            return Err(NotStarted::Invalid(what));
        }
        if value.contains(&0) {
            let what = format!("environment variable {shown} contains a NUL byte");
            return Err(NotStarted::Invalid(what));
        }
    }
    let cwd = run.cwd.as_deref().unwrap_or(work_dir);
    if !cwd.starts_with(b"/") {
        return Err(NotStarted::Invalid(
            "the working directory is not absolute".to_owned(),
        ));
    }
    let env = merge(own, &run.env);
    let bytes = measure(&run.argv, &env, limit)?;
    let path = env
        .iter()
        .rev()
        .find(|(name, _)| name == b"PATH")
        .map_or(DEFAULT_PATH, |(_, value)| value.as_slice());
    let paths = candidates(program, path);
    if paths.is_empty() {
        return Err(NotStarted::NotFound);
    }
    let env = env.into_iter().map(|(name, value)| {
        let mut whole = name;
        whole.push(b'=');
        whole.extend_from_slice(&value);
        whole
    });
    Ok(Words {
        paths: strings(paths)?,
        argv: strings(run.argv.iter().cloned())?,
        env: strings(env)?,
        cwd: string(cwd.to_vec())?,
        bytes,
        limit,
    })
}

/// What a failed birth means to the caller.
pub(crate) fn not_started(error: NotBorn, cwd: &CStr, bytes: u64, limit: u64) -> NotStarted {
    match (error.stage, Errno::from_raw_os_error(error.errno)) {
        (Stage::Cwd, _) => NotStarted::Cwd(cwd.to_bytes().to_vec(), error.errno),
        (Stage::Exec, Errno::NOENT | Errno::NOTDIR) => NotStarted::NotFound,
        (Stage::Exec, Errno::TOOBIG) => NotStarted::TooLarge { bytes, limit },
        (Stage::Exec, Errno::NOMEM | Errno::AGAIN | Errno::MFILE | Errno::NFILE)
        | (Stage::Clone | Stage::SetUp, _) => NotStarted::Resources(error.errno),
        (Stage::Exec, _) => NotStarted::NotExecutable(error.errno),
    }
}

/// The sandbox's own environment with the caller's on top; the last of equal names wins.
fn merge(own: &Environment, added: &Environment) -> Environment {
    let mut env: Environment = Vec::with_capacity(own.len() + added.len());
    for (position, (name, value)) in added.iter().enumerate() {
        if !added[position + 1..].iter().any(|(later, _)| later == name) {
            env.push((name.clone(), value.clone()));
        }
    }
    let mut whole: Environment = own
        .iter()
        .filter(|(name, _)| !added.iter().any(|(later, _)| later == name))
        .cloned()
        .collect();
    whole.append(&mut env);
    whole
}

/// Bytes as the kernel counts them: every string with its NUL, and a pointer for each.
fn measure(argv: &[Vec<u8>], env: &Environment, limit: u64) -> Result<u64, NotStarted> {
    let arguments = argv.iter().map(|argument| length(argument) + 1);
    let variables = env
        .iter()
        .map(|(name, value)| length(name) + length(value) + 2);
    let mut total = 0_u64;
    for bytes in arguments.chain(variables) {
        if bytes > ARG_BYTES_MAX {
            return Err(NotStarted::TooLarge {
                bytes,
                limit: ARG_BYTES_MAX,
            });
        }
        total = total.saturating_add(bytes + 8);
    }
    if total > limit {
        return Err(NotStarted::TooLarge {
            bytes: total,
            limit,
        });
    }
    Ok(total)
}

/// Where a program may be, in order: itself when it names a directory, else in each directory of `PATH`.
fn candidates(program: &[u8], path: &[u8]) -> Vec<Vec<u8>> {
    if program.is_empty() {
        return Vec::new();
    }
    if program.contains(&b'/') {
        return vec![program.to_vec()];
    }
    let directories = path.split(|byte| *byte == b':');
    directories
        .map(|directory| {
            // An empty one is the working directory.
            let mut whole = if directory.is_empty() {
                b".".to_vec()
            } else {
                directory.to_vec()
            };
            whole.push(b'/');
            whole.extend_from_slice(program);
            whole
        })
        .collect()
}

fn strings(from: impl IntoIterator<Item = Vec<u8>>) -> Result<Vec<CString>, NotStarted> {
    from.into_iter().map(string).collect()
}

fn string(from: Vec<u8>) -> Result<CString, NotStarted> {
    CString::new(from).map_err(|_| NotStarted::Invalid("a NUL byte".to_owned()))
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sandboxd_protocol::message::OutputLimit;

    fn run(argv: &[&[u8]], env: &[(&str, &str)]) -> Run {
        Run {
            argv: argv.iter().map(|word| word.to_vec()).collect(),
            env: pairs(env),
            cwd: None,
            stdin: false,
            timeout_millis: None,
            output: OutputLimit::Unlimited,
        }
    }

    fn pairs(env: &[(&str, &str)]) -> Environment {
        env.iter()
            .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
            .collect()
    }

    fn shown(strings: &[CString]) -> Vec<&str> {
        strings
            .iter()
            .map(|string| string.to_str().expect("text"))
            .collect()
    }

    #[test]
    fn the_callers_environment_goes_on_top_and_path_is_the_runs_own() {
        let own = pairs(&[("A", "1"), ("PATH", "/own")]);
        let asked = run(&[b"p", b"x"], &[("B", "2"), ("PATH", ":/b"), ("B", "3")]);
        let words = words(&asked, &own, b"/work", 1 << 20).expect("sound");
        assert_eq!(shown(&words.env), ["A=1", "PATH=:/b", "B=3"]);
        assert_eq!(shown(&words.paths), ["./p", "/b/p"]);
        assert_eq!(words.cwd.to_str(), Ok("/work"));
    }

    #[test]
    fn a_program_with_a_slash_is_not_looked_for() {
        assert_eq!(candidates(b"./p", b"/a"), [b"./p"]);
        assert_eq!(candidates(b"", b"/a"), Vec::<Vec<u8>>::new());
        let asked = run(&[b""], &[]);
        let refused = words(&asked, &Vec::new(), b"/", 1 << 20);
        assert_eq!(refused, Err(NotStarted::NotFound));
    }

    #[test]
    fn what_the_kernel_would_refuse_is_refused_by_name() {
        let own = Vec::new();
        let invalid = |asked: &Run| match words(asked, &own, b"/", 1 << 20) {
            Err(NotStarted::Invalid(what)) => what,
            other => panic!("{other:?}"),
        };
        assert_eq!(invalid(&run(&[], &[])), "argv is empty");
        assert_eq!(
            invalid(&run(&[b"a", b"b\0"], &[])),
            "argv[1] contains a NUL byte"
        );
        assert_eq!(
            invalid(&run(&[b"a"], &[("A=B", "")])),
            "\"A=B\" is no name of an environment variable"
        );
        assert_eq!(
            invalid(&run(&[b"a"], &[("N", "\0")])),
            "environment variable N contains a NUL byte"
        );
        let mut relative = run(&[b"a"], &[]);
        relative.cwd = Some(b"here".to_vec());
        assert_eq!(invalid(&relative), "the working directory is not absolute");
    }

    #[test]
    fn sizes_over_the_limit_are_named() {
        let long = vec![b'x'; 128 * 1024];
        let refused = words(&run(&[b"a", &long], &[]), &Vec::new(), b"/", 1 << 22);
        assert_eq!(
            refused,
            Err(NotStarted::TooLarge {
                bytes: 131_073,
                limit: 131_072
            })
        );
        let fits = &long[1..];
        let fitting = words(&run(&[b"a", fits], &[]), &Vec::new(), b"/", 1 << 22);
        assert!(fitting.is_ok());
        let refused = words(&run(&[b"a", fits, fits], &[]), &Vec::new(), b"/", 200_000);
        assert_eq!(
            refused,
            Err(NotStarted::TooLarge {
                bytes: 262_170,
                limit: 200_000
            })
        );
    }
}
