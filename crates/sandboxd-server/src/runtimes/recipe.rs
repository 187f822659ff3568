//! Images that have to be built: from what an operator wrote to the steps that make one.
//!
//! - [`Recipe`]: what is to be in an image, with the contract's fields (`RuntimeConfig`).
//! - [`rules`]: what no recipe may hold, so that a package's name is never read as something else.
//! - [`steps`]: a recipe's normal form, which every backend that builds carries out.
//! - [`scripts`]: what its steps run.
//! - [`mod@builtin`]: the recipes that there are by name.

mod builtin;
mod rules;
mod scripts;
mod steps;

pub use builtin::{BUILTIN_NAMES, Builtin, builtin};
pub use rules::{RecipeError, check_variable, check_work_dir};
pub use steps::{BuildPlan, BuildStep, CACHE_DIR};

use std::path::PathBuf;

/// How an image is made from another one. Field names and defaults are the contract's (`RuntimeConfig`), less
/// those that need no build: the work directory, which is the service's, and variables, which are the runtime's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    /// Its name.
    pub name: String,
    /// Words for people.
    pub description: String,
    /// What it starts from.
    pub base_image: String,
    /// What an operator says that this name stands for on this host, if they do. A build starts from images that are in
    /// layers, so this is refused, and not passed over.
    pub base_path: Option<PathBuf>,
    /// What is installed.
    pub packages: Vec<String>,
    /// By whom.
    pub package_manager: PackageManager,
    /// Shell commands, run first.
    pub setup_commands: Vec<String>,
    /// Whether an image that was built by an earlier start of the service will do.
    pub cache_image: bool,
    /// The uid that runs have in it, for whom an account is made; nothing where that is root.
    pub user: Option<u32>,
}

/// Who installs a recipe's packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PackageManager {
    /// Python's.
    #[default]
    Pip,
    /// Node's.
    Npm,
    /// Debian's.
    Apt,
    /// Rust's.
    Cargo,
    /// Go's.
    Go,
}

impl PackageManager {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Pip, Self::Npm, Self::Apt, Self::Cargo, Self::Go];

    /// Parses its name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|manager| manager.name() == text)
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pip => "pip",
            Self::Npm => "npm",
            Self::Apt => "apt",
            Self::Cargo => "cargo",
            Self::Go => "go",
        }
    }
}

impl Recipe {
    /// A recipe that only names its base.
    pub fn of(name: &str, base_image: &str) -> Self {
        Self {
            name: name.to_owned(),
            description: String::new(),
            base_image: base_image.to_owned(),
            base_path: None,
            packages: Vec::new(),
            package_manager: PackageManager::default(),
            setup_commands: Vec::new(),
            cache_image: true,
            user: None,
        }
    }

    /// What it amounts to, in a few words: the base image and how many packages come on top.
    pub fn label(&self) -> String {
        let count = self.packages.len();
        let plural = if count == 1 { "" } else { "s" };
        format!("{} + {count} package{plural}", self.base_image)
    }
}
