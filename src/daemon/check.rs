//! Answers `check` and `lookup`: questions that need no state.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use tracing::warn;

use super::effects::{Hands, delete_object};
use crate::apply::{Access, ApiServer, DeleteOutcome};
use crate::audit::{Object, Subject};
use crate::error::Chain;
use crate::types::{ANNOTATION_ATTEMPT, ANNOTATION_DISPATCH, ANNOTATION_REQUESTED_BY, Attempt, InstanceName, KubeNamespace, LABEL_INSTALL};
use crate::wire::CheckItem;

fn item(name: String, outcome: Result<String, String>) -> CheckItem {
    let ok = outcome.is_ok();
    CheckItem { name, ok, message: outcome.unwrap_or_else(|message| message) }
}

/// All that the daemon needs in order to work, one row each. Creates nothing in the cluster.
pub(super) async fn run(hands: &Hands, namespaces: &[KubeNamespace], policy: &str) -> Vec<CheckItem> {
    let version = hands.api.version().await.map_err(|error| Chain(&error).to_string());
    let reachable = version.is_ok();
    let mut items = vec![item("API server".into(), version)];
    if reachable {
        for namespace in namespaces {
            // The namespace itself is not read, which would want a right of its own: a Role in it shows that it is there.
            // Only one of role `cluster` has no workdirs.
            let more = if hands.workdirs.is_none() { Access::OF_CLUSTER.as_slice() } else { &[] };
            for access in Access::NEEDED.into_iter().chain(more.iter().copied()) {
                let name = format!("{access} in {namespace}");
                items.push(item(name, right(&hands.api, namespace, access).await));
            }
        }
    }
    items.push(item("policy".into(), Ok(format!("sha256 {policy}"))));
    let Some(workdirs) = hands.workdirs.clone() else { return items };
    let writable = tokio::task::spawn_blocking(move || workdirs.writable()).await;
    let writable = match writable {
        Ok(Ok(())) => Ok("writable".to_owned()),
        Ok(Err(error)) => Err(Chain(&error).to_string()),
        Err(error) => Err(error.to_string()),
    };
    items.push(item("workdir root".into(), writable));
    items
}

async fn right(api: &ApiServer, namespace: &KubeNamespace, access: Access) -> Result<String, String> {
    match api.may(namespace, access).await {
        Ok(true) => Ok("allowed".to_owned()),
        Ok(false) => Err(format!(
            "not allowed: the daemon's ServiceAccount needs a Role in {namespace} with this verb (the chart makes it; does the namespace exist?)"
        )),
        Err(error) => Err(Chain(&error).to_string()),
    }
}

/// What `lookup` asks for.
pub(super) struct Wanted {
    pub(super) instance: InstanceName,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) install: String,
    pub(super) delete: bool,
}

/// Whether an object of that name is there and the caller's, or somebody else's. `None` when it is not known: no answer is better than a wrong one.
pub(super) async fn look_up(hands: &Hands, wanted: &Wanted, namespaces: &[KubeNamespace]) -> Option<(bool, bool)> {
    let (mut found, mut foreign) = (false, false);
    for namespace in namespaces {
        match hands.api.read_pod(namespace, &wanted.instance).await {
            Ok(None) => {}
            Ok(Some(pod)) if is_callers(&pod, wanted) => {
                found = true;
                if wanted.delete && !delete(hands, namespace, &pod, wanted).await {
                    return None;
                }
            }
            Ok(Some(_)) => foreign = true,
            Err(error) => {
                warn!(instance = %wanted.instance, ns = %namespace, error = %Chain(&error), "Cannot look an instance up");
                return None;
            }
        }
    }
    Some((found, foreign && !found))
}

/// Carries every label of the caller, and our enrolment's, without which nothing is deleted.
fn is_callers(pod: &Pod, wanted: &Wanted) -> bool {
    let Some(labels) = &pod.metadata.labels else { return false };
    labels.get(LABEL_INSTALL) == Some(&wanted.install) && wanted.labels.iter().all(|(key, value)| labels.get(key) == Some(value))
}

async fn delete(hands: &Hands, namespace: &KubeNamespace, pod: &Pod, wanted: &Wanted) -> bool {
    let annotation = |key: &str| pod.metadata.annotations.as_ref().and_then(|map| map.get(key));
    let dispatch = annotation(ANNOTATION_DISPATCH).and_then(|id| id.parse().ok());
    let attempt = annotation(ANNOTATION_ATTEMPT).and_then(|attempt| attempt.parse().ok()).map(Attempt);
    let (Some(dispatch), Some(attempt)) = (dispatch, attempt) else { return false };
    let subject = Subject { dispatch, attempt, requested_by: annotation(ANNOTATION_REQUESTED_BY).cloned().unwrap_or_default() };
    let object = Object { namespace: namespace.clone(), name: wanted.instance.clone(), uid: pod.metadata.uid.clone() };
    let outcome = delete_object(hands, subject, &object, "a caller asked for it", false).await;
    matches!(outcome, DeleteOutcome::Taken | DeleteOutcome::AlreadyGone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_the_callers_only_with_every_label_and_our_enrolment() {
        let pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": { "labels": { "nymph.dev/install": "one", "lakeshore": "true", "lakeshore.provider": "p" } }
        }))
        .expect("a Pod");
        let wanted = |install: &str, provider: &str| Wanted {
            instance: "lakeshore-01234567".parse().expect("a name"),
            labels: BTreeMap::from([("lakeshore".into(), "true".into()), ("lakeshore.provider".into(), provider.into())]),
            install: install.into(),
            delete: true,
        };
        assert!(is_callers(&pod, &wanted("one", "p")));
        assert!(!is_callers(&pod, &wanted("two", "p")), "another enrolment's");
        assert!(!is_callers(&pod, &wanted("one", "q")), "another provider's");
        assert!(!is_callers(&Pod::default(), &wanted("one", "p")));
    }
}
