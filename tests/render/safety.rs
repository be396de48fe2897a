//! What no dispatch can bring into a manifest, whatever it asks for.

use std::collections::BTreeMap;

use nymph::wire::{EnvVar, LaunchDispatch, Workdir};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::covers::covers;
use crate::story::{minimal, render};

/// All keys of all objects of `value` outside of what the caller fills in with keys of its own.
fn keys<'a>(value: &'a Value, path: &str, found: &mut Vec<(String, &'a Value)>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let path = format!("{path}.{key}");
                found.push((path.clone(), value));
                // Opaque to us: Kubernetes reads `resources` as quantities only, labels and annotations as texts.
                if !matches!(path.as_str(), ".spec.containers.resources" | ".metadata.labels" | ".metadata.annotations") {
                    keys(value, &path, found);
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| keys(value, path, found)),
        _ => {}
    }
}

/// Every path that a manifest may have. What is not here cannot be in a Pod of ours: privileged, hostNetwork, hostPID, hostIPC, nodeName,
/// serviceAccountName, capabilities, subPath, initContainers, secrets…
const ALLOWED: &[&str] = &[
    ".apiVersion",
    ".kind",
    ".metadata",
    ".metadata.name",
    ".metadata.namespace",
    ".metadata.labels",
    ".metadata.annotations",
    ".spec",
    ".spec.restartPolicy",
    ".spec.automountServiceAccountToken",
    ".spec.enableServiceLinks",
    ".spec.affinity",
    ".spec.affinity.nodeAffinity",
    ".spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution",
    ".spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms",
    ".spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms.matchFields",
    ".spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms.matchFields.key",
    ".spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms.matchFields.operator",
    ".spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms.matchFields.values",
    ".spec.containers",
    ".spec.containers.name",
    ".spec.containers.image",
    ".spec.containers.command",
    ".spec.containers.args",
    ".spec.containers.env",
    ".spec.containers.env.name",
    ".spec.containers.env.value",
    ".spec.containers.resources",
    ".spec.containers.securityContext",
    ".spec.containers.securityContext.allowPrivilegeEscalation",
    ".spec.containers.workingDir",
    ".spec.containers.volumeMounts",
    ".spec.containers.volumeMounts.name",
    ".spec.containers.volumeMounts.mountPath",
    ".spec.volumes",
    ".spec.volumes.name",
    ".spec.volumes.hostPath",
    ".spec.volumes.hostPath.path",
    ".spec.volumes.hostPath.type",
];

fn dispatches() -> impl Strategy<Value = LaunchDispatch> {
    let text = || "[^\\x00]{0,30}";
    let env = proptest::collection::btree_map("[!-<>-~]{1,12}", text(), 0..4)
        .prop_map(|env| env.into_iter().map(|(name, value)| EnvVar { name, value }).collect::<Vec<_>>());
    let label = "[a-z]([-a-z0-9]{0,8}[a-z0-9])?";
    let labels = proptest::collection::btree_map(label.prop_filter("reserved", |key| !key.starts_with("lakeshore")), "([a-z0-9]{1,9})?", 0..4);
    let hostile = json!({"limits": {"cpu": "1"}, "privileged": true, "hostNetwork": true, "securityContext": {"privileged": true}});
    let resources = prop_oneof![Just(None), Just(Some(json!({}))), Just(Some(hostile))];
    let workdir = prop_oneof![Just(Workdir::HostPath), Just(Workdir::None)];
    let namespace = prop_oneof![Just(None), Just(Some("extra".to_owned())), Just(Some("nymph-runs".to_owned()))];
    (namespace, "[a-z]{1,9}(/[a-z]{1,9})?(:[a-z0-9]{1,5})?", text(), proptest::collection::vec(text(), 0..3), env, resources, labels, workdir)
        .prop_map(|(namespace, image, script, args, env, resources, labels, workdir)| LaunchDispatch {
            namespace,
            image,
            script_base64: LaunchDispatch::encode_script(&script),
            args,
            env,
            resources,
            labels,
            workdir,
        })
}

proptest! {
    #[test]
    fn an_admitted_dispatch_never_renders_to_more_than_the_allowed_fields(launch in dispatches()) {
        let manifest = render(launch.clone()).expect("it fits").manifest;
        let mut found = Vec::new();
        keys(&manifest, "", &mut found);
        for (path, _) in &found {
            prop_assert!(ALLOWED.contains(&path.as_str()), "{path} in {manifest}");
        }
        let spec = &manifest["spec"];
        prop_assert_eq!(&spec["restartPolicy"], "Never");
        prop_assert_eq!(&spec["automountServiceAccountToken"], false);
        prop_assert_eq!(spec["containers"].as_array().map(Vec::len), Some(1));
        prop_assert_eq!(&spec["containers"][0]["name"], "user");
        prop_assert_eq!(&spec["containers"][0]["securityContext"], &json!({"allowPrivilegeEscalation": false}));

        // Pinned in every term: terms are alternatives, so one without the pin would set the Pod free.
        let terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"].as_array().expect("terms");
        prop_assert!(!terms.is_empty());
        let pin = json!({"key": "metadata.name", "operator": "In", "values": ["n1"]});
        for term in terms {
            prop_assert!(term["matchFields"].as_array().is_some_and(|fields| fields.contains(&pin)), "{term}");
        }

        let volumes = spec["volumes"].as_array().cloned().unwrap_or_default();
        prop_assert_eq!(volumes.len(), usize::from(launch.workdir == Workdir::HostPath));
        for volume in volumes {
            let path = volume["hostPath"]["path"].as_str().expect("a path");
            let below = path.strip_prefix("/var/lib/nymph/work/").expect("below the root");
            prop_assert!(below.split('/').count() == 2 && below.split('/').all(|part| !part.is_empty() && part != ".."), "{path}");
            prop_assert_eq!(&volume["hostPath"]["type"], "Directory");
        }

        let labels: BTreeMap<String, String> = serde_json::from_value(manifest["metadata"]["labels"].clone()).expect("texts");
        for (key, value) in [
            ("lakeshore", "true"),
            ("lakeshore.namespace", "default"),
            ("lakeshore.provider", "my-provider"),
            ("nymph.dev/node", "n1"),
            ("nymph.dev/kind", "launch"),
            ("nymph.dev/install", "c1-0a1b2c3d"),
        ] {
            prop_assert_eq!(labels.get(key).map(String::as_str), Some(value));
        }
        for (key, value) in &launch.labels {
            prop_assert_eq!(labels.get(key), Some(value));
        }
    }
}

#[test]
fn the_callers_resources_are_the_containers_and_nothing_else() {
    covers!("S70", "B137");
    let hostile = json!({"limits": {"cpu": "1"}, "hostNetwork": true});
    let manifest = render(LaunchDispatch { resources: Some(hostile.clone()), ..minimal() }).expect("it fits").manifest;
    assert_eq!(manifest["spec"]["containers"][0]["resources"], hostile, "an unknown key is left for the API server to refuse");
    assert_eq!(manifest["spec"].get("hostNetwork"), None);
}
