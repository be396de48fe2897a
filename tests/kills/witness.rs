//! The API server's own audit log, as a witness of what was created.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::shell::run;

/// Annotation by which a Pod names its dispatch.
pub(crate) const DISPATCH: &str = "nymph.dev/dispatch-id";

/// Creates of Pods in the namespace that the API server answered with 201, by dispatch.
pub(crate) fn creates(namespace: &str) -> BTreeMap<String, usize> {
    let cluster = format!("{}/tests/cluster/cluster", env!("CARGO_MANIFEST_DIR"));
    let script = format!(r#"'{cluster}' logs audit | grep -F '"verb":"create"' | grep -F '"namespace":"{namespace}"'"#);
    let log = run("bash", &["-c", &script], None).text();
    let created = |event: &Value| {
        event["objectRef"]["resource"] == "pods" && event["objectRef"]["subresource"].is_null() && event["responseStatus"]["code"] == 201
    };
    let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).filter(created);
    counted(events.map(|event| event["requestObject"]["metadata"]["annotations"][DISPATCH].as_str().unwrap_or("no dispatch").to_owned()))
}

/// How often each occurs.
pub(crate) fn counted(all: impl Iterator<Item = String>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for one in all {
        *counts.entry(one).or_default() += 1;
    }
    counts
}
