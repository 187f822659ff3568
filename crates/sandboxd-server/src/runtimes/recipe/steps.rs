//! A recipe's normal form: the base image, steps one after the other, and what the image that results says of itself. Pure,
//! so that every backend that builds carries out the same.
//!
//! Each step runs as root inside, in `/`, and is a layer. What somebody wrote reaches it as an argument and is never part
//! of a script; set-up commands are scripts, since that is what they are. Packages are installed where a work directory
//! that is mounted does not hide them.

use super::scripts::{ACCOUNT, APT, CARGO, GO, NPM, PIP};
use super::{PackageManager, Recipe, RecipeError};
use crate::runtimes::images::digest::Digest;
use serde::Serialize;
use std::collections::BTreeMap;

/// Where a backend that keeps package caches between builds mounts them, for a build only.
pub const CACHE_DIR: &str = "/var/cache/sandboxd";
/// Says to a step that they are mounted.
const CACHE_VARIABLE: &str = "SANDBOXD_BUILD_CACHE";
/// Changes where the same recipe has to give another image.
const FORMAT: u32 = 1;
/// The home directory of the account that is made.
const HOME: &str = "/home/agent";

/// Of every step, so that no installer asks, pages, colours or looks for its own next version.
const ALWAYS: &[(&str, &str)] = &[
    ("DEBIAN_FRONTEND", "noninteractive"),
    ("HOME", "/root"),
    ("LANG", "C.UTF-8"),
    ("NO_COLOR", "1"),
    // In an image there is nobody else's Python to protect.
    ("PIP_BREAK_SYSTEM_PACKAGES", "1"),
    ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
    ("PIP_NO_INPUT", "1"),
    ("PIP_PROGRESS_BAR", "off"),
    ("PIP_ROOT_USER_ACTION", "ignore"),
    ("UV_LINK_MODE", "copy"),
    ("npm_config_update_notifier", "false"),
];
/// Where installers keep what they fetched, below the directory of caches.
const CACHES: &[(&str, &str)] = &[
    ("GOCACHE", "go-build"),
    ("GOMODCACHE", "go-mod"),
    ("PIP_CACHE_DIR", "pip"),
    ("UV_CACHE_DIR", "uv"),
    ("npm_config_cache", "npm"),
];
/// Where no cache is mounted, what was fetched is not to become part of the image.
const UNCACHED: &[(&str, &str)] = &[
    ("GOCACHE", "/tmp/sandboxd-build/go-build"),
    ("GOMODCACHE", "/tmp/sandboxd-build/go-mod"),
    ("PIP_NO_CACHE_DIR", "1"),
    ("UV_NO_CACHE", "1"),
    ("npm_config_cache", "/tmp/sandboxd-build/npm"),
];

/// One step of a build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BuildStep {
    /// What it does, in a few words.
    pub label: String,
    /// For `/bin/sh`.
    pub script: String,
    /// What the script gets as `$1` and on.
    pub arguments: Vec<String>,
}

impl BuildStep {
    /// The program and its arguments.
    pub fn argv(&self) -> Vec<String> {
        let shell = ["/bin/sh", "-c", &self.script, "sh"].map(str::to_owned);
        let arguments = self.arguments.iter().cloned();
        shell.into_iter().chain(arguments).collect()
    }
}

/// How an image is built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildPlan {
    /// The recipe's name.
    pub name: String,
    /// What it starts from.
    pub base_image: String,
    /// What is done, in this order.
    pub steps: Vec<BuildStep>,
    /// Variables of the image that results, over those of its base.
    pub env: BTreeMap<String, String>,
    /// Directories before those in which the base looks for programs.
    pub path_first: Vec<String>,
    /// The uid and gid, as one number, of its programs; nothing where they are those of the base.
    pub user: Option<u32>,
}

impl Recipe {
    /// Its normal form.
    ///
    /// # Errors
    ///
    /// As [`Recipe::check`].
    pub fn plan(&self) -> Result<BuildPlan, RecipeError> {
        self.check()?;
        let mut plan = BuildPlan {
            name: self.name.clone(),
            base_image: self.base_image.clone(),
            steps: Vec::new(),
            env: BTreeMap::new(),
            path_first: Vec::new(),
            user: self.user,
        };
        let all = self.setup_commands.len();
        for (number, command) in (1..).zip(&self.setup_commands) {
            plan.step(format!("set-up command {number} of {all}"), command, &[]);
        }
        if !self.packages.is_empty() {
            plan.packages(self);
        }
        if let Some(uid) = self.user {
            let arguments = [uid.to_string(), HOME.to_owned()];
            plan.step(format!("the account of uid {uid}"), ACCOUNT, &arguments);
            plan.set("HOME", HOME);
            plan.set("UV_SYSTEM_PYTHON", "0");
            plan.set("VIRTUAL_ENV", "/opt/venv");
            plan.path_first.insert(0, "/opt/venv/bin".to_owned());
        }
        Ok(plan)
    }
}

impl BuildPlan {
    fn step(&mut self, label: String, script: &str, arguments: &[String]) {
        self.steps.push(BuildStep {
            label,
            script: script.to_owned(),
            arguments: arguments.to_vec(),
        });
    }

    fn set(&mut self, name: &str, value: &str) {
        self.env.insert(name.to_owned(), value.to_owned());
    }

    fn packages(&mut self, recipe: &Recipe) {
        let script = match recipe.package_manager {
            PackageManager::Pip => PIP,
            PackageManager::Npm => NPM,
            PackageManager::Apt => APT,
            PackageManager::Cargo => CARGO,
            PackageManager::Go => GO,
        };
        if recipe.package_manager == PackageManager::Npm {
            self.set("NODE_PATH", "/opt/node-packages/node_modules");
            let programs = "/opt/node-packages/node_modules/.bin";
            self.path_first.push(programs.to_owned());
        }
        let label = format!("{} packages", recipe.package_manager.name());
        self.step(label, script, &recipe.packages);
    }

    /// What names each state of the build on a base of this digest: before the first step, and after each. The last one
    /// also says what the image says of itself.
    pub fn keys(&self, base: &str) -> Vec<Digest> {
        let mut keys = vec![key(&(FORMAT, base))];
        for step in &self.steps {
            let before = keys.last().map(Digest::to_string);
            keys.push(key(&(before, &step.script, &step.arguments)));
        }
        if let Some(last) = keys.last_mut() {
            *last = key(&(
                "image",
                last.to_string(),
                &self.env,
                &self.path_first,
                self.user,
            ));
        }
        keys
    }

    /// What names the image on a base of this digest.
    pub fn key(&self, base: &str) -> Digest {
        self.keys(base).pop().unwrap_or_else(|| key(&base))
    }

    /// The environment of every step, over that of the base and below that of the operator; `cached` where [`CACHE_DIR`]
    /// is mounted.
    pub fn step_env(cached: bool) -> BTreeMap<String, String> {
        let owned = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        let mut env: BTreeMap<String, String> = ALWAYS.iter().map(owned).collect();
        if cached {
            let below = |&(name, place): &(&str, &str)| {
                let place = format!("{CACHE_DIR}/{place}");
                (name.to_owned(), place)
            };
            env.extend(CACHES.iter().map(below));
            env.insert(CACHE_VARIABLE.to_owned(), CACHE_DIR.to_owned());
        } else {
            env.extend(UNCACHED.iter().map(owned));
        }
        env
    }

    /// The variables of the image that results, over a base with these.
    pub fn image_env(&self, base: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let mut env = base.clone();
        env.extend(self.env.clone());
        if !self.path_first.is_empty() {
            let path = base
                .get("PATH")
                .map_or(crate::runtimes::environment::PATH, |path| path);
            let first = self.path_first.join(":");
            env.insert("PATH".to_owned(), format!("{first}:{path}"));
        }
        env
    }
}

fn key(of: &impl Serialize) -> Digest {
    // Of numbers, texts and lists of them: there is nothing in it that cannot be written.
    Digest::of(&serde_json::to_vec(of).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe() -> Recipe {
        Recipe {
            packages: vec!["a".to_owned(), "b>=1".to_owned()],
            setup_commands: vec!["one".to_owned(), "two && three".to_owned()],
            ..Recipe::of("x", "python:3.12-slim")
        }
    }

    #[test]
    fn steps_come_in_the_contracts_order() {
        let plan = Recipe {
            user: Some(1000),
            ..recipe()
        }
        .plan()
        .unwrap();
        let labels: Vec<&str> = plan.steps.iter().map(|step| step.label.as_str()).collect();
        assert_eq!(
            labels,
            [
                "set-up command 1 of 2",
                "set-up command 2 of 2",
                "pip packages",
                "the account of uid 1000"
            ]
        );
        assert_eq!(
            plan.steps[1].argv(),
            ["/bin/sh", "-c", "two && three", "sh"]
        );
        assert_eq!(plan.steps[2].arguments, ["a", "b>=1"]);
        let base = BTreeMap::from([("PATH".to_owned(), "/x/bin:/bin".to_owned())]);
        let env = plan.image_env(&base);
        assert_eq!(env["PATH"], "/opt/venv/bin:/x/bin:/bin");
        assert_eq!(env["HOME"], "/home/agent");
        assert_eq!(recipe().plan().unwrap().image_env(&base), base);
    }

    #[test]
    fn packages_of_node_lie_outside_any_work_directory() {
        let plan = Recipe {
            package_manager: PackageManager::Npm,
            ..recipe()
        }
        .plan()
        .unwrap();
        assert_eq!(plan.env["NODE_PATH"], "/opt/node-packages/node_modules");
        let env = plan.image_env(&BTreeMap::new());
        assert!(env["PATH"].starts_with("/opt/node-packages/node_modules/.bin:/usr/local/sbin:"));
    }

    #[test]
    fn a_key_changes_with_whatever_changes_the_image_and_with_nothing_else() {
        let key = |recipe: &Recipe, base: &str| recipe.plan().unwrap().key(base).to_string();
        let plain = key(&recipe(), "sha256:1");
        let words = Recipe {
            description: "other words".to_owned(),
            cache_image: false,
            name: "y".to_owned(),
            ..recipe()
        };
        assert_eq!(key(&words, "sha256:1"), plain);
        assert_ne!(key(&recipe(), "sha256:2"), plain);
        for other in [
            Recipe {
                user: Some(1),
                ..recipe()
            },
            Recipe {
                packages: vec!["a".to_owned()],
                ..recipe()
            },
            Recipe {
                package_manager: PackageManager::Npm,
                ..recipe()
            },
            Recipe {
                setup_commands: vec!["one".to_owned()],
                ..recipe()
            },
        ] {
            assert_ne!(key(&other, "sha256:1"), plain);
        }
        // What was done before a step that changed keeps its names.
        let changed = Recipe {
            packages: vec!["c".to_owned()],
            ..recipe()
        };
        let keys = |recipe: &Recipe| recipe.plan().unwrap().keys("sha256:1");
        let (old, new) = (keys(&recipe()), keys(&changed));
        assert_eq!(old[..3], new[..3]);
        assert_ne!(old[3], new[3]);
        assert_eq!(old.len(), 4);
    }
}
