//! `sandboxd serve`: configuration, backend and service put together, and taken down again.
//!
//! - [`check`]: `--check`, which looks and does not serve.
//! - [`confine`]: what the service gives up at its start.
//! - [`logs`]: where the service's log lines go.
//! - [`memory`]: what start and work took, and nobody needs any more.
//! - [`supervisor`]: what systemd is told.

mod check;
mod confine;
mod logs;
mod memory;
mod supervisor;

use crate::arguments::ServeArguments;
use crate::doctor::host_memory;
use crate::failure::{FAILED, Failure};
use crate::limits::CLOSE_SECONDS_MAX;
use crate::output;
use crate::run::Signals;
use crate::sandbox::{backend, not_enforced_line};
use sandboxd_server::backends::{
    Backend, Capabilities, Ceiling, Enforcement, Network, PreparedImage,
};
use sandboxd_server::clock::SystemClock;
use sandboxd_server::config::{Config, Flags, Layers, Outlook, print_config};
use sandboxd_server::server::Server;
use sandboxd_server::sessions::sandbox_spec;
use sandboxd_server::store::Store;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

/// Serves until asked to end.
pub(crate) fn serve(arguments: &ServeArguments) -> ExitCode {
    match attempt(arguments) {
        Ok(code) => code,
        Err(failure) => failure.tell(),
    }
}

/// A failure of `serve`.
fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(FAILED, error)
}

fn attempt(arguments: &ServeArguments) -> Result<ExitCode, Failure> {
    let layers = Layers::of_process(flags(arguments), arguments.config.clone());
    let (config, warnings) = layers.read().map_err(failed)?;
    if arguments.print_config {
        output::say_raw(print_config(&config).as_bytes());
        return Ok(ExitCode::SUCCESS);
    }
    if !arguments.check {
        logs::start();
        for warning in &warnings {
            tracing::warn!("{warning}");
        }
        // Before there is another thread, which would keep what this one gives up.
        confine::confine().map_err(|error| failed(format!("giving up privileges: {error}")))?;
    }
    let runtime = Runtime::new().map_err(|error| failed(format!("cannot start: {error}")))?;
    let ended = if arguments.check {
        Ok(runtime.block_on(check::check(&config, &warnings)))
    } else {
        runtime.block_on(until_asked(config))
    };
    // What still blocks after all limits must not hold the end.
    runtime.shutdown_background();
    ended
}

fn flags(arguments: &ServeArguments) -> Flags {
    let mut settings = arguments.set.clone();
    if !arguments.allow_unenforced.is_empty() {
        let names = arguments
            .allow_unenforced
            .iter()
            .map(|ceiling| ceiling.name());
        let names = names.collect::<Vec<_>>().join(",");
        settings.push(("allow_unenforced".to_owned(), names));
    }
    Flags {
        listen: arguments.listen,
        state_dir: arguments.state_dir.clone(),
        workspace_root: arguments.workspace_root.clone(),
        backend: arguments.backend.clone(),
        token_file: arguments.token_file.clone(),
        settings,
    }
}

/// The service's whole life.
async fn until_asked(config: Config) -> Result<ExitCode, Failure> {
    let mut signals =
        Signals::hear().map_err(|error| failed(format!("cannot hear signals: {error}")))?;
    let store = Store::open(&config.state_dir).map_err(failed)?;
    let backend = backend(&config)
        .await
        .map_err(|failure| failed(failure.text))?;
    let capabilities = backend.capabilities().await;
    let unenforced = not_enforced_line(&capabilities.ceilings, &not_to_mention(&config));
    let without_network = without_network(&config, &capabilities);
    let drain = Duration::from_secs(config.drain_timeout);
    let outlook = outlook(&config);
    let started = Server::start_in(store, config, Arc::clone(&backend), Arc::new(SystemClock));
    let server = match started.await {
        Ok(server) => server,
        Err(error) => {
            give_up(&*backend).await;
            return Err(failed(error));
        }
    };
    say(&outlook);
    for line in unenforced.iter().chain(&without_network) {
        tracing::warn!("{line}");
    }
    if let Some(file) = server.token_file() {
        output::say(&format!("token in {}", file.display()));
    }
    // The last of the lines: whoever waits for it finds a service that answers.
    output::say(&format!("listening on http://{}", server.local_addr()));
    supervisor::ready(server.local_addr());
    let small = memory::keep_small();
    let beat = supervisor::beat(server.sessions());
    let (asked, told) = oneshot::channel::<()>();
    let running = server.run(async {
        let _ = told.await;
    });
    // It beats until the end, also while the service ends.
    let running = async {
        tokio::select! {
            () = running => {}
            () = beat => {}
            () = small => {}
        }
    };
    tokio::pin!(running);
    tokio::select! {
        () = &mut running => return Ok(ExitCode::SUCCESS),
        _ = signals.next() => drop(asked),
    }
    supervisor::ending(drain);
    tokio::select! {
        () = &mut running => Ok(ExitCode::SUCCESS),
        // Everything in the sandboxes goes with us; the launcher removes what is left of them.
        second = signals.next() => Ok(ExitCode::from(second.code())),
    }
}

/// A line for each runtime whose sessions will be refused since there is no network to give them.
fn without_network(config: &Config, capabilities: &Capabilities) -> Vec<String> {
    let Enforcement::Unenforced(why) = &capabilities.bridge else {
        return Vec::new();
    };
    let service = &config.service;
    let wants = |runtime: &sandboxd_server::runtimes::Runtime| {
        sandbox_spec(service, runtime, PreparedImage::Empty, None)
            .is_ok_and(|spec| spec.network == Network::Bridge)
    };
    let consequence = if service.allow_unenforced.contains(&Ceiling::Network) {
        "its sessions have no network"
    } else {
        "its sessions are refused"
    };
    service
        .runtimes
        .values()
        .filter(|runtime| wants(runtime))
        .map(|runtime| {
            let alias = &runtime.alias;
            format!(
                "runtime {alias}: network \"bridge\" is not possible here: {why}; {consequence}"
            )
        })
        .collect()
}

/// What the configuration comes to, before somebody finds out.
fn outlook(config: &Config) -> [(String, bool); 2] {
    let outlook = Outlook::of(&config.service);
    let survives = outlook.survives.line(&config.service);
    [(survives, true), outlook.memory_line(host_memory())]
}

fn say(lines: &[(String, bool)]) {
    for (line, good) in lines {
        if *good {
            tracing::info!("{line}");
        } else {
            tracing::warn!("{line}");
        }
    }
}

/// Ceilings that nobody misses: accepted ones, and those that are only there where somebody sets them.
fn not_to_mention(config: &Config) -> Vec<Ceiling> {
    let mut ceilings = config.service.allow_unenforced.clone();
    ceilings.push(Ceiling::Disk);
    if config.service.ceilings.values.cpu_shares.is_none() {
        ceilings.push(Ceiling::CpuShares);
    }
    ceilings
}

/// Ends a backend that nobody will use.
async fn give_up(backend: &dyn Backend) {
    let limit = Duration::from_secs(CLOSE_SECONDS_MAX);
    let _ = tokio::time::timeout(limit, backend.shutdown()).await;
}
