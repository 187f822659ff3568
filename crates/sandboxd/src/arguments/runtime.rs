//! What may be said after `sandboxd runtime`.

use super::texts;
use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;

/// `sandboxd runtime`
#[derive(Debug, Args)]
pub(crate) struct RuntimeArguments {
    #[command(subcommand)]
    pub(crate) command: RuntimeCommand,

    /// Directory in which images are kept [default: the service's state directory]
    #[arg(long, global = true, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) state_dir: Option<PathBuf>,

    /// Configuration file (TOML) with the runtimes
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
}

/// What can be done with runtimes.
#[derive(Debug, Subcommand)]
pub(crate) enum RuntimeCommand {
    /// List the runtimes that the configuration allows, and whether their images are here
    #[command(after_long_help = texts::RUNTIME_LS_AFTER)]
    Ls {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Fetch or build the images of runtimes, so that nobody waits for them later: 0 where all are here, else 1
    #[command(after_long_help = texts::RUNTIME_PREPARE_AFTER)]
    Prepare {
        /// The runtimes; all of them where none is named
        #[arg(value_name = "NAME")]
        names: Vec<String>,
    },
    /// Print one runtime as JSON: what it is made from, its ceilings, and the steps of its build
    #[command(after_long_help = texts::RUNTIME_SHOW_AFTER)]
    Show {
        /// The runtime
        #[arg(value_name = "NAME")]
        name: String,
    },
}
