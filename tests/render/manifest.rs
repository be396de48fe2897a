//! Whole manifests, one story each.

use std::collections::BTreeMap;
use std::path::Path;

use nymph::policy::RejectionCode;
use nymph::render::{RenderError, Rendered};
use nymph::types::Placement;
use nymph::wire::{EnvVar, LaunchDispatch, Workdir};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::covers::covers;
use crate::story::{admit, minimal, render, render_at, render_in};

fn env(name: &str, value: &str) -> EnvVar {
    EnvVar { name: name.into(), value: value.into() }
}

fn everything() -> LaunchDispatch {
    LaunchDispatch {
        namespace: Some("extra".into()),
        image: "python:3.12".into(),
        script_base64: LaunchDispatch::encode_script("import os\nprint(f\"{os.environ['GREETING']} $HOME\")"),
        args: vec!["--name".into(), "it's $5".into()],
        env: vec![env("GREETING", "costs $(PRICE)"), env("EMPTY", ""), env("with space", "x")],
        resources: Some(json!({"limits": {"memory": "64Mi", "nvidia.com/gpu": 1}, "requests": {"cpu": "100m"}, "unknown": true})),
        labels: BTreeMap::from([("team".into(), "blue".into()), ("example.com/tier".into(), String::new())]),
        workdir: Workdir::HostPath,
    }
}

#[test]
fn a_minimal_launch() {
    covers!("S65", "S76", "S88", "S89");
    insta::assert_yaml_snapshot!(render(minimal()).expect("it renders").manifest);
}

#[test]
fn a_launch_with_everything() {
    covers!("S68", "S70", "S71", "S90", "S118");
    insta::assert_yaml_snapshot!(render(everything()).expect("it renders").manifest);
}

#[test]
fn a_launch_on_a_node_with_a_long_name() {
    let node = format!("{0}.{0}.example", "node-with-a-very-long-name".repeat(2));
    let manifest = render_at(&admit(everything()), &node, Path::new("/data")).expect("it renders").manifest;
    insta::assert_yaml_snapshot!([&manifest["metadata"]["labels"], &manifest["spec"]["affinity"], &manifest["spec"]["volumes"]]);
}

#[test]
fn what_is_placed_cluster_is_the_schedulers_to_place_and_has_no_folder_of_a_node() {
    let root = Path::new("/var/lib/nymph/work");
    let manifest = render_in(&admit(minimal()), &Placement::Cluster, root).expect("it renders").manifest;
    assert_eq!(manifest["metadata"]["labels"]["nymph.dev/node"], "", "no node's daemon takes it for its own");
    assert!(manifest["spec"]["affinity"].is_null() && manifest["spec"]["nodeName"].is_null() && manifest["spec"]["volumes"].is_null(), "{manifest}");
    let error = render_in(&admit(everything()), &Placement::Cluster, root).expect_err("a workdir is a folder of a node");
    let rejection = error.rejection();
    assert_eq!((rejection.code, rejection.rule.as_str()), (RejectionCode::Invalid, "workdir"));
    assert!(rejection.message.contains("`workdir: none`"), "{}", rejection.message);
}

#[test]
fn what_is_rendered_beside_the_manifest_agrees_with_it() {
    let Rendered { namespace, name, manifest, workdir, .. } = render(everything()).expect("it renders");
    assert_eq!(manifest["metadata"]["namespace"], namespace.as_str());
    assert_eq!(manifest["metadata"]["name"], name.as_str());
    let workdir = workdir.expect("a workdir was asked for");
    assert_eq!(manifest["spec"]["volumes"][0]["hostPath"]["path"], format!("/var/lib/nymph/work/{}/{}", workdir.namespace, workdir.instance));
    assert_eq!(render(minimal()).expect("it renders").workdir, None);
}

#[test]
fn the_same_dispatch_renders_to_the_same_bytes() {
    let (one, other) = (render(everything()).expect("it renders"), render(everything()).expect("it renders"));
    assert_eq!(one.manifest.to_string(), other.manifest.to_string());
    assert_eq!(one.digest, other.digest);
}

#[test]
fn the_digest_is_of_the_manifest_without_its_own_annotation() {
    let Rendered { mut manifest, digest, .. } = render(everything()).expect("it renders");
    let annotations = manifest["metadata"]["annotations"].as_object_mut().expect("annotations");
    assert_eq!(annotations.remove("nymph.dev/manifest-sha256"), Some(json!(digest)));
    let expected: String = Sha256::digest(manifest.to_string()).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(digest, expected);
    assert_ne!(digest, render(minimal()).expect("it renders").digest);
}

#[test]
fn a_callers_own_word_on_buffering_is_kept() {
    let launch = LaunchDispatch { env: vec![env("PYTHONUNBUFFERED", "")], ..minimal() };
    let env = render(launch).expect("it renders").manifest["spec"]["containers"][0]["env"].clone();
    assert_eq!(env, json!([{"name": "PYTHONUNBUFFERED", "value": ""}]));
}

#[test]
fn a_root_that_could_climb_is_refused() {
    for root in ["relative", "/", "/a/../b", "", "/a/.."] {
        let error = render_at(&admit(everything()), "n1", Path::new(root)).expect_err(root);
        assert_eq!(error, RenderError::Root { root: root.into() });
        assert_eq!(error.rejection().code, RejectionCode::Unavailable);
    }
}

#[test]
fn a_manifest_that_no_store_takes_is_refused_with_its_size() {
    let env = (0..12).map(|n| env(&format!("BULK_{n}"), &"x".repeat(100_000))).collect();
    let error = render(LaunchDispatch { env, ..minimal() }).expect_err("1.2 MB of environment");
    assert!(matches!(error, RenderError::ManifestTooLong { length } if length > 1_200_000), "{error}");
    assert_eq!((error.rejection().code, error.rejection().rule.as_str()), (RejectionCode::Invalid, "env"));
    assert!(!error.to_string().contains("xxx"), "no value is repeated");
}
