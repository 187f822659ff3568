//! `sandboxd image`: what is in the image store, and how it comes and goes. The work is the server library's.

use crate::arguments::{ImageArguments, ImageCommand};
use crate::failure::{FAILED, Failure};
use crate::output::{self, Align, size};
use crate::sandbox::configuration;
use crate::shown::Shown;
use sandboxd_server::backends::namespaces::{ForgottenCaches, forget_caches, kept_images};
use sandboxd_server::clock::{Clock as _, SystemClock};
use sandboxd_server::config::{Config, Flags};
use sandboxd_server::runtimes::images::reference::Reference;
use sandboxd_server::runtimes::images::{
    self, Cancel, Images, Imported, Registries, Removed, Summary,
};
use serde_json::json;
use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::ExitCode;

/// Does it.
pub(crate) fn image(arguments: &ImageArguments) -> ExitCode {
    match attempt(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.tell(),
    }
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(FAILED, error)
}

fn attempt(arguments: &ImageArguments) -> Result<(), Failure> {
    let flags = Flags {
        state_dir: arguments.state_dir.clone(),
        ..Flags::default()
    };
    let config =
        configuration(flags, arguments.config.clone()).map_err(|error| failed(error.text))?;
    let store = Images::of(&config.state_dir);
    match &arguments.command {
        ImageCommand::Ls { json } => ls(&store, *json),
        ImageCommand::Pull { names } => pull(&store, &config, names),
        ImageCommand::Import { path, name } => import(&store, path, name.as_deref()),
        ImageCommand::Rm { names } => rm(&store, &config.state_dir, names),
        ImageCommand::Gc => gc(&store, &config),
        ImageCommand::Inspect { name } => inspect(&store, name),
    }
}

fn ls(store: &Images, as_json: bool) -> Result<(), Failure> {
    let all = store.list().map_err(failed)?;
    if as_json {
        output::say(&json!(all).to_string());
        return Ok(());
    }
    output::say_raw(table(&all).as_bytes());
    Ok(())
}

/// A line for each name, and for each image without one.
fn table(all: &[Summary]) -> String {
    let mut rows = vec![["NAME", "ID", "LAYERS", "SIZE"].map(str::to_owned)];
    for image in all {
        let id = image.id.trim_start_matches("sha256:");
        let row = |name: &str| {
            [
                name.to_owned(),
                id.get(..12).unwrap_or(id).to_owned(),
                image.layers.len().to_string(),
                size(image.bytes),
            ]
        };
        rows.extend(image.names.iter().map(|name| row(name)));
        if image.names.is_empty() {
            rows.push(row("-"));
        }
    }
    let (left, right) = (Align::Left, Align::Right);
    output::columns(&rows, [left, left, right, right])
}

fn pull(store: &Images, config: &Config, names: &[String]) -> Result<(), Failure> {
    let names = names.iter().map(|name| Reference::parse(name));
    let names: Vec<Reference> = names.collect::<Result<_, _>>().map_err(failed)?;
    let registries = Registries::new(config.registries.clone()).map_err(failed)?;
    let runtime =
        tokio::runtime::Runtime::new().map_err(|error| failed(format!("cannot start: {error}")))?;
    for name in &names {
        let shown = Shown::for_image(&name.to_string());
        let pulled = runtime.block_on(images::pull(store, &registries, name, &shown));
        shown.end();
        let id = pulled.map_err(|error| failed(format!("{name}: {error}")))?;
        output::say(&format!("{name}  {id}"));
    }
    Ok(())
}

fn import(store: &Images, path: &Path, name: Option<&str>) -> Result<(), Failure> {
    let name = name.map(Reference::parse).transpose().map_err(failed)?;
    let cancel = Cancel::default();
    let shown = Shown::for_image(&path.display().to_string());
    let imported = if path == Path::new("-") {
        let stdin = std::io::stdin()
            .as_fd()
            .try_clone_to_owned()
            .map_err(failed)?;
        images::import_stream(store, File::from(stdin), name.as_ref(), &cancel, &shown)
    } else {
        images::import(store, path, name.as_ref(), &cancel, &shown)
    };
    shown.end();
    for Imported { id, names } in imported.map_err(failed)? {
        for name in names {
            output::say(&format!("{name}  {id}"));
        }
    }
    Ok(())
}

fn rm(store: &Images, state_dir: &Path, names: &[String]) -> Result<(), Failure> {
    let kept = kept_images(state_dir);
    for name in names {
        let removed = store.remove(name, &kept).map_err(failed)?;
        output::say(&match removed.images {
            0 => format!("{name}  the image has other names"),
            _ => format!("{name}  removed, {}", freed(&removed)),
        });
    }
    Ok(())
}

fn freed(removed: &Removed) -> String {
    format!(
        "{} ({})",
        count(removed.layers, "layer"),
        size(removed.bytes)
    )
}

fn count(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

fn gc(store: &Images, config: &Config) -> Result<(), Failure> {
    let kept = kept_images(&config.state_dir);
    let removed = store.collect(&kept, SystemClock.now()).map_err(failed)?;
    let sources = config.service.runtimes.values();
    let sources = sources.map(|runtime| &runtime.source);
    let forgotten = forget_caches(&config.state_dir, sources).map_err(failed)?;
    output::say(&collected(&removed, forgotten));
    Ok(())
}

fn collected(removed: &Removed, forgotten: ForgottenCaches) -> String {
    format!(
        "removed {}, {}, {}, {} ({})",
        count(removed.images, "image"),
        freed(removed),
        count(removed.leftovers, "leftover"),
        count(forgotten.caches, "package cache"),
        size(forgotten.bytes)
    )
}

fn inspect(store: &Images, name: &str) -> Result<(), Failure> {
    let (summary, config) = store.inspect(name).map_err(failed)?;
    let config: serde_json::Value = serde_json::from_str(&config).map_err(failed)?;
    let mut shown = json!(summary);
    if let Some(object) = shown.as_object_mut() {
        object.insert("config".to_owned(), config);
    }
    let text = serde_json::to_string_pretty(&shown).map_err(failed)?;
    output::say(&text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_line_for_each_name() {
        let image = |names: &[&str]| Summary {
            names: names.iter().map(|&name| name.to_owned()).collect(),
            id: format!("sha256:{}", "ab".repeat(32)),
            manifest: None,
            layers: Vec::new(),
            bytes: 2048,
            user: None,
        };
        let text = table(&[image(&["a:1", "long-name:2"]), image(&[])]);
        assert_eq!(
            text,
            "NAME         ID            LAYERS     SIZE\n\
             a:1          abababababab       0  2.0 KiB\n\
             long-name:2  abababababab       0  2.0 KiB\n\
             -            abababababab       0  2.0 KiB\n"
        );
    }
}
