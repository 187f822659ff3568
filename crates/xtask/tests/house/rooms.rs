//! Which room may know which, by their sources. Between crates: `arrows.rs`.

use crate::source::{Source, code, column, mentions, root, sources};
use std::collections::BTreeSet;

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

const RULES: [Rule; 18] = [
    Rule {
        within: SERVER,
        words: &[
            "axum",
            "hyper",
            "hyper_util",
            "tower",
            "tower_http",
            "sandboxd_api",
        ],
        except: &["crates/sandboxd-server/src/api/"],
        because: "only api/ knows HTTP",
    },
    Rule {
        within: SERVER,
        words: &["serde_json"],
        except: &[
            "crates/sandboxd-server/src/api/",
            "crates/sandboxd-server/src/config/",
            "crates/sandboxd-server/src/runtimes/images/",
            "crates/sandboxd-server/src/runtimes/recipe/",
            "crates/sandboxd-server/src/backends/docker/",
        ],
        because: "only api/ speaks JSON, only config reads an allowlist written in it, images and recipes are described in it, and a container engine is told in it",
    },
    Rule {
        within: "crates/sandboxd-server/src/sessions/",
        words: &["crate::api", "crate::config::Config"],
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
        ],
        except: &[],
        because: "a backend makes boxes; who rents them is not its business",
    },
    Rule {
        within: "crates/sandboxd-server/src/backends/namespaces/",
        words: &["crate::workspaces"],
        except: &[],
        because: "a sandbox gets a directory; how stored files are walked is not its business",
    },
    Rule {
        within: SERVER,
        words: &["sandboxd_jail"],
        // A tree of files that untrusted hands may have made is removed in one way, which the launcher needs too.
        except: &[
            "crates/sandboxd-server/src/backends/",
            "crates/sandboxd-server/src/runtimes/images/locks.rs",
            "crates/sandboxd-server/src/workspaces/mod.rs",
        ],
        because: "only backends/ knows what a sandbox is made of",
    },
    Rule {
        within: SERVER,
        words: &[
            "backends::docker",
            "backends::namespaces",
            "backends::in_memory",
        ],
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
        within: "crates/sandboxd-server/src/backends/docker/container",
        words: &["tokio", "async", "await", "std::fs", "rustix", "Instant"],
        except: &[],
        because: "a container is described from its inputs alone",
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
    let places = RULES
        .iter()
        .flat_map(|rule| rule.except.iter().chain([&rule.within]));
    let gone: BTreeSet<_> = places
        .filter(|place| !files.iter().any(|file| file.path.starts_with(**place)))
        .collect();
    assert!(
        gone.is_empty(),
        "rules are about what is not there: {gone:?}"
    );
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
