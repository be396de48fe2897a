//! `v1.schema.json`: what travels, for those who write the other end in another language. Generated here from the structs, committed beside them,
//! and compared; the shipped programs carry none of it.

use std::collections::BTreeSet;
use std::path::Path;

use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::{Dispatch, DispatchEnvelope, LogChunk, ToControlPlane, ToDaemon};

/// Set by `tests/run generate`: the file is written instead of compared.
const GENERATE: &str = "NYMPH_GENERATE";

fn generated() -> Value {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let roots = [
        ("daemon to control plane, text", generator.subschema_for::<ToControlPlane>()),
        ("control plane to daemon, text", generator.subschema_for::<ToDaemon>()),
        ("control plane to daemon, header of binary kind 1", generator.subschema_for::<DispatchEnvelope>()),
        ("control plane to daemon, payload of binary kind 1", generator.subschema_for::<Dispatch>()),
        ("daemon to control plane, header of binary kind 2", generator.subschema_for::<LogChunk>()),
    ];
    let any_of: Vec<Value> = roots
        .into_iter()
        .map(|(title, root)| {
            let mut root = root.to_value();
            root["title"] = title.into();
            root
        })
        .collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "nymph.v1",
        "description": "What travels between a daemon and the control plane. Generated from src/wire; `tests/run generate` writes it.",
        "anyOf": any_of,
        "$defs": generator.take_definitions(true),
    })
}

fn path() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/wire/v1.schema.json")
}

#[test]
fn the_committed_schema_is_what_the_structs_say() {
    let schema = serde_json::to_string_pretty(&generated()).expect("plain values") + "\n";
    if std::env::var_os(GENERATE).is_some() {
        std::fs::write(path(), &schema).expect("the checkout is writable");
    }
    let committed = std::fs::read_to_string(path()).unwrap_or_default();
    let differs = committed.lines().zip(schema.lines()).position(|(one, other)| one != other);
    assert!(
        committed == schema,
        "src/wire/v1.schema.json is not what the structs say (line {differs:?}): run `tests/run generate wire` and review the diff"
    );
}

/// Names of the definitions that `schema` leads to.
fn reached(schema: &Value, definitions: &Value, found: &mut BTreeSet<String>) {
    match schema {
        Value::Object(map) => {
            if let Some(name) = map.get("$ref").and_then(Value::as_str).and_then(|to| to.strip_prefix("#/$defs/"))
                && found.insert(name.to_owned())
            {
                reached(&definitions[name], definitions, found);
            }
            map.values().for_each(|value| reached(value, definitions, found));
        }
        Value::Array(list) => list.iter().for_each(|value| reached(value, definitions, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Whether each object in `schema` that names its fields refuses others (`Some(true)`), none does (`Some(false)`), or it names none.
fn closed(schema: &Value) -> Option<bool> {
    let own = schema.get("properties").map(|_| schema["additionalProperties"] == json!(false));
    let variants = ["oneOf", "anyOf"].into_iter().filter_map(|key| schema.get(key)?.as_array()).flatten().filter_map(closed);
    own.into_iter().chain(variants).reduce(|one, other| {
        assert_eq!(one, other, "{schema}");
        one
    })
}

#[test]
fn unknown_fields_are_refused_in_a_dispatch_and_nowhere_else() {
    let schema = generated();
    let (definitions, mut of_dispatch) = (&schema["$defs"], BTreeSet::from(["Dispatch".to_owned()]));
    reached(&definitions["Dispatch"], definitions, &mut of_dispatch);
    assert!(of_dispatch.contains("EnvVar") && !of_dispatch.contains("Hello"), "{of_dispatch:?}");
    for (name, definition) in definitions.as_object().expect("definitions by name") {
        // A placement is one of its kinds: a key beside it would be a second one.
        let expected = of_dispatch.contains(name) || name == "Placement";
        assert!(closed(definition).is_none_or(|closed| closed == expected), "{name}: {definition}");
    }
}
