//! `sandboxd session`: what sessions have on disk, and how it goes. The state directory is read as it is, so that this works
//! beside a running service and without one; only what is removed goes through a service that runs.
//!
//! - [`found`]: records, stored files and write layers, put together by session.
//! - [`removal`]: closing sessions, by the service or in its place.

mod found;
mod removal;

use crate::arguments::{SessionArguments, SessionCommand};
use crate::failure::{FAILED, Failure};
use crate::output::{self, Align, size};
use crate::sandbox::configuration;
use found::Found;
use sandboxd_server::backends::namespaces::{Stored, stored_below};
use sandboxd_server::clock::{Clock as _, SystemClock};
use sandboxd_server::config::{Config, Flags};
use sandboxd_server::runtimes::images::{Images, Summary};
use sandboxd_server::store::{self, Served};
use serde_json::{Value, json};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Does it.
pub(crate) fn session(arguments: &SessionArguments) -> ExitCode {
    match attempt(arguments) {
        Ok(code) => code,
        Err(failure) => failure.tell(),
    }
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(FAILED, error)
}

/// A state directory, and what belongs to it elsewhere.
struct Place {
    config: Config,
    /// Where sessions' files are stored; nothing where nobody has said.
    workspace_root: Option<PathBuf>,
    /// What the service that uses it, or the last one that did, said of itself.
    served: Option<Served>,
}

impl Place {
    fn of(arguments: &SessionArguments) -> Result<Self, Failure> {
        let token_file = match &arguments.command {
            SessionCommand::Rm { token_file, .. } => token_file.clone(),
            SessionCommand::Ls { .. } | SessionCommand::Du { .. } => None,
        };
        let flags = Flags {
            state_dir: arguments.state_dir.clone(),
            workspace_root: arguments.workspace_root.clone(),
            token_file,
            ..Flags::default()
        };
        let config =
            configuration(flags, arguments.config.clone()).map_err(|error| failed(error.text))?;
        let served = Served::of(&config.state_dir).map_err(failed)?;
        let last = || served.as_ref()?.workspace_root.clone();
        Ok(Self {
            workspace_root: config.service.workspace_root.clone().or_else(last),
            served,
            config,
        })
    }

    fn state_dir(&self) -> &Path {
        &self.config.state_dir
    }

    fn is_held(&self) -> Result<bool, Failure> {
        store::is_held(self.state_dir()).map_err(failed)
    }

    fn found(&self) -> Result<Found, Failure> {
        Found::look(
            self.state_dir(),
            self.workspace_root.as_deref(),
            self.is_held()?,
        )
    }
}

fn attempt(arguments: &SessionArguments) -> Result<ExitCode, Failure> {
    let place = Place::of(arguments)?;
    match &arguments.command {
        SessionCommand::Ls { json } => ls(&place, *json)?,
        SessionCommand::Du { ids, json } => du(&place, ids, *json)?,
        SessionCommand::Rm {
            ids, purge, url, ..
        } => return removal::rm(&place, ids, *purge, url.as_deref()),
    }
    Ok(ExitCode::SUCCESS)
}

fn ls(place: &Place, as_json: bool) -> Result<(), Failure> {
    let found = place.found()?;
    if as_json {
        let all: Vec<Value> = found.sessions.iter().map(listed).collect();
        output::say(&json!(all).to_string());
        return Ok(());
    }
    let now = SystemClock.now();
    let mut rows =
        vec![["SESSION", "STATE", "RUNTIME", "TENANT", "LAST USED", "ENDS"].map(str::to_owned)];
    for one in &found.sessions {
        let record = one.record.as_ref();
        let ends = record.and_then(|record| record.expires);
        rows.push([
            one.id.to_string(),
            one.state.word().to_owned(),
            record.map_or_else(dash, |record| output::printable(&record.runtime)),
            record
                .and_then(|record| Some(record.tenant.as_ref()?.as_str().to_owned()))
                .unwrap_or_else(dash),
            match one.used() {
                Some(used) => format!("{} ago", age(now.saturating_sub(used))),
                None => dash(),
            },
            ends.map_or_else(dash, |ends| format!("in {}", age(ends.saturating_sub(now)))),
        ]);
    }
    output::say_raw(output::columns(&rows, [Align::Left; 6]).as_bytes());
    Ok(())
}

fn dash() -> String {
    "-".to_owned()
}

/// A time for people.
fn age(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

fn listed(one: &found::Session) -> Value {
    let record = one.record.as_ref();
    let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
    json!({
        "session_id": one.id.as_str(),
        "state": one.state.word(),
        "runtime": record.map(|record| &record.runtime),
        "tenant": record.and_then(|record| record.tenant.as_ref()).map(|tenant| tenant.as_str()),
        "labels": record.map(|record| &record.labels),
        "created_at": seconds(record.map(|record| record.created)),
        "last_activity": seconds(one.used()),
        "expires_at": seconds(record.and_then(|record| record.expires)),
        "workspace": one.workspace.as_ref().map(|workspace| &workspace.path),
        "layer": one.layer.as_ref().map(|layer| &layer.path),
    })
}

/// What one session stores.
struct Measured<'a> {
    session: &'a found::Session,
    workspace: Option<Stored>,
    layer: Option<Stored>,
    image: Option<Image>,
}

/// What a write layer lies over.
struct Image {
    id: String,
    names: Vec<String>,
    bytes: Option<u64>,
}

impl Image {
    fn shown(&self) -> String {
        match self.names.first() {
            Some(name) => name.clone(),
            None if self.id.starts_with("sha256:") => self.id.chars().skip(7).take(12).collect(),
            None => output::printable(&self.id),
        }
    }
}

fn image(id: &str, all: &[Summary]) -> Image {
    let known = all.iter().find(|summary| summary.id == id);
    Image {
        id: id.to_owned(),
        names: known.map(|known| known.names.clone()).unwrap_or_default(),
        bytes: known.map(|known| known.bytes),
    }
}

fn du(place: &Place, ids: &[String], as_json: bool) -> Result<(), Failure> {
    let found = place.found()?;
    let wanted = |session: &&found::Session| {
        ids.is_empty() || ids.iter().any(|id| id == session.id.as_str())
    };
    for id in ids {
        if !found
            .sessions
            .iter()
            .any(|session| session.id.as_str() == id)
        {
            return Err(failed(format!("there is no session {id} here")));
        }
    }
    let images = Images::of(place.state_dir()).list().map_err(failed)?;
    let measured: Vec<Measured<'_>> = found
        .sessions
        .iter()
        .filter(wanted)
        .map(|session| {
            let layer = session.layer.as_ref();
            let workspace = session.workspace.as_ref();
            Measured {
                session,
                workspace: workspace.map(|there| stored_below(there.directory.as_fd())),
                layer: layer.map(|there| stored_below(there.directory.as_fd())),
                image: layer.and_then(|there| Some(image(there.image.as_deref()?, &images))),
            }
        })
        .collect();
    // What no session on record has, and the images that all share, belongs to the whole only.
    let whole = ids.is_empty();
    let others = found.others.iter().filter(|_| whole);
    let others: Vec<_> = others
        .map(|layer| (layer, stored_below(layer.directory.as_fd())))
        .collect();
    let shared = match whole {
        true => images_stored(place.state_dir())?,
        false => None,
    };
    if as_json {
        output::say(&in_json(&measured, &others, shared).to_string());
    } else {
        output::say_raw(table(&measured, &others, shared).as_bytes());
    }
    Ok(())
}

/// What the image store takes, which sessions share.
fn images_stored(state_dir: &Path) -> Result<Option<Stored>, Failure> {
    let path = state_dir.join("images");
    match std::fs::File::open(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Ok(directory) => Ok(Some(stored_below(directory.as_fd()))),
        Err(error) => Err(failed(format!("{}: {error}", path.display()))),
    }
}

type Others<'a> = [(
    &'a sandboxd_server::backends::namespaces::LayerOnDisk,
    Stored,
)];

fn total(measured: &[Measured<'_>], others: &Others<'_>, shared: Option<Stored>) -> Stored {
    let own = measured
        .iter()
        .flat_map(|one| [one.workspace, one.layer])
        .flatten();
    let others = others.iter().map(|(_, stored)| *stored);
    own.chain(others)
        .chain(shared)
        .fold(Stored::default(), Stored::plus)
}

fn in_json(measured: &[Measured<'_>], others: &Others<'_>, shared: Option<Stored>) -> Value {
    let part = |path: &Path, stored: &Stored| json!({ "path": path, "bytes": stored.bytes, "files": stored.files });
    let sessions: Vec<Value> = measured
        .iter()
        .map(|one| {
            let workspace = one.session.workspace.as_ref().zip(one.workspace.as_ref());
            let layer = one.session.layer.as_ref().zip(one.layer.as_ref());
            json!({
                "session_id": one.session.id.as_str(),
                "state": one.session.state.word(),
                "workspace": workspace.map(|(there, stored)| part(&there.path, stored)),
                "layer": layer.map(|(there, stored)| {
                    let mut layer = part(&there.path, stored);
                    layer["kept"] = json!(there.kept);
                    layer
                }),
                "image": one.image.as_ref().map(|image| {
                    json!({ "id": image.id, "names": image.names, "bytes": image.bytes })
                }),
            })
        })
        .collect();
    let others: Vec<Value> = others
        .iter()
        .map(|(layer, stored)| part(&layer.path, stored))
        .collect();
    let sum = total(measured, &[], None);
    json!({
        "sessions": sessions,
        "sessions_bytes": sum.bytes,
        "sessions_files": sum.files,
        "other_layers": others,
        "images": shared.map(|shared| json!({ "bytes": shared.bytes, "files": shared.files })),
    })
}

fn table(measured: &[Measured<'_>], others: &Others<'_>, shared: Option<Stored>) -> String {
    let heads = ["SESSION", "STATE", "FILES", "LAYER", "TOTAL", "IMAGE"];
    let mut rows = vec![heads.map(str::to_owned)];
    let bytes = |stored: Option<Stored>| stored.map_or_else(dash, |stored| size(stored.bytes));
    for one in measured {
        let both = [one.workspace, one.layer].into_iter().flatten();
        rows.push([
            one.session.id.to_string(),
            one.session.state.word().to_owned(),
            bytes(one.workspace),
            bytes(one.layer),
            size(both.fold(Stored::default(), Stored::plus).bytes),
            one.image.as_ref().map_or_else(dash, Image::shown),
        ]);
    }
    let mut line = |what: &str, layer: String, sum: Stored| {
        let [what, none] = [what.to_owned(), dash()];
        rows.push([
            what,
            none.clone(),
            none.clone(),
            layer,
            size(sum.bytes),
            none,
        ]);
    };
    for (layer, stored) in others {
        let what = if layer.kept {
            "(no session)"
        } else {
            "(a sandbox without a session)"
        };
        line(what, size(stored.bytes), *stored);
    }
    if let Some(shared) = shared {
        line("(all images)", dash(), shared);
    }
    line("total", dash(), total(measured, others, shared));
    let (left, right) = (Align::Left, Align::Right);
    output::columns(&rows, [left, left, right, right, right, left])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_for_people() {
        let said = |seconds| age(Duration::from_secs(seconds));
        assert_eq!(said(0), "0 s");
        assert_eq!(said(119), "119 s");
        assert_eq!(said(120), "2 min");
        assert_eq!(said(7_200), "2 h");
        assert_eq!(said(86_400 * 3), "3 days");
    }

    #[test]
    fn an_image_is_shown_by_its_name_or_the_beginning_of_its_digest() {
        let id = format!("sha256:{}", "ab".repeat(32));
        let summary = Summary {
            names: vec!["python:3.12-slim".to_owned()],
            id: id.clone(),
            manifest: None,
            layers: Vec::new(),
            bytes: 5,
            user: None,
        };
        assert_eq!(image(&id, &[summary]).shown(), "python:3.12-slim");
        assert_eq!(image(&id, &[]).shown(), "abababababab");
        assert_eq!(image("host", &[]).shown(), "host");
    }
}
