//! The command line of `nymph`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use super::reload::read_policy;
use super::run;
use crate::config::{self, Config, DEFAULT_FILE, Flags};
use crate::error::Chain;
use crate::telemetry;

/// Exit code of a configuration error. **Source:** `design.md` section 8.
const EXIT_CONFIG: u8 = 2;
/// Threads of the runtime: the work is waiting, and the daemon is a guest on its node.
const WORKERS: usize = 2;

/// Starts what a remote control plane asks for, within the cluster owner's policy.
#[derive(Parser)]
#[command(name = "nymph", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the daemon for one node, or for the cluster
    ///
    /// It dials the control plane, judges each dispatch by the policy file, makes its Pod on this node, follows it and streams its log. It keeps
    /// no state of its own: after a restart it goes on from what the cluster holds. SIGTERM drains; instances run on.
    ///
    /// With --role cluster it works for no node: while it holds its Lease it makes what the scheduler is to place, and ends what was on nodes that
    /// are gone.
    ///
    /// Each setting has a key in the file, an environment variable and a flag; the flag wins, then the environment.
    ///
    /// For development: nymph daemon --kubeconfig ~/.kube/config --node-name NODE --control-plane-url ws://127.0.0.1:7420
    /// --token-file token --policy-file policy.yaml --workdir-root /tmp/work --log-format text
    Daemon(Box<DaemonArgs>),
    /// Work with the policy file
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Print the release
    Version,
}

#[derive(Args)]
struct DaemonArgs {
    /// Configuration file; /etc/nymph/nymph.yaml is used when it is there [env NYMPH_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the configuration as it would be used, and exit
    #[arg(long)]
    print_config: bool,
    #[command(flatten)]
    flags: Flags,
}

#[derive(Subcommand)]
enum PolicyCommand {
    /// Check a policy file and print what it allows
    Check {
        /// The file
        file: PathBuf,
    },
}

/// Parses the command line and does what it says.
pub fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Version => {
            println!("nymph {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Command::Policy(PolicyCommand::Check { file }) => check_policy(&file),
        Command::Daemon(args) => daemon(&args),
    }
}

fn check_policy(file: &Path) -> ExitCode {
    match read_policy(file, None) {
        Ok(policy) => {
            let names: Vec<&str> = policy.run_namespaces().iter().map(|namespace| namespace.as_str()).collect();
            println!("valid; run namespaces: {}; default: {}; sha256: {}", names.join(", "), policy.default_namespace(), policy.digest());
            ExitCode::SUCCESS
        }
        Err(error) => fail(&Chain(&error).to_string()),
    }
}

fn daemon(args: &DaemonArgs) -> ExitCode {
    let config = match read_config(args) {
        Ok(config) => config,
        Err(message) => return fail(&message),
    };
    if args.print_config {
        print!("{}", config.to_yaml());
        return ExitCode::SUCCESS;
    }
    if let Err(error) = telemetry::init(&config.live.log_filter, config.boot.log_format) {
        return fail(&Chain(&error).to_string());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build();
    let ran = match runtime {
        Ok(runtime) => runtime.block_on(run::run(config)),
        Err(error) => return fail(&format!("cannot start the runtime: {error}")),
    };
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&Chain(&error).to_string()),
    }
}

/// The configuration, or the message for a person, which names the file.
fn read_config(args: &DaemonArgs) -> Result<Config, String> {
    let env: BTreeMap<String, String> =
        std::env::vars_os().filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?))).collect();
    let named = args.config.clone().or_else(|| env.get("NYMPH_CONFIG").filter(|path| !path.is_empty()).map(PathBuf::from));
    let path = named.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_FILE));
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => Some(text),
        Err(error) if named.is_none() && error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(format!("cannot read the configuration file {}: {error}", path.display())),
    };
    config::resolve(text.as_deref(), &env, &args.flags).map_err(|error| {
        let place = if text.is_some() { format!("{}: ", path.display()) } else { String::new() };
        format!("{place}{}", Chain(&error))
    })
}

fn fail(message: &str) -> ExitCode {
    eprintln!("nymph: {message}");
    ExitCode::from(EXIT_CONFIG)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
