//! Why an image is not to be had.

use super::digest::Digest;
use super::reference::NotAName;
use super::unpack::UnpackError;
use std::io;
use std::path::PathBuf;

/// Why something about an image failed. The image's own name is said by whoever asked.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The name is none.
    #[error(transparent)]
    Name(#[from] NotAName),
    /// There is no such image here.
    #[error("there is no image {0} here; sandboxd image ls shows those that there are")]
    Unknown(String),
    /// What names content does not fit it.
    #[error("{what} has the digest {found}, and {wanted} was asked for")]
    Digest {
        /// What was looked at.
        what: String,
        /// The digest that it should have.
        wanted: Digest,
        /// The digest that it has.
        found: Digest,
    },
    /// A layer that is refused.
    #[error("layer {layer}: {cause}")]
    Layer {
        /// The first digits of its digest, or the file that it is in.
        layer: String,
        /// Why.
        cause: UnpackError,
    },
    /// What was found is no image, or none for this machine.
    #[error("{0}")]
    Useless(String),
    /// The registry, or the way to it.
    #[error("{0}")]
    Registry(String),
    /// Something holds on to it.
    #[error("{name} is in use: {by}")]
    InUse {
        /// The image.
        name: String,
        /// By what.
        by: String,
    },
    /// A file of the store, or one that is imported.
    #[error("{path}: {cause}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// Nobody waits for it any more.
    #[error("given up, since nobody waits for it any more")]
    Cancelled,
}

/// An error about a file.
pub(super) fn at(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> ImageError {
    let path = path.into();
    move |cause| ImageError::File { path, cause }
}
