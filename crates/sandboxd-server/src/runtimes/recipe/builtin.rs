//! The built-in recipes and images, by name.

use super::{PackageManager, Recipe};

/// What a built-in name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Builtin {
    /// A ready-made image.
    Image {
        /// Its name.
        image: &'static str,
        /// Words for people.
        description: &'static str,
    },
    /// An image to build.
    Recipe(Recipe),
}

const PYTHON: &str = "python:3.12-slim";
const NODE: &str = "node:20-slim";

/// The built-in of this name.
pub fn builtin(name: &str) -> Option<Builtin> {
    let image = |image, description| Some(Builtin::Image { image, description });
    match name {
        "python-minimal" => image(PYTHON, "Python 3.12, standard library only"),
        "node-minimal" => image(NODE, "Node.js 20, no extra packages"),
        "bun" => image("oven/bun:1-slim", "Bun, the JavaScript runtime"),
        "deno" => image("denoland/deno:alpine", "Deno, the TypeScript runtime"),
        "go" => image("golang:1.23-alpine", "Go 1.23"),
        "rust" => image("rust:1-slim", "Rust, stable"),
        _ => recipe(name).map(Builtin::Recipe),
    }
}

fn recipe(name: &str) -> Option<Recipe> {
    let (base, manager, description, packages): (&str, PackageManager, &str, &[&str]) = match name {
        "coding" => (
            PYTHON,
            PackageManager::Pip,
            "Python 3.12 with git, search tools and uv",
            &[],
        ),
        "polyglot" => (
            PYTHON,
            PackageManager::Pip,
            "Python 3.12 and Node.js with data and HTTP libraries",
            &["numpy", "duckdb", "polars", "httpx"],
        ),
        "python-datascience" => (
            PYTHON,
            PackageManager::Pip,
            "Python 3.12 for data science; pandas needs more than twice the size of a CSV in memory",
            &["pandas", "numpy", "matplotlib", "scikit-learn", "seaborn"],
        ),
        "python-analytics" => (
            PYTHON,
            PackageManager::Pip,
            "Python 3.12 for analytics over files; DuckDB and Polars' streaming engine need little more memory than a CSV has bytes",
            &["duckdb", "polars", "pyarrow"],
        ),
        "python-web" => (
            PYTHON,
            PackageManager::Pip,
            "Python 3.12 for web services",
            &["fastapi", "uvicorn", "sqlalchemy", "httpx"],
        ),
        "python-scraping" => (
            PYTHON,
            PackageManager::Pip,
            "Python 3.12 for reading web pages",
            &["httpx", "beautifulsoup4", "lxml", "markdownify"],
        ),
        "python-documents" => (
            PYTHON,
            PackageManager::Pip,
            "Python 3.12 for office documents",
            &["pypdf", "python-docx", "openpyxl", "pillow"],
        ),
        "node-typescript" => (
            NODE,
            PackageManager::Npm,
            "Node.js 20 with TypeScript",
            &["typescript", "tsx", "vitest"],
        ),
        "node-react" => (
            NODE,
            PackageManager::Npm,
            "Node.js 20 with React",
            &["typescript", "vite", "react", "react-dom", "@types/react"],
        ),
        _ => return None,
    };
    Some(Recipe {
        description: description.to_owned(),
        packages: packages.iter().map(|&package| package.to_owned()).collect(),
        package_manager: manager,
        setup_commands: setup_commands(name),
        ..Recipe::of(name, base)
    })
}

fn setup_commands(name: &str) -> Vec<String> {
    let commands: &[&str] = match name {
        "coding" => &[
            "apt-get update && apt-get install -y --no-install-recommends git curl ca-certificates ripgrep fd-find jq \
             less procps && ln -s \"$(command -v fdfind)\" /usr/local/bin/fd && rm -rf /var/lib/apt/lists/*",
            "curl -LsSf https://astral.sh/uv/install.sh | env UV_INSTALL_DIR=/usr/local/bin UV_NO_MODIFY_PATH=1 sh",
        ],
        "polyglot" => &[
            "apt-get update && apt-get install -y --no-install-recommends curl ca-certificates git nodejs npm \
             && rm -rf /var/lib/apt/lists/*",
            "npm install -g npm@10",
        ],
        _ => &[],
    };
    commands.iter().map(|&command| command.to_owned()).collect()
}

/// Every built-in name, in the catalogue's order.
pub const BUILTIN_NAMES: &[&str] = &[
    "coding",
    "polyglot",
    "python-datascience",
    "python-analytics",
    "python-web",
    "python-scraping",
    "python-documents",
    "node-typescript",
    "node-react",
    "python-minimal",
    "node-minimal",
    "bun",
    "deno",
    "go",
    "rust",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_name_stands_for_something_that_can_be_built() {
        for name in BUILTIN_NAMES {
            match builtin(name).expect(name) {
                Builtin::Recipe(recipe) => assert_eq!(recipe.check(), Ok(()), "{name}"),
                Builtin::Image { image, .. } => assert!(!image.is_empty()),
            }
        }
        assert_eq!(builtin("no-such"), None);
    }

    #[test]
    fn a_label_counts_packages() {
        let Some(Builtin::Recipe(coding)) = builtin("coding") else {
            panic!("coding is built");
        };
        assert_eq!(coding.label(), "python:3.12-slim + 0 packages");
        let Some(Builtin::Recipe(documents)) = builtin("python-documents") else {
            panic!("python-documents is built");
        };
        assert_eq!(documents.label(), "python:3.12-slim + 4 packages");
    }
}
