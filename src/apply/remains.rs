//! What is left of a node that is gone: objects of ours pinned to it. Metadata alone is read: a Pod may carry a script of a megabyte.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::core::{ObjectList, ObjectMeta, PartialObjectMeta, Request};
use serde::de::DeserializeOwned;

use super::call::{ApiServer, CallError};
use super::pod::unreadable;
use crate::types::{
    ANNOTATION_ATTEMPT, ANNOTATION_DISPATCH, ANNOTATION_REQUESTED_BY, Attempt, DispatchId, KubeNamespace, LABEL_INSTALL, LABEL_KIND, LABEL_NODE,
    NodeName, Placement,
};

/// Objects that one page of a list brings: the metadata of one is 2 to 4 KiB.
const PAGE: u32 = 250;
/// The taint by which a person says that a node is off. **Source:** Kubernetes' page "Node Shutdowns", section "Non-graceful node shutdown".
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// What is known of a node by its Node object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSight {
    /// Its UID.
    pub uid: String,
    /// When the object was made.
    pub created: Option<Timestamp>,
    /// It carries the taint that says that it is off.
    pub out_of_service: bool,
}

/// Kinds of objects that are removed with their node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A Pod.
    Pod,
    /// A Job.
    Job,
}

impl Kind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pod => "Pod",
            Self::Job => "Job",
        }
    }

    /// The path of its objects.
    pub(super) fn path(self, namespace: &KubeNamespace) -> String {
        match self {
            Self::Pod => format!("/api/v1/namespaces/{namespace}/pods"),
            Self::Job => format!("/apis/batch/v1/namespaces/{namespace}/jobs"),
        }
    }
}

/// One object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace.
    pub namespace: KubeNamespace,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// The dispatch and attempt that it was made for, and who asked, where it says so.
    pub made_for: Option<(DispatchId, Attempt, String)>,
}

impl ApiServer {
    /// A node as its Node object shows it now; `None` when there is none of this name.
    ///
    /// # Errors
    /// [`CallError`]; a Node that does not exist is not an error.
    pub async fn sight_of(&self, name: &NodeName) -> Result<Option<NodeSight>, CallError> {
        match self.node(name).await {
            Ok(node) => Ok(Some(sight(node))),
            Err(CallError::Refused { code: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What this enrolment has left in a namespace that is bound to the node, or waits to be bound to it. Read consistently.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn remains(&self, namespace: &KubeNamespace, node: &NodeName, install: &str) -> Result<Vec<Left>, CallError> {
        let of_node = format!("{LABEL_INSTALL}={install},{LABEL_NODE}={}", Placement::Node(node.clone()).label());
        let mut left = Vec::new();
        for bound in [format!("spec.nodeName={node}"), "spec.nodeName=".to_owned()] {
            let list = ListParams::default().labels(&of_node).fields(&bound);
            left.extend(self.list::<Pod>(Kind::Pod, namespace, list).await?);
        }
        let list = ListParams::default().labels(&format!("{of_node},{LABEL_KIND}=run"));
        left.extend(self.list::<Job>(Kind::Job, namespace, list).await?);
        Ok(left)
    }

    async fn list<K>(&self, kind: Kind, namespace: &KubeNamespace, params: ListParams) -> Result<Vec<Left>, CallError>
    where
        PartialObjectMeta<K>: DeserializeOwned + Clone,
    {
        let what = format!("list {}s in {namespace}", kind.name());
        let mut params = params.limit(PAGE);
        let mut left = Vec::new();
        loop {
            let request = Request::new(kind.path(namespace)).list_metadata(&params).map_err(|error| unreadable(&what, &error))?;
            let page: ObjectList<PartialObjectMeta<K>> = self.call(&what, &request).await?;
            left.extend(page.items.into_iter().filter_map(|object| one(kind, namespace, object.metadata)));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                None => return Ok(left),
                Some(token) => params = params.continue_token(&token),
            }
        }
    }
}

fn sight(node: Node) -> NodeSight {
    let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
    NodeSight {
        uid: node.metadata.uid.unwrap_or_default(),
        created: node.metadata.creation_timestamp.map(|time| time.0),
        out_of_service: taints.iter().any(|taint| taint.key == OUT_OF_SERVICE),
    }
}

fn one(kind: Kind, namespace: &KubeNamespace, meta: ObjectMeta) -> Option<Left> {
    let annotation = |key: &str| meta.annotations.as_ref().and_then(|map| map.get(key));
    let dispatch = annotation(ANNOTATION_DISPATCH).and_then(|id| id.parse().ok());
    let attempt = annotation(ANNOTATION_ATTEMPT).and_then(|attempt| attempt.parse().ok()).map(Attempt);
    let requested_by = annotation(ANNOTATION_REQUESTED_BY).cloned().unwrap_or_default();
    let made_for = dispatch.zip(attempt).map(|(dispatch, attempt)| (dispatch, attempt, requested_by));
    let created = meta.creation_timestamp.map(|time| time.0);
    Some(Left { kind, namespace: namespace.clone(), name: meta.name?, uid: meta.uid?, created, made_for })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_off_only_by_the_taint_that_a_person_puts_there() {
        let node = |key: &str| -> Node {
            serde_json::from_value(serde_json::json!({
                "metadata": { "uid": "u", "creationTimestamp": "2026-11-30T00:00:00Z" }, "spec": { "taints": [{ "key": key, "effect": "NoExecute" }] },
            }))
            .expect("a Node")
        };
        assert!(!sight(node("node.kubernetes.io/unreachable")).out_of_service, "it may come back with everything on it");
        let off = sight(node(OUT_OF_SERVICE));
        assert!(off.out_of_service && off.uid == "u" && off.created.is_some(), "{off:?}");
    }
}
