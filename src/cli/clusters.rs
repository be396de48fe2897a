//! `lakeshore clusters`: what daemons dial in from.

use clap::Subcommand;
use serde_json::{Value, json};

use super::failure::Failure;
use super::new_token::Words;
use super::output::{self, Column, Format};
use super::session::Session;
use super::settings::parse_id;
use crate::control_plane::parse_duration;
use crate::types::{ResourceName, shell_word};

pub(super) const EXAMPLE: &str = "\
Examples:
  lakeshore clusters enroll my-cluster
  lakeshore clusters enroll my-cluster | kubectl -n nymph-system create secret generic \\
      nymph-token --from-file=token=/dev/stdin
  lakeshore clusters list
  lakeshore clusters rotate my-cluster --expires 365d     # a second token; put it into the Secret
  lakeshore clusters revoke my-cluster 5017cde40dc8b46d   # then end the first, by its id

A token is shown once. The daemon's chart takes the Secret's name as
controlPlane.tokenSecret.name.

The first daemon that connects with a proof of who it is records the cluster's signing keys; from
then on no daemon gets in without one, and a stolen enrolment token alone is worth nothing. Where
the cluster's keys were replaced while no daemon was connected, a new token (`rotate`) records them.";

/// What to do with clusters.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Enrol a cluster, and print the token that its daemons show
    Enroll(EnrollArgs),
    /// List the clusters that were enrolled, with their tokens
    List,
    /// Make a second enrolment token for a cluster, beside the one in use, and print it
    Rotate(EnrollArgs),
    /// Revoke an enrolment token: daemons that connected with it are put out at once
    Revoke(RevokeArgs),
}

/// A cluster to make a token for.
#[derive(Debug, clap::Args)]
pub(super) struct EnrollArgs {
    /// Name of the cluster
    #[arg(value_name = "NAME")]
    name: ResourceName,
    /// When the token shall expire, such as 30d or 12h; a daemon that dials after that is refused [default: never]
    #[arg(long, value_name = "TIME", value_parser = check_time)]
    expires: Option<String>,
}

/// A token to revoke.
#[derive(Debug, clap::Args)]
pub(super) struct RevokeArgs {
    /// Name of the cluster
    #[arg(value_name = "NAME")]
    name: ResourceName,
    /// Id of the token, as `clusters list` shows it
    #[arg(value_name = "TOKEN_ID", value_parser = parse_id)]
    id: String,
}

/// One row a token: what `list` shows as a table.
const COLUMNS: [Column; 8] = [
    ("NAME", "name"),
    ("INSTALL", "install"),
    ("DAEMONS", "daemons"),
    ("KEYS", "keys"),
    ("TOKEN", "id"),
    ("CREATED", "createdAt"),
    ("LAST USED", "lastUsedAt"),
    ("EXPIRES", "expiresAt"),
];

fn check_time(text: &str) -> Result<String, String> {
    match parse_duration(text) {
        Ok(time) if time.is_zero() => Err("a token that expires at once is of no use: write a longer time, such as 30d".to_owned()),
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Carries out the command.
pub(super) async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    match command {
        Command::Enroll(EnrollArgs { name, expires }) => {
            let shown = format!("enrolled cluster {name}; its token is shown only now");
            make(session, &["v1", "clusters"], &json!({"name": name, "expiresIn": expires}), words(&name, shown)).await
        }
        Command::Rotate(EnrollArgs { name, expires }) => {
            let then = "it is shown only now; when every daemon uses it, revoke the one before";
            let shown = format!("made a second token for cluster {name}: {then}");
            make(session, &["v1", "clusters", name.as_str(), "tokens"], &json!({"expiresIn": expires}), words(&name, shown)).await
        }
        Command::Revoke(RevokeArgs { name, id }) => {
            session.client.delete(&["v1", "clusters", name.as_str(), "tokens", &id]).await?;
            output::done(session.format, &format!("revoked token {id} of cluster {name}"), &json!({"name": name, "id": id}))
        }
        Command::List => {
            let clusters = session.client.get(&["v1", "clusters"], &[]).await?;
            let shown = if session.format == Format::Table { rows(&clusters) } else { clusters };
            output::list(session.format, &shown, &COLUMNS, "no clusters; `lakeshore clusters enroll NAME` adds one")
        }
    }
}

fn words(cluster: &ResourceName, shown: String) -> Words {
    Words { list: "lakeshore clusters list", revoke: format!("lakeshore clusters revoke {}", shell_word(cluster.as_str())), shown }
}

/// Makes a token and writes it.
async fn make(session: &Session, path: &[&str], body: &Value, words: Words) -> Result<(), Failure> {
    let made = session.client.post(path, body).await.map_err(|failure| words.unanswered(failure.in_words_of(&[("expiresIn", "--expires")])))?;
    let token = made.get("token").and_then(Value::as_str).ok_or_else(|| session.client.confused("an enrolment without a token"))?;
    words.show(session.format, &made, token)
}

/// A row for each token; one for a cluster that has none.
fn rows(clusters: &Value) -> Value {
    let row = |cluster: &Value, token: &Value| {
        let expired = token.get("expired") == Some(&Value::Bool(true));
        let expires = token.get("expiresAt").and_then(Value::as_str).map(|at| if expired { format!("{at} (EXPIRED)") } else { at.to_owned() });
        json!({
            "name": cluster.get("name"),
            "install": cluster.get("install"),
            "daemons": cluster.get("daemons"),
            "keys": if cluster.get("keys").is_some_and(Value::is_object) { "recorded" } else { "none: UNPROVEN" },
            "id": token.get("id"),
            "createdAt": token.get("createdAt"),
            "lastUsedAt": token.get("lastUsedAt"),
            "expiresAt": expires,
        })
    };
    let mut shown = Vec::new();
    for cluster in clusters.as_array().into_iter().flatten() {
        let tokens = cluster.get("tokens").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        shown.extend(tokens.iter().map(|token| row(cluster, token)));
        if tokens.is_empty() {
            shown.push(row(cluster, &Value::Null));
        }
    }
    shown.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_token_has_a_row_and_a_cluster_without_one_too() {
        let token = |id: &str, expired: bool| json!({"id": id, "createdAt": "c", "lastUsedAt": null, "expiresAt": "e", "expired": expired});
        let shown = rows(&json!([
            {"name": "a", "install": "a-0", "daemons": 2, "keys": {"issuer": "i"}, "tokens": [token("1", false), token("2", true)]},
            {"name": "b", "install": "b-0", "daemons": 0, "keys": null, "tokens": []},
        ]));
        let row = |index: usize, field: &str| shown[index][field].clone();
        assert_eq!((row(0, "id"), row(1, "id"), row(2, "id")), (json!("1"), json!("2"), Value::Null));
        assert_eq!((row(0, "expiresAt"), row(1, "expiresAt")), (json!("e"), json!("e (EXPIRED)")));
        assert_eq!((row(0, "keys"), row(2, "keys")), (json!("recorded"), json!("none: UNPROVEN")));
    }
}
