//! `lakeshore clusters`: what daemons dial in from.

use clap::Subcommand;
use serde_json::{Value, json};

use super::failure::Failure;
use super::output::{self, Format};
use super::session::Session;
use super::terminal::note;
use crate::types::ResourceName;

pub(super) const EXAMPLE: &str = "\
Examples:
  lakeshore clusters enroll my-cluster
  lakeshore clusters enroll my-cluster | kubectl -n nymph-system create secret generic \\
      nymph-token --from-file=token=/dev/stdin
  lakeshore clusters list

The token is shown once. The daemon's chart takes the Secret's name as
controlPlane.tokenSecret.name.";

/// What to do with clusters.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Enrol a cluster, and print the token that its daemons show
    Enroll(EnrollArgs),
    /// List the clusters that were enrolled
    List,
}

/// A cluster to enrol.
#[derive(Debug, clap::Args)]
pub(super) struct EnrollArgs {
    /// Name of the cluster
    #[arg(value_name = "NAME")]
    name: ResourceName,
}

/// Carries out the command.
pub(super) async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    match command {
        Command::Enroll(args) => {
            let enrolled = session.client.post(&["v1", "clusters"], &json!({"name": args.name})).await?;
            let token = enrolled.get("token").and_then(Value::as_str).ok_or_else(|| session.client.confused("an enrolment without a token"))?;
            if session.format != Format::Table {
                return output::object(session.format, &enrolled);
            }
            output::write(&format!("{token}\n"))?;
            note(&format!("enrolled cluster {}; its token is shown only now", args.name));
            Ok(())
        }
        Command::List => {
            let rows = session.client.get(&["v1", "clusters"], &[]).await?;
            let columns = [("NAME", "name"), ("INSTALL", "install"), ("DAEMONS", "daemons"), ("CREATED", "createdAt")];
            output::list(session.format, &rows, &columns, "no clusters; `lakeshore clusters enroll NAME` adds one")
        }
    }
}
