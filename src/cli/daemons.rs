//! `lakeshore daemons`: who has dialled in.

use serde_json::Value;

use super::failure::Failure;
use super::output::{self, Column, Format};
use super::session::Session;

pub(super) const EXAMPLE: &str = "\
Examples:
  lakeshore daemons
  lakeshore daemons -o json

IDENTITY is the ServiceAccount that a daemon proved to be. UNPROVEN means that only the enrolment
token says which daemon it is: its cluster's signing keys could not be read when it connected.";

const COLUMNS: [Column; 10] = [
    ("CLUSTER", "cluster"),
    ("NODE", "node"),
    ("ROLE", "role"),
    ("CONNECTED", "connected"),
    ("READY", "ready"),
    ("CORDONED", "unschedulable"),
    ("VERSION", "version"),
    ("POLICY", "policy"),
    ("IDENTITY", "identity"),
    ("LAST SEEN", "lastSeen"),
];
/// Digits of the policy's digest in the table: enough to see whether two daemons have the same one.
const POLICY_DIGITS: usize = 12;

/// Lists them.
pub(super) async fn run(session: &Session) -> Result<(), Failure> {
    let mut rows = session.client.get(&["v1", "daemons"], &[]).await?;
    if session.format == Format::Table {
        for row in rows.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            let digest: String = row.get("policyDigest").and_then(Value::as_str).unwrap_or_default().chars().take(POLICY_DIGITS).collect();
            row.insert("policy".to_owned(), digest.into());
        }
    }
    output::list(session.format, &rows, &COLUMNS, "no daemon has connected yet")
}
