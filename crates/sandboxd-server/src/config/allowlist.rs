//! The two grammars of `SANDBOXD_RUNTIMES`, and the same as TOML tables.
//!
//! - compact: `alias=source[;field=value…]`, comma-separated; a source is an image or `@name` of a built-in;
//! - JSON: `{alias: "source" | {fields}}`, where `runtime` may be a built-in's name or a recipe written out;
//! - `@default` and `@suggested` alone select a ready-made list.
//!
//! Order counts: the first alias is the default runtime.

use super::error::{ConfigError, Origin};
use super::parse;
use super::settings::network;
use crate::runtimes::recipe::{
    PackageManager, Recipe, RecipeError, check_variable, check_work_dir,
};
use crate::runtimes::{Runtime, Source, catalogue};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Names that the operator mapped to paths on this host.
pub(super) type Images = BTreeMap<String, PathBuf>;
type Rows = Vec<(String, Value)>;

/// A piece that does not parse: the piece, and why.
struct Wrong {
    raw: String,
    problem: String,
}

impl Wrong {
    fn new(raw: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            raw: raw.into(),
            problem: problem.into(),
        }
    }
    fn at(self, origin: &Origin) -> ConfigError {
        ConfigError::Value {
            origin: origin.clone(),
            raw: self.raw,
            problem: self.problem,
        }
    }
}

/// Parses a list written as text.
pub(super) fn of_text(
    text: &str,
    origin: &Origin,
    images: &Images,
) -> Result<Vec<Runtime>, ConfigError> {
    let text = text.trim();
    if let Some(name) = text.strip_prefix('@') {
        return catalogue::named(name, images)
            .ok_or_else(|| Wrong::new(text, "expected @default, @suggested or a list").at(origin));
    }
    let rows = match text.as_bytes().first() {
        None => Err(Wrong::new(text, "expected at least one runtime")),
        Some(b'{') => rows_of_json(text),
        Some(b'[') => Err(Wrong::new(text, "expected a JSON object, alias to source")),
        Some(_) => rows_of_compact(text),
    };
    of_rows(rows.map_err(|wrong| wrong.at(origin))?, origin, images)
}

/// Parses rows of JSON or TOML.
pub(super) fn of_rows(
    rows: Rows,
    origin: &Origin,
    images: &Images,
) -> Result<Vec<Runtime>, ConfigError> {
    let each = rows.into_iter().map(|(alias, value)| {
        runtime(&alias, value, images).map_err(|wrong| {
            let problem = format!("runtime {alias:?}: {}", wrong.problem);
            Wrong::new(wrong.raw, problem).at(origin)
        })
    });
    let list = later_wins(each.collect::<Result<Vec<_>, _>>()?);
    if list.is_empty() {
        return Err(Wrong::new("", "expected at least one runtime").at(origin));
    }
    Ok(list)
}

/// A later entry of the same alias wins, in the earlier one's place.
pub(super) fn later_wins(all: impl IntoIterator<Item = Runtime>) -> Vec<Runtime> {
    let mut list: Vec<Runtime> = Vec::new();
    for runtime in all {
        match list.iter_mut().find(|one| one.alias == runtime.alias) {
            Some(earlier) => *earlier = runtime,
            None => list.push(runtime),
        }
    }
    list
}

/// `SANDBOXD_IMAGES`: a JSON object or `name=path,…`.
pub(super) fn images_of_text(text: &str, origin: &Origin) -> Result<Images, ConfigError> {
    let text = text.trim();
    let rows = match text.as_bytes().first() {
        None => return Ok(Images::new()),
        Some(b'{') => rows_of_json(text).map_err(|wrong| wrong.at(origin))?,
        Some(_) => pieces(text, ',')
            .map(|piece| match piece.split_once('=') {
                Some((name, path)) => Ok((
                    name.trim().to_owned(),
                    Value::String(path.trim().to_owned()),
                )),
                None => Err(Wrong::new(piece, "expected name=path").at(origin)),
            })
            .collect::<Result<_, _>>()?,
    };
    images_of_rows(rows, origin)
}

/// The same, of JSON or TOML rows.
pub(super) fn images_of_rows(rows: Rows, origin: &Origin) -> Result<Images, ConfigError> {
    rows.into_iter()
        .map(|(name, value)| match value {
            Value::String(path) if path.starts_with('/') && !name.is_empty() => {
                Ok((name, PathBuf::from(path)))
            }
            other => {
                let problem = format!(
                    "image {name:?}: expected the absolute path of a directory or a tar file"
                );
                Err(Wrong::new(plain(&other), problem).at(origin))
            }
        })
        .collect()
}

/// A TOML table as rows, in the file's order.
pub(super) fn rows_of_toml(table: toml::Table, origin: &Origin) -> Result<Rows, ConfigError> {
    table
        .into_iter()
        .map(|(alias, value)| match serde_json::to_value(&value) {
            Ok(json) => Ok((alias, json)),
            Err(_) => Err(Wrong::new(value.to_string(), "expected plain values").at(origin)),
        })
        .collect()
}

fn pieces(text: &str, separator: char) -> impl Iterator<Item = &str> {
    text.split(separator)
        .map(str::trim)
        .filter(|piece| !piece.is_empty())
}

fn rows_of_compact(text: &str) -> Result<Rows, Wrong> {
    let rows: Rows = pieces(text, ',')
        .map(row_of_compact)
        .collect::<Result<_, _>>()?;
    if rows.is_empty() {
        return Err(Wrong::new(text, "expected at least one runtime"));
    }
    Ok(rows)
}

fn row_of_compact(entry: &str) -> Result<(String, Value), Wrong> {
    let mut parts = entry.split(';').map(str::trim);
    let (alias, source) = parts
        .next()
        .and_then(|head| head.split_once('='))
        .ok_or_else(|| Wrong::new(entry, "expected alias=source"))?;
    let (alias, source) = (alias.trim(), source.trim());
    if source.is_empty() {
        return Err(Wrong::new(entry, "the source is empty"));
    }
    let mut fields = serde_json::Map::new();
    source_into(source, &mut fields);
    for part in parts.filter(|part| !part.is_empty()) {
        let (name, value) = part
            .split_once('=')
            .ok_or_else(|| Wrong::new(part, "expected field=value"))?;
        fields.insert(
            name.trim().to_owned(),
            Value::String(value.trim().to_owned()),
        );
    }
    Ok((alias.to_owned(), Value::Object(fields)))
}

fn source_into(source: &str, fields: &mut serde_json::Map<String, Value>) {
    let (field, text) = match source.strip_prefix('@') {
        Some(name) => ("runtime", name),
        None => ("image", source),
    };
    fields.insert(field.to_owned(), Value::String(text.trim().to_owned()));
}

/// A JSON object's members in their order, which the usual map would lose.
struct Ordered(Rows);

impl<'de> serde::Deserialize<'de> for Ordered {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Ordered;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<Ordered, A::Error> {
                let mut rows = Rows::new();
                while let Some(row) = map.next_entry()? {
                    rows.push(row);
                }
                Ok(Ordered(rows))
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

fn rows_of_json(text: &str) -> Result<Rows, Wrong> {
    match serde_json::from_str::<Ordered>(text) {
        Ok(Ordered(rows)) => Ok(rows),
        Err(error) => Err(Wrong::new(
            text,
            format!("expected a JSON object ({error})"),
        )),
    }
}

/// One runtime of its fields. Fields are taken out as they are read; what is left is unknown.
fn runtime(alias: &str, value: Value, images: &Images) -> Result<Runtime, Wrong> {
    if alias.trim().is_empty() {
        return Err(Wrong::new(alias, "the alias is empty"));
    }
    let mut fields = match value {
        Value::String(source) => {
            let mut fields = serde_json::Map::new();
            source_into(source.trim(), &mut fields);
            fields
        }
        Value::Object(fields) => fields,
        other => return Err(Wrong::new(plain(&other), "expected a source or an object")),
    };
    let image = text(&mut fields, "image")?;
    let built = fields.remove("runtime").filter(|value| !value.is_null());
    let mut runtime = match (image, built) {
        (Some(image), None) => of_image(alias, &image, images)?,
        (None, Some(Value::String(name))) => catalogue::of_builtin(alias, &name, images)
            .ok_or_else(|| Wrong::new(name, "no built-in runtime has this name"))?,
        (None, Some(Value::Object(recipe))) => of_recipe(alias, recipe, images)?,
        (None, Some(other)) => {
            return Err(Wrong::new(
                plain(&other),
                "expected a built-in's name or a recipe",
            ));
        }
        (Some(_), Some(_)) => return Err(Wrong::new("", "both image and runtime are given")),
        (None, None) => return Err(Wrong::new("", "neither image nor runtime is given")),
    };
    if let Some(description) = text(&mut fields, "description")?.filter(|text| !text.is_empty()) {
        runtime.description = description;
    }
    ceilings(&mut fields, &mut runtime)?;
    refuse_rest(&fields)?;
    Ok(runtime)
}

fn of_image(alias: &str, image: &str, images: &Images) -> Result<Runtime, Wrong> {
    match image.trim() {
        "" => Err(Wrong::new(image, "the source is empty")),
        image => Ok(Runtime::plain(
            alias,
            image,
            Source::of_image(image, images),
        )),
    }
}

fn ceilings(
    fields: &mut serde_json::Map<String, Value>,
    runtime: &mut Runtime,
) -> Result<(), Wrong> {
    let ceilings = &mut runtime.ceilings;
    runtime.texts.mem_limit = text(fields, "mem_limit")?;
    ceilings.memory_bytes = parsed(runtime.texts.mem_limit.as_deref(), "mem_limit", parse::size)?;
    runtime.texts.memswap_limit = text(fields, "memswap_limit")?;
    ceilings.memory_swap_bytes = parsed(
        runtime.texts.memswap_limit.as_deref(),
        "memswap_limit",
        parse::size,
    )?;
    let number = |fields: &mut serde_json::Map<String, Value>, name| scalar(fields, name);
    ceilings.cpus = parsed(number(fields, "cpus")?.as_deref(), "cpus", parse::decimal)?;
    let shares = number(fields, "cpu_shares")?;
    ceilings.cpu_shares = parsed(shares.as_deref(), "cpu_shares", parse::positive)?;
    let pids = number(fields, "pids_limit")?;
    ceilings.pids = parsed(pids.as_deref(), "pids_limit", parse::positive)?;
    runtime.texts.disk_limit = text(fields, "disk_limit")?;
    let disk_limit = runtime.texts.disk_limit.as_deref();
    ceilings.disk_bytes = parsed(disk_limit, "disk_limit", parse::size)?;
    let files = number(fields, "inodes_limit")?;
    ceilings.disk_files = parsed(files.as_deref(), "inodes_limit", parse::positive)?;
    let mode = text(fields, "network_mode")?;
    ceilings.network_mode = parsed(mode.as_deref(), "network_mode", network)?;
    ceilings.oci_runtime = text(fields, "oci_runtime")?;
    let pool = number(fields, "pool")?;
    runtime.pool = parsed(pool.as_deref(), "pool", parse::pool)?;
    Ok(())
}

/// A recipe written out, with the fields and defaults of the contract's `RuntimeConfig`.
fn of_recipe(
    alias: &str,
    mut fields: serde_json::Map<String, Value>,
    images: &Images,
) -> Result<Runtime, Wrong> {
    let name = text(&mut fields, "name")?.ok_or_else(|| Wrong::new("", "a recipe needs a name"))?;
    let description = text(&mut fields, "description")?.unwrap_or_default();
    let image = text(&mut fields, "image")?;
    let base_image = text(&mut fields, "base_image")?;
    let manager = text(&mut fields, "package_manager")?;
    let package_manager = match manager.as_deref() {
        None => PackageManager::default(),
        Some(text) => PackageManager::parse(text).ok_or_else(|| {
            Wrong::new(text, "package_manager: expected pip, npm, apt, cargo or go")
        })?,
    };
    let packages = texts(&mut fields, "packages")?;
    let setup_commands = texts(&mut fields, "setup_commands")?;
    let env = variables(&mut fields)?;
    let user = parsed(
        scalar(&mut fields, "run_as_uid")?.as_deref(),
        "run_as_uid",
        uid,
    )?;
    // The service's own work directory applies to every runtime.
    if let Some(work_dir) = text(&mut fields, "work_dir")? {
        check_work_dir(&work_dir).map_err(of_rule)?;
    }
    let cache_image = truth(&mut fields, "cache_image")?.unwrap_or(true);
    refuse_rest(&fields)?;
    let mut runtime = match (image, base_image) {
        (Some(image), _) => of_image(alias, &image, images)?,
        (None, Some(base_image)) => {
            let recipe = Recipe {
                description: description.clone(),
                packages,
                package_manager,
                setup_commands,
                cache_image,
                user: user.filter(|uid| *uid != 0),
                base_path: images.get(&base_image).cloned(),
                ..Recipe::of(&name, &base_image)
            };
            recipe.check().map_err(of_rule)?;
            let built = format!("built from {}", recipe.base_image);
            Runtime {
                description: built,
                ..Runtime::plain(alias, &recipe.label(), Source::Recipe(recipe))
            }
        }
        (None, None) => return Err(Wrong::new(name, "a recipe needs image or base_image")),
    };
    if !description.is_empty() {
        runtime.description = description;
    }
    runtime.env = env;
    runtime.user = user;
    Ok(runtime)
}

fn of_rule(refused: RecipeError) -> Wrong {
    let problem = refused.to_string();
    Wrong::new(refused.raw, problem)
}

fn uid(text: &str) -> Result<u32, &'static str> {
    u32::try_from(parse::whole(text)?).map_err(|_| "expected a uid")
}

fn refuse_rest(fields: &serde_json::Map<String, Value>) -> Result<(), Wrong> {
    match fields.keys().next() {
        None => Ok(()),
        Some(name) => Err(Wrong::new(name, format!("unknown field {name:?}"))),
    }
}

/// A text field; absent and null are the same.
fn text(fields: &mut serde_json::Map<String, Value>, name: &str) -> Result<Option<String>, Wrong> {
    match fields.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(Wrong::new(plain(&other), format!("{name}: expected text"))),
    }
}

/// A number field, also spelled as text; absent and null are the same.
fn scalar(
    fields: &mut serde_json::Map<String, Value>,
    name: &str,
) -> Result<Option<String>, Wrong> {
    match fields.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(Value::Number(number)) => Ok(Some(number.to_string())),
        Some(other) => Err(Wrong::new(
            plain(&other),
            format!("{name}: expected a number"),
        )),
    }
}

/// A switch; absent and null are the same.
fn truth(fields: &mut serde_json::Map<String, Value>, name: &str) -> Result<Option<bool>, Wrong> {
    match fields.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(truth)) => Ok(Some(truth)),
        Some(other) => {
            let problem = format!("{name}: expected true or false");
            Err(Wrong::new(plain(&other), problem))
        }
    }
}

fn texts(fields: &mut serde_json::Map<String, Value>, name: &str) -> Result<Vec<String>, Wrong> {
    let wrong =
        |value: &Value| Wrong::new(plain(value), format!("{name}: expected a list of texts"));
    match fields.remove(name) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) => items
            .into_iter()
            .map(|item| match item {
                Value::String(text) => Ok(text),
                other => Err(wrong(&other)),
            })
            .collect(),
        Some(other) => Err(wrong(&other)),
    }
}

fn variables(
    fields: &mut serde_json::Map<String, Value>,
) -> Result<BTreeMap<String, String>, Wrong> {
    let wrong = |value: &Value| Wrong::new(plain(value), "env_vars: expected names and texts");
    let members = match fields.remove("env_vars") {
        None | Some(Value::Null) => return Ok(BTreeMap::new()),
        Some(Value::Object(members)) => members,
        Some(other) => return Err(wrong(&other)),
    };
    members
        .into_iter()
        .map(|(name, value)| match value {
            Value::String(text) => {
                check_variable(&name, &text).map_err(of_rule)?;
                Ok((name, text))
            }
            other => Err(wrong(&other)),
        })
        .collect()
}

fn parsed<T>(
    text: Option<&str>,
    name: &str,
    parse: impl Fn(&str) -> Result<T, &'static str>,
) -> Result<Option<T>, Wrong> {
    text.map(|text| parse(text).map_err(|problem| Wrong::new(text, format!("{name}: {problem}"))))
        .transpose()
}

/// A value as an operator would recognise it.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
