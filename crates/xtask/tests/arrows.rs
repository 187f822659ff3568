//! Who may know whom: between crates, by `cargo metadata`; between the rooms of the daemon, by their sources.

mod source;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};
use source::{Source, code, column, mentions, root, sources};
use std::collections::{BTreeMap, BTreeSet};

// ---- crates -------------------------------------------------------------------------------------------------------

/// Each crate of ours, and those of ours that it may know. Leaves know none.
const CRATES: [(&str, &[&str]); 8] = [
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
    (
        "sandboxd",
        &["sandboxd-server", "sandboxd-protocol", "sandboxd-api"],
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

// ---- rooms --------------------------------------------------------------------------------------------------------

/// Words that may stand only in some places, and why.
struct Rule {
    /// Where the rule is looked at: paths that begin so.
    within: &'static str,
    /// What it forbids there.
    words: &'static [&'static str],
    /// Where the words may stand all the same: paths that begin so.
    except: &'static [&'static str],
    /// What the reader of a failure is told.
    because: &'static str,
}

const SERVER: &str = "crates/sandboxd-server/src/";

const RULES: [Rule; 15] = [
    Rule {
        within: SERVER,
        words: &[
            "axum",
            "hyper",
            "hyper_util",
            "tower",
            "tower_http",
            "sandboxd_api",
            "serde_json",
        ],
        except: &["crates/sandboxd-server/src/api/"],
        because: "only api/ knows HTTP and JSON",
    },
    Rule {
        within: "crates/sandboxd-server/src/sessions/",
        words: &["crate::api", "crate::auth", "crate::config::Config"],
        except: &[],
        because: "sessions serve every door and know none",
    },
    Rule {
        within: "crates/sandboxd-server/src/backends/",
        words: &[
            "crate::api",
            "crate::auth",
            "crate::sessions",
            "crate::store",
            "crate::workspaces",
        ],
        except: &[],
        because: "a backend makes boxes; who rents them is not its business",
    },
    Rule {
        within: SERVER,
        words: &["sandboxd_jail"],
        except: &["crates/sandboxd-server/src/backends/"],
        because: "only backends/ knows what a sandbox is made of",
    },
    Rule {
        within: SERVER,
        words: &["backends::namespaces", "backends::in_memory"],
        except: &["crates/sandboxd-server/src/backends/"],
        because: "one list of backends, in backends/mod.rs",
    },
    Rule {
        within: SERVER,
        words: &[
            "std::env",
            "env::var",
            "env::var_os",
            "env::vars",
            "env::vars_os",
        ],
        except: &["crates/sandboxd-server/src/config"],
        because: "only config reads the environment",
    },
    Rule {
        within: SERVER,
        words: &["SystemTime", "UNIX_EPOCH"],
        except: &["crates/sandboxd-server/src/clock.rs"],
        because: "time comes from a Clock",
    },
    Rule {
        within: "crates/sandboxd-server/src/id.rs",
        words: &[
            "crate::api",
            "crate::auth",
            "crate::sessions",
            "crate::backends",
            "crate::store",
            "crate::config",
        ],
        except: &[],
        because: "identifiers are a leaf, but for the limits",
    },
    Rule {
        within: "crates/sandboxd-server/src/limits.rs",
        words: &["crate"],
        except: &[],
        because: "limits are a leaf",
    },
    Rule {
        within: "crates/sandboxd-server/src/sessions/state",
        words: &[
            "tokio",
            "async",
            "await",
            "Instant",
            "Mutex",
            "std::fs",
            "std::thread",
        ],
        except: &[],
        because: "the state machine is pure: no clock, no lock, no waiting",
    },
    Rule {
        within: "crates/sandboxd-server/src/backends/namespaces/plan",
        words: &["tokio", "async", "await", "std::fs", "rustix", "Instant"],
        except: &[],
        because: "a plan is made from its inputs alone",
    },
    Rule {
        within: "crates/sandboxd-protocol/src/frame",
        words: &["tokio", "async", "await", "std::fs", "std::net", "Instant"],
        except: &[],
        because: "frames are bytes, without I/O, so that they can be fuzzed",
    },
    Rule {
        within: SERVER,
        words: &[
            "unshare",
            "setns",
            "fork",
            "clone3",
            "fsopen",
            "fsmount",
            "open_tree",
            "move_mount",
            "mount_setattr",
            "pivot_root",
            "chroot",
            "pre_exec",
        ],
        except: &[],
        because: "the daemon never forks a copy of itself, mounts, unshares or enters a namespace",
    },
    Rule {
        within: "crates/sandboxd-guest/src/",
        words: &["SessionId", "Tenant", "token", "Token"],
        except: &[],
        because: "a guest knows no session and holds no credential",
    },
    Rule {
        within: "crates/sandboxd-api/src/",
        words: &["tokio", "std::fs", "std::env", "std::net"],
        except: &[],
        because: "the API is types",
    },
];

fn broken(rule: &Rule, file: &Source) -> Vec<String> {
    let tried = file.path.starts_with(rule.within);
    if !tried || rule.except.iter().any(|path| file.path.starts_with(path)) {
        return Vec::new();
    }
    let code = code(&file.text);
    let found = rule.words.iter().filter(|word| mentions(&code, word));
    found
        .map(|word| {
            let at = code.lines().position(|line| column(line, word).is_some());
            let line = at.map_or(0, |n| n + 1);
            format!("{}:{line}: `{word}`: {}", file.path, rule.because)
        })
        .collect()
}

#[test]
fn rooms_know_only_whom_they_may() {
    let files = sources(&root(), &[".rs"]);
    let mut wrong = Vec::new();
    for rule in &RULES {
        wrong.extend(files.iter().flat_map(|file| broken(rule, file)));
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

/// A rule over a room that has moved would hold by accident.
#[test]
fn every_rule_is_about_something() {
    let files = sources(&root(), &[".rs"]);
    for rule in &RULES {
        for place in rule.except.iter().chain([&rule.within]) {
            assert!(
                files.iter().any(|file| file.path.starts_with(place)),
                "{place} is not there"
            );
        }
    }
}

#[test]
fn every_rule_can_fail() {
    for rule in &RULES {
        for word in rule.words {
            let path = format!("{}x.rs", rule.within);
            let bad = Source {
                path,
                text: format!("fn f() {{ {word}; }}"),
            };
            assert_eq!(broken(rule, &bad).len(), 1, "{word} within {}", rule.within);
            let text = format!("// {word}\nfn f() {{ \"{word}\"; }}");
            let good = Source {
                path: bad.path.clone(),
                text,
            };
            assert!(
                broken(rule, &good).is_empty(),
                "a comment or a text is no arrow: {word}"
            );
            for place in rule.except {
                let path = format!("{place}x.rs");
                let good = Source {
                    path,
                    text: bad.text.clone(),
                };
                assert!(
                    broken(rule, &good).is_empty(),
                    "{word} may stand in {place}"
                );
            }
        }
    }
}

/// The rooms that the crate root lists are those that there are.
#[test]
fn the_list_of_rooms_is_complete() {
    let root = root().join(SERVER);
    let list = std::fs::read_to_string(root.join("lib.rs")).expect("the daemon has a root");
    let docs: Vec<&str> = list
        .lines()
        .filter(|line| line.starts_with("//! - [`"))
        .collect();
    let modules = list
        .lines()
        .filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
    for module in modules {
        let listed = docs
            .iter()
            .any(|line| line.starts_with(&format!("//! - [`{module}`]")));
        assert!(listed, "lib.rs does not say what `{module}` is");
    }
}
