//! Ready-made allowlists that an operator can select by name, and the one for a service that was told nothing.

use crate::runtimes::recipe::{self, Builtin};
use crate::runtimes::{Ceilings, Runtime, Source};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// One row of a catalogue.
struct Row {
    alias: &'static str,
    /// As in the compact grammar: an image, or `@name` of a built-in.
    source: &'static str,
    description: &'static str,
    memory: Option<&'static str>,
    cpus: Option<f64>,
    network: Option<&'static str>,
}

const fn row(alias: &'static str, source: &'static str) -> Row {
    Row {
        alias,
        source,
        description: "",
        memory: None,
        cpus: None,
        network: None,
    }
}

const PYTHON_WORDS: &str = "Python 3.12, standard library only";
const NODE_WORDS: &str = "Node.js 20, no extra packages";

/// What a service allows that was told nothing: nothing to build, nothing with a network.
const UNCONFIGURED: &[Row] = &[
    Row {
        description: "This host's own programs, read-only",
        ..row("host", "host")
    },
    Row {
        description: PYTHON_WORDS,
        ..row("python", "python:3.12-slim")
    },
    Row {
        description: NODE_WORDS,
        ..row("node", "node:20-slim")
    },
];

/// What the Python service allows by default.
const DEFAULT: &[Row] = &[
    Row {
        network: Some("bridge"),
        ..row("coding", "@coding")
    },
    Row {
        description: PYTHON_WORDS,
        ..row("python", "python:3.12-slim")
    },
    Row {
        description: NODE_WORDS,
        ..row("node", "node:20-slim")
    },
];

const fn sized(alias: &'static str, source: &'static str, memory: &'static str) -> Row {
    Row {
        memory: Some(memory),
        ..row(alias, source)
    }
}

/// What the Python service suggests.
const SUGGESTED: &[Row] = &[
    Row {
        cpus: Some(2.0),
        network: Some("bridge"),
        ..sized("coding", "@coding", "1g")
    },
    Row {
        cpus: Some(2.0),
        network: Some("bridge"),
        ..sized("polyglot", "@polyglot", "1g")
    },
    Row {
        description: PYTHON_WORDS,
        cpus: Some(1.0),
        ..sized("python", "python:3.12-slim", "1g")
    },
    Row {
        cpus: Some(2.0),
        ..sized("python-analytics", "@python-analytics", "1g")
    },
    Row {
        cpus: Some(2.0),
        ..sized("python-datascience", "@python-datascience", "4g")
    },
    sized("python-documents", "@python-documents", "2g"),
    Row {
        network: Some("bridge"),
        ..sized("python-scraping", "@python-scraping", "1g")
    },
    Row {
        description: NODE_WORDS,
        ..sized("node", "node:20-slim", "1g")
    },
    sized("node-typescript", "@node-typescript", "2g"),
    Row {
        cpus: Some(2.0),
        ..sized("go", "@go", "2g")
    },
    Row {
        cpus: Some(2.0),
        ..sized("rust", "@rust", "4g")
    },
];

/// The allowlist of a service that was told nothing, in order; the first is its default.
pub fn unconfigured(images: &BTreeMap<String, PathBuf>) -> Vec<Runtime> {
    runtimes(UNCONFIGURED, images)
}

/// The catalogue of this name (`default` or `suggested`), in order.
pub fn named(name: &str, images: &BTreeMap<String, PathBuf>) -> Option<Vec<Runtime>> {
    match name {
        "default" => Some(runtimes(DEFAULT, images)),
        "suggested" => Some(runtimes(SUGGESTED, images)),
        _ => None,
    }
}

/// A runtime made from a built-in name; `None` where there is no such built-in.
pub fn of_builtin(alias: &str, name: &str, images: &BTreeMap<String, PathBuf>) -> Option<Runtime> {
    Some(match recipe::builtin(name)? {
        Builtin::Image { image, description } => Runtime {
            description: description.to_owned(),
            ..Runtime::plain(alias, image, Source::of_image(image, images))
        },
        Builtin::Recipe(mut recipe) => {
            recipe.base_path = images.get(&recipe.base_image).cloned();
            Runtime {
                description: recipe.description.clone(),
                ..Runtime::plain(alias, &recipe.label(), Source::Recipe(recipe))
            }
        }
    })
}

fn runtimes(rows: &[Row], images: &BTreeMap<String, PathBuf>) -> Vec<Runtime> {
    rows.iter().map(|row| runtime(row, images)).collect()
}

fn runtime(row: &Row, images: &BTreeMap<String, PathBuf>) -> Runtime {
    let plain = || {
        let source = Source::of_image(row.source, images);
        Runtime::plain(row.alias, row.source, source)
    };
    let mut runtime = row
        .source
        .strip_prefix('@')
        .and_then(|name| of_builtin(row.alias, name, images))
        .unwrap_or_else(plain);
    if !row.description.is_empty() {
        runtime.description = row.description.to_owned();
    }
    runtime.ceilings = Ceilings {
        memory_bytes: row.memory.and_then(crate::config::bytes_of_size),
        cpus: row.cpus,
        network_mode: row.network.map(str::to_owned),
        ..Ceilings::default()
    };
    runtime.texts.mem_limit = row.memory.map(str::to_owned);
    runtime
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_complete() {
        let none = BTreeMap::new();
        for rows in [UNCONFIGURED, DEFAULT, SUGGESTED] {
            for (row, runtime) in rows.iter().zip(runtimes(rows, &none)) {
                assert_eq!(row.source.starts_with('@'), runtime.label != row.source);
                assert_eq!(
                    row.memory.is_some(),
                    runtime.ceilings.memory_bytes.is_some()
                );
                assert!(!runtime.description.is_empty(), "{}", row.alias);
            }
        }
    }

    #[test]
    fn an_unconfigured_service_builds_nothing_and_opens_no_network() {
        let list = unconfigured(&BTreeMap::new());
        assert_eq!(list[0].alias, "host");
        assert!(
            list.iter()
                .all(|runtime| runtime.ceilings.network_mode.is_none())
        );
        assert!(
            !list
                .iter()
                .any(|runtime| matches!(runtime.source, Source::Recipe(_)))
        );
    }
}
