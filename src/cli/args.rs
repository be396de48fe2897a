//! The command line as a whole: its grammar, and which file carries out which command.

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use super::failure::Failure;
use super::output::Format;
use super::session::Session;
use super::settings::ConnectionArgs;
use super::{
    backup, clusters, completion, daemons, exit, instances, launch, logs, modes, namespaces, providers, serve, stop, terminal, tokens, version,
};
use crate::control_plane::ServeOptions;

const FIRST_STEPS: &str = "\
First steps:
  lakeshore serve                            # a control plane on this machine
  lakeshore tokens create --data ./lakeshore-data --name me --admin
  export LAKESHORE_TOKEN=lakeshore_…         # what that printed
  lakeshore clusters enroll my-cluster       # prints the token that the daemon's chart wants
  lakeshore providers add demo --launcher Kube -k dispatch=daemon -k cluster=my-cluster
  lakeshore providers test demo
  lakeshore modes add py --field provider=demo --field image=python:3.13
  lakeshore launch py hello.py               # runs it in the cluster and shows its output

Settings: a flag wins over the environment, which wins over ~/.config/lakeshore/config.yaml
(keys: server, token, token_file, namespace, ca_file; files by their absolute paths).

Exit codes: 0 done, 1 refused or a check failed, 2 wrong usage or value, 3 control plane not
reachable or faulty, 130 Ctrl-C. `launch` exits with the script's own code, and with 125 when
it has none to show.";

/// Start Python scripts in Kubernetes clusters, through daemons that dial a control plane.
#[derive(Debug, Parser)]
#[command(name = "lakeshore", version, after_help = FIRST_STEPS, arg_required_else_help = true, max_term_width = 110)]
pub(super) struct Cli {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// How results are written to stdout; json and yaml hold every field
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Table, value_name = "FORMAT", help_heading = "Global options")]
    output: Format,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the control plane
    #[command(after_help = serve::EXAMPLE)]
    Serve(Box<ServeOptions>),
    /// Run a script by a mode, show its output, and exit with its exit code
    #[command(after_help = launch::EXAMPLE)]
    Launch(launch::Args),
    /// List instances, newest first
    #[command(after_help = instances::EXAMPLE)]
    Instances(instances::Args),
    /// Show an instance's output
    #[command(after_help = logs::EXAMPLE)]
    Logs(logs::Args),
    /// Stop an instance and delete its Pod
    #[command(after_help = stop::EXAMPLE)]
    Stop(stop::Args),
    /// Providers: where launches run
    #[command(subcommand, after_help = providers::EXAMPLE)]
    Providers(providers::Command),
    /// Modes: named defaults for launches on a provider
    #[command(subcommand, after_help = modes::EXAMPLE)]
    Modes(modes::Command),
    /// Clusters: where daemons dial in from
    #[command(subcommand, after_help = clusters::EXAMPLE)]
    Clusters(clusters::Command),
    /// List daemons, connected or not
    #[command(after_help = daemons::EXAMPLE)]
    Daemons,
    /// Namespaces of the control plane
    #[command(subcommand, after_help = namespaces::EXAMPLE)]
    Namespaces(namespaces::Command),
    /// Tokens that callers show to the control plane
    #[command(subcommand, after_help = tokens::EXAMPLE)]
    Tokens(tokens::Command),
    /// Back up all that the control plane keeps, while it runs or not
    #[command(after_help = backup::EXAMPLE)]
    Backup(backup::Args),
    /// Show the version of this program and of the control plane
    Version,
    /// Write a completion script for a shell
    #[command(after_help = completion::EXAMPLE)]
    Completion(completion::Args),
}

/// Runs the program: reads the command line, does what it says, and answers with the exit code.
pub fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    let cli = match command().try_get_matches_from(&arguments).and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print(); // a closed stderr is no reason to change the exit code
            return ExitCode::from(exit::of_usage(&error, is_launch(&arguments)));
        }
    };
    let launching = matches!(cli.command, Command::Launch(_));
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(source) => return report(&Failure::Runtime { source }, launching),
    };
    let ended = runtime.block_on(run(cli));
    // A write to a pipe that nobody reads may hang in a helper thread: it must not keep the process.
    runtime.shutdown_background();
    ended.map_or_else(|failure| report(&failure, launching), ExitCode::from)
}

/// The grammar; also what completion is made from.
pub(super) fn command() -> clap::Command {
    Cli::command()
}

async fn run(cli: Cli) -> Result<u8, Failure> {
    let session = || Session::open(&cli.connection, cli.output);
    match cli.command {
        Command::Serve(options) => serve::run(*options).await?,
        Command::Backup(args) => backup::run(args, cli.output).await?,
        Command::Completion(args) => completion::run(&args)?,
        Command::Version => version::run(&cli.connection, cli.output).await?,
        Command::Launch(args) => return launch::run(args, &session()?).await,
        Command::Instances(args) => instances::run(&args, &session()?).await?,
        Command::Logs(args) => logs::run(&args, &session()?).await?,
        Command::Stop(args) => stop::run(&args, &session()?).await?,
        Command::Providers(command) => providers::run(command, &session()?).await?,
        Command::Modes(command) => modes::run(command, &session()?).await?,
        Command::Clusters(command) => clusters::run(command, &session()?).await?,
        Command::Daemons => daemons::run(&session()?).await?,
        Command::Namespaces(command) => namespaces::run(command, &session()?).await?,
        Command::Tokens(command) => tokens::run(command, &cli.connection, cli.output).await?,
    }
    Ok(0)
}

fn report(failure: &Failure, launching: bool) -> ExitCode {
    if let Some(text) = failure.report() {
        terminal::note(&text);
    }
    ExitCode::from(exit::code(failure, launching))
}

/// Whether a command line that could not be parsed was meant to launch: its exit code must not look like the script's.
fn is_launch(arguments: &[std::ffi::OsString]) -> bool {
    command().ignore_errors(true).try_get_matches_from(arguments).is_ok_and(|matches| matches.subcommand_name() == Some("launch"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn each_command_says_what_it_is_for() {
        fn check(command: &clap::Command, path: &str) {
            for sub in command.get_subcommands().filter(|c| c.get_name() != "help") {
                let path = format!("{path} {}", sub.get_name());
                assert!(sub.get_about().is_some(), "{path} has no about text");
                check(sub, &path);
            }
        }
        check(&command(), "lakeshore");
    }
}
