//! Which crate may know which, by `cargo metadata`. Between the rooms of one crate: `rooms.rs`.

use crate::source::root;
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};
use std::collections::{BTreeMap, BTreeSet};

/// Each crate of ours, and those of ours that it may know. Leaves know none.
const CRATES: [(&str, &[&str]); 9] = [
    ("sandboxd-api", &[]),
    ("sandboxd-protocol", &[]),
    ("sandboxd-jail", &[]),
    ("sandboxd-files", &["sandboxd-protocol"]),
    ("sandboxd-guest", &["sandboxd-protocol", "sandboxd-files"]),
    (
        "sandboxd-server",
        &[
            "sandboxd-api",
            "sandboxd-protocol",
            "sandboxd-jail",
            "sandboxd-files",
        ],
    ),
    ("sandboxd-client", &["sandboxd-api"]),
    (
        "sandboxd",
        &[
            "sandboxd-server",
            "sandboxd-protocol",
            "sandboxd-client",
            "sandboxd-api",
        ],
    ),
    ("xtask", &[]),
];

/// What the security-critical programs may depend on; a new name here is a decision, with a reason in the commit.
const STRANGERS: [(&str, &[&str]); 2] = [
    (
        "sandboxd-jail",
        &["libc", "postcard", "rustix", "serde", "thiserror"],
    ),
    (
        "sandboxd-guest",
        &[
            "async-trait",
            "bytes",
            "futures",
            "libc",
            "rustix",
            "thiserror",
            "tokio",
            "tokio-util",
        ],
    ),
];

/// What must not be anywhere below a program that runs inside a sandbox: it knows no HTTP, no JSON, no log.
const NEVER_INSIDE: [&str; 6] = ["hyper", "axum", "http", "serde_json", "tracing", "rusqlite"];

type Known = BTreeMap<String, BTreeSet<String>>;

fn wrong_crate_arrows(ours: &Known) -> Vec<String> {
    let allowed: BTreeMap<_, _> = CRATES.into_iter().collect();
    let mut wrong = Vec::new();
    for (name, knows) in ours {
        let Some(may) = allowed.get(name.as_str()) else {
            wrong.push(format!(
                "{name}: a new crate needs its line in CRATES, and a reason"
            ));
            continue;
        };
        let not_allowed = knows.iter().filter(|known| !may.contains(&known.as_str()));
        wrong.extend(not_allowed.map(|known| format!("{name} must not know {known}")));
    }
    wrong
}

fn metadata() -> Metadata {
    MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .other_options(["--locked".to_owned()])
        .exec()
        .expect("cargo metadata answers")
}

/// The direct dependencies of each crate of the workspace, those for development only where asked for.
fn direct(metadata: &Metadata, development: bool) -> Known {
    let packages = metadata.workspace_packages().into_iter();
    packages
        .map(|package| {
            let dependencies = package.dependencies.iter();
            let names = dependencies
                .filter(|d| development || d.kind != DependencyKind::Development)
                .map(|d| d.name.clone());
            (package.name.to_string(), names.collect())
        })
        .collect()
}

#[test]
fn crates_know_only_whom_they_may() {
    let mut known = direct(&metadata(), true);
    let ours: BTreeSet<String> = known.keys().cloned().collect();
    for knows in known.values_mut() {
        knows.retain(|name| ours.contains(name));
    }
    assert!(ours.len() >= CRATES.len(), "crates are missing: {ours:?}");
    let wrong = wrong_crate_arrows(&known);
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn a_forbidden_arrow_is_found() {
    let known = |name: &str, knows: &[&str]| {
        let knows = knows.iter().map(|&k| k.to_owned()).collect();
        wrong_crate_arrows(&BTreeMap::from([(name.to_owned(), knows)])).len()
    };
    assert_eq!(known("sandboxd-guest", &["sandboxd-server"]), 1);
    assert_eq!(known("sandboxd-api", &["sandboxd-protocol"]), 1);
    assert_eq!(known("sandboxd-drawer", &[]), 1);
    assert_eq!(known("sandboxd-guest", &["sandboxd-protocol"]), 0);
}

#[test]
fn the_programs_inside_depend_on_little() {
    let metadata = metadata();
    let known = direct(&metadata, false);
    for (name, may) in STRANGERS {
        let foreign = known[name].iter().filter(|d| !d.starts_with("sandboxd-"));
        let more: Vec<_> = foreign.filter(|d| !may.contains(&d.as_str())).collect();
        assert!(
            more.is_empty(),
            "{name} may not depend on {more:?} without a decision"
        );
        let below = everything_below(&metadata, name);
        assert!(
            below.contains("libc"),
            "nothing was found below {name}: {below:?}"
        );
        let never: Vec<_> = NEVER_INSIDE
            .iter()
            .filter(|d| below.contains(**d))
            .collect();
        assert!(never.is_empty(), "{never:?} came in below {name}");
    }
    let daemon = everything_below(&metadata, "sandboxd-server");
    assert!(
        NEVER_INSIDE.iter().any(|d| daemon.contains(*d)),
        "the rule must be able to fail"
    );
}

/// The names of all that a crate is built from, development dependencies left out.
fn everything_below(metadata: &Metadata, name: &str) -> BTreeSet<String> {
    let resolve = metadata.resolve.as_ref().expect("metadata has a graph");
    let start = metadata.workspace_packages();
    let start = start
        .iter()
        .find(|p| p.name == name)
        .expect("the crate is ours");
    let mut open = vec![start.id.clone()];
    let mut seen = BTreeSet::new();
    let mut names = BTreeSet::new();
    while let Some(id) = open.pop() {
        if !seen.insert(id.clone()) {
            continue;
        }
        names.insert(metadata[&id].name.to_string());
        let node = resolve
            .nodes
            .iter()
            .find(|node| node.id == id)
            .expect("it has a node");
        let used = node.deps.iter().filter(|dep| {
            dep.dep_kinds
                .iter()
                .any(|kind| kind.kind != DependencyKind::Development)
        });
        open.extend(used.map(|dep| dep.pkg.clone()));
    }
    names.remove(name);
    names
}
