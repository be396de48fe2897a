//! `lakeshore providers`: named targets of launches.

use clap::Subcommand;
use serde_json::{Map, Value, json};

use super::failure::Failure;
use super::output::{self, Format};
use super::session::Session;
use super::{fields, instances};
use crate::types::ResourceName;

pub(super) const EXAMPLE: &str = "\
Examples:
  lakeshore providers add demo --launcher Kube --kwarg dispatch=daemon --kwarg cluster=my-cluster
  lakeshore providers add demo --launcher Kube --kwarg dispatch=daemon --kwarg cluster=my-cluster \\
      --kwarg image=python:3.13 --kwarg 'env={\"REGION\":\"north\"}' --force
  lakeshore providers test demo";

/// What to do with providers.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Add a provider
    #[command(after_help = EXAMPLE)]
    Add(AddArgs),
    /// List the providers of this namespace
    List,
    /// Show all of a provider
    Show(NameArgs),
    /// Remove a provider
    Remove(NameArgs),
    /// Ask each daemon of the provider whether a launch could work; creates nothing
    ///
    /// The image is not judged: the cluster owner's policy does that at each launch. Exits with 1 when a check fails on some daemon, or
    /// no daemon is connected.
    Test(NameArgs),
    /// List the instances of a provider, newest first
    Instances(NameArgs),
}

/// A provider, by name.
#[derive(Debug, clap::Args)]
pub(super) struct NameArgs {
    /// Name of the provider
    #[arg(value_name = "NAME")]
    name: ResourceName,
}

/// A provider to add.
#[derive(Debug, clap::Args)]
pub(super) struct AddArgs {
    /// Name of the new provider
    #[arg(value_name = "NAME")]
    name: ResourceName,
    /// What kind of target it is: Kube
    #[arg(long, value_name = "LAUNCHER")]
    launcher: String,
    /// A setting: dispatch, cluster, image, namespace (the Kubernetes one), workdir (host_path or none); env and resources as JSON objects. Repeatable
    #[arg(short, long = "kwarg", value_name = "NAME=VALUE")]
    kwargs: Vec<String>,
    /// Replace a provider of that name
    #[arg(long)]
    force: bool,
}

/// Carries out the command.
pub(super) async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    let client = &session.client;
    match command {
        Command::Add(args) => {
            let kwargs = fields::parse("--kwarg", &args.kwargs)?;
            let body = json!({"name": args.name, "launcher": args.launcher, "kwargs": kwargs});
            let added = session.add("providers", args.name.as_str(), &body, args.force).await?;
            output::done(session.format, &format!("added provider {}", args.name), &added)
        }
        Command::List => {
            let rows = client.get(&session.path(&["providers"]), &[]).await?;
            let flat = Value::from(rows.as_array().into_iter().flatten().map(flatten).collect::<Vec<_>>());
            let columns = [("NAME", "name"), ("LAUNCHER", "launcher"), ("DISPATCH", "dispatch"), ("CLUSTER", "cluster"), ("IMAGE", "image")];
            output::list(session.format, if session.format == Format::Table { &flat } else { &rows }, &columns, "no providers")
        }
        Command::Show(args) => output::object(session.format, &client.get(&session.path(&["providers", args.name.as_str()]), &[]).await?),
        Command::Remove(args) => {
            client.delete(&session.path(&["providers", args.name.as_str()])).await?;
            output::done(session.format, &format!("removed provider {}", args.name), &json!({"name": args.name}))
        }
        Command::Test(args) => test(&args.name, session).await,
        Command::Instances(args) => instances::of_provider(&args.name, session).await,
    }
}

/// A provider's own fields and its kwargs side by side, for a table.
fn flatten(provider: &Value) -> Value {
    let mut flat: Map<String, Value> = provider.get("kwargs").and_then(Value::as_object).cloned().unwrap_or_default();
    flat.extend(provider.as_object().cloned().unwrap_or_default());
    Value::Object(flat)
}

async fn test(name: &ResourceName, session: &Session) -> Result<(), Failure> {
    let result = session.client.post(&session.path(&["providers", name.as_str(), "test"]), &json!({})).await?;
    let rows = Value::from(checks(&result));
    let columns = [("NODE", "node"), ("ROLE", "role"), ("CHECK", "check"), ("OK", "ok"), ("MESSAGE", "message")];
    match session.format {
        Format::Table if rows == json!([]) => {} // said below, with what to do
        Format::Table => output::list(session.format, &rows, &columns, "")?,
        Format::Json | Format::Yaml => output::object(session.format, &result)?,
    }
    let live = |daemon: &Value| daemon.get("connected").and_then(Value::as_bool).unwrap_or(false);
    let daemons = result.get("daemons").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    match result.get("ok").and_then(Value::as_bool) {
        _ if !daemons.iter().any(live) => Err(Failure::CheckFailed(format!(
            "provider {name}: no daemon of its cluster is connected; `lakeshore daemons` shows those that were, and each daemon's log says why it is not"
        ))),
        Some(true) => Ok(()),
        Some(false) => Err(Failure::CheckFailed(format!("provider {name}: a check failed"))),
        None => Err(session.client.confused("a test without a result")),
    }
}

/// One row a daemon and check; a daemon that could not be asked has one that says so.
fn checks(result: &Value) -> Vec<Value> {
    let mut rows = Vec::new();
    for daemon in result.get("daemons").and_then(Value::as_array).into_iter().flatten() {
        let node = daemon.get("node").cloned().unwrap_or_default();
        let role = daemon.get("role").cloned().unwrap_or_default();
        let connected = daemon.get("connected").and_then(Value::as_bool).unwrap_or(false);
        let items = daemon.get("items").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        if items.is_empty() {
            let message = if connected { "the daemon answered with no checks" } else { "the daemon is not connected" };
            rows.push(json!({"node": node, "role": role, "check": "connected", "ok": connected, "message": message}));
        }
        for item in items {
            rows.push(json!({"node": node, "role": role, "check": item.get("name"), "ok": item.get("ok"), "message": item.get("message")}));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_has_a_row_a_node_and_check() {
        let result = json!({"ok": false, "daemons": [
            {"node": "n1", "role": "node", "connected": true, "ok": true, "items": [{"name": "api", "ok": true, "message": ""}, {"name": "policy", "ok": true, "message": "sha256:1"}]},
            {"node": null, "role": "cluster", "connected": false, "ok": false, "items": []},
        ]});
        assert_eq!(
            Value::from(checks(&result)),
            json!([
                {"node": "n1", "role": "node", "check": "api", "ok": true, "message": ""},
                {"node": "n1", "role": "node", "check": "policy", "ok": true, "message": "sha256:1"},
                {"node": null, "role": "cluster", "check": "connected", "ok": false, "message": "the daemon is not connected"},
            ])
        );
    }

    #[test]
    fn a_kwarg_cannot_pose_as_the_providers_own_field() {
        let flat = flatten(&json!({"name": "real", "launcher": "Kube", "kwargs": {"name": "fake", "image": "x"}}));
        assert_eq!(flat.get("name"), Some(&json!("real")));
        assert_eq!(flat.get("image"), Some(&json!("x")));
    }
}
