//! The project's own tasks.
//!
//! - `cargo xtask test`: everything, as continuous integration runs it; installs what the tests need.
//! - `cargo xtask check`: the quick part of it, before a commit; with `--fuzz` each fuzz target for a minute as well.
//! - `cargo xtask bench`: what things cost, beside what they cost elsewhere and what they cost at least.
//! - `cargo xtask engine`: runs a command beside a container engine with the images of the tests.
//! - `cargo xtask vm`: the tests of the walls on a Debian kernel with cgroups of the second version alone, in QEMU.
//! - `cargo xtask openapi`: writes `docs/openapi.json` anew.
//!
//! Rooms: [`steps`] is the list of what `test` does; [`report`] runs steps and counts; [`tools`] finds or installs;
//! [`engine`] starts a container engine; [`vm`] a machine of another kind; [`mod@bench`] measures; [`fuzz`] feeds the fuzz targets; [`openapi`] keeps the
//! API's document.

mod bench;
mod engine;
mod fuzz;
mod openapi;
mod report;
mod steps;
mod sys;
mod tools;
mod vm;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "The project's own tasks", version)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Runs all tests, installing what they need; or only the steps that are named.
    Test {
        /// Steps to run; none means all. `cargo xtask steps` lists them.
        steps: Vec<String>,
    },
    /// Runs the quick steps only: format, lints, house rules, unit tests without a release build.
    Check {
        /// Then feeds each fuzz target for a minute.
        #[arg(long)]
        fuzz: bool,
    },
    /// Measures what things cost, beside what they cost elsewhere and what they cost at least.
    Bench(bench::Arguments),
    /// Serves files to `bench`, until its input ends.
    #[command(hide = true)]
    ServeFiles {
        /// Where they are.
        folder: std::path::PathBuf,
    },
    /// Runs a command with `DOCKER_HOST` set to a container engine that has the images of the tests; starts one where none
    /// answers, and ends it with the command.
    Engine {
        /// The command and its arguments.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Boots a Debian kernel with cgroups of the second version alone in QEMU, and runs the tests of the walls there, as root
    /// and as an ordinary user with cgroups of their own.
    Vm {
        /// Words out of the lines `root escape here::layers::...`; none means all.
        words: Vec<String>,
        /// Use this host's processors, and do not emulate any.
        #[arg(long)]
        kvm: bool,
    },
    /// Writes `docs/openapi.json` anew, from what the service serves.
    Openapi,
    /// Lists the steps of `test`, and what each is about.
    Steps,
}

fn main() -> ExitCode {
    match Arguments::parse().task {
        Task::Test { steps } => steps::run(&steps),
        Task::Check { fuzz } => steps::check(fuzz),
        Task::Bench(arguments) => bench::bench(&arguments),
        Task::ServeFiles { folder } => bench::peers::static_files::serve(folder),
        Task::Engine { command } => engine::with(&command),
        Task::Vm { words, kvm } => match vm::machine(&words, kvm) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                report::say(&format!("FAILED: {error:#}"));
                ExitCode::FAILURE
            }
        },
        Task::Openapi => openapi::write(),
        Task::Steps => steps::list(),
    }
}
