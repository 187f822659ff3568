//! `sandboxd serve --check`: the configuration is read already; here the host is asked whether it can honour it. Plain
//! lines, and an exit code.

use crate::doctor::host_memory;
use crate::failure::FAILED;
use crate::output;
use crate::sandbox::Workshop;
use sandboxd_server::backends::{Ceiling, Enforcement, Network, PreparedImage, SandboxSpec};
use sandboxd_server::config::{Config, Outlook, Survives, Warning};
use sandboxd_server::runtimes::Runtime;
use sandboxd_server::runtimes::images::Pull;
use sandboxd_server::sessions::sandbox_spec;
use std::process::ExitCode;
use std::time::Instant;

/// What was found so far.
struct Findings {
    good: bool,
}

impl Findings {
    fn note(text: &str) {
        output::say(&format!("ok       {text}"));
    }

    fn warn(text: &str) {
        output::say(&format!("warning  {text}"));
    }

    fn problem(&mut self, text: &str) {
        self.good = false;
        output::say(&format!("problem  {text}"));
    }
}

/// Looks, and says what it finds.
pub(super) async fn check(config: &Config, warnings: &[Warning]) -> ExitCode {
    let mut findings = Findings { good: true };
    for warning in warnings {
        Findings::warn(&warning.to_string());
    }
    Findings::note("configuration");
    outlook(config);
    // A check looks; it fetches nothing.
    let mut looking = config.clone();
    looking.registries.pull = Pull::Never;
    match Workshop::start(&looking).await {
        Ok(workshop) => {
            Findings::note(&format!(
                "backend, with state in {}",
                config.state_dir.display()
            ));
            ceilings(&mut findings, config, &workshop).await;
            runtimes(&mut findings, config, &workshop).await;
            workshop.close().await;
        }
        Err(failure) => findings.problem(&format!("backend: {failure}")),
    }
    if findings.good {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(FAILED)
    }
}

/// What the configuration comes to.
fn outlook(config: &Config) {
    let outlook = Outlook::of(&config.service);
    let line = outlook.survives.line(&config.service);
    if outlook.survives == Survives::Nothing {
        Findings::warn(&line);
    } else {
        Findings::note(&line);
    }
    match outlook.memory_line(host_memory()) {
        (line, true) => Findings::note(&line),
        (line, false) => Findings::warn(&line),
    }
}

async fn ceilings(findings: &mut Findings, config: &Config, workshop: &Workshop) {
    let service = &config.service;
    let set = |ceiling: Ceiling| match ceiling {
        Ceiling::Memory => service.ceilings.memory_explicit,
        Ceiling::Cpus => service.ceilings.cpus_explicit,
        Ceiling::Pids => service.ceilings.pids_explicit,
        Ceiling::CpuShares => service.ceilings.values.cpu_shares.is_some(),
        Ceiling::Disk => {
            service.ceilings.disk_bytes_explicit || service.ceilings.disk_files_explicit
        }
        Ceiling::Network
        | Ceiling::OciRuntime
        | Ceiling::UidRange
        | Ceiling::WorkspaceOwner
        | Ceiling::Landlock => false,
    };
    for (ceiling, enforcement) in workshop.capabilities().await.ceilings {
        let name = ceiling.name();
        match enforcement {
            Enforcement::Enforced(by) => Findings::note(&format!("{name} is enforced ({by})")),
            Enforcement::Unenforced(why) => {
                let text = format!("{name} is not enforced here: {why}");
                if set(ceiling) && !service.allow_unenforced.contains(&ceiling) {
                    findings.problem(&format!("{text}; it is set, so sessions will be refused"));
                } else {
                    Findings::warn(&text);
                }
            }
        }
    }
}

async fn runtimes(findings: &mut Findings, config: &Config, workshop: &Workshop) {
    for (alias, runtime) in &config.service.runtimes {
        let is_default = *alias == config.service.default_runtime;
        let tried = match specification(config, runtime) {
            Ok(spec) => {
                // Whether a network can be had is known when one was.
                let whole = is_default || spec.network != Network::None;
                try_one(workshop, runtime, spec, whole).await
            }
            Err(why) => Err(why),
        };
        match tried {
            Ok(how) => Findings::note(&format!("runtime {alias}: {how}")),
            Err(why) if is_default => {
                findings.problem(&format!("runtime {alias}, the default: {why}"));
            }
            Err(why) => Findings::warn(&format!("runtime {alias}: {why}")),
        }
    }
}

fn specification(config: &Config, runtime: &Runtime) -> Result<SandboxSpec, String> {
    let spec = sandbox_spec(&config.service, runtime, PreparedImage::Empty, None);
    let mut spec = spec.map_err(|error| error.to_string())?;
    // No layer may be left behind by a check.
    spec.keep_layer = false;
    Ok(spec)
}

/// Makes the image ready, and for the default runtime, and those with a network, a sandbox of it.
async fn try_one(
    workshop: &Workshop,
    runtime: &Runtime,
    spec: SandboxSpec,
    whole: bool,
) -> Result<String, String> {
    if !whole {
        let ready = workshop.prepare(runtime).await;
        return ready
            .map(|_| "ready".to_owned())
            .map_err(|failure| failure.text);
    }
    let started = Instant::now();
    let made = workshop
        .make(runtime, spec)
        .await
        .map_err(|failure| failure.text)?;
    let took = started.elapsed();
    made.client.close();
    Ok(format!(
        "ready, and a sandbox of it started in {:.1} ms",
        took.as_secs_f64() * 1_000.0
    ))
}
