//! Images on this host: from what an operator named to a root directory that is shared and never written.
//!
//! - [`unpack`]: a root filesystem in a tar file, unpacked once.

pub mod unpack;

use super::Source;
use crate::backends::{PrepareError, PreparedImage};
use std::path::Path;

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
    match source {
        Source::Host => Ok(PreparedImage::Host),
        Source::Directory(path) => {
            let path = path
                .canonicalize()
                .map_err(|error| missing(format!("{}: {error}", path.display())))?;
            looks_like_a_root(&path, label)?;
            Ok(PreparedImage::Rootfs {
                key: path.display().to_string(),
                path,
            })
        }
        Source::Tar(path) => {
            let (path, key) = unpack::unpacked(path, store).map_err(|error| match error {
                unpack::UnpackError::Open { .. } => missing(error.to_string()),
                other => PrepareError::Broken {
                    image: label.to_owned(),
                    cause: other.to_string(),
                },
            })?;
            looks_like_a_root(&path, label)?;
            Ok(PreparedImage::Rootfs { path, key })
        }
        Source::Image(name) => Err(missing(format!(
            "this backend pulls nothing yet; unpack {name} into a directory, or save it as a root filesystem tar, and name that"
        ))),
        Source::Recipe(_) => Err(missing(
            "this backend builds nothing yet; build the recipe elsewhere, and name its root filesystem as a directory or tar".to_owned(),
        )),
    }
}

/// A directory without programs is a mistake that is better told now than by every run.
fn looks_like_a_root(path: &Path, label: &str) -> Result<(), PrepareError> {
    let broken = |cause: &str| PrepareError::Broken {
        image: label.to_owned(),
        cause: format!("{}: {cause}", path.display()),
    };
    if path == Path::new("/") {
        return Err(broken("the host's own root is no image; use \"host\""));
    }
    if !path.is_dir() {
        return Err(broken("not a directory"));
    }
    let programs = ["bin", "usr", "sbin", "nix", "app"];
    if programs
        .iter()
        .all(|name| path.join(name).symlink_metadata().is_err())
    {
        return Err(broken(
            "it has neither bin nor usr, so it is no root filesystem",
        ));
    }
    Ok(())
}
