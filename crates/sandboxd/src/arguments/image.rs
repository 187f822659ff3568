//! What may be said after `sandboxd image`.

use super::texts;
use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;

/// `sandboxd image`
#[derive(Debug, Args)]
pub(crate) struct ImageArguments {
    #[command(subcommand)]
    pub(crate) command: ImageCommand,

    /// Directory whose images are meant [default: the service's state directory]
    #[arg(long, global = true, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) state_dir: Option<PathBuf>,

    /// Configuration file (TOML) with registries, mirrors and credentials
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
}

/// What can be done with images.
#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    /// List the images that are here
    #[command(after_long_help = texts::IMAGE_LS_AFTER)]
    Ls {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Fetch images from their registries, or what of them is not here
    #[command(after_long_help = texts::IMAGE_PULL_AFTER)]
    Pull {
        /// The images, such as python:3.12-slim or registry.example/team/app@sha256:…
        #[arg(value_name = "IMAGE", required = true)]
        names: Vec<String>,
    },
    /// Take images from a file or a directory: what `docker save` writes, an OCI layout, a root filesystem
    #[command(after_long_help = texts::IMAGE_IMPORT_AFTER)]
    Import {
        /// The archive (plain, gzip or zstd) or directory; - is standard input
        #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
        path: PathBuf,
        /// The image's name; needed for a root filesystem, which brings none
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// Remove names, and images that lost their last one
    #[command(after_long_help = texts::IMAGE_RM_AFTER)]
    Rm {
        /// The images, by name or by the beginning of their digest
        #[arg(value_name = "IMAGE", required = true)]
        names: Vec<String>,
    },
    /// Remove what nobody needs: images without a name, layers of no image, halves of downloads, package caches of no recipe
    #[command(after_long_help = texts::IMAGE_GC_AFTER)]
    Gc,
    /// Print one image as JSON: its digests, its layers and where they are, its configuration
    #[command(after_long_help = texts::IMAGE_INSPECT_AFTER)]
    Inspect {
        /// The image, by name or by the beginning of its digest
        #[arg(value_name = "IMAGE")]
        name: String,
    },
}
