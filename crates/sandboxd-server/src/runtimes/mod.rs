//! What the operator allows, under an alias, and where it comes from.
//!
//! - [`recipe`]: images that have to be built, as data, and the built-in ones by name.
//! - [`build`]: what an operator allows builds.
//! - [`catalogue`]: ready-made allowlists that an operator can select.
//! - [`images`]: images that are on this host.
//! - [`environment`]: the variables that every sandbox has.

pub mod build;
pub mod catalogue;
pub mod environment;
pub mod images;
pub mod recipe;

use crate::config::SizeTexts;
use recipe::Recipe;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// One entry of the allowlist.
#[derive(Debug, Clone, PartialEq)]
pub struct Runtime {
    /// The name that clients use.
    pub alias: String,
    /// What it is made from.
    pub source: Source,
    /// The image as the operator named it, or what a recipe amounts to; shown to clients, never a host path that the
    /// operator mapped to an image's name.
    pub label: String,
    /// Words for people.
    pub description: String,
    /// Its own ceilings; an absent one takes the service's.
    pub ceilings: Ceilings,
    /// The sizes among them as the operator wrote them.
    pub texts: SizeTexts,
    /// Environment on top of the built-in one.
    pub env: BTreeMap<String, String>,
    /// The uid that runs have inside; absent takes the service's.
    pub user: Option<u32>,
    /// How many of its sandboxes are kept ready; absent takes the service's number.
    pub pool: Option<u64>,
}

impl Runtime {
    /// A runtime with nothing of its own but its source.
    pub fn plain(alias: &str, label: &str, source: Source) -> Self {
        Self {
            alias: alias.to_owned(),
            description: label.to_owned(),
            label: label.to_owned(),
            source,
            ceilings: Ceilings::default(),
            texts: SizeTexts::default(),
            env: BTreeMap::new(),
            user: None,
            pool: None,
        }
    }
}

/// Where a runtime's root filesystem comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The host's own system files, read-only (`image = "host"`).
    Host,
    /// A root filesystem directory (`image = "/path"`).
    Directory(PathBuf),
    /// A root filesystem in a tar file (`image = "/path.tar"`), unpacked once.
    Tar(PathBuf),
    /// A ready-made OCI image by name.
    Image(String),
    /// An image that has to be built.
    Recipe(Recipe),
}

impl Source {
    /// What an `image` text means: `host`, an absolute path to a directory or a tar file, or an image's name. `images`
    /// gives names that the operator mapped to a path on this host.
    pub fn of_image(image: &str, images: &BTreeMap<String, PathBuf>) -> Self {
        if let Some(path) = images.get(image) {
            return Self::of_path(path);
        }
        match image {
            "host" => Self::Host,
            path if path.starts_with('/') => Self::of_path(Path::new(path)),
            name => Self::Image(name.to_owned()),
        }
    }

    /// Whether it has an account for the service's uid: made with the sandbox, or built in.
    pub const fn has_account(&self) -> bool {
        matches!(self, Self::Host | Self::Recipe(_))
    }

    fn of_path(path: &Path) -> Self {
        let name = path.as_os_str().as_encoded_bytes();
        if name.ends_with(b".tar") || name.ends_with(b".tar.gz") || name.ends_with(b".tgz") {
            Self::Tar(path.to_owned())
        } else {
            Self::Directory(path.to_owned())
        }
    }
}

/// The ceilings that a runtime or the service sets. `None` means nobody set it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ceilings {
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
    /// Bytes of memory and swap together.
    pub memory_swap_bytes: Option<u64>,
    /// CPUs.
    pub cpus: Option<f64>,
    /// CPU weight.
    pub cpu_shares: Option<u64>,
    /// Processes.
    pub pids: Option<u64>,
    /// Bytes that are stored.
    pub disk_bytes: Option<u64>,
    /// Files that are stored.
    pub disk_files: Option<u64>,
    /// `none`, `bridge`, …, as configured.
    pub network_mode: Option<String>,
    /// Docker's runtime name.
    pub oci_runtime: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_text_says_where_the_root_filesystem_is() {
        let images = BTreeMap::from([
            ("python:3.12-slim".to_owned(), PathBuf::from("/srv/py")),
            ("node:20".to_owned(), PathBuf::from("/srv/node.tar.gz")),
        ]);
        let of = |text| Source::of_image(text, &images);
        assert_eq!(of("host"), Source::Host);
        assert_eq!(of("/srv/x"), Source::Directory("/srv/x".into()));
        assert_eq!(of("/srv/x.tar"), Source::Tar("/srv/x.tar".into()));
        assert_eq!(of("python:3.12-slim"), Source::Directory("/srv/py".into()));
        assert_eq!(of("node:20"), Source::Tar("/srv/node.tar.gz".into()));
        assert_eq!(of("debian:12"), Source::Image("debian:12".to_owned()));
    }
}
