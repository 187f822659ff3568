//! `sandboxd runtime`: what the configuration allows, and its images made ready beforehand. The work is the server
//! library's.

use crate::arguments::{RuntimeArguments, RuntimeCommand};
use crate::failure::{FAILED, Failure, USAGE};
use crate::output;
use crate::sandbox::{Workshop, configuration};
use sandboxd_server::config::{BackendName, Config, Flags};
use sandboxd_server::runtimes::images::{Images, Standing};
use sandboxd_server::runtimes::{Runtime, Source};
use serde_json::{Value, json};
use std::process::ExitCode;

/// Does it.
pub(crate) fn runtime(arguments: &RuntimeArguments) -> ExitCode {
    match attempt(arguments) {
        Ok(code) => code,
        Err(failure) => failure.tell(),
    }
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(FAILED, error)
}

fn attempt(arguments: &RuntimeArguments) -> Result<ExitCode, Failure> {
    let flags = Flags {
        state_dir: arguments.state_dir.clone(),
        ..Flags::default()
    };
    let config =
        configuration(flags, arguments.config.clone()).map_err(|error| failed(error.text))?;
    match &arguments.command {
        RuntimeCommand::Ls { json } => ls(&config, *json),
        RuntimeCommand::Prepare { names } => prepare(&config, names),
        RuntimeCommand::Show { name } => show(&config, name),
    }
}

fn named<'a>(config: &'a Config, name: &str) -> Result<&'a Runtime, Failure> {
    let all = &config.service.runtimes;
    all.get(name).ok_or_else(|| {
        let known: Vec<&str> = all.keys().map(String::as_str).collect();
        Failure::new(
            USAGE,
            format!("no runtime {name:?}; there are {}", known.join(", ")),
        )
    })
}

/// Nothing where the images are not in our own store.
fn standing(config: &Config, runtime: &Runtime) -> Result<Option<Standing>, Failure> {
    if config.backend != BackendName::Namespaces {
        return Ok(None);
    }
    let images = Images::of(&config.state_dir);
    images.standing(&runtime.source).map(Some).map_err(failed)
}

fn ls(config: &Config, as_json: bool) -> Result<ExitCode, Failure> {
    let mut rows = Vec::new();
    for runtime in config.service.runtimes.values() {
        rows.push((runtime, standing(config, runtime)?));
    }
    if as_json {
        let all: Vec<Value> = rows
            .iter()
            .map(|(runtime, standing)| {
                json!({
                    "alias": runtime.alias,
                    "label": runtime.label,
                    "description": runtime.description,
                    "default": runtime.alias == config.service.default_runtime,
                    "ready": standing.as_ref().map(Standing::is_ready),
                    "builds": matches!(runtime.source, Source::Recipe(_)),
                })
            })
            .collect();
        output::say(&json!(all).to_string());
        return Ok(ExitCode::SUCCESS);
    }
    let cells = rows.iter().map(|(runtime, standing)| {
        let default = runtime.alias == config.service.default_runtime;
        let alias = format!("{}{}", runtime.alias, if default { " *" } else { "" });
        let state = match standing.as_ref().map(Standing::is_ready) {
            Some(true) => "ready",
            Some(false) => "not here",
            None => "-",
        };
        [
            alias,
            state.to_owned(),
            runtime.label.clone(),
            runtime.description.clone(),
        ]
    });
    let heads = ["NAME", "IMAGE", "MADE FROM", "WHAT"].map(str::to_owned);
    let all: Vec<[String; 4]> = std::iter::once(heads).chain(cells).collect();
    output::say_raw(table(&all).as_bytes());
    Ok(ExitCode::SUCCESS)
}

fn table(rows: &[[String; 4]]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let (a, b, c) = (width(0), width(1), width(2));
    let lines = rows.iter().map(|[one, two, three, four]| {
        let line = format!("{one:<a$}  {two:<b$}  {three:<c$}  {four}");
        format!("{}\n", output::printable(line.trim_end()))
    });
    lines.collect()
}

/// Each in turn, and the next also where one fails.
fn prepare(config: &Config, names: &[String]) -> Result<ExitCode, Failure> {
    let mut wanted: Vec<&Runtime> = Vec::new();
    for name in names {
        wanted.push(named(config, name)?);
    }
    if names.is_empty() {
        wanted.extend(config.service.runtimes.values());
    }
    let tokio =
        tokio::runtime::Runtime::new().map_err(|error| failed(format!("cannot start: {error}")))?;
    let missing = tokio.block_on(async {
        let workshop = Workshop::start(config).await?;
        let mut missing = Vec::new();
        for runtime in wanted {
            match workshop.prepare(runtime).await {
                Ok(_) => output::say(&format!("{}  ready", runtime.alias)),
                Err(failure) => {
                    output::complain(&format!("{}: {}", runtime.alias, failure.text));
                    missing.push(runtime.alias.as_str());
                }
            }
        }
        workshop.close().await;
        Ok::<_, Failure>(missing)
    });
    let missing = missing.map_err(|failure| failed(failure.text))?;
    if missing.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    Err(failed(format!("not ready: {}", missing.join(", "))))
}

fn show(config: &Config, name: &str) -> Result<ExitCode, Failure> {
    let runtime = named(config, name)?;
    let standing = standing(config, runtime)?;
    let own = &runtime.ceilings;
    let mut shown = json!({
        "alias": runtime.alias,
        "description": runtime.description,
        "ready": standing.as_ref().map(Standing::is_ready),
        "image": standing.as_ref().and_then(Standing::image),
        "user": runtime.user.or(config.service.sandbox_uid),
        "env": runtime.env,
        "ceilings": {
            "memory_bytes": own.memory_bytes,
            "memory_swap_bytes": own.memory_swap_bytes,
            "cpus": own.cpus,
            "cpu_shares": own.cpu_shares,
            "pids": own.pids,
            "disk_bytes": own.disk_bytes,
            "disk_files": own.disk_files,
            "network_mode": own.network_mode,
            "oci_runtime": own.oci_runtime,
        },
    });
    let made_from = match &runtime.source {
        Source::Host => json!({"host": true}),
        Source::Directory(path) => json!({"directory": path}),
        Source::Tar(path) => json!({"tar": path}),
        Source::Image(name) => json!({"image": name}),
        Source::Recipe(recipe) => {
            let plan = recipe.plan().map_err(failed)?;
            let steps = plan.steps.iter();
            let steps: Vec<Value> = steps
                .map(|step| json!({"label": step.label, "argv": step.argv()}))
                .collect();
            json!({
                "recipe": recipe.name,
                "base_image": recipe.base_image,
                "cache_image": recipe.cache_image,
                "steps": steps,
            })
        }
    };
    if let Some(object) = shown.as_object_mut() {
        object.insert("made_from".to_owned(), made_from);
    }
    let text = serde_json::to_string_pretty(&shown).map_err(failed)?;
    output::say(&text);
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_straight_and_harmless() {
        let row = |cells: [&str; 4]| cells.map(str::to_owned);
        let text = table(&[
            row(["NAME", "IMAGE", "MADE FROM", "WHAT"]),
            row(["a *", "ready", "host", "words\x1b[2J"]),
            row(["longer", "not here", "b:1", ""]),
        ]);
        assert_eq!(
            text,
            "NAME    IMAGE     MADE FROM  WHAT\n\
             a *     ready     host       words\\u{1b}[2J\n\
             longer  not here  b:1\n"
        );
    }
}
