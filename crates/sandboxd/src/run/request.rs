//! From flags and configuration to what is asked of the backend and of the guest. No I/O but looking at the workspace.

use super::outcome::Named;
use crate::arguments::{NetworkArgument, RunArguments};
use crate::failure::Failure;
use crate::values;
use sandboxd_protocol::message::{OutputLimit, Run};
use sandboxd_server::backends::{Asked, HostWorkspace, Network, PreparedImage, SandboxSpec};
use sandboxd_server::config::Service;
use sandboxd_server::runtimes::Runtime;
use sandboxd_server::sessions::sandbox_spec;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// Everything that is asked for.
#[derive(Debug)]
pub(super) struct Request {
    /// What the sandbox is made from.
    pub(super) runtime: Runtime,
    /// The sandbox, but for its image, which the backend prepares.
    pub(super) spec: SandboxSpec,
    /// The program.
    pub(super) run: Run,
    /// The words of messages about it.
    pub(super) named: Named,
    /// Whether output is kept for one object at the end.
    pub(super) json: bool,
}

/// Puts flags over configuration.
pub(super) fn request(arguments: RunArguments, service: &Service) -> Result<Request, Failure> {
    let alias = arguments
        .runtime
        .as_deref()
        .unwrap_or(&service.default_runtime);
    let runtime = service.runtimes.get(alias).ok_or_else(|| {
        let known = service.runtimes.keys().cloned().collect::<Vec<_>>();
        Failure::ours(format!(
            "no runtime {alias:?} (--runtime): there is {}",
            known.join(", ")
        ))
    })?;
    let workspace = arguments.workspace.as_deref().map(workspace).transpose()?;
    let mut spec =
        sandbox_spec(service, runtime, PreparedImage::Empty, None).map_err(Failure::ours)?;
    match arguments.network {
        None => {}
        Some(NetworkArgument::None) => spec.network = Network::None,
        Some(NetworkArgument::Bridge) => spec.network = Network::Bridge,
    }
    spec.workspace = workspace;
    spec.keep_layer = false;
    spec.allow_unenforced
        .extend_from_slice(&arguments.allow_unenforced);
    if let Some(bytes) = arguments.memory {
        spec.memory_bytes = asked(bytes);
        // The flag's own help: swap included.
        spec.memory_swap_bytes = None;
    }
    spec.cpus = arguments.cpus.and_then(asked).or(spec.cpus);
    spec.pids = arguments.pids.and_then(asked).or(spec.pids);
    spec.disk_bytes = arguments.disk.and_then(asked).or(spec.disk_bytes);
    let json = arguments.json;
    let named = named(&arguments);
    let run = program(arguments, &service.work_dir);
    Ok(Request {
        runtime: runtime.clone(),
        spec,
        run,
        named,
        json,
    })
}

/// The words of messages about it.
fn named(arguments: &RunArguments) -> Named {
    Named {
        program: arguments
            .argv
            .first()
            .map(|program| program.to_string_lossy().into_owned())
            .filter(|program| !program.is_empty())
            .unwrap_or_else(|| "''".to_owned()),
        timeout: arguments.timeout,
    }
}

/// The program, as the guest is asked for it.
fn program(arguments: RunArguments, work_dir: &str) -> Run {
    let cwd = arguments
        .workdir
        .map(|dir| Path::new(work_dir).join(dir).into_os_string().into_vec());
    Run {
        argv: arguments.argv.into_iter().map(values::bytes).collect(),
        env: arguments
            .env
            .into_iter()
            .map(|variable| (variable.name, variable.value))
            .collect(),
        cwd,
        stdin: false,
        timeout_millis: arguments
            .timeout
            .map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)),
        output: OutputLimit::Unlimited,
    }
}

/// A ceiling that somebody set: in force, or the run is refused.
#[expect(
    clippy::unnecessary_wraps,
    reason = "it takes the place of an optional ceiling"
)]
const fn asked<T: Copy>(value: T) -> Option<Asked<T>> {
    Some(Asked {
        value,
        explicit: true,
    })
}

/// The directory that becomes the work directory: it is there, and it is the caller's own.
fn workspace(path: &Path) -> Result<HostWorkspace, Failure> {
    let refuse = |cause: &dyn std::fmt::Display| {
        Failure::ours(format!("--workspace {}: {cause}", path.display()))
    };
    let resolved: PathBuf = path
        .canonicalize()
        .map_err(|error| refuse(&values::system_words(&error)))?;
    if !resolved.is_dir() {
        return Err(refuse(&"not a directory"));
    }
    if resolved.as_os_str().as_bytes() == b"/" {
        return Err(refuse(&"the whole machine is no workspace"));
    }
    Ok(HostWorkspace {
        path: resolved,
        managed: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{Command, parse};
    use sandboxd_server::config::{Flags, Layers};
    use std::ffi::OsString;

    fn service() -> Service {
        let layers = Layers {
            flags: Flags::default(),
            env: vec![("HOME".into(), "/nonexistent".into())],
            file: None,
            root: true,
        };
        layers.read().expect("defaults are good").0.service
    }

    fn requested(line: &str) -> Request {
        let words = line.split(' ').map(OsString::from);
        let Ok(Command::Run(arguments)) = parse(words) else {
            panic!("{line}")
        };
        request(*arguments, &service()).expect("a request")
    }

    #[test]
    fn a_flag_was_asked_for_and_a_default_was_not() {
        let plain = requested("sandboxd run true").spec;
        assert!(!plain.memory_bytes.expect("a default").explicit);
        assert!(!plain.pids.expect("a default").explicit);
        let flags = requested("sandboxd run --memory 64m --cpus 0.5 --pids 9 true").spec;
        let memory = flags.memory_bytes.expect("asked for");
        assert_eq!((memory.value, memory.explicit), (64 << 20, true));
        assert_eq!(flags.cpus.expect("asked for").value, 0.5);
        assert_eq!(flags.pids.expect("asked for").value, 9);
    }

    #[test]
    fn a_relative_work_directory_is_below_the_sandboxs_own() {
        let cwd = |line| {
            requested(line)
                .run
                .cwd
                .map(|dir| String::from_utf8_lossy(&dir).into_owned())
        };
        assert_eq!(cwd("sandboxd run true"), None);
        assert_eq!(
            cwd("sandboxd run -w src true").as_deref(),
            Some("/workspace/src")
        );
        assert_eq!(cwd("sandboxd run -w /tmp true").as_deref(), Some("/tmp"));
    }

    #[test]
    fn a_workspace_is_a_directory_that_is_there() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("file");
        std::fs::write(&file, "").expect("a file");
        assert!(workspace(dir.path()).is_ok());
        for bad in [file.as_path(), &dir.path().join("missing"), Path::new("/")] {
            let failure = workspace(bad).expect_err("refused");
            assert!(failure.text.contains("--workspace"), "{}", failure.text);
        }
    }
}
