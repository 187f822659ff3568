//! The command `sandboxd`. This file is the table of contents; each command is a room.
//!
//! - [`arguments`]: what may be said on the command line, and the help texts.
//! - [`run`]: one program in a sandbox of this process's own, without a server.
//! - [`serve`]: the HTTP service.
//! - [`image`]: the images that sandboxes are made from.
//! - [`session`]: what sessions have on disk.
//! - [`runtime`]: what the configuration allows, made ready beforehand.
//! - [`doctor`]: what this host can do.
//! - [`healthcheck`]: whether the service lives.
//! - [`completions`]: for shells.
//! - [`sandbox`]: sandboxes of this process's own, for `run` and `doctor`.
//! - [`shown`]: what is told while an image is made ready.
//! - [`values`]: durations, sizes and names as people write them.
//! - [`output`]: the only room that prints.
//! - [`failure`]: one line and an exit code.
//! - [`limits`]: every number of the command.
//! - [`sys`]: the system calls that no safe wrapper has.

mod arguments;
mod completions;
mod doctor;
mod failure;
mod healthcheck;
mod image;
mod limits;
mod output;
mod run;
mod runtime;
mod sandbox;
mod serve;
mod session;
mod shown;
mod sys;
mod values;

use arguments::Command;
use std::process::ExitCode;

fn main() -> ExitCode {
    match arguments::parse(std::env::args_os()) {
        Ok(Command::Run(arguments)) => run::run(arguments),
        Ok(Command::Serve(arguments)) => serve::serve(&arguments),
        Ok(Command::Image(arguments)) => image::image(&arguments),
        Ok(Command::Session(arguments)) => session::session(&arguments),
        Ok(Command::Runtime(arguments)) => runtime::runtime(&arguments),
        Ok(Command::Doctor(arguments)) => doctor::doctor(&arguments),
        Ok(Command::Healthcheck(arguments)) => healthcheck::healthcheck(&arguments),
        Ok(Command::Completions(arguments)) => completions::completions(&arguments),
        Err(answer) => answer.give(),
    }
}
