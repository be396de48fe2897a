//! `lakeshore namespaces`: where providers, modes and instances live on the control plane.

use clap::Subcommand;
use serde_json::json;

use super::failure::Failure;
use super::output;
use super::session::Session;
use crate::types::ResourceName;

pub(super) const EXAMPLE: &str = "\
Examples:
  lakeshore namespaces create team-a
  lakeshore namespaces list";

/// What to do with namespaces.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List the namespaces that this token sees
    List,
    /// Create a namespace
    Create(CreateArgs),
}

/// A namespace to create.
#[derive(Debug, clap::Args)]
pub(super) struct CreateArgs {
    /// Name of the new namespace
    #[arg(value_name = "NAME")]
    name: ResourceName,
}

/// Carries out the command.
pub(super) async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    match command {
        Command::List => {
            let rows = session.client.get(&["v1", "namespaces"], &[]).await?;
            output::list(session.format, &rows, &[("NAME", "name")], "no namespaces")
        }
        Command::Create(args) => {
            let created = session.client.post(&["v1", "namespaces"], &json!({"name": args.name})).await?;
            output::done(session.format, &format!("created namespace {}", args.name), &created)
        }
    }
}
