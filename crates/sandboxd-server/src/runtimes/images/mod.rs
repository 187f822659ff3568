//! Images on this host: from what an operator named to a root directory that is shared and never written.
//!
//! - [`unpack`]: a tar, unpacked into a directory of its own; with [`stream`] its bytes, [`entries`] what they say,
//!   [`place`] where they go.
//! - [`tars`]: a root filesystem in a tar file that the configuration names.
//! - [`build`]: what builds leave here, step by step.
//! - [`digest`]: what names content. [`locks`]: who may change the store.

mod build;
mod config;
pub mod digest;
mod entries;
mod error;
mod garbage;
mod import;
mod locks;
#[cfg(test)]
mod made;
mod manifest;
mod pack;
mod place;
mod progress;
mod pull;
pub mod reference;
mod registry;
mod shifted;
mod stack;
mod standing;
mod store;
mod stream;
mod tars;
mod unpack;

pub use build::{Building, Lineage};
pub use config::Outcome;
pub use error::ImageError;
pub use garbage::{LayerSummary, Removed, Summary};
pub use import::{Imported, import, import_stream};
pub use progress::{Audience, Event, Logged, Progress, Untold, Watcher};
pub use pull::pull;
pub(crate) use registry::{Credential, credential};
pub use registry::{Pull, Registries, Settings};
pub use standing::Standing;
pub use store::{Image, Images};
pub use stream::{Cancel, CancelOnDrop};
pub use unpack::UnpackError;

use super::Source;
use crate::backends::{PrepareError, PreparedImage};
use std::path::{Path, PathBuf};

/// Makes an image ready. `store` is where unpacked ones are kept. Blocks.
///
/// # Errors
///
/// Where it is not on this host, or useless.
pub fn prepare(source: &Source, label: &str, store: &Path) -> Result<PreparedImage, PrepareError> {
    let missing = |how: String| PrepareError::Missing {
        image: label.to_owned(),
        how,
    };
    let broken = |cause: String| PrepareError::Broken {
        image: label.to_owned(),
        cause,
    };
    match source {
        Source::Host => Ok(PreparedImage::Host),
        Source::Directory(path) => {
            let path = path
                .canonicalize()
                .map_err(|error| missing(format!("{}: {error}", path.display())))?;
            looks_like_a_root(std::slice::from_ref(&path)).map_err(broken)?;
            Ok(PreparedImage::Rootfs {
                key: path.display().to_string(),
                path,
            })
        }
        Source::Tar(path) => {
            let (path, key) = tars::unpacked(path, store, &stream::Cancel::default()).map_err(
                |error| match error {
                    tars::TarError::Open { .. } => missing(error.to_string()),
                    other => PrepareError::Broken {
                        image: label.to_owned(),
                        cause: other.to_string(),
                    },
                },
            )?;
            looks_like_a_root(std::slice::from_ref(&path)).map_err(broken)?;
            Ok(PreparedImage::Rootfs { path, key })
        }
        Source::Image(name) => Err(missing(format!(
            "it is kept by a name, and this backend knows none: sandboxd image pull {name}"
        ))),
        Source::Recipe(_) => Err(missing(
            "it has to be built, and this backend builds nothing".to_owned(),
        )),
    }
}

/// Layers (the topmost first) without programs are a mistake that is better told now than by every run.
fn looks_like_a_root(layers: &[PathBuf]) -> Result<(), String> {
    if layers == [Path::new("/")] {
        return Err("the host's own root is no image; use \"host\"".to_owned());
    }
    if let Some(missing) = layers.iter().find(|path| !path.is_dir()) {
        return Err(format!("{}: not a directory", missing.display()));
    }
    let programs = ["bin", "usr", "sbin", "nix", "app"];
    let mut all = layers
        .iter()
        .flat_map(|layer| programs.map(|name| layer.join(name)));
    match all.any(|path| path.symlink_metadata().is_ok()) {
        true => Ok(()),
        false => Err("it has neither bin nor usr, so it is no root filesystem".to_owned()),
    }
}
