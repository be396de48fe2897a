//! `lakeshore completion`: completion scripts for shells.

use clap_complete::Shell;

use super::failure::Failure;
use super::{args, output};

pub(super) const EXAMPLE: &str = "\
Examples:
  source <(lakeshore completion bash)
  lakeshore completion fish > ~/.config/fish/completions/lakeshore.fish";

/// For which shell.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Shell that will read the script
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

/// Writes the script to stdout.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut args::command(), "lakeshore", &mut script);
    output::write(&String::from_utf8_lossy(&script))
}
