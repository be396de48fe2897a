//! Results on stdout: a table to read, or JSON or YAML to work on, which hold all that the control plane said.

use std::io::Write as _;

use comfy_table::{ContentArrangement, Table, presets};
use serde_json::Value;

use super::failure::Failure;
use super::terminal::{note, one_line};
use super::yaml;

/// How results are written. (No docs on the variants: clap would spread them over eight lines of every command's help.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    Table,
    Json,
    Yaml,
}

/// A column of a table: its title, and the field whose value stands in it.
pub(super) type Column = (&'static str, &'static str);

/// Writes a list of objects. `none` is said on stderr when a table would be empty.
pub(super) fn list(format: Format, rows: &Value, columns: &[Column], none: &str) -> Result<(), Failure> {
    let items = rows.as_array().map(Vec::as_slice).unwrap_or_default();
    match format {
        Format::Table if items.is_empty() => note(none),
        Format::Table => write(&table(items, columns))?,
        Format::Json | Format::Yaml => write(&document(format, rows))?,
    }
    Ok(())
}

/// Writes one object with all its fields; where a table was asked for, as YAML.
pub(super) fn object(format: Format, value: &Value) -> Result<(), Failure> {
    write(&document(if format == Format::Table { Format::Yaml } else { format }, value))
}

/// Writes that something was done: a sentence, or the object for programs.
pub(super) fn done(format: Format, sentence: &str, value: &Value) -> Result<(), Failure> {
    match format {
        Format::Table => write(&format!("{sentence}\n")),
        Format::Json | Format::Yaml => write(&document(format, value)),
    }
}

/// Writes `text` to stdout as it is.
pub(super) fn write(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(Failure::Stdout)
}

fn document(format: Format, value: &Value) -> String {
    match format {
        Format::Yaml => yaml::to_string(value),
        Format::Json | Format::Table => format!("{value:#}\n"),
    }
}

fn table(items: &[Value], columns: &[Column]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(columns.iter().map(|(title, _)| *title));
    for item in items {
        table.add_row(columns.iter().map(|(_, field)| cell(item.get(*field).unwrap_or(&Value::Null))));
    }
    // Left-aligned cells are padded to their column: the last one's padding only breaks diffs.
    table.lines().fold(String::new(), |text, line| text + line.trim() + "\n")
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => one_line(text),
        Value::Array(items) if items.is_empty() => "-".to_owned(),
        Value::Array(items) if items.iter().all(Value::is_string) => {
            items.iter().filter_map(Value::as_str).map(one_line).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_table_shows_each_kind_of_value() {
        let rows = [
            json!({"node": "node-1", "connected": true, "epoch": 3, "namespaces": ["a", "b"], "message": "evil \u{1b}[2J\nline"}),
            json!({"node": "node-with-a-long-name", "connected": false, "epoch": null, "message": ""}),
        ];
        let columns = [("NODE", "node"), ("CONNECTED", "connected"), ("EPOCH", "epoch"), ("NAMESPACES", "namespaces"), ("MESSAGE", "message")];
        insta::assert_snapshot!(table(&rows, &columns), @r"
        NODE                   CONNECTED  EPOCH  NAMESPACES  MESSAGE
        node-1                 yes        3      a, b        evil ^[[2J line
        node-with-a-long-name  no         -      -           -
        ");
    }
}
