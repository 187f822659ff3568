//! `sandboxd completions SHELL`: a script for the shell, on stdout.

use crate::arguments::{Cli, CompletionsArguments};
use crate::output;
use clap::CommandFactory as _;
use std::process::ExitCode;

/// Prints the completion script.
pub(crate) fn completions(arguments: &CompletionsArguments) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(
        arguments.shell,
        &mut Cli::command(),
        "sandboxd",
        &mut script,
    );
    output::say_raw(&script);
    ExitCode::SUCCESS
}
