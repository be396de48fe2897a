//! A model of the API server: objects with UIDs and resource versions, their history, consistent reads, and what ever happened to them.
//!
//! It stands for the real one only where a fault must be scripted that the real one cannot be made to do on demand: a stale watch, a create whose
//! answer is lost and that takes effect a minute later. What the real one does is shown in ring `apiserver`.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use crate::types::{ANNOTATION_ATTEMPT, ANNOTATION_DISPATCH, LABEL_NODE, label_value};
use crate::watch::Binding;

/// A Pod and what the simulation knows of it beyond its object.
#[derive(Clone, Debug)]
pub(super) struct Object {
    pub(super) pod: Arc<Pod>,
    pub(super) uid: String,
}

/// One change.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) version: u64,
    pub(super) before: Option<Arc<Pod>>,
    pub(super) after: Option<Arc<Pod>>,
}

/// What ever was true of an object: the witness, independent of what anybody reports.
#[derive(Clone, Debug)]
pub(super) struct Witness {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) dispatch: String,
    pub(super) attempt: String,
    pub(super) image: String,
    pub(super) executed: u32,
    /// The container's exit code, once it has ended.
    pub(super) exited: Option<i32>,
    pub(super) deleted_by_other: bool,
    pub(super) removed: bool,
    /// The log as the container wrote it.
    pub(super) log: Vec<(Timestamp, String)>,
}

/// What became of a create.
pub(super) enum Created {
    Made(Arc<Pod>),
    Exists,
}

/// The server.
#[derive(Default)]
pub(super) struct Api {
    version: u64,
    objects: BTreeMap<(String, String), Object>,
    pub(super) history: Vec<Change>,
    pub(super) witnesses: BTreeMap<String, Witness>,
    uids: u64,
}

impl Api {
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<Arc<Pod>> {
        self.objects.get(&(namespace.to_owned(), name.to_owned())).map(|object| Arc::clone(&object.pod))
    }

    pub(super) fn by_uid(&self, uid: &str) -> Option<Arc<Pod>> {
        self.objects.values().find(|object| object.uid == uid).map(|object| Arc::clone(&object.pod))
    }

    pub(super) fn pods(&self) -> impl Iterator<Item = &Object> {
        self.objects.values()
    }

    fn put(&mut self, key: (String, String), value: &Value) -> Arc<Pod> {
        self.version += 1;
        let mut value = value.clone();
        value["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let pod: Arc<Pod> = Arc::new(serde_json::from_value(value).expect("a Pod"));
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let before = self.objects.insert(key, Object { pod: Arc::clone(&pod), uid }).map(|object| object.pod);
        self.history.push(Change { version: self.version, before, after: Some(Arc::clone(&pod)) });
        pod
    }

    pub(super) fn create(&mut self, namespace: &str, manifest: &Value, now: Timestamp) -> Created {
        let name = manifest["metadata"]["name"].as_str().expect("a name").to_owned();
        let key = (namespace.to_owned(), name.clone());
        if self.objects.contains_key(&key) {
            return Created::Exists;
        }
        self.uids += 1;
        let uid = format!("uid-{}", self.uids);
        let mut value = manifest.clone();
        value["metadata"]["uid"] = json!(uid);
        value["metadata"]["namespace"] = json!(namespace);
        value["metadata"]["creationTimestamp"] = json!(Time(now));
        value["status"] = json!({ "phase": "Pending" });
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let witness = Witness {
            name,
            namespace: namespace.to_owned(),
            dispatch: text(&value["metadata"]["annotations"][ANNOTATION_DISPATCH]),
            attempt: text(&value["metadata"]["annotations"][ANNOTATION_ATTEMPT]),
            image: text(&value["spec"]["containers"][0]["image"]),
            executed: 0,
            exited: None,
            deleted_by_other: false,
            removed: false,
            log: Vec::new(),
        };
        self.witnesses.insert(uid, witness);
        Created::Made(self.put(key, &value))
    }

    /// Changes an object as the kubelet or the scheduler does.
    pub(super) fn patch(&mut self, uid: &str, change: impl FnOnce(&mut Value)) {
        let Some((key, pod)) = self.objects.iter().find(|(_, object)| object.uid == uid).map(|(key, object)| (key.clone(), Arc::clone(&object.pod)))
        else {
            return;
        };
        let mut value = serde_json::to_value(&*pod).expect("a Pod");
        change(&mut value);
        self.put(key, &value);
    }

    /// A graceful deletion: one that no kubelet has yet is gone at once. False when no object of that name has that UID.
    pub(super) fn delete(&mut self, namespace: &str, name: &str, uid: &str, now: Timestamp) -> bool {
        let Some(pod) = self.get(namespace, name).filter(|pod| pod.metadata.uid.as_deref() == Some(uid)) else { return false };
        if node_of(&pod).is_none() {
            self.remove(uid);
        } else if pod.metadata.deletion_timestamp.is_none() {
            self.patch(uid, |value| {
                value["metadata"]["deletionTimestamp"] = json!(Time(now));
                value["metadata"]["deletionGracePeriodSeconds"] = json!(30);
            });
        }
        true
    }

    /// Takes the object away.
    pub(super) fn remove(&mut self, uid: &str) {
        let Some(key) = self.objects.iter().find(|(_, object)| object.uid == uid).map(|(key, _)| key.clone()) else { return };
        let Some(object) = self.objects.remove(&key) else { return };
        self.version += 1;
        if let Some(witness) = self.witnesses.get_mut(uid) {
            witness.removed = true;
        }
        self.history.push(Change { version: self.version, before: Some(object.pod), after: None });
    }

    /// What a watch shows at a version: those of a node's daemon, bound or not.
    pub(super) fn list(&self, node: &str, namespace: &str, binding: Binding, version: u64) -> Vec<Arc<Pod>> {
        let mut state: BTreeMap<String, Arc<Pod>> = BTreeMap::new();
        for change in self.history.iter().take_while(|change| change.version <= version) {
            match (&change.before, &change.after) {
                (_, Some(pod)) => drop(state.insert(name_of(pod), Arc::clone(pod))),
                (Some(pod), None) => drop(state.remove(&name_of(pod))),
                (None, None) => {}
            }
        }
        state.into_values().filter(|pod| matches(pod, node, namespace, binding)).collect()
    }
}

fn name_of(pod: &Pod) -> String {
    pod.metadata.name.clone().unwrap_or_default()
}

pub(super) fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

/// Whether a watch's selectors take the Pod.
pub(super) fn matches(pod: &Pod, node: &str, namespace: &str, binding: Binding) -> bool {
    let label = pod.metadata.labels.as_ref().and_then(|labels| labels.get(LABEL_NODE));
    let bound = match binding {
        Binding::Bound => node_of(pod) == Some(node),
        Binding::Unbound => node_of(pod).is_none(),
    };
    label.is_some_and(|value| *value == label_value(node)) && pod.metadata.namespace.as_deref() == Some(namespace) && bound
}

/// A deleted object as a watch shows it: its last state, with the deletion's version.
pub(super) fn at_version(pod: &Pod, version: u64) -> Pod {
    let mut pod = pod.clone();
    pod.metadata.resource_version = Some(version.to_string());
    pod
}
