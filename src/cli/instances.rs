//! `lakeshore instances`: what was launched in this namespace, and how it stands.

use super::failure::Failure;
use super::instance::COLUMNS;
use super::output;
use super::session::Session;
use crate::types::ResourceName;

pub(super) const EXAMPLE: &str = "\
Examples:
  lakeshore instances
  lakeshore instances --provider demo -o json";

/// Which instances.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only those of this provider
    #[arg(long, value_name = "NAME")]
    provider: Option<ResourceName>,
}

/// Lists them.
pub(super) async fn run(args: &Args, session: &Session) -> Result<(), Failure> {
    match &args.provider {
        Some(provider) => of_provider(provider, session).await,
        None => list(&session.path(&["instances"]), session).await,
    }
}

/// Lists those of one provider.
pub(super) async fn of_provider(provider: &ResourceName, session: &Session) -> Result<(), Failure> {
    list(&session.path(&["providers", provider.as_str(), "instances"]), session).await
}

async fn list(path: &[&str], session: &Session) -> Result<(), Failure> {
    let rows = session.client.get(path, &[]).await?;
    output::list(session.format, &rows, &COLUMNS, "no instances")
}
