//! `lakeshore daemons`: who has dialled in.

use super::failure::Failure;
use super::output::{self, Column};
use super::session::Session;

pub(super) const EXAMPLE: &str = "\
Examples:
  lakeshore daemons
  lakeshore daemons -o json";

const COLUMNS: [Column; 9] = [
    ("CLUSTER", "cluster"),
    ("NODE", "node"),
    ("CONNECTED", "connected"),
    ("READY", "ready"),
    ("CORDONED", "unschedulable"),
    ("ROLE", "role"),
    ("VERSION", "version"),
    ("IDENTITY", "identity"),
    ("LAST SEEN", "lastSeen"),
];

/// Lists them.
pub(super) async fn run(session: &Session) -> Result<(), Failure> {
    let rows = session.client.get(&["v1", "daemons"], &[]).await?;
    output::list(session.format, &rows, &COLUMNS, "no daemon has connected yet")
}
