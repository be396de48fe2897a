//! The Pod of a launch.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::RenderError;
use super::wrapper::{escape_dollars, wrap};
use crate::policy::{Admitted, AdmittedWorkdir};
use crate::types::{
    ANNOTATION_ATTEMPT, ANNOTATION_DISPATCH, ANNOTATION_MANIFEST, ANNOTATION_REQUESTED_BY, Attempt, DispatchId, InstanceName, KubeNamespace,
    LABEL_INSTALL, LABEL_KIND, LABEL_LAKESHORE, LABEL_NAMESPACE, LABEL_NODE, LABEL_PROVIDER, NodeName, Placement, hex, slug,
};

/// Longest manifest, in bytes of JSON.
///
/// **Source:** etcd takes requests up to 1.5 MiB (`--max-request-bytes`); a third is left for what the API server adds.
pub(super) const MAX_MANIFEST: usize = 1 << 20;
/// Where the workdir is mounted in the container.
const WORKDIR: &str = "/workdir";

/// Where a launch is made.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Where the daemon answers for it: a Pod of a node is pinned to it, one of the cluster is the scheduler's to place.
    pub placement: &'a Placement,
    /// The enrolment: value of the label `nymph.dev/install`.
    pub install: &'a str,
    /// Root of all workdirs on the node.
    pub workdir_root: &'a Path,
    /// The dispatch.
    pub dispatch_id: &'a DispatchId,
    /// Its attempt.
    pub attempt: Attempt,
    /// The name derived from both.
    pub instance: &'a InstanceName,
}

/// A manifest, ready to be sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Rendered {
    /// Kubernetes namespace.
    pub namespace: KubeNamespace,
    /// Name.
    pub name: InstanceName,
    /// The Pod. Never read through a typed struct, which would drop what it does not know of `resources`.
    pub manifest: Value,
    /// SHA-256 of the manifest without the annotation that carries this, in hex.
    pub digest: String,
    /// The folder that must exist before the Pod is created.
    pub workdir: Option<WorkdirPath>,
}

/// A workdir below the daemon's root: `<root>/<namespace>/<instance>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkdirPath {
    /// Kubernetes namespace.
    pub namespace: KubeNamespace,
    /// Instance.
    pub instance: InstanceName,
}

/// Renders a launch: one bare Pod (\[L\] S65, S76, S88, S89).
///
/// # Errors
/// [`RenderError`] when the script or the whole is too long, or the daemon's own root is not usable.
pub fn launch(admitted: &Admitted, place: &Place<'_>) -> Result<Rendered, RenderError> {
    let mut container = json!({
        "name": "user",
        "image": admitted.image().as_str(),
        "command": ["/bin/sh", "-c"],
        "args": [escape_dollars(&wrap(admitted.script(), admitted.args())?)],
        "env": env(admitted),
        "securityContext": {"allowPrivilegeEscalation": false},
    });
    let mut spec = json!({
        "restartPolicy": "Never",
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
    });
    if let Some(node) = place.placement.node() {
        set(&mut spec, "affinity", pinned_to(node));
    }
    if let Some(resources) = admitted.resources() {
        set(&mut container, "resources", Value::Object(resources.clone()));
    }
    let workdir = match admitted.workdir() {
        AdmittedWorkdir::None => None,
        AdmittedWorkdir::HostPath if place.placement.node().is_none() => return Err(RenderError::NoNode),
        AdmittedWorkdir::HostPath => {
            let path = host_path(place, admitted.namespace())?;
            // `Directory`, not `DirectoryOrCreate`: a folder that the daemon did not make is never mounted.
            set(&mut spec, "volumes", json!([{"name": "workdir", "hostPath": {"path": path, "type": "Directory"}}]));
            set(&mut container, "volumeMounts", json!([{"name": "workdir", "mountPath": WORKDIR}]));
            set(&mut container, "workingDir", json!(WORKDIR));
            Some(WorkdirPath { namespace: admitted.namespace().clone(), instance: place.instance.clone() })
        }
    };
    set(&mut spec, "containers", json!([container]));
    let mut annotations = annotations(admitted, place);
    let pod = |annotations: &BTreeMap<&str, String>| {
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": place.instance.as_str(),
                "namespace": admitted.namespace().as_str(),
                "labels": labels(admitted, place),
                "annotations": annotations,
            },
            "spec": spec,
        })
    };
    let digest = hex(&Sha256::digest(pod(&annotations).to_string()));
    annotations.insert(ANNOTATION_MANIFEST, digest.clone());
    let manifest = pod(&annotations);
    let length = manifest.to_string().len();
    if length > MAX_MANIFEST {
        return Err(RenderError::ManifestTooLong { length });
    }
    Ok(Rendered { namespace: admitted.namespace().clone(), name: place.instance.clone(), manifest, digest, workdir })
}

fn set(object: &mut Value, key: &str, value: Value) {
    if let Value::Object(map) = object {
        map.insert(key.to_owned(), value);
    }
}

/// Literal values. Python writes what it prints at once unless the caller says otherwise: else a log would come in blocks.
fn env(admitted: &Admitted) -> Vec<Value> {
    const UNBUFFERED: &str = "PYTHONUNBUFFERED";
    let own = (!admitted.env().iter().any(|(name, _)| name == UNBUFFERED)).then(|| json!({"name": UNBUFFERED, "value": "1"}));
    let asked = admitted.env().iter().map(|(name, value)| json!({"name": name, "value": escape_dollars(value)}));
    own.into_iter().chain(asked).collect()
}

/// Required affinity and never `nodeName`, which would skip the scheduler and its view of what is free. Terms are alternatives, so
/// the pin stands in every one of them; there is one.
fn pinned_to(node: &NodeName) -> Value {
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node.as_str()]}]},
    ]}}})
}

/// Ours are written last, so that none of the caller's could stand in their place.
fn labels(admitted: &Admitted, place: &Place<'_>) -> BTreeMap<String, String> {
    let ours = [
        (LABEL_LAKESHORE, "true".to_owned()),
        (LABEL_NAMESPACE, slug(admitted.caller_namespace().as_str())),
        (LABEL_PROVIDER, slug(admitted.provider().as_str())),
        (LABEL_NODE, place.placement.label()),
        (LABEL_KIND, "launch".to_owned()),
        (LABEL_INSTALL, place.install.to_owned()),
    ];
    let mut labels = admitted.labels().clone();
    labels.extend(ours.map(|(key, value)| (key.to_owned(), value)));
    labels
}

fn annotations(admitted: &Admitted, place: &Place<'_>) -> BTreeMap<&'static str, String> {
    BTreeMap::from([
        (ANNOTATION_DISPATCH, place.dispatch_id.to_string()),
        (ANNOTATION_ATTEMPT, place.attempt.to_string()),
        (ANNOTATION_REQUESTED_BY, format!("{}/{}", admitted.caller_namespace(), admitted.user())),
    ])
}

/// `<root>/<namespace>/<instance>`; both names are types that cannot climb, the root is checked here.
fn host_path(place: &Place<'_>, namespace: &KubeNamespace) -> Result<String, RenderError> {
    let root = place.workdir_root;
    let bad = || RenderError::Root { root: root.to_owned() };
    let plain = root.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    // The API server refuses a '..' anywhere and the kubelet takes the path as it stands.
    if !root.is_absolute() || !plain || root.parent().is_none() {
        return Err(bad());
    }
    root.join(namespace.as_str()).join(place.instance.as_str()).to_str().map(str::to_owned).ok_or_else(bad)
}
