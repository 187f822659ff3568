//! From flags and configuration to what is asked of the backend and of the guest. No I/O but looking at the workspace.

use super::outcome::Named;
use crate::arguments::{NetworkArgument, RunArguments};
use crate::failure::Failure;
use crate::values;
use sandboxd_protocol::message::{OutputLimit, Run};
use sandboxd_server::backends::{
    Asked, Ceiling, HostWorkspace, Network, PreparedImage, SandboxSpec,
};
use sandboxd_server::config::Service;
use sandboxd_server::runtimes::Runtime;
use sandboxd_server::runtimes::environment::environment;
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
    let NetworkArgument::None = arguments.network;
    let mut allow_unenforced = service.allow_unenforced.clone();
    allow_unenforced.extend(arguments.allow_unenforced);

    let user = runtime.user.or(service.sandbox_uid);
    let spec = SandboxSpec {
        image: PreparedImage::Empty,
        env: environment(runtime, user),
        work_dir: service.work_dir.clone(),
        workspace,
        hostname: "sandbox".to_owned(),
        memory_bytes: asked(
            arguments.memory,
            runtime.ceilings.memory_bytes,
            service.ceilings.values.memory_bytes,
            service.ceilings.memory_explicit,
        ),
        memory_swap_bytes: if arguments.memory.is_some() {
            // The flag's own help: swap included.
            None
        } else {
            asked(
                None,
                runtime.ceilings.memory_swap_bytes,
                service.ceilings.values.memory_swap_bytes,
                true,
            )
        },
        cpus: asked(
            arguments.cpus,
            runtime.ceilings.cpus,
            service.ceilings.values.cpus,
            service.ceilings.cpus_explicit,
        ),
        cpu_shares: asked(
            None,
            runtime.ceilings.cpu_shares,
            service.ceilings.values.cpu_shares,
            true,
        ),
        pids: asked(
            arguments.pids,
            runtime.ceilings.pids,
            service.ceilings.values.pids,
            service.ceilings.pids_explicit,
        ),
        tmpfs_bytes: service.tmpfs_bytes,
        network: Network::None,
        user,
        keep_layer: false,
        allow_unenforced,
    };
    let cwd = arguments.workdir.map(|dir| {
        Path::new(&service.work_dir)
            .join(dir)
            .into_os_string()
            .into_vec()
    });
    let named = Named {
        program: arguments
            .argv
            .first()
            .map(|program| program.to_string_lossy().into_owned())
            .unwrap_or_default(),
        timeout: arguments.timeout,
    };
    let run = Run {
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
    };
    Ok(Request {
        runtime: runtime.clone(),
        spec,
        run,
        named,
        json: arguments.json,
    })
}

/// The number that counts, and whether somebody set it.
fn asked<T>(
    flag: Option<T>,
    runtime: Option<T>,
    service: Option<T>,
    service_explicit: bool,
) -> Option<Asked<T>> {
    let set = |value| Asked {
        value,
        explicit: true,
    };
    flag.or(runtime).map(set).or(service.map(|value| Asked {
        value,
        explicit: service_explicit,
    }))
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

/// The line about ceilings that are not in place: for those that were not asked for by anybody, and not accepted.
pub(super) fn not_enforced_line(
    enforced: &sandboxd_server::backends::Enforced,
    accepted: &[Ceiling],
) -> Option<String> {
    use sandboxd_server::backends::Enforcement;
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for (ceiling, enforcement) in enforced {
        let Enforcement::Unenforced(why) = enforcement else {
            continue;
        };
        if accepted.contains(ceiling) {
            continue;
        }
        match reasons.iter_mut().find(|(reason, _)| reason == why) {
            Some((_, names)) => names.push(ceiling.name()),
            None => reasons.push((why, vec![ceiling.name()])),
        }
    }
    let parts = reasons
        .iter()
        .map(|(why, names)| format!("{} ({why})", names.join(", ")))
        .collect::<Vec<_>>();
    (!parts.is_empty()).then(|| {
        format!(
            "not enforced here: {}; see sandboxd doctor",
            parts.join("; ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sandboxd_server::backends::{Enforced, Enforcement};

    #[test]
    fn a_flag_or_a_runtimes_own_ceiling_was_asked_for_and_a_default_was_not() {
        let value = |asked: Option<Asked<u64>>| asked.map(|asked| (asked.value, asked.explicit));
        assert_eq!(
            value(asked(Some(1), Some(2), Some(3), false)),
            Some((1, true))
        );
        assert_eq!(value(asked(None, Some(2), Some(3), false)), Some((2, true)));
        assert_eq!(value(asked(None, None, Some(3), false)), Some((3, false)));
        assert_eq!(value(asked(None, None, Some(3), true)), Some((3, true)));
        assert_eq!(value(asked(None, None, None, true)), None);
    }

    #[test]
    fn what_is_not_enforced_is_one_line_grouped_by_reason() {
        let why = |text: &str| Enforcement::Unenforced(text.to_owned());
        let enforced = Enforced::from([
            (Ceiling::Memory, why("no cgroup delegation")),
            (Ceiling::Cpus, why("no cgroup delegation")),
            (Ceiling::Pids, Enforcement::Enforced("rlimit".to_owned())),
            (Ceiling::UidRange, why("one mapped user")),
        ]);
        assert_eq!(
            not_enforced_line(&enforced, &[]).as_deref(),
            Some(
                "not enforced here: memory, cpus (no cgroup delegation); uid_range (one mapped user); see sandboxd doctor"
            )
        );
        assert_eq!(
            not_enforced_line(
                &enforced,
                &[Ceiling::Memory, Ceiling::Cpus, Ceiling::UidRange]
            ),
            None
        );
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
