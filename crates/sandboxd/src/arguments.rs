//! What may be said on the command line, and the help texts: one source for parsing, `--help` and completions.

mod image;
mod runtime;
mod session;
mod texts;

pub(crate) use image::{ImageArguments, ImageCommand};
pub(crate) use runtime::{RuntimeArguments, RuntimeCommand};
pub(crate) use session::{SessionArguments, SessionCommand};

use crate::failure::{Failure, OURS, USAGE};
use crate::output;
use crate::values::{self, Variable};
use clap::builder::{OsStringValueParser, TypedValueParser as _};
use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use sandboxd_server::backends::Ceiling;
use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Disposable sandboxes for AI agents
#[derive(Debug, Parser)]
#[command(
    name = "sandboxd",
    version,
    after_help = texts::AFTER,
    subcommand_required = true,
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run one program in a sandbox of its own, without a server
    #[command(long_about = texts::RUN, after_long_help = texts::RUN_AFTER,
              override_usage = "sandboxd run [OPTIONS] [--] PROGRAM [ARGS]...")]
    Run(Box<RunArguments>),
    /// Serve sandboxes over HTTP
    #[command(long_about = texts::SERVE, after_long_help = texts::SERVE_AFTER)]
    Serve(Box<ServeArguments>),
    /// Fetch, import, list and remove images
    #[command(long_about = texts::IMAGE, after_long_help = texts::IMAGE_AFTER,
              arg_required_else_help = true, subcommand_required = true)]
    Image(ImageArguments),
    /// List, measure and close sessions on this host, also without a running service
    #[command(long_about = texts::SESSION, after_long_help = texts::SESSION_AFTER,
              arg_required_else_help = true, subcommand_required = true)]
    Session(SessionArguments),
    /// List the runtimes that are allowed, and make their images ready
    #[command(long_about = texts::RUNTIME, after_long_help = texts::RUNTIME_AFTER,
              arg_required_else_help = true, subcommand_required = true)]
    Runtime(RuntimeArguments),
    /// Say what this host can do, what a missing thing costs, and how to get it
    #[command(long_about = texts::DOCTOR, after_long_help = texts::DOCTOR_AFTER)]
    Doctor(DoctorArguments),
    /// Ask the service on this host whether it lives: 0 is yes, 1 is no
    #[command(long_about = texts::HEALTHCHECK, after_long_help = texts::HEALTHCHECK_AFTER)]
    Healthcheck(HealthcheckArguments),
    /// Print a completion script for a shell
    #[command(after_long_help = texts::COMPLETIONS_AFTER)]
    Completions(CompletionsArguments),
}

/// `sandboxd run`
#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// What the sandbox is made from: a name from the configuration's list of runtimes
    ///
    /// Without a configuration there is `host`: the system files of this machine, read-only, without home
    /// directories, secrets or sockets. The default is the configuration's default runtime.
    #[arg(long, value_name = "NAME")]
    pub(crate) runtime: Option<String>,

    /// End the program and everything it started after this long, with exit code 124
    ///
    /// A number and a unit: 500ms, 30s, 2m, 1h. It counts from the program's start. Without it there is no deadline.
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) timeout: Option<Duration>,

    /// Set an environment variable for the program; may be given several times
    ///
    /// Nothing of the caller's own environment reaches the sandbox.
    #[arg(short = 'e', long = "env", value_name = "NAME=VALUE",
          value_parser = OsStringValueParser::new().try_map(|text| values::variable(&text)))]
    pub(crate) env: Vec<Variable>,

    /// Directory inside the sandbox in which the program starts
    ///
    /// A relative path is taken from the work directory, which is also the default.
    #[arg(short = 'w', long, value_name = "DIR")]
    pub(crate) workdir: Option<PathBuf>,

    /// Directory of this machine that becomes the work directory, and keeps what the program writes there
    ///
    /// Files made in it belong to the directory's owner. Without it the work directory starts empty and goes with the
    /// sandbox.
    #[arg(long, value_name = "HOSTDIR", value_hint = ValueHint::DirPath)]
    pub(crate) workspace: Option<PathBuf>,

    /// Most memory, swap included: 512m, 2g
    #[arg(long, value_name = "SIZE", value_parser = values::memory)]
    pub(crate) memory: Option<u64>,

    /// Most CPU time per second: 1 is one CPU, 0.5 is half of one
    #[arg(long, value_name = "N", value_parser = values::cpus)]
    pub(crate) cpus: Option<f64>,

    /// Most processes and threads at once
    #[arg(long, value_name = "N", value_parser = values::pids)]
    pub(crate) pids: Option<u64>,

    /// Most bytes that the program stores in its work directory and elsewhere: 512m, 2g
    ///
    /// A directory given with --workspace is counted only where this is given, with what is in it already.
    #[arg(long, value_name = "SIZE", value_parser = values::disk)]
    pub(crate) disk: Option<u64>,

    /// What the program may reach: `none`, its own loopback interface, or `bridge`, the public Internet
    ///
    /// With `bridge` private and link-local addresses and this host's own stay out of reach; the settings network_allow,
    /// network_deny and network_dns change that. The default is the configuration's.
    #[arg(long, value_enum, value_name = "NETWORK")]
    pub(crate) network: Option<NetworkArgument>,

    /// Go on although this host cannot enforce these ceilings, and do not mention them
    ///
    /// Names from: memory, cpus, cpu_shares, pids, disk, network, oci_runtime, uid_range, workspace_owner, landlock.
    #[arg(long, value_name = "CEILING,…", value_delimiter = ',', value_parser = values::ceiling)]
    pub(crate) allow_unenforced: Vec<Ceiling>,

    /// Print one JSON object at the end instead of the program's output
    #[arg(long)]
    pub(crate) json: bool,

    /// Directory for what is kept between runs: unpacked images [default: the service's state directory]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) state_dir: Option<PathBuf>,

    /// Configuration file (TOML) with runtimes and default ceilings
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,

    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true,
          value_hint = ValueHint::CommandWithArguments)]
    pub(crate) argv: Vec<OsString>,
}

/// What a sandbox may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum NetworkArgument {
    /// Nothing but its own loopback interface
    None,
    /// The public Internet, outbound
    Bridge,
}

/// `sandboxd serve`
#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// Address and port to listen on [default: 127.0.0.1:8080]
    ///
    /// Port 0 takes any free port. An address that is not loopback needs a configured token.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<SocketAddr>,

    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,

    /// Directory for what the service keeps: its token, images, layers
    ///
    /// One service at a time may use it.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) state_dir: Option<PathBuf>,

    /// Directory in which sessions' files are kept; without it they go with their sandbox
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) workspace_root: Option<PathBuf>,

    /// File that holds the service token
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) token_file: Option<PathBuf>,

    /// What makes sandboxes [default: namespaces]
    #[arg(long, value_name = "NAME")]
    pub(crate) backend: Option<String>,

    /// Any other setting by its name in the configuration file; may be given several times
    ///
    /// --print-config lists them with the values in force.
    #[arg(long, value_name = "NAME=VALUE", value_parser = values::setting)]
    pub(crate) set: Vec<(String, String)>,

    /// Serve although this host cannot enforce these ceilings
    ///
    /// Names from: memory, cpus, cpu_shares, pids, disk, network, oci_runtime, uid_range, workspace_owner, landlock.
    #[arg(long, value_name = "CEILING,…", value_delimiter = ',', value_parser = values::ceiling)]
    pub(crate) allow_unenforced: Vec<Ceiling>,

    /// Print the configuration in force, without secrets, and end
    #[arg(long, conflicts_with = "check")]
    pub(crate) print_config: bool,

    /// Check the configuration and this host, say what was found, and end: 0 is good, 1 is not
    #[arg(long)]
    pub(crate) check: bool,
}

/// `sandboxd doctor`
#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,

    /// Directory whose file system is looked at [default: the service's state directory]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) state_dir: Option<PathBuf>,

    /// One probe, in a process of its own that doctor starts: it enters namespaces that end with it
    #[arg(long, hide = true, value_name = "PROBE")]
    pub(crate) probe: Option<String>,
}

/// `sandboxd healthcheck`
#[derive(Debug, Args)]
pub(crate) struct HealthcheckArguments {
    /// Address and port to ask [default: where the configuration has the service listen]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<SocketAddr>,

    /// Configuration file (TOML) of the service
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
}

/// `sandboxd completions`
#[derive(Debug, Args)]
pub(crate) struct CompletionsArguments {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

/// What parsing gives instead of a command.
#[derive(Debug)]
pub(crate) enum Answer {
    /// `--help` or `--version`: text for stdout.
    Text(String),
    /// The whole help on stderr, for a command without words.
    Help(String),
    /// Wrong usage.
    Refusal(Failure),
}

impl Answer {
    /// Prints it, and gives the exit code.
    pub(crate) fn give(&self) -> ExitCode {
        match self {
            Self::Text(text) => {
                output::say_raw(text.as_bytes());
                ExitCode::SUCCESS
            }
            Self::Help(text) => {
                output::complain_raw(text);
                ExitCode::from(USAGE)
            }
            Self::Refusal(failure) => failure.tell(),
        }
    }
}

/// Reads the command line.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Command, Answer> {
    let words: Vec<OsString> = words.into_iter().collect();
    // Wrong usage of `run` is our own failure there, so that it cannot be taken for the program's exit code.
    let runs = words.get(1).is_some_and(|word| word == OsStr::new("run"));
    match Cli::try_parse_from(words) {
        Ok(cli) => Ok(cli.command),
        Err(error) => Err(answer(&error, runs)),
    }
}

/// What to print for what the parser said.
fn answer(error: &clap::Error, runs: bool) -> Answer {
    let text = error.render().to_string();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Answer::Text(text),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => Answer::Help(text),
        _ => Answer::Refusal(Failure::new(
            if runs { OURS } else { USAGE },
            one_line(
                &text,
                if runs {
                    "sandboxd run --help"
                } else {
                    "sandboxd --help"
                },
            ),
        )),
    }
}

/// The parser's paragraphs as one line: what is wrong, and its first tip.
fn one_line(text: &str, help: &str) -> String {
    let mut paragraphs = text
        .split("\n\n")
        .map(|paragraph| paragraph.split_whitespace().collect::<Vec<_>>().join(" "));
    let first = paragraphs.next().unwrap_or_default();
    let what = first.strip_prefix("error: ").unwrap_or(&first);
    let tip = paragraphs
        .find_map(|paragraph| paragraph.strip_prefix("tip: ").map(str::to_owned))
        .map(|tip| format!(" ({tip})"))
        .unwrap_or_default();
    format!("{what}{tip}; see {help}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_program_keeps_its_own_flags_with_and_without_dashes() {
        for line in [
            "sandboxd run --timeout 2s -- grep --json -e x",
            "sandboxd run --timeout 2s grep --json -e x",
        ] {
            let Ok(Command::Run(run)) = parse(words(line)) else {
                panic!("{line}")
            };
            assert_eq!(run.argv, words("grep --json -e x"));
            assert!(!run.json && run.env.is_empty());
        }
    }

    #[test]
    fn wrong_usage_is_one_line_and_a_code_of_its_own() {
        for (line, code, part) in [
            ("sandboxd run --timeout 5parsecs -- true", OURS, "--timeout"),
            ("sandboxd run --frob -- true", OURS, "--frob"),
            ("sandboxd run", OURS, "PROGRAM"),
            ("sandboxd run -e A -- true", OURS, "NAME=VALUE"),
            ("sandboxd run --network host -- true", OURS, "--network"),
            ("sandboxd serve --listen nowhere", USAGE, "--listen"),
            ("sandboxd frob", USAGE, "frob"),
        ] {
            let Err(Answer::Refusal(failure)) = parse(words(line)) else {
                panic!("{line}")
            };
            assert_eq!(failure.code, code, "{line}");
            assert!(failure.text.contains(part), "{line}: {}", failure.text);
            assert!(!failure.text.contains('\n'), "{line}: {}", failure.text);
        }
    }

    #[test]
    fn help_and_version_are_answers_and_no_failures() {
        for line in [
            "sandboxd --help",
            "sandboxd run --help",
            "sandboxd --version",
        ] {
            assert!(matches!(parse(words(line)), Err(Answer::Text(_))), "{line}");
        }
    }

    #[test]
    fn every_command_has_examples_in_its_help() {
        let cli = Cli::command();
        let below = ["image", "runtime", "session"]
            .map(|name| cli.find_subcommand(name).expect("it is there"));
        let below = below.into_iter().flat_map(clap::Command::get_subcommands);
        for command in cli.get_subcommands().chain(below) {
            let help = command
                .get_after_long_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            assert!(help.contains("Examples:"), "{}", command.get_name());
        }
    }
}
