//! `lakeshore modes`: named defaults for launches on a provider.

use clap::Subcommand;
use serde_json::{Map, Value, json};

use super::failure::Failure;
use super::fields;
use super::output::{self, Format};
use super::session::Session;
use crate::types::ResourceName;

pub(super) const EXAMPLE: &str = "\
Examples:
  lakeshore modes add py --field provider=demo --field image=python:3.13
  lakeshore modes add big --field provider=demo --field 'resources={\"limits\":{\"memory\":\"8Gi\"}}'
  lakeshore modes show big";

/// What to do with modes.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Add a mode
    #[command(after_help = EXAMPLE)]
    Add(AddArgs),
    /// List the modes of this namespace
    List,
    /// Show all of a mode
    Show(NameArgs),
    /// Remove a mode
    Remove(NameArgs),
}

/// A mode, by name.
#[derive(Debug, clap::Args)]
pub(super) struct NameArgs {
    /// Name of the mode
    #[arg(value_name = "NAME")]
    name: ResourceName,
}

/// A mode to add.
#[derive(Debug, clap::Args)]
pub(super) struct AddArgs {
    /// Name of the new mode
    #[arg(value_name = "NAME")]
    name: ResourceName,
    /// A default: provider (which every mode has), image, namespace (the Kubernetes one), workdir (host_path or none); env
    /// and resources as JSON objects. Repeatable
    #[arg(short, long = "field", value_name = "NAME=VALUE")]
    fields: Vec<String>,
    /// Replace a mode of that name
    #[arg(long)]
    force: bool,
}

/// Carries out the command.
pub(super) async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    let client = &session.client;
    match command {
        Command::Add(args) => {
            let body = body(&args)?;
            let added = session.add("modes", args.name.as_str(), &body, args.force).await?;
            output::done(session.format, &format!("added mode {}", args.name), &added)
        }
        Command::List => {
            let rows = client.get(&session.path(&["modes"]), &[]).await?;
            let flat = Value::from(rows.as_array().into_iter().flatten().map(flatten).collect::<Vec<_>>());
            let columns = [("NAME", "name"), ("PROVIDER", "provider"), ("IMAGE", "image")];
            output::list(session.format, if session.format == Format::Table { &flat } else { &rows }, &columns, "no modes")
        }
        Command::Show(args) => output::object(session.format, &client.get(&session.path(&["modes", args.name.as_str()]), &[]).await?),
        Command::Remove(args) => {
            client.delete(&session.path(&["modes", args.name.as_str()])).await?;
            output::done(session.format, &format!("removed mode {}", args.name), &json!({"name": args.name}))
        }
    }
}

/// The new mode as the control plane wants it: the provider beside the other fields.
fn body(args: &AddArgs) -> Result<Value, Failure> {
    let mut fields = fields::parse("--field", &args.fields)?;
    match fields.remove("provider") {
        Some(provider) if provider != "" => Ok(json!({"name": args.name, "provider": provider, "fields": fields})),
        _ => Err(Failure::usage(format!("mode {} names no provider: add --field provider=NAME", args.name))),
    }
}

/// A mode's own fields and its defaults side by side, for a table.
fn flatten(mode: &Value) -> Value {
    let mut flat: Map<String, Value> = mode.get("fields").and_then(Value::as_object).cloned().unwrap_or_default();
    flat.extend(mode.as_object().cloned().unwrap_or_default());
    Value::Object(flat)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body_of(fields: &[&str]) -> Result<Value, String> {
        let fields = fields.iter().map(|&field| field.to_owned()).collect();
        body(&AddArgs { name: "py".parse().expect("a name"), fields, force: false }).map_err(|e| e.to_string())
    }

    #[test]
    fn a_mode_names_its_provider() {
        let expected = json!({"name": "py", "provider": "demo", "fields": {"image": "123", "resources": {"limits": {}}}});
        assert_eq!(body_of(&["provider=demo", "image=123", r#"resources={"limits":{}}"#]), Ok(expected));
        for without in [&["image=x"][..], &["provider="]] {
            assert_eq!(body_of(without), Err("mode py names no provider: add --field provider=NAME".to_owned()));
        }
    }
}
