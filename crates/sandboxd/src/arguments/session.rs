//! What may be said after `sandboxd session`.

use super::texts;
use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;

/// `sandboxd session`
#[derive(Debug, Args)]
pub(crate) struct SessionArguments {
    #[command(subcommand)]
    pub(crate) command: SessionCommand,

    /// Directory whose sessions are meant [default: the service's state directory]
    #[arg(long, global = true, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) state_dir: Option<PathBuf>,

    /// Directory in which sessions' files are kept [default: that of the service that last used the state directory]
    #[arg(long, global = true, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) workspace_root: Option<PathBuf>,

    /// Configuration file (TOML) of the service
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
}

/// What can be done with sessions.
#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// List the sessions on record, and the closed ones whose files are stored
    #[command(after_long_help = texts::SESSION_LS_AFTER)]
    Ls {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Say what sessions store on disk: files, write layers, images
    #[command(after_long_help = texts::SESSION_DU_AFTER)]
    Du {
        /// The sessions; all of them where none is named
        #[arg(value_name = "SESSION")]
        ids: Vec<String>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Close sessions, and with --purge delete their stored files
    #[command(after_long_help = texts::SESSION_RM_AFTER)]
    Rm {
        /// The sessions
        #[arg(value_name = "SESSION", required = true)]
        ids: Vec<String>,
        /// Delete the stored files too, also those of a session that is closed already
        #[arg(long)]
        purge: bool,
        /// Where the running service is asked [default: where it listens]
        #[arg(long, value_name = "URL", value_hint = ValueHint::Url)]
        url: Option<String>,
        /// File that holds the service token [default: the service's own]
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        token_file: Option<PathBuf>,
    },
}
